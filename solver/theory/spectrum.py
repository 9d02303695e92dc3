"""The slow end of the spectrum of −HΔ_ρ, by SLEPc.

In u = √(mρ) f the eigenproblem is S u = a Q⁻¹ u. With a shift σ > 0, θ = 1/(a + σ) and R = εS + σ it is
A u = θ S u, A = (Q + σ S⁻¹)⁻¹, and by Woodbury A = D + D Φ (s − Φᵀ D Φ)⁻¹ Φᵀ D with D = (1 − σ R⁻¹)/ε: one sparse solve
and a low-rank correction. S is singular in the direction of mass, and nearly so where mass would have to cross a
barrier; 1e-6 σ/ε on its diagonal makes it definite. Rates are Rayleigh quotients without it: off by the square.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mpi4py import MPI
from petsc4py import PETSc
from slepc4py import SLEPc

import numpy as np
from scipy.linalg import lu_factor, lu_solve

from solver.linear import direct_solver
from solver.parallel import allreduce
from solver.theory.linearization import Linearization
from solver.types import FloatArray

__all__ = ["Mode", "SpectrumError", "slow_modes"]

_TOLERANCE = 1e-11
_FLOOR = 1e-6
_REAL = 1e-8  # largest imaginary part of an eigenvalue, relative to it
_UNDECIDED = 0.1  # distance of the weight from one half
_NEGLIGIBLE = 1e-32
_STIFF = 1.0
_ACCEPTED = 1e-3  # largest residual of a mode; the problem is symmetric, so its rate is off by the square


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
        residual: ‖S⁻¹ A u − θ u‖_S / |θ|, with A and θ as above.
    """

    rate: float
    u: FloatArray
    z: FloatArray
    weight: float
    residual: float

    @property
    def place(self) -> str:
        """Where the mode lives: ``cluster``, ``hilltop`` or, if on both sides, ``both``."""
        if abs(self.weight - 0.5) < _UNDECIDED:
            return "both"
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
        if b.ndim == 1:
            self._b.array[:] = b
            self.apply(None, self._b, self._x)
            return np.array(self._x.array_r)
        if b.shape[1] == 0:
            return b
        size = (self.matrix.getSizes()[0], (None, b.shape[1]))
        B, X = (PETSc.Mat().createDense(size, array=np.asfortranarray(b), comm=self.matrix.comm) for _ in range(2))
        self._ksp.matSolve(B, X)
        result = np.array(X.getDenseArray())
        B.destroy()
        X.destroy()
        return result

    def multiply(self, x: FloatArray) -> FloatArray:
        """A x for x (owned nodes,). Collective."""
        self._b.array[:] = x
        self.matrix.mult(self._b, self._x)
        return np.array(self._x.array_r)

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
        self.flow, self.shift = flow, shift
        self._R = _Inverse(flow.conductance_matrix(flow.epsilon, shift + flow.epsilon * walls))
        self._D_phi = self._diagonal(flow.weighted_phi)
        self._inner = lu_factor(np.diag(flow.signs) - flow.dot(flow.phi, self._D_phi)) if len(flow.signs) else None

    def _diagonal(self, x: FloatArray) -> FloatArray:
        """D x."""
        result: FloatArray = (x - self.shift * self._R.solve(x)) / self.flow.epsilon
        return result

    def apply(self, u: FloatArray) -> FloatArray:
        """The map itself. Collective."""
        y = self._diagonal(self.flow.project(u))
        if self._inner is not None:
            y = y + self._D_phi @ lu_solve(self._inner, self.flow.dot(self.flow.phi, y))
        return self.flow.project(y)

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
    walls = np.full(space.owned, _FLOOR * shift / flow.epsilon)
    if core:
        walls += _walls(flow)
    S = _Inverse(flow.conductance_matrix(1.0, walls))
    inverse = _ShiftedInverse(flow, shift, walls)
    A = PETSc.Mat().createPython(S.matrix.getSizes(), inverse, comm=space.comm)
    A.setOption(PETSc.Mat.Option.SYMMETRIC, flow.symmetric)
    eps = SLEPc.EPS().create(space.comm)
    try:
        eps.setOperators(A, S.matrix)
        kind = SLEPc.EPS.ProblemType
        eps.setProblemType(kind.GHEP if flow.symmetric else kind.GNHEP)
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
        found = [_mode(S, inverse, *_pair(eps, k, start), np.asarray(pole)) for k in range(count)]
    finally:
        eps.destroy()
        A.destroy()
        inverse.free()
        S.free()
    worst = max(mode.residual for mode in found)
    if worst > _ACCEPTED:
        raise SpectrumError(f"a mode of the linearised flow has residual {worst:.1e}")
    return sorted(found, key=lambda mode: mode.rate)


def _walls(flow: Linearization) -> FloatArray:
    """A stiff penalty on f where ρ is negligible, zero elsewhere, (owned nodes,). Collective."""
    space = flow.space
    log_density = flow.log_density[: space.owned]
    highest = float(allreduce(space.comm, log_density.max(initial=-np.inf), MPI.MAX))
    stiffest = float(allreduce(space.comm, flow.conductance_diagonal().max(initial=0.0), MPI.MAX))
    return np.where(log_density < highest + np.log(_NEGLIGIBLE), _STIFF * stiffest, 0.0)


def _pair(eps: Any, k: int, vector: Any) -> tuple[float, FloatArray]:
    """θ and u of SLEPc's k-th eigenpair; `vector` is overwritten."""
    theta = complex(eps.getEigenpair(k, vector))
    if abs(theta.imag) > _REAL * abs(theta):
        raise SpectrumError(f"a mode of the linearised flow oscillates: 1/(a + σ) = {theta:.3g}")
    return theta.real, np.array(vector.array_r)


def _mode(S: _Inverse, inverse: _ShiftedInverse, theta: float, u: FloatArray, pole: FloatArray) -> Mode:
    """The mode of one eigenpair of A u = θ S u."""
    flow = inverse.flow
    u = flow.project(u)
    difference = S.solve(inverse.apply(u)) - theta * u
    residual = np.sqrt(float(flow.dot(difference, S.multiply(difference)) / flow.dot(u, S.multiply(u))))
    z = flow.diffuse(u)
    size = float(flow.dot(u, z))
    if not flow.symmetric or size < 0.5 * float(flow.dot(u, S.multiply(u))):
        rate = 1.0 / theta - inverse.shift  # the latter: only the addition to S moves it, mass across a barrier
    else:  # the Rayleigh quotient is off by the square of what that addition did to u
        rate = float(flow.dot(z, flow.apply_variation(z))) / size
        u, z = u / np.sqrt(size), z / np.sqrt(size)
    near = flow.space.x[: flow.space.owned] @ pole > 0.0
    weight = float(flow.dot(z[near], z[near]) / flow.dot(z, z))
    return Mode(rate, u, z, weight, float(residual) / abs(theta))
