"""A simplicial mesh as two arrays, its conductances, and the .msh files it is kept in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["MeshError", "SimplicialMesh", "cell_stiffness", "check", "gmsh_model", "read", "write"]

_GMSH_TYPES = {1: 1, 2: 2}  # topological dimension -> gmsh element type (2-node line, 3-node triangle)


class MeshError(ValueError):
    """A mesh the scheme cannot use, with the reason."""


@dataclass(frozen=True)
class SimplicialMesh:
    """Vertices and cells of a closed mesh of the unit sphere S^{d-1}.

    Attributes:
        points: Vertices, shape (nodes, d), unit vectors.
        cells: Vertex numbers, shape (cells, d): intervals for d = 2, triangles for d = 3.
    """

    points: NDArray[np.float64]
    cells: NDArray[np.int64]


def cell_stiffness(corners: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Size and P1 basis gradients of every cell.

    With J = [x_1 − x_0, …] and metric g = JᵀJ, the cell's size is √det g / tdim! and ∇φ_a = J g⁻¹ e_a.

    Args:
        corners: Vertex coordinates of each cell, shape (cells, tdim + 1, d).

    Returns:
        Sizes (cells,) and surface gradients of the basis functions (cells, tdim + 1, d). Local stiffness entries are
        size · ∇φ_a·∇φ_b.
    """
    jacobian = corners[:, 1:] - corners[:, :1]  # (cells, tdim, d)
    metric = jacobian @ jacobian.transpose(0, 2, 1)
    gradients = np.linalg.inv(metric) @ jacobian
    return cell_sizes(corners), np.concatenate([-gradients.sum(axis=1, keepdims=True), gradients], axis=1)


def cell_sizes(corners: NDArray[np.float64]) -> NDArray[np.float64]:
    """√det g / tdim!: lengths or areas of cells with these corners, shape (cells,)."""
    jacobian = corners[:, 1:] - corners[:, :1]
    determinant = np.linalg.det(jacobian @ jacobian.transpose(0, 2, 1))
    sizes: NDArray[np.float64] = np.sqrt(np.maximum(determinant, 0.0)) / (2.0 if corners.shape[1] == 3 else 1.0)
    return sizes


