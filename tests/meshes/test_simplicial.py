"""Meshes as arrays: conductances, the check that guards the scheme, and .msh files."""

from __future__ import annotations

from pathlib import Path

from mpi4py import MPI

import basix.ufl
import dolfinx
import numpy as np
import pytest
import ufl
from dolfinx import fem
from scipy.spatial import ConvexHull

from meshes.build import GENERATORS
from meshes.circle import circle
from meshes.simplicial import MeshError, SimplicialMesh, cell_stiffness, check, conductances, gmsh_model, read, write
from meshes.sphere import sphere

pytestmark = pytest.mark.serial


@pytest.fixture(scope="module")
def ball() -> SimplicialMesh:
    return sphere(0.3)


@pytest.fixture(scope="module")
def ring() -> SimplicialMesh:
    return circle(0.3)


def _gmsh_triangulation(h: float) -> SimplicialMesh:
    import gmsh

    with gmsh_model("default"):
        gmsh.model.occ.addSphere(0, 0, 0, 1)
        gmsh.model.occ.synchronize()
        gmsh.option.setNumber("Mesh.MeshSizeMin", h)
        gmsh.option.setNumber("Mesh.MeshSizeMax", h)
        gmsh.model.mesh.generate(2)
        tags, coordinates, _ = gmsh.model.mesh.getNodes()
        _, nodes = gmsh.model.mesh.getElementsByType(2)
    order = np.argsort(tags)
    points = coordinates.reshape(-1, 3)
    cells = order[np.searchsorted(tags[order], nodes)].reshape(-1, 3).astype(np.int64)
    return SimplicialMesh(points / np.linalg.norm(points, axis=1, keepdims=True), cells)


@pytest.mark.parametrize(("generator", "name"), [(circle, "interval"), (sphere, "triangle")])
def test_conductances_equal_the_assembled_stiffness_matrix(generator, name: str) -> None:  # type: ignore[no-untyped-def]
    """Catches a wrong metric, factor or sign in `cell_stiffness`, against FFCx' assembly of ∫∇u·∇v."""
    mesh = generator(0.3)
    d = mesh.points.shape[1]
    element = basix.ufl.element("Lagrange", name, 1, shape=(d,))
    domain = dolfinx.mesh.create_mesh(MPI.COMM_SELF, mesh.cells, element, mesh.points)
    V = fem.functionspace(domain, ("Lagrange", 1))
    u, v = ufl.TrialFunction(V), ufl.TestFunction(V)
    matrix = fem.assemble_matrix(fem.form(ufl.inner(ufl.grad(u), ufl.grad(v)) * ufl.dx)).to_dense()
    original = np.empty(len(mesh.points), dtype=np.int64)
    original[V.dofmap.list] = np.asarray(domain.geometry.input_global_indices)[domain.geometry.dofmaps[0]]
    number = np.argsort(original)  # input vertex -> dof
    edges, w = conductances(mesh)
    i, j = number[edges].T
    assert np.abs(matrix[i, j] + w).max() <= 1e-12 * w.max()
    assert np.count_nonzero(np.triu(np.abs(matrix), 1) > 1e-9) <= len(edges)


def test_basis_gradients_are_tangent_and_reproduce_linear_functions() -> None:
    """Catches swapped corners: Σ_a (c·x_a) ∇φ_a must be c less its component normal to the cell."""
    generator = np.random.default_rng(0)
    corners = generator.standard_normal((5, 3, 3))
    size, gradients = cell_stiffness(corners)
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    assert size == pytest.approx(0.5 * np.linalg.norm(normal, axis=1), rel=1e-12)
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    c = np.array([0.3, -1.2, 0.7])
    slope = np.einsum("nak,k,nad->nd", corners, c, gradients)
    assert np.abs(slope - (c - (normal @ c)[:, None] * normal)).max() <= 1e-11
    assert np.abs(gradients.sum(axis=1)).max() <= 1e-11


def test_gmsh_default_sphere_is_refused() -> None:
    """Catches a check that lets gmsh's own triangulation pass: at h = 0.1 it has negative conductances."""
    mesh = _gmsh_triangulation(0.1)
    _, w = conductances(mesh)
    assert w.min() < 0  # else this gmsh no longer shows the failure and the test means nothing
    with pytest.raises(MeshError, match=r"off-diagonal stiffness entries are positive.*convex hull"):
        check(mesh)


