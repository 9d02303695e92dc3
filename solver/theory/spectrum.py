"""The slow end of the spectrum of −HΔ_ρ, by SLEPc.

In u = √(mρ) f the eigenproblem is S u = a Q⁻¹ u. With a shift σ > 0, θ = 1/(a + σ) and R = εS + σ it is
A u = θ S u, A = (Q + σ S⁻¹)⁻¹, and by Woodbury A = D + D Φ (s − Φᵀ D Φ)⁻¹ Φᵀ D with D = (1 − σ R⁻¹)/ε: one sparse solve
and a low-rank correction. S is singular in the direction of mass only; pinning f at one node makes it definite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mpi4py import MPI
from petsc4py import PETSc
from slepc4py import SLEPc

import numpy as np

from solver.linear import direct_solver
from solver.parallel import allreduce
from solver.theory.linearization import Linearization
from solver.types import FloatArray

__all__ = ["Mode", "SpectrumError", "slow_modes"]

_TOLERANCE = 1e-11
_NEGLIGIBLE = 1e-32
_STIFF = 1e6
_ACCEPTED = 1e-8  # largest residual of a mode, relative to its rate


class SpectrumError(RuntimeError):
    """The eigenvalue solver did not find what was asked of it."""


@dataclass(frozen=True)
class Mode:
    """An eigenfunction of −HΔ_ρ.

    Attributes:
        rate: a; the mode decays like e^{−at}, or grows if a < 0. Per unit depth.
        u: √(mρ) f, S-normalised, (owned nodes,).
        z: Its density δμ √(m/ρ) = S u, (owned nodes,).
        weight: Share of Σ z² on the side of the cluster, ⟨x, pole⟩ > 0.
        residual: ‖Q S u − a u‖ / (a ‖u‖).
    """

    rate: float
    u: FloatArray
    z: FloatArray
    weight: float
    residual: float

    @property
    def place(self) -> str:
        """Where the mode lives: ``cluster`` or ``hilltop``."""
        return "cluster" if self.weight > 0.5 else "hilltop"


class _Inverse:
    """A⁻¹ for a symmetric positive definite matrix, by a sparse factorisation; also a context for PETSc's shell PC."""

    def __init__(self, A: Any) -> None:
        A.setOption(PETSc.Mat.Option.SPD, True)
        self.matrix = A
        self._ksp = direct_solver(A, "cholesky")
        self._x, self._b = A.createVecs()

    def solve(self, b: FloatArray) -> FloatArray:
        """A⁻¹ b for b (owned nodes,) or (owned nodes, k). Collective."""
        columns = b[:, None] if b.ndim == 1 else b
        result = np.empty_like(columns)
        for k, column in enumerate(columns.T):
            self._b.array[:] = column
            self.apply(None, self._b, self._x)
            result[:, k] = self._x.array_r
        return result.reshape(b.shape)

    def apply(self, _: Any, b: Any, x: Any) -> None:
        """x = A⁻¹ b for PETSc vectors. Collective."""
        self._ksp.solve(b, x)
        if self._ksp.getConvergedReason() < 0:
            raise SpectrumError("the sparse factorisation of the linearised flow failed")

    def free(self) -> None:
        """Destroy the matrix and its factors. Collective."""
        for item in (self._ksp, self._x, self._b, self.matrix):
            item.destroy()


class _ShiftedInverse:
    """u ↦ (Q + σ S⁻¹)⁻¹ u, as a PETSc shell matrix's context."""

    def __init__(self, flow: Linearization, shift: float, walls: FloatArray) -> None:
        self._flow, self._shift = flow, shift
        self._R = _Inverse(flow.conductance_matrix(flow.epsilon, shift + flow.epsilon * walls))
        self._D_phi = self._diagonal(flow.phi)
        self._inner = np.diag(flow.signs) - flow.dot(flow.phi, self._D_phi)

    def _diagonal(self, x: FloatArray) -> FloatArray:
        """D x."""
        result: FloatArray = (x - self._shift * self._R.solve(x)) / self._flow.epsilon
        return result

    def apply(self, u: FloatArray) -> FloatArray:
        """The map itself. Collective."""
        y = self._diagonal(self._flow.project(u))
        if len(self._inner):
            y = y + self._D_phi @ np.linalg.solve(self._inner, self._flow.dot(self._D_phi, u))
        return self._flow.project(y)

    def mult(self, _: Any, x: Any, y: Any) -> None:
        """What PETSc calls."""
        y.array[:] = self.apply(np.array(x.array_r))

    def free(self) -> None:
        """Destroy the factors. Collective."""
        self._R.free()


