"""The P1 space: distribution, masses, edges, and what ranks exchange."""

from __future__ import annotations

import math
from collections.abc import Callable

from mpi4py import MPI

import numpy as np
import pytest
import ufl
from dolfinx import fem

from meshes.circle import circle
from meshes.simplicial import SimplicialMesh, conductances
from meshes.sphere import sphere
from solver.parallel import allreduce, on_root
from solver.space import Space, create_space

pytestmark = pytest.mark.ranks

MakeSpace = Callable[[str, float], Space]
SPACES = [("circle", 0.1), ("circle", 1.0), ("sphere", 0.35)]
AREA = {"circle": 2 * math.pi, "sphere": 4 * math.pi}


def _original_with_ghosts(space: Space) -> np.ndarray:
    numbers = np.full(len(space.x), np.nan)
    numbers[: space.owned] = space.original
    space.update_ghosts(numbers)
    return numbers.astype(np.int64)


@pytest.mark.parametrize(("manifold", "h"), SPACES)
def test_every_edge_is_owned_once(manifold: str, h: float, make_space: MakeSpace, comm: MPI.Comm) -> None:
    """Catches an edge on a partition boundary counted by two ranks or by none, and its conductance left half summed."""
    space = make_space(manifold, h)
    ends = np.sort(_original_with_ghosts(space)[space.edges], axis=1)
    parts = comm.gather((ends, space.w), root=0)
    if comm.rank == 0:
        assert parts is not None
        mesh = space.input_mesh
        assert mesh is not None
        edges, w = conductances(mesh)
        found = np.concatenate([part[0] for part in parts])
        order = np.lexsort(found.T[::-1])
        assert np.array_equal(found[order], edges)
        assert np.abs(np.concatenate([part[1] for part in parts])[order] - w).max() <= 1e-12 * w.max()


@pytest.mark.parametrize(("manifold", "h"), SPACES)
def test_matches_the_assembled_stiffness_and_mass(manifold: str, h: float, make_space: MakeSpace) -> None:
    """Catches edges that carry the conductance of another edge: Σ_j w_ij (u_i − u_j) must equal DOLFINx' matrix times
    u.
    """
    space = make_space(manifold, h)
    u = np.sin(3 * space.x[:, 0]) + space.x[:, 1] ** 2
    i, j = space.edges.T
    flux = (space.w * (u[i] - u[j]))[None]
    ours = space.sum_to_nodes(flux, -flux)[0]
    f = fem.Function(space.V)
    f.x.array[:] = u
    v = ufl.TestFunction(space.V)
    assembled = fem.assemble_vector(fem.form(ufl.inner(ufl.grad(f), ufl.grad(v)) * ufl.dx(domain=space.V.mesh)))
    lumped = fem.assemble_vector(fem.form(v * ufl.dx(domain=space.V.mesh)))
    from dolfinx import la

    for vector in (assembled, lumped):
        vector.scatter_reverse(la.InsertMode.add)
    owned = slice(0, space.owned)
    assert np.abs(ours[owned] - assembled.array[owned]).max(initial=0.0) <= 1e-11
    assert np.abs(space.mass[owned] - lumped.array[owned]).max(initial=0.0) <= 1e-13


@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_area_tends_to_the_manifolds_with_order_two(manifold: str, make_space: MakeSpace) -> None:
    """Catches masses counted twice on ghosts, a wrong simplex volume, or cells lost in the distribution."""
    areas = [float(make_space(manifold, h).integrate(np.ones(len(make_space(manifold, h).x)))) for h in (0.4, 0.1)]
    errors = [AREA[manifold] - area for area in areas]
    assert all(error > 0 for error in errors)
    ratio = make_space(manifold, 0.4).h / make_space(manifold, 0.1).h
    assert math.log(errors[0] / errors[1], ratio) == pytest.approx(2.0, abs=0.15)


@pytest.mark.parametrize(("manifold", "h"), SPACES)
def test_nodes_and_masses(manifold: str, h: float, make_space: MakeSpace, comm: MPI.Comm) -> None:
    """Catches nodes off the sphere, ghosts without mass, and an edge length that is not the mesh's."""
    space = make_space(manifold, h)
    assert np.abs(np.linalg.norm(space.x, axis=1) - 1).max(initial=0.0) <= 1e-14
    assert (space.mass > 0).all()
    assert comm.allreduce(space.owned) == space.nodes
    ghosts = space.mass.copy()
    space.update_ghosts(ghosts)
    assert np.array_equal(ghosts, space.mass)
    assert 0.75 * h <= space.h <= 1.25 * h
    i, j = space.edges.T
    lengths = np.arccos(np.clip((space.x[i] * space.x[j]).sum(axis=1), -1, 1)).sum()
    count = comm.allreduce(len(space.edges))
    assert comm.allreduce(lengths) / count == pytest.approx(space.h, rel=1e-6)


@pytest.mark.parametrize(("manifold", "h"), SPACES)
def test_update_ghosts(manifold: str, h: float, make_space: MakeSpace) -> None:
    """Catches ghosts that keep a stale value, or values of the wrong label or owner."""
    space = make_space(manifold, h)
    exact = np.stack([space.x @ np.arange(1.0, space.dimension + 1), np.cos(5 * space.x[:, 0])])
    values = exact.copy()
    values[:, space.owned :] = np.nan
    space.update_ghosts(values)
    assert np.abs(values - exact).max(initial=0.0) <= 1e-14


