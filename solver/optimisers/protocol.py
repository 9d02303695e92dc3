"""What an optimiser is given, what it proposes and what it returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from solver.types import FloatArray

__all__ = ["Iterate", "Optimiser", "Outcome", "Point", "Proposals", "Settings", "ending", "evaluate", "iterate_at"]

_LARGEST = 1e150  # an entry of u; beyond, ‖u‖² overflows


@dataclass(frozen=True)
class Settings:
    """When to stop, and what single methods want to know.

    Attributes:
        max_iterations: Iterations at most.
        gradient_norm: Converged when ‖∇J‖ is at most this.
        step: `gradient`: α of fixed steps u ← u − α∇J, or "armijo".
        relaxation: `sweep`: the first ω, in (0, 1].
        anderson: `sweep`: number of differences that Anderson acceleration keeps; 0 switches it off.
        regularization: λ_reg; `sweep` needs it above 0.
    """

    max_iterations: int
    gradient_norm: float
    step: float | Literal["armijo"] = "armijo"
    relaxation: float = 0.5
    anderson: int = 5
    regularization: float = 0.0


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


Answer = tuple[float, FloatArray] | None
"""(J, ∇J) for a proposed point, None for an accepted iterate."""

Proposals = Generator[FloatArray | Iterate, Answer, Outcome]
"""Yields points u, to each of which (J, ∇J) is sent back, and accepted iterates, to which None is; returns the outcome.

Both are in the variables u_n = √Δt_n W_n, flat, in which the Euclidean norm is that of L²(0,T). J is ∞ where it cannot
be computed. Every iterate was proposed before; iteration 0 is the start.
"""

Optimiser = Callable[[FloatArray, Settings], Proposals]
"""A descent method from a start. It calls nothing of the problem's, so it knows neither MPI nor meshes; every rank runs
it on the same numbers.
"""


@dataclass(frozen=True)
class Point:
    """A point with its objective and gradient, both flat."""

    u: FloatArray
    J: float
    gradient: FloatArray

    @property
    def gradient_norm(self) -> float:
        """‖∇J‖."""
        return float(np.linalg.norm(self.gradient))


def evaluate(u: FloatArray) -> Generator[FloatArray | Iterate, Answer, Point]:
    """Propose u and wait for the answer; for use with ``yield from``. A point that is no control has J = ∞, unasked."""
    if not np.abs(u).max(initial=0.0) <= _LARGEST:  # nan too
        return Point(u, math.inf, np.full_like(u, math.nan))
    answer = yield u
    if answer is None:
        raise TypeError("a proposed point is answered by (J, gradient)")
    return Point(u, *answer)


def iterate_at(point: Point, previous: Iterate | None = None) -> Iterate:
    """The iterate after `previous`, at a point."""
    if previous is None:
        return Iterate(0, point.u, point.J, point.gradient_norm, 0.0)
    step = float(np.linalg.norm(point.u - previous.u))
    return Iterate(previous.iteration + 1, point.u, point.J, point.gradient_norm, step)


def ending(last: Iterate, settings: Settings) -> Outcome | None:
    """The outcome, if an iterate meets the tolerance or was the last one allowed."""
    if last.gradient_norm <= settings.gradient_norm:
        return Outcome(
            last, True, "gradient tolerance met" if last.iteration else "the start already meets the tolerance"
        )
    if last.iteration >= settings.max_iterations:
        count = f"{last.iteration} iteration{'s' if last.iteration > 1 else ''}"
        return Outcome(last, False, f"stopped after {count}" if last.iteration else "no iterations allowed")
    return None
