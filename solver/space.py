"""P1 space on the circle or the sphere, distributed over ranks: nodes, lumped masses, edges, conductances."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mpi4py import MPI

import basix
import basix.ufl
import dolfinx
import numpy as np
from dolfinx import fem, la

from meshes.simplicial import SimplicialMesh, cell_stiffness
from solver.parallel import allreduce
from solver.types import FloatArray, IntArray

__all__ = ["Space", "create_space"]

_CELL_NAMES = {2: "interval", 3: "triangle"}


@dataclass(frozen=True)
class Space:
    """P1 functions on a mesh of S^{d-1}. Local arrays hold the owned nodes first, then the ghosts.

    Attributes:
        comm: Communicator of the mesh.
        V: DOLFINx function space (one value a node).
        x: Node coordinates, unit vectors, shape (local nodes, d).
        owned: Number of owned nodes.
        mass: Lumped mass m_i = ∫φ_i, shape (local nodes,).
        edges: Local numbers (i, j) of the edges this rank owns, shape (edges, 2). Every edge is owned by one rank.
        w: Conductances w_ij = −∫∇φ_i·∇φ_j ≥ 0 of these edges, shape (edges,).
        cells: Local node numbers of the cells on this rank, shape (cells, d).
        cell_size: Their sizes, shape (cells,).
        basis_gradients: Surface gradients of their basis functions, shape (cells, d, d): cell, node, component.
        numbers: Global numbers of the local nodes; those a rank owns are consecutive, shape (local nodes,).
        original: Number of each owned node in the mesh as it was built: the same for any number of ranks.
        nodes: Number of nodes, all ranks together.
        h: Mean edge length, rad.
        input_mesh: The mesh as it was built, on rank 0; None elsewhere.
    """

    comm: MPI.Comm
    V: Any
    x: FloatArray
    owned: int
    mass: FloatArray
    edges: IntArray
    w: FloatArray
    cells: IntArray
    cell_size: FloatArray
    basis_gradients: FloatArray
    numbers: IntArray
    original: IntArray
    nodes: int
    h: float
    input_mesh: SimplicialMesh | None
    _work: Any = field(repr=False)

    @property
    def dimension(self) -> int:
        """d, the dimension of the space around S^{d-1}."""
        return int(self.x.shape[1])

    def update_ghosts(self, values: FloatArray) -> None:
        """Overwrite the ghost values (last axis: local nodes) by their owners'. Collective."""
        for row, work in self._rows(values):
            work.scatter_forward()
            row[self.owned :] = work.array[self.owned :]

    def add_to_owners(self, values: FloatArray) -> None:
        """Add ghost values to their owners', then set the ghosts to zero. Collective."""
        for row, work in self._rows(values):
            work.scatter_reverse(la.InsertMode.add)
            row[: self.owned] = work.array[: self.owned]
            row[self.owned :] = 0.0

    def _rows(self, values: FloatArray) -> Iterator[tuple[FloatArray, Any]]:
        """Each row of nodal values, with a DOLFINx vector that holds it; none on one rank, which has no ghosts."""
        if self.comm.size > 1:
            for index in np.ndindex(values.shape[:-1]):
                self._work.array[:] = values[index]
                yield values[index], self._work

    def differences(self, values: FloatArray) -> FloatArray:
        """v_j − v_i along the edges, (labels, edges), of nodal values (labels, local nodes)."""
        i, j = self.edges.T
        return values[:, j] - values[:, i]

    def differences_vjp(self, d_bar: FloatArray) -> FloatArray:
        """Transpose of `differences`: this rank's share at its local nodes, (labels, local nodes)."""
        i, j = self.edges.T
        size = len(self.x)
        return np.stack([np.bincount(j, row, minlength=size) - np.bincount(i, row, minlength=size) for row in d_bar])

    def sum_to_nodes(self, at_first: FloatArray, at_second: FloatArray) -> FloatArray:
        """Add edge values (labels, edges) up at their first and second nodes. Collective.

        Returns:
            Shape (labels, local nodes); owned values are complete, ghosts zero.
        """
        size = len(self.x)
        first, second = self.edges[:, 0], self.edges[:, 1]
        result = np.stack(
            [
                np.bincount(first, a, minlength=size) + np.bincount(second, b, minlength=size)
                for a, b in zip(at_first, at_second, strict=True)
            ]
        )
        self.add_to_owners(result)
        return result

    def integrate(self, values: FloatArray) -> FloatArray:
        """Lumped ∫ f over the manifold, for f of shape (..., local nodes); shape (...). Collective."""
        owned = slice(0, self.owned)
        return allreduce(self.comm, values[..., owned] @ self.mass[owned])

    def gradient(self, values: FloatArray) -> FloatArray:
        """Surface gradient on each cell, shape (..., cells, d), of nodal values (..., local nodes)."""
        gradient: FloatArray = np.einsum("...ca,cad->...cd", values[..., self.cells], self.basis_gradients)
        return gradient

    def gather(self, values: FloatArray) -> FloatArray | None:
        """Values (..., local nodes) of all ranks, in the order of `input_mesh`, on rank 0. Collective."""
        parts = self.comm.gather((self.original, np.ascontiguousarray(values[..., : self.owned])), root=0)
        if parts is None:
            return None
        result = np.empty((*values.shape[:-1], self.nodes))
        for numbers, part in parts:
            result[..., numbers] = part
        return result


