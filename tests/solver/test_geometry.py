"""From a case's geometry to a space, on every rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mpi4py import MPI

import pytest

from meshes.simplicial import SimplicialMesh, write
from meshes.sphere import sphere
from solver.case import Case, CaseError
from solver.geometry import build_space
from solver.parallel import on_root

pytestmark = pytest.mark.ranks

MakeCase = Callable[..., Case]


def _case_with_file(make_case: MakeCase, path: Path, kappa: float = 3.0) -> Case:
    """The sphere case with geometry.file in place of h."""
    case = make_case("sphere", {"initial.kappa": kappa})
    return case.model_copy(update={"geometry": case.geometry.model_copy(update={"h": None, "file": path})})


def _write(comm: MPI.Comm, path: Path, drop: int = 0) -> None:
    def make() -> None:
        mesh = sphere(0.4)
        write(SimplicialMesh(mesh.points, mesh.cells[drop:]), path)

    on_root(comm, make)


@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_generated_mesh(manifold: str, make_case: MakeCase, comm: MPI.Comm) -> None:
    """Catches the wrong generator or an h that is not passed on."""
    space = build_space(make_case(manifold, {"geometry.h": 0.4}), comm)
    assert space.dimension == (2 if manifold == "circle" else 3)
    assert space.h == pytest.approx(0.4, rel=0.2)
    assert comm.allreduce(space.owned) == space.nodes


def test_mesh_from_a_file(make_case: MakeCase, comm: MPI.Comm, shared_path: Path) -> None:
    """Catches geometry.file ignored in favour of a default h."""
    path = shared_path / "ball.msh"
    _write(comm, path)
    space = build_space(_case_with_file(make_case, path), comm)
    count = on_root(comm, lambda: len(sphere(0.4).points))
    assert space.nodes == count


def test_unusable_file_is_a_case_error_on_every_rank(make_case: MakeCase, comm: MPI.Comm, shared_path: Path) -> None:
    """Catches a MeshError traceback, or ranks left waiting: bad input must be one line that names geometry.file."""
    path = shared_path / "open.msh"
    _write(comm, path, drop=1)
    with pytest.raises(CaseError, match=r"geometry\.file: .*boundary") as caught:
        build_space(_case_with_file(make_case, path), comm)
    assert len(caught.value.lines) == 1


def test_law_too_sharp_for_a_file_is_refused(make_case: MakeCase, comm: MPI.Comm, shared_path: Path) -> None:
    """Catches an initial density narrower than a mesh whose h is known only once it is read; the limit is named."""
    path = shared_path / "ball.msh"
    _write(comm, path)
    case = _case_with_file(make_case, path, kappa=8.0)
    space = build_space(_case_with_file(make_case, path, kappa=1 / 0.5**2), comm)
    assert 1 / space.h**2 < 8.0
    with pytest.raises(
        CaseError, match=rf"initial\.kappa: 8 is too sharp for ball\.msh.* at most {1 / space.h**2:.4g}"
    ):
        build_space(case, comm)
