"""Backtracking until J decreases sufficiently (Armijo)."""

from __future__ import annotations

import math
from collections.abc import Generator

import numpy as np

from solver.optimisers.protocol import Answer, Iterate, Point, evaluate
from solver.types import FloatArray

__all__ = ["NO_LOWER_POINT", "backtrack", "decreases", "moved"]

NO_LOWER_POINT = "the line search found no lower point: J cannot be lowered further along the search direction"

_SUFFICIENT = 1e-4
_TRIALS = 60
_SMALLEST_CUT, _LARGEST_CUT, _CUT_AT_INFINITY = 0.01, 0.5, 0.1


def decreases(here: Point, slope: float, step: float, J: float) -> bool:
    """Armijo's condition J(u + s d) ≤ J(u) + 1e-4 s ⟨∇J, d⟩ (Nocedal and Wright, Numerical Optimization, (3.4)).

    In double precision the last term may vanish beside J: J must also be lower than before.
    """
    sufficient = here.J + _SUFFICIENT * step * slope
    return J < here.J and sufficient >= J


def moved(u: FloatArray, step: float, direction: FloatArray) -> FloatArray:
    """u + step · direction; entries beyond the range of doubles become infinite or nan."""
    with np.errstate(over="ignore", invalid="ignore"):
        return u + step * direction


def backtrack(
    here: Point, direction: FloatArray, step: float
) -> Generator[FloatArray | Iterate, Answer, tuple[float, Point] | None]:
    """Shorten a step until J decreases sufficiently; for use with ``yield from``.

    Every evaluation brings the gradient too, so a failed trial tells where the slope along the line would vanish.

    Args:
        here: Where the line starts.
        direction: A descent direction there.
        step: First trial.

    Returns:
        The accepted step and its point, or None where no trial lowers J.
    """
    slope = float(here.gradient @ direction)
    for _ in range(_TRIALS):
        u = moved(here.u, step, direction)
        if np.array_equal(u, here.u):
            break
        point = yield from evaluate(u)
        if decreases(here, slope, step, point.J):
            return step, point
        step *= _cut(here, direction, slope, step, point)
    return None


def _cut(here: Point, direction: FloatArray, slope: float, step: float, failed: Point) -> float:
    """The factor by which to shorten a failed step: the lowest point of the parabolas through what is known."""
    if not math.isfinite(failed.J):
        return _CUT_AT_INFINITY
    bend = failed.J - here.J - step * slope
    cut = -0.5 * step * slope / bend if bend > 0 else _LARGEST_CUT  # 0 where all of it is round-off
    slope_there = float(failed.gradient @ direction)
    if slope_there > 0:
        cut = min(cut, slope / (slope - slope_there))
    return min(max(cut, _SMALLEST_CUT), _LARGEST_CUT)
