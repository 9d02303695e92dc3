"""Densities and adjoints along depth as files for ParaView: density.bp (VTX) and density.pvd (VTK)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from dolfinx import fem, io

from solver.parallel import on_root
from solver.results import write_collection
from solver.space import Space
from solver.types import FloatArray

__all__ = ["WRITERS", "field_names"]

Frame = tuple[float, dict[str, FloatArray]]
"""Depth, and nodal values (local nodes) by field name."""


def field_names(labels: int) -> list[tuple[str, str]]:
    """Names of density and adjoint for every label: mu, phi; with labels mu_0, phi_0, …."""
    return [("mu", "phi")] if labels == 1 else [(f"mu_{label}", f"phi_{label}") for label in range(labels)]


def write_vtx(space: Space, path: Path, frames: Iterator[Frame]) -> None:
    """One ADIOS2 folder for all depths and fields (ParaView ≥ 5.12). Collective."""
    functions: dict[str, fem.Function] = {}
    writer = None
    try:
        for depth, values in frames:
            if writer is None:
                for name in values:
                    functions[name] = fem.Function(space.V, name=name)
                policy = io.VTXMeshPolicy.reuse
                writer = io.VTXWriter(space.comm, path, list(functions.values()), engine="BP4", mesh_policy=policy)
            for name, array in values.items():
                functions[name].x.array[:] = array
            writer.write(depth)
    finally:
        if writer is not None:
            writer.close()


def write_vtk(space: Space, path: Path, frames: Iterator[Frame]) -> None:
    """A .pvd that lists one .vtu per depth with all fields (any ParaView from 5.11). Collective.

    Rank 0 writes, in the order of the mesh as it was built: the files do not depend on the number of ranks.
    """
    folder = path.with_suffix("")
    entries = []
    for number, (depth, values) in enumerate(frames):
        name = f"{folder.name}/{folder.name}_{number:04d}.vtu"
        entries.append((depth, name))
        gathered = space.gather(np.stack(list(values.values())))
        on_root(space.comm, _vtu_writer(space, path.parent / name, list(values), gathered))
    on_root(space.comm, lambda: write_collection(path, entries))


def _vtu_writer(space: Space, path: Path, names: list[str], values: FloatArray | None) -> Callable[[], None]:
    def write() -> None:
        import pyvista

        mesh = space.input_mesh
        if mesh is None or values is None:
            raise RuntimeError("the mesh is kept on rank 0 only")
        path.parent.mkdir(exist_ok=True)
        points = np.zeros((len(mesh.points), 3))
        points[:, : space.dimension] = mesh.points
        kind = pyvista.CellType.LINE if space.dimension == 2 else pyvista.CellType.TRIANGLE
        grid = pyvista.UnstructuredGrid({kind: mesh.cells}, points)
        for name, array in zip(names, values, strict=True):
            grid.point_data[name] = array
        grid.save(path)
        if path.stat().st_size == 0:  # VTK reports a full disk on the screen only
            raise OSError(f"{path} is empty: no space left on the device?")

    return write


WRITERS: dict[str, tuple[str, Callable[[Space, Path, Iterator[Frame]], None]]] = {
    "vtx": ("density.bp", write_vtx),
    "vtk": ("density.pvd", write_vtk),
}