@pytest.mark.parametrize("name", ["ball", "ring"])
def test_open_mesh_is_refused(name: str, request: pytest.FixtureRequest) -> None:
    """Catches a mesh with a hole: mass would be conserved but tokens could not cross it."""
    mesh = request.getfixturevalue(name)
    with pytest.raises(MeshError, match="boundary"):
        check(SimplicialMesh(mesh.points, mesh.cells[1:]))


def test_doubled_cell_is_refused(ball: SimplicialMesh) -> None:
    """Catches a cell listed twice, which would count its area and conductances double."""
    with pytest.raises(MeshError, match="exactly once"):
        check(SimplicialMesh(ball.points, np.concatenate([ball.cells, ball.cells[:1]])))


@pytest.mark.parametrize("name", ["ball", "ring"])
@pytest.mark.parametrize("factor", [1.001, 0.5, 0.0])
def test_vertex_off_the_sphere_is_refused(name: str, factor: float, request: pytest.FixtureRequest) -> None:
    """Catches meshes of another radius or with a stray centre point."""
    mesh = request.getfixturevalue(name)
    points = mesh.points.copy()
    points[3] *= factor
    with pytest.raises(MeshError, match="off the unit sphere"):
        check(SimplicialMesh(points, mesh.cells))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_vertex_is_refused(ball: SimplicialMesh, bad: float) -> None:
    """Catches nan coordinates, which every ordinary comparison lets pass."""
    points = ball.points.copy()
    points[3, 1] = bad
    with pytest.raises(MeshError):
        check(SimplicialMesh(points, ball.cells))


def test_unused_vertex_is_refused(ball: SimplicialMesh) -> None:
    """Catches a node without a cell: its mass m_i would be zero and its row singular."""
    points = np.concatenate([ball.points, -ball.points[:1]])
    with pytest.raises(MeshError, match="no cell"):
        check(SimplicialMesh(points, ball.cells))


