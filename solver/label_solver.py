"""The linear solves of a depth step with many labels: every rank solves the whole systems of its share of the labels.

Densities and rates are spread over ranks by nodes and edges, all labels of each. For a solve they change places, all
nodes and edges of some labels, and afterwards the solutions change back: two exchanges that cost little beside the
solves, which then need no other communication, and no weaker preconditioner on more ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mpi4py import MPI

import numpy as np

from solver.linear import ImplicitSolver
from solver.operator import Rates
from solver.parallel import everywhere
from solver.space import Space
from solver.types import FloatArray, IntArray

__all__ = ["LabelParallelSolver", "create_solver"]


def create_solver(space: Space, options: Mapping[str, Any], labels: int) -> ImplicitSolver | LabelParallelSolver:
    """The solver for so many densities: by labels, if there are several ranks and a label for each. Collective.

    Raises:
        CaseError: PETSc refuses the options.
    """
    if 1 < space.comm.size <= labels:
        return LabelParallelSolver(space, options, labels)
    return ImplicitSolver(space, options)


@dataclass(frozen=True)
class _WholeGraph:
    """All nodes and edges of a space, on this rank alone."""

    nodes: int
    edges: IntArray
    mass: FloatArray

    @property
    def comm(self) -> MPI.Comm:
        return MPI.COMM_SELF

    @property
    def owned(self) -> int:
        return self.nodes

    @property
    def numbers(self) -> IntArray:
        return np.arange(self.nodes, dtype=np.int64)

    def update_ghosts(self, values: FloatArray) -> None:
        """There are none."""


class LabelParallelSolver:
    """As `ImplicitSolver`, with rank r solving the systems of the r-th share of the labels.

    Args:
        space: The P1 space.
        options: As of `ImplicitSolver`.
        labels: Number of labels, at least one for every rank.
    """

    def __init__(self, space: Space, options: Mapping[str, Any], labels: int) -> None:
        self._space = space
        comm = space.comm
        self._shares = np.diff(np.arange(comm.size + 1) * labels // comm.size)  # labels of every rank
        edges = comm.allgather(space.numbers[space.edges])
        self._edge_counts = np.array([len(part) for part in edges])
        self._node_counts = np.array(comm.allgather(space.owned))
        self._local_numbers = comm.allgather(space.numbers)  # ghosts included
        mass = np.concatenate(comm.allgather(space.mass[: space.owned]))
        graph = _WholeGraph(space.nodes, np.concatenate(edges), mass)
        self._solver = everywhere(comm, lambda: ImplicitSolver(graph, options))

    @property
    def fallbacks(self) -> int:
        """Solves on this rank that needed LU."""
        return self._solver.fallbacks

    def solve(self, rates: Rates, dt: float, rhs: FloatArray, guess: FloatArray, transpose: bool = False) -> FloatArray:
        """See `ImplicitSolver.solve`. Collective."""
        comm, owned = self._space.comm, self._space.owned
        whole = Rates(*(self._collect(values, self._edge_counts) for values in (rates.forward, rates.backward)))
        b, start = (self._collect(values[:, :owned], self._node_counts) for values in (rhs, guess))
        x = everywhere(comm, lambda: self._solver.solve(whole, dt, b, start, transpose))
        mine = len(x)
        sent = np.concatenate([x[:, numbers].ravel() for numbers in self._local_numbers])
        sizes = np.array([len(numbers) for numbers in self._local_numbers])
        return self._exchange(sent, mine * sizes, self._shares * sizes[comm.rank]).reshape(len(rhs), -1)

    def _collect(self, values: FloatArray, counts: IntArray) -> FloatArray:
        """From all labels of this rank's places (labels, n) to all places of its labels, (its labels, places)."""
        comm = self._space.comm
        mine = int(self._shares[comm.rank])
        received = self._exchange(np.ascontiguousarray(values).ravel(), self._shares * values.shape[1], mine * counts)
        parts = np.split(received, np.cumsum(mine * counts)[:-1])
        return np.concatenate([part.reshape(mine, -1) for part in parts], axis=1)

    def _exchange(self, sent: FloatArray, counts: IntArray, expected: IntArray) -> FloatArray:
        """Alltoallv of consecutive pieces."""
        received = np.empty(int(expected.sum()))
        self._space.comm.Alltoallv([sent, counts.tolist()], [received, expected.tolist()])
        return received
