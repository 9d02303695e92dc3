"""What ParaView will read: names, depths and values at every point, from any number of ranks."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

from mpi4py import MPI

import numpy as np
import pytest

from solver.fields import field_names, write_vtk, write_vtx
from solver.parallel import on_root
from solver.problem import Problem
from solver.results import frame_indices
from solver.space import Space

DEPTHS = (0.0, 0.25, 3.5)

_READ_BP = """
import json, sys, adios2, numpy
path, ranks, names = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
with adios2.FileReader(path) as file:
    def read(name, step):
        blocks = [file.read(name, step_selection=[step, 1], block_id=rank) for rank in range(ranks)]
        return numpy.concatenate([block.reshape(-1, block.shape[-1]) for block in blocks])
    steps = file.num_steps()
    result = {"names": sorted(file.available_variables()), "points": read("geometry", 0).tolist(), "values": {}}
    result["depths"] = [float(file.read("step", step_selection=[k, 1]).ravel()[0]) for k in range(steps)]
    for name in names:
        result["values"][name] = [read(name, k).ravel().tolist() for k in range(steps)]
print(json.dumps(result))
"""


def mu(x: np.ndarray, depth: float) -> np.ndarray:
    return 1.0 + x[:, 0] * depth + x[:, 1] ** 3


def phi(x: np.ndarray, depth: float) -> np.ndarray:
    return np.sin(3 * x[:, 1]) - depth


def frames(space: Space):  # type: ignore[no-untyped-def]
    for depth in DEPTHS:
        yield depth, {"mu": mu(space.x, depth), "phi": phi(space.x, depth)}


def test_frame_indices_cover_both_ends() -> None:
    """Would catch a movie without its first or last depth, or more frames than depths."""
    assert frame_indices(200, 81)[0] == 0
    assert frame_indices(200, 81)[-1] == 200
    assert len(frame_indices(200, 81)) == 81
    assert frame_indices(3, 81) == [0, 1, 2, 3]
    assert frame_indices(10, 2) == [0, 10]


def test_field_names() -> None:
    """Would catch names that differ from the documented ones."""
    assert field_names(1) == [("mu", "phi")]
    assert field_names(2) == [("mu_0", "phi_0"), ("mu_1", "phi_1")]


@pytest.mark.ranks
@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_vtk_reads_back(make_problem: Callable[..., Problem], shared_path: Path, manifold: str) -> None:
    """Would catch scrambled values (wrong node order), missing depths, and file names that depend on ranks."""
    space = make_problem(manifold).space
    write_vtk(space, shared_path / "density.pvd", frames(space))

    def read() -> None:
        import pyvista

        entries = list(ElementTree.parse(shared_path / "density.pvd").getroot().iter("DataSet"))
        assert [float(entry.get("timestep", "nan")) for entry in entries] == list(DEPTHS)
        names = [entry.get("file", "") for entry in entries]
        assert names == [f"density/density_{k:04d}.vtu" for k in range(3)]
        for depth, name in zip(DEPTHS, names, strict=True):
            grid = pyvista.read(shared_path / name)
            x = grid.points[:, : space.dimension]
            assert grid.n_points == space.nodes
            np.testing.assert_allclose(grid.point_data["mu"], mu(x, depth), atol=1e-14)
            np.testing.assert_allclose(grid.point_data["phi"], phi(x, depth), atol=1e-14)
            assert grid.n_cells == len(space.input_mesh.cells)

    on_root(space.comm, read)


@pytest.mark.ranks
@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_vtx_reads_back(make_problem: Callable[..., Problem], shared_path: Path, manifold: str) -> None:
    """Would catch ghosts written as owners, wrong depths, or names ParaView would not show."""
    space = make_problem(manifold).space
    path = shared_path / "density.bp"
    write_vtx(space, path, frames(space))

    def read() -> None:
        command = [sys.executable, "-c", _READ_BP, str(path), str(space.comm.size), "mu", "phi"]
        run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        found = json.loads(run.stdout)
        assert {"mu", "phi"} <= set(found["names"])
        assert found["depths"] == list(DEPTHS)
        x = np.array(found["points"])[:, : space.dimension]
        for k, depth in enumerate(DEPTHS):
            np.testing.assert_allclose(found["values"]["mu"][k], mu(x, depth), atol=1e-14)
            np.testing.assert_allclose(found["values"]["phi"][k], phi(x, depth), atol=1e-14)
        distinct = np.unique(np.round(x, 12), axis=0)
        assert len(distinct) == space.nodes

    on_root(MPI.COMM_WORLD, read)