@pytest.mark.parametrize("name", ["ball", "ring"])
def test_file_round_trip(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Catches renumbered cells, lost digits or a dropped z coordinate between write and read."""
    mesh = request.getfixturevalue(name)
    path = tmp_path / "mesh.msh"
    write(mesh, path)
    again = read(path, mesh.points.shape[1])
    assert np.abs(again.points - mesh.points).max() <= 1e-15
    assert np.array_equal(np.sort(again.cells, axis=1), np.sort(mesh.cells, axis=1))


@pytest.mark.parametrize(("name", "gdim"), [("ball", 3), ("ring", 2)])
def test_dolfinx_reads_the_file(name: str, gdim: int, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Catches cells outside a physical group: DOLFINx and other tools would find an empty mesh."""
    from dolfinx.io import gmsh as dolfinx_gmsh

    mesh = request.getfixturevalue(name)
    path = tmp_path / "mesh.msh"
    write(mesh, path)
    domain = dolfinx_gmsh.read_from_msh(str(path), MPI.COMM_SELF, gdim=gdim).mesh
    assert domain.topology.index_map(0).size_local == len(mesh.points)
    assert domain.topology.index_map(gdim - 1).size_local == len(mesh.cells)


def test_read_projects_to_the_sphere(tmp_path: Path, ball: SimplicialMesh) -> None:
    """Catches single-precision files: vertices within 1e-6 of the sphere must be put back to round-off."""
    path = tmp_path / "mesh.msh"
    write(SimplicialMesh(ball.points * (1 + 3e-7), ball.cells), path)
    assert np.abs(np.linalg.norm(read(path, 3).points, axis=1) - 1).max() <= 1e-14


def test_read_refuses_gmsh_default_sphere(tmp_path: Path) -> None:
    """Catches a reader that does not check: the user's own mesh enters through here."""
    path = tmp_path / "default.msh"
    write(_gmsh_triangulation(0.1), path)
    with pytest.raises(MeshError, match="stiffness"):
        read(path, 3)


def test_circle_file_is_no_sphere(tmp_path: Path, ring: SimplicialMesh) -> None:
    """Catches geometry.file of the wrong manifold ending in an index error."""
    path = tmp_path / "ring.msh"
    write(ring, path)
    with pytest.raises(MeshError, match=r"ring\.msh holds no triangles"):
        read(path, 3)


def test_sphere_file_is_no_circle(tmp_path: Path, ball: SimplicialMesh) -> None:
    """Catches the converse: a triangle mesh given for the circle."""
    path = tmp_path / "ball.msh"
    write(ball, path)
    with pytest.raises(MeshError, match=r"ball\.msh holds no line segments"):
        read(path, 2)


@pytest.mark.parametrize("content", ["", "not a mesh at all\n", "$MeshFormat\n4.1 0 8\n$EndMeshFormat\n"])
def test_garbage_file_is_a_mesh_error(tmp_path: Path, content: str) -> None:
    """Catches gmsh's bare Exception (or an IndexError on an empty node list) reaching the user."""
    path = tmp_path / "garbage.msh"
    path.write_text(content)
    with pytest.raises(MeshError, match=r"garbage\.msh"):
        read(path, 3)


def test_tilted_circle_is_refused(tmp_path: Path, ring: SimplicialMesh) -> None:
    """Catches a circle in another plane: dropping z would leave an ellipse."""
    import gmsh

    path = tmp_path / "tilted.msh"
    with gmsh_model("tilted"):
        tag = gmsh.model.addDiscreteEntity(1)
        x = np.column_stack([ring.points[:, 0], np.zeros(len(ring.points)), ring.points[:, 1]])
        gmsh.model.mesh.addNodes(1, tag, np.arange(1, len(x) + 1), x.ravel())
        gmsh.model.mesh.addElementsByType(tag, 1, np.arange(1, len(x) + 1), (ring.cells + 1).ravel())
        gmsh.write(str(path))
    with pytest.raises(MeshError, match="plane"):
        read(path, 2)


def test_gmsh_is_finalised_after_an_error() -> None:
    """Catches a gmsh session left open by an exception: the next mesh would be added to the broken model."""
    import gmsh

    def fail() -> None:
        with gmsh_model("broken"):
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert not gmsh.isInitialized()


@pytest.mark.parametrize(("manifold", "d"), [("circle", 2), ("sphere", 3)])
def test_registry_builds_every_manifold(manifold: str, d: int) -> None:
    """Catches swapped entries in the registry of generators."""
    mesh = GENERATORS[manifold](0.5)
    assert mesh.points.shape[1] == mesh.cells.shape[1] == d
    check(mesh)


def test_closed_meshes_of_something_else_are_refused() -> None:
    """Catches a closed surface with the right local properties that is not the sphere or circle, once."""
    ball = sphere(0.5)
    twice = SimplicialMesh(
        np.concatenate([ball.points, ball.points]), np.concatenate([ball.cells, ball.cells + len(ball.points)])
    )
    with pytest.raises(MeshError, match="cover 2 of the sphere"):
        check(twice)
    ring = circle(0.5)
    n = len(ring.points)
    wound = np.arange(2 * n)
    points = ring.points[wound % n]
    with pytest.raises(MeshError, match="cover 2 of the circle"):
        check(SimplicialMesh(points, np.column_stack([wound, (wound + 1) % (2 * n)])))
    upper = ball.points[ball.points[:, 2] >= 0]
    with pytest.raises(MeshError, match=r"of the sphere|positive"):
        check(SimplicialMesh(upper, ConvexHull(upper).simplices.astype(np.int64)))


def test_degenerate_cell_is_refused() -> None:
    """Catches a singular matrix from a cell without length."""
    points = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [-1.0, 0.0], [0.0, -1.0]])
    cells = np.column_stack([np.arange(5), (np.arange(5) + 1) % 5])
    with pytest.raises(MeshError, match="no area or length"):
        check(SimplicialMesh(points, cells))


def test_scripts_are_not_run(tmp_path: Path) -> None:
    """Catches gmsh executing a .geo script, system calls included, in place of reading a mesh."""
    victim = tmp_path / "victim"
    path = tmp_path / "script.msh"
    path.write_text(f'SystemCall "touch {victim}";\n')
    with pytest.raises(MeshError, match="no gmsh mesh file"):
        read(path, 3)
    assert not victim.exists()
