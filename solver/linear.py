"""The linear solves of a depth step: (M + Δt L) x = b and its transpose, in PETSc."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from mpi4py import MPI
from petsc4py import PETSc

import numpy as np

from solver.case.load import CaseError
from solver.operator import Rates
from solver.parallel import allreduce
from solver.types import FloatArray, IntArray

__all__ = ["Graph", "ImplicitSolver", "LinearSolveError", "direct_solver", "edge_matrix", "set_edge_values"]

_RTOL = 1e-14
_MAX_ITERATIONS = 200
_MASS_RESIDUAL = 1e-14
_REFINEMENTS = 2
_BACKWARD_ERROR = 1e-12
_MUMPS_EXTRA_MEMORY = 300  # per cent above its estimate, which is too low for distributed matrices
_PREFIX = "turnpike_"

REASONS = {
    -2: "the Krylov method broke down",
    -3: f"no convergence in {_MAX_ITERATIONS} iterations",
    -4: "the residual grew without bound",
    -5: "the Krylov method broke down",
    -9: "the right-hand side or the matrix is not finite (nan or inf)",
    -11: "the preconditioner or the factorisation failed",
}


class LinearSolveError(RuntimeError):
    """A depth step's linear system could not be solved, with the reason in words."""


class Graph(Protocol):
    """What a linear solver sees of a `Space`: nodes, edges and masses, distributed or not."""

    @property
    def comm(self) -> MPI.Comm:
        """Communicator over which the nodes are distributed."""

    @property
    def nodes(self) -> int:
        """Number of nodes, all ranks together."""

    @property
    def owned(self) -> int:
        """Number of owned nodes, the first of the local ones."""

    @property
    def numbers(self) -> IntArray:
        """Global numbers of the local nodes, (local nodes,)."""

    @property
    def edges(self) -> IntArray:
        """Local numbers (i, j) of the edges this rank owns, (edges, 2)."""

    @property
    def mass(self) -> FloatArray:
        """Lumped masses, (local nodes,)."""

    def update_ghosts(self, values: FloatArray) -> None:
        """Overwrite ghost values (last axis: local nodes) by their owners'. Collective."""


def edge_matrix(graph: Graph) -> Any:
    """A PETSc matrix (nodes × nodes) with room for the diagonal and for every pair of neighbours. Collective."""
    numbers = graph.numbers.astype(PETSc.IntType)
    i, j = numbers[graph.edges.T] if len(graph.edges) else (numbers[:0], numbers[:0])
    diagonal = numbers[: graph.owned]
    A = PETSc.Mat().create(graph.comm)
    A.setSizes(((graph.owned, graph.nodes), (graph.owned, graph.nodes)))
    A.setType("aij")
    A.setPreallocationCOO(np.concatenate([i, j, i, j, diagonal]), np.concatenate([i, j, j, i, diagonal]))
    return A


def set_edge_values(
    A: Any, first: FloatArray, second: FloatArray, upper: FloatArray, lower: FloatArray, diagonal: FloatArray
) -> None:
    """Fill an `edge_matrix`; entries at the same place are added up. Collective.

    Args:
        A: From `edge_matrix`.
        first: For A_ii of every edge (i, j) this rank owns, (edges,).
        second: For A_jj.
        upper: For A_ij.
        lower: For A_ji.
        diagonal: For A_ii of every owned node, (owned nodes,).
    """
    A.setValuesCOO(np.concatenate([first, second, upper, lower, diagonal]))


def direct_solver(A: Any, factorisation: str, mumps: bool = True) -> Any:
    """A PETSc KSP that solves with A by ``lu`` or ``cholesky``. Collective.

    Args:
        A: PETSc matrix with its entries.
        factorisation: `lu`, or `cholesky` for symmetric A.
        mumps: Whether by MUMPS; PETSc's own factorisations are serial.
    """
    ksp = PETSc.KSP().create(A.comm)
    ksp.setType("preonly")
    ksp.setOperators(A)
    pc = ksp.getPC()
    pc.setType(factorisation)
    if mumps:
        pc.setFactorSolverType("mumps")
        pc.setFactorSetUpSolverType()
        pc.getFactorMatrix().setMumpsIcntl(14, _MUMPS_EXTRA_MEMORY)
    return ksp