def slow_modes(
    flow: Linearization, count: int, shift: float, pole: Sequence[float] | FloatArray, core: bool = False
) -> list[Mode]:
    """The `count` modes whose rates are nearest to −shift, sorted by rate; the conserved mass is left out. Collective.

    Args:
        flow: The linearised flow.
        count: Number of modes.
        shift: σ > 0, small against the rates of interest; larger than the fastest growth where modes grow.
        pole: Direction of the cluster, (d,): tells modes there from modes on the opposite side.
        core: Leave out what lives where ρ is below 1e-32 of its largest value (f = 0 there). At small ε thousands of
            hilltop modes can be slower than the first of the cluster.

    Raises:
        SpectrumError: SLEPc did not converge, or a residual is too large.
    """
    space = flow.space
    count = min(count, space.nodes - 2)
    walls = _walls(flow) if core else np.zeros(space.owned)
    S = _Inverse(flow.conductance_matrix(1.0, walls + _pin(flow)))
    inverse = _ShiftedInverse(flow, shift, walls)
    A = PETSc.Mat().createPython(S.matrix.getSizes(), inverse, comm=space.comm)
    A.setOption(PETSc.Mat.Option.SYMMETRIC, True)
    eps = SLEPc.EPS().create(space.comm)
    try:
        eps.setOperators(A, S.matrix)
        eps.setProblemType(SLEPc.EPS.ProblemType.GHEP)
        eps.setWhichEigenpairs(SLEPc.EPS.Which.LARGEST_MAGNITUDE)
        eps.setDimensions(count + 2, min(space.nodes, 3 * count + 20))
        eps.setTolerances(_TOLERANCE, 500)
        ksp = eps.getST().getKSP()
        ksp.setType("preonly")
        ksp.getPC().setType("python")
        ksp.getPC().setPythonContext(S)
        start = S.matrix.createVecRight()
        start.array[:] = np.random.default_rng(0).standard_normal(space.nodes)[space.original]
        eps.setInitialSpace([start])
        eps.solve()
        if eps.getConverged() < count:
            raise SpectrumError(f"only {eps.getConverged()} of {count} modes of the linearised flow were found")
        found = [_mode(flow, eps, k, shift, walls, np.asarray(pole)) for k in range(count)]
    finally:
        eps.destroy()
        A.destroy()
        inverse.free()
        S.free()
    worst = max(mode.residual for mode in found)
    if worst > _ACCEPTED:
        raise SpectrumError(f"a mode of the linearised flow has residual {worst:.1e}")
    return sorted(found, key=lambda mode: mode.rate)


def _pin(flow: Linearization) -> FloatArray:
    """One at the node with the largest q, zero elsewhere, (owned nodes,). Collective."""
    comm, local = flow.space.comm, float(flow.q.max(initial=-1.0))
    highest = float(allreduce(comm, local, MPI.MAX))
    holder = float(allreduce(comm, float(comm.rank if local == highest else comm.size), MPI.MIN))
    pin = np.zeros(flow.space.owned)
    if comm.rank == holder:
        pin[flow.q.argmax()] = 1.0
    return pin


def _walls(flow: Linearization) -> FloatArray:
    """A stiff penalty on f where ρ is negligible, zero elsewhere, (owned nodes,). Collective."""
    space = flow.space
    log_density = flow.log_density[: space.owned]
    highest = float(allreduce(space.comm, log_density.max(initial=-np.inf), MPI.MAX))
    stiffest = float(allreduce(space.comm, flow.conductance_diagonal().max(initial=0.0), MPI.MAX))
    return np.where(log_density < highest + np.log(_NEGLIGIBLE), _STIFF * stiffest, 0.0)


def _mode(flow: Linearization, eps: Any, k: int, shift: float, walls: FloatArray, pole: FloatArray) -> Mode:
    vector = eps.getOperators()[1].createVecRight()
    theta = float(np.real(eps.getEigenpair(k, vector)))
    u = flow.project(np.array(vector.array_r))
    vector.destroy()
    rate = 1.0 / theta - shift
    z = flow.diffuse(u) + walls * u
    difference = flow.apply_variation(z) - rate * u
    residual = float(np.sqrt(flow.dot(difference, difference) / flow.dot(u, u))) / max(abs(rate), shift)
    near = flow.space.x[: flow.space.owned] @ pole > 0.0
    weight = float(flow.dot(z[near], z[near]) / flow.dot(z, z))
    return Mode(rate, u, z, weight, residual)
