"""What a depth step offers: the step, and the exact transpose of the step that was taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from solver.dynamics import Dynamics
from solver.types import FloatArray

__all__ = ["Cotangents", "Scheme", "Step"]


@dataclass(frozen=True)
class Step:
    """One step as it was taken, with what its transpose needs.

    Attributes:
        dt: Δt.
        W: FFN weights, (d, m).
        before: μⁿ, (labels, local nodes).
        moments: Attention moments of every stage, (stages, rank).
        stages: Results of the implicit solves in order; the last is μⁿ⁺¹.
    """

    dt: float
    W: FloatArray
    before: FloatArray
    moments: tuple[FloatArray, ...]
    stages: tuple[FloatArray, ...]

    @property
    def after(self) -> FloatArray:
        """μⁿ⁺¹."""
        return self.stages[-1]


@dataclass(frozen=True)
class Cotangents:
    """Sensitivities of the objective before a step.

    Attributes:
        mu: With respect to the nodal values of μⁿ; owned entries valid.
        W: With respect to W_n: this rank's share, (d, m).
    """

    mu: FloatArray
    W: FloatArray


class Scheme(Protocol):
    """A one-step method: positive and conservative at any Δt, with an exact adjoint."""

    def step(self, dynamics: Dynamics, mu: FloatArray, W: FloatArray, dt: float) -> Step:
        """Advance μⁿ (ghosts valid) by Δt. Collective."""

    def pullback(self, dynamics: Dynamics, step: Step, mu_bar: FloatArray) -> Cotangents:
        """Transpose of the derivative of `step`, applied to the sensitivity of μⁿ⁺¹. Collective."""
