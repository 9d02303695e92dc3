"""The space of a case: its mesh, built or read on rank 0, checked, and distributed."""

from __future__ import annotations

from mpi4py import MPI

from meshes.build import GENERATORS
from meshes.simplicial import MeshError, SimplicialMesh, read
from solver.case.checks import largest_kappa
from solver.case.load import CaseError
from solver.case.schema import Case
from solver.log import LOG
from solver.parallel import on_root
from solver.space import Space, create_space

__all__ = ["build_space", "continuation_cases"]


def build_space(case: Case, comm: MPI.Comm) -> Space:
    """Mesh and P1 space of a case's geometry. Collective.

    Raises:
        CaseError: The mesh file cannot be used, or its edges are too long for the initial law.
    """
    mesh = on_root(comm, lambda: _mesh(case), share=False)
    space = create_space(comm, mesh, case.dimension)
    limit = largest_kappa(space.h)
    key, kappa = case.sharpest_kappa
    if case.geometry.file is not None and kappa > limit:
        raise CaseError(
            [
                f"{key}: {kappa:g} is too sharp for {case.geometry.file.name}, "
                f"whose edges measure {space.h:.3g}: at most {limit:.4g}"
            ]
        )
    return space


def continuation_cases(case: Case) -> list[Case]:
    """The case on each mesh to be solved before its own, coarsest first: none for `method = "none"`.

    Fixed steps of `gradient` are all taken on the finest mesh: one step from W = 0 is to be one step.
    """
    if case.optimizer.method == "none" or case.optimizer.step != "armijo":
        return []
    finest = case.geometry.h or 0.0
    coarser = [h for h in case.geometry.continuation if h > finest]
    for h in case.geometry.continuation[len(coarser) :]:
        LOG.info("continuation mesh h = %g left out: not coarser than geometry.h = %g", h, finest)
    geometries = [case.geometry.model_copy(update={"h": h, "file": None, "continuation": ()}) for h in coarser]
    return [case.model_copy(update={"geometry": geometry}) for geometry in geometries]


def _mesh(case: Case) -> SimplicialMesh:
    geometry = case.geometry
    if geometry.file is None:
        return GENERATORS[geometry.manifold](geometry.h or 0.0)
    try:
        return read(geometry.file, case.dimension)
    except MeshError as error:
        raise CaseError([f"geometry.file: {error}"]) from None