class ImplicitSolver:
    """Solves with M-matrices M + Δt L, label by label, on one PETSc matrix whose entries change from step to step.

    BiCGStab with (block) ILU(0). Where more than round-off of the mass is left in the residual (1ᵀ(b − Ax) is the
    step's mass error) the solution is refined; where the residual as a whole is too large, LU takes over. Nothing is
    carried from one solve to the next but the sparsity pattern.

    Args:
        graph: The P1 graph.
        options: PETSc options, without leading dash, that override the defaults (``ksp_type``, ``pc_type``, …).
    """

    def __init__(self, graph: Graph, options: Mapping[str, Any]) -> None:
        self._graph = graph
        self._mass = graph.mass[: graph.owned]
        self._A = edge_matrix(graph)
        self._x, self._b = self._A.createVecs()
        self._r, self._correction = self._b.duplicate(), self._b.duplicate()
        self._ksp = PETSc.KSP().create(graph.comm)
        self._ksp.setType("bcgs")
        self._ksp.getPC().setType("ilu" if graph.comm.size == 1 else "bjacobi")
        self._ksp.setTolerances(rtol=_RTOL, atol=1e-300, max_it=_MAX_ITERATIONS)
        self._ksp.setOperators(self._A)
        self._ksp.setOptionsPrefix(_PREFIX)  # nobody else's options, from files or the environment, reach this solver
        self._apply_options(options)
        self._iterative = self._ksp.getType() != "preonly"
        self._ksp.setInitialGuessNonzero(self._iterative)
        self._lu: Any = None
        self.fallbacks = 0

    def solve(self, rates: Rates, dt: float, rhs: FloatArray, guess: FloatArray, transpose: bool = False) -> FloatArray:
        """Solve (M + Δt L) x = rhs, or (M + Δt Lᵀ) x = rhs. Collective.

        Args:
            rates: Entries of L, (labels, edges).
            dt: Δt.
            rhs: (labels, local nodes); owned entries are used.
            guess: Start of the Krylov method, (labels, local nodes); owned entries are used.
            transpose: Whether to solve with the transpose.

        Returns:
            x, (labels, local nodes), ghosts included.

        Raises:
            LinearSolveError: On every rank, if neither the Krylov method nor LU solves the system.
        """
        owned = self._graph.owned
        result = np.empty((len(rhs), len(self._graph.mass)))
        for label in range(len(rhs)):
            self._assemble(rates.forward[label], rates.backward[label], dt, transpose)
            self._b.array[:] = rhs[label, :owned]
            self._x.array[:] = guess[label, :owned]
            try:
                self._solve_one(conservative=not transpose)
            except PETSc.Error as error:
                raise LinearSolveError(
                    f"PETSc error {error.ierr} in the linear solve: check the [petsc] options"
                ) from None
            result[label, :owned] = self._x.array_r
        self._graph.update_ghosts(result)
        return result

    def _assemble(self, forward: FloatArray, backward: FloatArray, dt: float, transpose: bool) -> None:
        out, back = dt * forward, dt * backward
        upper, lower = (-out, -back) if transpose else (-back, -out)
        set_edge_values(self._A, out, back, upper, lower, self._mass)

    def _solve_one(self, conservative: bool) -> None:
        self._ksp.solve(self._b, self._x)
        if self._ksp.getConvergedReason() < 0 or not self._residual_is_small():
            self._solve_lu()
        if not conservative:
            return
        for _ in range(_REFINEMENTS):
            if abs(self._r.sum()) <= _MASS_RESIDUAL:
                return
            self._ksp.setInitialGuessNonzero(False)
            self._ksp.solve(self._r, self._correction)
            self._ksp.setInitialGuessNonzero(self._iterative)
            if self._ksp.getConvergedReason() > 0:
                self._x.axpy(1.0, self._correction)
            self._residual_is_small()

    def _residual_is_small(self) -> bool:
        """Compute r = b − Ax; whether it is round-off, ‖r‖ ≤ 1e-12 (‖b‖ + ‖A‖‖x‖): the program's word, not PETSc's."""
        self._A.mult(self._x, self._r)
        self._r.aypx(-1.0, self._b)
        size, scale = self._r.norm(), self._b.norm()
        if size <= _BACKWARD_ERROR * scale:
            return True
        scale += self._A.norm(PETSc.NormType.INFINITY) * self._x.norm()
        return bool(size <= _BACKWARD_ERROR * scale)

    def _solve_lu(self) -> None:
        """Direct solve of the current system."""
        krylov = int(self._ksp.getConvergedReason())
        if self._lu is None:
            self._lu = direct_solver(self._A, "lu", mumps=self._graph.comm.size > 1)
        self.fallbacks += 1
        self._lu.solve(self._b, self._x)
        reason = int(self._lu.getConvergedReason())
        finite = bool(allreduce(self._graph.comm, float(np.isfinite(self._x.array_r).all())) == self._graph.comm.size)
        if reason < 0 or not finite or not self._residual_is_small():
            words = REASONS.get(krylov, "the residual is not small")
            second = REASONS.get(reason, "its residual is not small either" if finite else "the solution is not finite")
            raise LinearSolveError(f"linear solve failed: {words}; LU failed too: {second}")

    def _apply_options(self, options: Mapping[str, Any]) -> None:
        """Let the case's [petsc] options override the defaults of the Krylov solver."""
        database = PETSc.Options(_PREFIX)
        for name, value in options.items():
            database.setValue(name, value)
        if self._graph.comm.size > 1 and options.get("pc_type") == "lu":  # PETSc's own LU is serial
            self._ksp.getPC().setType("lu")
            self._ksp.getPC().setFactorSolverType("mumps")
        try:
            self._ksp.setFromOptions()
        except PETSc.Error as error:
            shown = ", ".join(f"{name} = {value!r}" for name, value in options.items())
            raise CaseError([f"petsc: PETSc refuses {shown} (error {error.ierr})"]) from None
        finally:
            for name in options:
                database.delValue(name)