@pytest.mark.parametrize(("manifold", "h"), SPACES)
def test_add_to_owners(manifold: str, h: float, make_space: MakeSpace, comm: MPI.Comm) -> None:
    """Catches contributions of other ranks dropped or counted twice: one from every copy of a node must arrive."""
    space = make_space(manifold, h)
    copies = np.ones((2, len(space.x)))
    copies[1] *= 3
    total = comm.allreduce(len(space.x))
    space.add_to_owners(copies)
    assert comm.allreduce(copies[0, : space.owned].sum()) == total
    assert comm.allreduce(copies[1, : space.owned].sum()) == 3 * total
    assert (copies[:, space.owned :] == 0).all()
    number = _original_with_ghosts(space).astype(float)
    ones, weighted = np.ones(len(space.x)), number.copy()
    space.add_to_owners(ones)
    space.add_to_owners(weighted)
    assert np.array_equal(weighted[: space.owned], ones[: space.owned] * space.original)


@pytest.mark.parametrize(("manifold", "h"), SPACES)
def test_gradients_of_linear_functions(manifold: str, h: float, make_space: MakeSpace) -> None:
    """Catches cells whose corners and gradients are in different orders: ∇(c·x) is c less its component off the
    cell.
    """
    space = make_space(manifold, h)
    c = np.arange(1.0, space.dimension + 1)
    gradient = space.gradient(np.stack([space.x @ c, 2 * space.x @ c]))
    corners = space.x[space.cells]
    normal = corners.sum(axis=1) if space.dimension == 2 else None  # of a chord: towards its middle
    if normal is None:
        normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    tangent = c - (normal @ c)[:, None] * normal
    assert gradient.shape == (2, len(space.cells), space.dimension)
    assert np.abs(gradient - [tangent, 2 * tangent]).max(initial=0.0) <= 1e-12


def test_integrate_is_exact_for_linear_functions_and_keeps_leading_axes(make_space: MakeSpace) -> None:
    """Catches ghosts counted in integrals, and axes that are mixed up."""
    space = make_space("circle", 0.1)
    values = np.stack([np.ones(len(space.x)), 1 + space.x[:, 0], 2 + space.x[:, 1]])[:, None]
    result = space.integrate(values)
    assert result.shape == (3, 1)
    area = result[0, 0]
    assert result[:, 0] == pytest.approx([area, area, 2 * area], rel=1e-13)


@pytest.mark.parametrize(("manifold", "h"), SPACES)
def test_gather_restores_the_original_order(manifold: str, h: float, make_space: MakeSpace, comm: MPI.Comm) -> None:
    """Catches results written in the order of one partition: files would differ with the number of ranks."""
    space = make_space(manifold, h)
    gathered = space.gather(np.stack([space.x.T, 2 * space.x.T]))
    if comm.rank == 0:
        assert gathered is not None
        assert space.input_mesh is not None
        assert np.abs(gathered[0].T - space.input_mesh.points).max() <= 1e-15
        assert np.abs(gathered[1].T - 2 * space.input_mesh.points).max() <= 1e-15
    else:
        assert gathered is None
        assert space.input_mesh is None


def test_more_ranks_than_cells(comm: MPI.Comm) -> None:
    """Catches reductions over ranks that own nothing: 3 cells on up to 8 ranks."""
    mesh = on_root(comm, lambda: circle(3.0), share=False)
    space = create_space(comm, mesh, 2)
    assert space.nodes == 3
    assert comm.allreduce(len(space.edges)) == 3
    side = math.sqrt(3)
    assert float(space.integrate(np.ones(len(space.x)))) == pytest.approx(3 * side, rel=1e-13)
    assert space.h == pytest.approx(2 * math.pi / 3, rel=1e-13)
    values = np.full((1, len(space.x)), np.nan)
    values[:, : space.owned] = space.original
    space.update_ghosts(values)
    gathered = space.gather(values)
    if gathered is not None:
        assert np.array_equal(gathered, [[0, 1, 2]])


def _with_a_flipped_edge() -> SimplicialMesh:
    """A hull whose first edge is replaced by the other diagonal of its two triangles: no longer Delaunay."""
    mesh = sphere(0.7)
    a, b, c = (int(k) for k in mesh.cells[0])
    other = next(k for k in range(1, len(mesh.cells)) if {a, b} <= set(mesh.cells[k].tolist()))
    (e,) = set(mesh.cells[other].tolist()) - {a, b}
    cells = mesh.cells.copy()
    cells[0], cells[other] = (a, e, c), (e, b, c)
    return SimplicialMesh(mesh.points, cells)


def test_negative_conductance_is_refused_on_all_ranks(comm: MPI.Comm) -> None:
    """Catches the last guard of positivity missing, or raised only where the bad edge lives (the others would hang)."""
    mesh = on_root(comm, _with_a_flipped_edge, share=False)
    if mesh is not None:
        assert conductances(mesh)[1].min() < -1e-3
    with pytest.raises(ValueError, match="negative conductance"):
        create_space(comm, mesh, 3)


def test_space_does_not_change_its_callers_mesh(comm: MPI.Comm) -> None:
    """Catches DOLFINx reordering arrays in place: a second space from the same mesh must be the same."""
    mesh = on_root(comm, lambda: circle(0.5), share=False)
    before = None if mesh is None else (mesh.points.copy(), mesh.cells.copy())
    first, second = create_space(comm, mesh, 2), create_space(comm, mesh, 2)
    if mesh is not None and before is not None:
        assert np.array_equal(mesh.points, before[0])
        assert np.array_equal(mesh.cells, before[1])
    assert np.array_equal(first.x, second.x)
    assert float(allreduce(comm, first.w.sum())) == float(allreduce(comm, second.w.sum()))