def conductances(mesh: SimplicialMesh) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Edges (edges, 2) and w_ij = −∫∇φ_i·∇φ_j (edges,) of a whole mesh on one process."""
    size, gradients = cell_stiffness(mesh.points[mesh.cells])
    pairs = list(combinations(range(mesh.cells.shape[1]), 2))
    edges = np.concatenate([np.sort(mesh.cells[:, pair], axis=1) for pair in pairs])
    local = np.concatenate([-size * np.einsum("ck,ck->c", gradients[:, a], gradients[:, b]) for a, b in pairs])
    unique, inverse = np.unique(edges, axis=0, return_inverse=True)
    return unique, np.bincount(inverse.ravel(), local, minlength=len(unique))


def check(mesh: SimplicialMesh) -> None:
    """Refuse a mesh on which the scheme would lose its guarantees.

    Raises:
        MeshError: A vertex is off the unit sphere or unused, the mesh is not closed, or a stiffness entry off the
            diagonal is positive (w_ij < 0).
    """
    points, cells = mesh.points, mesh.cells
    if not np.isfinite(points).all():
        raise MeshError("a vertex has coordinates that are not finite")
    off = float(np.abs(np.linalg.norm(points, axis=1) - 1.0).max(initial=0.0))
    if off > 1e-6:
        raise MeshError(f"a vertex lies {off:.1e} off the unit sphere; all vertices must be on it")
    if len(np.unique(cells)) != len(points):
        raise MeshError("some vertices belong to no cell")
    tdim = cells.shape[1] - 1
    facets = np.concatenate([np.sort(np.delete(cells, k, axis=1), axis=1) for k in range(tdim + 1)])
    _, counts = np.unique(facets, axis=0, return_counts=True)
    if not np.all(counts == 2):
        raise MeshError("the mesh has a boundary: it must cover the whole circle or sphere exactly once")
    size = cell_sizes(points[cells])
    if size.min() <= 1e-14:
        raise MeshError(f"cell {int(np.argmin(size))} has no area or length")
    covered, whole = _covered(points[cells]), 2.0 * np.pi * tdim
    if abs(covered - whole) > 1e-4:
        raise MeshError(
            f"seen from the centre the cells cover {covered / whole:.4g} of the {'circle' if tdim == 1 else 'sphere'}; "
            "they must cover it exactly once"
        )
    edges, w = conductances(mesh)
    bad = int(np.count_nonzero(w < -1e-12 * w.max()))
    if bad:
        worst = edges[int(np.argmin(w))]
        raise MeshError(
            f"{bad} of {len(w)} off-diagonal stiffness entries are positive (worst: edge {worst[0]}–{worst[1]}, "
            f"{-w.min():.2e}), so densities could go negative; use the convex hull of the vertices, "
            "as python -m meshes.sphere does"
        )


def _covered(corners: NDArray[np.float64]) -> float:
    """Sum of the arcs (d = 2) or solid angles (d = 3) of the cells, seen from the centre."""
    if corners.shape[1] == 2:
        chord = np.linalg.norm(corners[:, 1] - corners[:, 0], axis=1)
        return float(2.0 * np.arcsin(np.minimum(0.5 * chord, 1.0)).sum())
    a, b, c = corners.transpose(1, 0, 2)
    volume = np.abs(np.einsum("ck,ck->c", a, np.cross(b, c)))
    dots = [np.einsum("ck,ck->c", p, q) for p, q in ((a, b), (b, c), (c, a))]
    return float(2.0 * np.arctan2(volume, 1.0 + sum(dots)).sum())


@contextlib.contextmanager
def gmsh_model(name: str) -> Iterator[None]:
    """A silent, single-threaded gmsh session with one empty model; always finalised."""
    import gmsh

    gmsh.initialize(interruptible=False)
    try:
        gmsh.option.setNumber("General.Terminal", 0)
        gmsh.option.setNumber("General.NumThreads", 1)
        gmsh.model.add(name)
        yield
    finally:
        gmsh.finalize()


def write(mesh: SimplicialMesh, path: Path) -> None:
    """Write a .msh file (format 4.1) with all cells in one physical group."""
    import gmsh

    nodes, tdim = len(mesh.points), mesh.cells.shape[1] - 1
    coordinates = np.zeros((nodes, 3))
    coordinates[:, : mesh.points.shape[1]] = mesh.points
    with gmsh_model("mesh"):
        tag = gmsh.model.addDiscreteEntity(tdim)
        gmsh.model.mesh.addNodes(tdim, tag, np.arange(1, nodes + 1), coordinates.ravel())
        numbers = np.arange(1, len(mesh.cells) + 1)
        gmsh.model.mesh.addElementsByType(tag, _GMSH_TYPES[tdim], numbers, (mesh.cells + 1).ravel())
        gmsh.model.addPhysicalGroup(tdim, [tag], tag=1, name="manifold")
        gmsh.option.setNumber("Mesh.MshFileVersion", 4.1)
        try:
            gmsh.write(str(path))
        except Exception as error:  # gmsh raises plain Exception
            raise OSError(f"gmsh cannot write {path}: {error}") from error


def _refuse_other_files(path: Path) -> None:
    """gmsh would run a script given in place of a mesh, with system calls and all."""
    with path.open("rb") as file:
        first = file.readline(80).strip()
    if path.suffix != ".msh" or first != b"$MeshFormat":
        raise MeshError(f"{path.name} is no gmsh mesh file (.msh that begins with $MeshFormat)")


def read(path: Path, dimension: int) -> SimplicialMesh:
    """Read the cells of S^{dimension−1} from a .msh file; vertices are projected to the sphere to round-off.

    Raises:
        MeshError: The file cannot be read, has no cells of the right kind, or fails `check`.
    """
    import gmsh

    tdim = dimension - 1
    _refuse_other_files(path)
    with gmsh_model("file"):
        try:
            gmsh.open(str(path))
        except Exception as error:  # gmsh raises plain Exception
            raise MeshError(f"gmsh cannot read {path.name}: {error}") from error
        tags, coordinates, _ = gmsh.model.mesh.getNodes()
        _, cell_nodes = gmsh.model.mesh.getElementsByType(_GMSH_TYPES[tdim])
    if len(cell_nodes) == 0:
        kind = "line segments" if tdim == 1 else "triangles"
        raise MeshError(f"{path.name} holds no {kind}")
    used, cells = np.unique(np.asarray(cell_nodes, dtype=np.int64), return_inverse=True)
    order = np.argsort(tags)
    positions = order[np.searchsorted(np.asarray(tags)[order], used)]
    points = np.asarray(coordinates, dtype=np.float64).reshape(-1, 3)[positions]
    if tdim == 1 and np.abs(points[:, 2]).max() > 1e-6:
        raise MeshError(f"{path.name} does not lie in the plane of the first two coordinates")
    mesh = SimplicialMesh(points[:, :dimension], cells.reshape(-1, tdim + 1).astype(np.int64))
    check(mesh)
    norms = np.linalg.norm(mesh.points, axis=1, keepdims=True)
    return SimplicialMesh(mesh.points / norms, mesh.cells)