def create_space(comm: MPI.Comm, mesh: SimplicialMesh | None, dimension: int) -> Space:
    """Distribute a mesh and build its P1 space. Collective.

    Args:
        comm: Communicator; it may have more ranks than the mesh has cells.
        mesh: The whole mesh on rank 0; ignored elsewhere.
        dimension: d of S^{d-1}.
    """
    element = basix.ufl.element("Lagrange", _CELL_NAMES[dimension], 1, shape=(dimension,))
    if comm.rank == 0 and mesh is not None:
        points, cells = mesh.points, mesh.cells
    else:
        points, cells = np.empty((0, dimension)), np.empty((0, dimension), dtype=np.int64)
    domain = dolfinx.mesh.create_mesh(comm, cells, element, points)
    domain.topology.create_entities(1)
    V = fem.functionspace(domain, ("Lagrange", 1))

    index_map = V.dofmap.index_map
    owned, local = index_map.size_local, index_map.size_local + index_map.num_ghosts
    cell_nodes = V.dofmap.list.astype(np.int64)
    x = V.tabulate_dof_coordinates()[:, :dimension].copy()
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    original = np.empty(local, dtype=np.int64)
    original[cell_nodes] = np.asarray(domain.geometry.input_global_indices)[domain.geometry.dofmaps[0]]

    size, gradients = cell_stiffness(x[cell_nodes])
    work = la.vector(index_map)
    space = Space(
        comm=comm,
        V=V,
        x=x,
        owned=owned,
        mass=_lumped_mass(work, cell_nodes, size, owned),
        cells=cell_nodes,
        cell_size=size,
        basis_gradients=gradients,
        numbers=index_map.local_to_global(np.arange(local, dtype=np.int32)).astype(np.int64),
        original=original[:owned],
        nodes=index_map.size_global,
        input_mesh=mesh if comm.rank == 0 else None,
        _work=work,
        **_edges(domain, comm, x, cell_nodes, size, gradients),
    )
    largest = float(allreduce(comm, space.w.max(initial=0.0), MPI.MAX))
    space.w[(space.w < 0.0) & (space.w > -1e-12 * largest)] = 0.0  # four vertices on a circle: zero but for round-off
    if float(allreduce(comm, space.w.min(initial=0.0), MPI.MIN)) < 0.0:
        raise ValueError("the mesh has a negative conductance w_ij: densities could go negative")
    return space


def _lumped_mass(work: Any, cells: IntArray, size: FloatArray, owned: int) -> FloatArray:
    """m_i: an equal share of every cell at each of its nodes, complete on owned nodes and ghosts."""
    work.array[:] = 0.0
    np.add.at(work.array, cells, (size / cells.shape[1])[:, None])
    work.scatter_reverse(la.InsertMode.add)
    work.scatter_forward()
    return np.array(work.array)


def _edges(
    domain: Any, comm: MPI.Comm, x: FloatArray, cells: IntArray, size: FloatArray, gradients: FloatArray
) -> dict[str, Any]:
    """End points, conductances and mean length of the edges this rank owns."""
    tdim = domain.topology.dim
    corners = np.array(basix.topology(getattr(basix.CellType, domain.basix_cell().name))[1])  # (edges of a cell, 2)
    if tdim == 1:
        cell_edges = np.arange(len(cells))[:, None]
    else:
        domain.topology.create_connectivity(tdim, 1)
        cell_edges = domain.topology.connectivity(tdim, 1).array.reshape(-1, len(corners))
    edge_map = domain.topology.index_map(1)
    ends = np.empty((edge_map.size_local + edge_map.num_ghosts, 2), dtype=np.int64)
    weights = la.vector(edge_map)
    weights.array[:] = 0.0
    for k, (a, b) in enumerate(corners):
        ends[cell_edges[:, k]] = cells[:, [a, b]]
        entry = -size * np.einsum("cd,cd->c", gradients[:, a], gradients[:, b])
        np.add.at(weights.array, cell_edges[:, k], entry)
    weights.scatter_reverse(la.InsertMode.add)
    ends = ends[: edge_map.size_local]
    chord = np.linalg.norm(x[ends[:, 0]] - x[ends[:, 1]], axis=1)
    lengths = 2.0 * np.arcsin(np.minimum(0.5 * chord, 1.0))
    mean = float(allreduce(comm, float(lengths.sum()))) / edge_map.size_global
    return {"edges": ends, "w": np.array(weights.array[: edge_map.size_local]), "h": mean}
