"""What an optimiser is given and what it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from solver.types import FloatArray

__all__ = ["Iterate", "Objective", "Optimiser", "Outcome", "Settings"]

Objective = Callable[[FloatArray], tuple[float, FloatArray]]
"""u ↦ (J, ∇J) in the variables u_n = √Δt_n W_n, in which the Euclidean norm is that of L²(0,T)."""


@dataclass(frozen=True)
class Settings:
    """When to stop.

    Attributes:
        max_iterations: Iterations at most.
        gradient_norm: Converged when ‖∇J‖ is at most this.
    """

    max_iterations: int
    gradient_norm: float


@dataclass(frozen=True)
class Iterate:
    """An accepted point.

    Attributes:
        iteration: 0 is the start.
        u: The point, flat.
        J: Its objective.
        gradient_norm: ‖∇J‖.
        step: ‖u − previous u‖.
    """

    iteration: int
    u: FloatArray
    J: float
    gradient_norm: float
    step: float


@dataclass(frozen=True)
class Outcome:
    """How an optimisation ended.

    Attributes:
        last: The last accepted point.
        converged: Whether the gradient tolerance was met; nothing else counts.
        reason: In words.
    """

    last: Iterate
    converged: bool
    reason: str


class Optimiser(Protocol):
    """A descent method. Runs identically on every rank: J and ∇J are the same there."""

    def __call__(
        self, objective: Objective, start: FloatArray, settings: Settings, report: Callable[[Iterate], None]
    ) -> Outcome:
        """Minimise from `start`, calling `report` for the start and after every iteration."""
