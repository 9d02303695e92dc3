"""Forward-backward sweeps: the relaxed fixed point of W = −(1/λ_reg) Σρ∫∇φσᵀdμ."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator

import numpy as np

from solver.optimisers.linesearch import NO_LOWER_POINT, backtrack, decreases
from solver.optimisers.protocol import (
    Answer,
    Iterate,
    Outcome,
    Point,
    Proposals,
    Settings,
    ending,
    evaluate,
    iterate_at,
)
from solver.types import FloatArray

__all__ = ["sweep"]

_RANK_TOLERANCE = 1e-8


def sweep(start: FloatArray, settings: Settings) -> Proposals:
    """See `Optimiser`. u ← u + ω (G(u) − u), G(u) = u − ∇J(u)/λ_reg: a forward sweep, a backward sweep, an update.

    J decreases at every iteration: ω is cut back until it does. A constant ω that is safe for the stiffest direction
    (curvature 152 on the circle, against λ_reg = 0.01 for nearly all others) would need 10⁴ sweeps, so after the first
    step, `settings.relaxation`, ω is the inverse curvature over λ_reg seen along the last step, in its long and its
    short estimate by turns (Barzilai and Borwein 1988; Dai and Fletcher 2005), at most 1.

    With `settings.anderson` > 0 the point of Anderson's acceleration is tried first, and taken if J decreases
    sufficiently there; else its memory is cleared and the damped step follows. An iteration costs one evaluation and
    one more for every trial that fails.
    """
    omega = settings.relaxation
    memory = _Memory(settings.anderson, settings.regularization)
    here = yield from evaluate(start)
    last = iterate_at(here)
    yield last
    while (outcome := ending(last, settings)) is None:
        before = here
        point = yield from _accelerated(here, memory)
        if point is None:
            memory.clear()
            found = yield from backtrack(here, -here.gradient, omega / settings.regularization)
            if found is None:
                return Outcome(last, False, NO_LOWER_POINT)
            _, point = found
        here = point
        last = iterate_at(here, last)
        yield last
        memory.add(before, here)
        omega = _relaxation(before, here, settings.regularization, long=last.iteration % 2 == 1)
    return outcome


def _relaxation(before: Point, here: Point, regularization: float, long: bool) -> float:
    """λ_reg over the curvature along the step just taken, as ⟨s,y⟩/⟨s,s⟩ (long) or ⟨y,y⟩/⟨s,y⟩; in (0, 1]."""
    s, y = here.u - before.u, here.gradient - before.gradient
    sy = float(s @ y)
    if sy <= 0.0:  # J bends down
        return 1.0
    return min(1.0, regularization * (float(s @ s) / sy if long else sy / float(y @ y)))


class _Memory:
    """Differences of the last points and of their residuals f = G(u) − u."""

    def __init__(self, size: int, regularization: float) -> None:
        self._u: deque[FloatArray] = deque(maxlen=size)
        self._f: deque[FloatArray] = deque(maxlen=size)
        self._regularization = regularization

    def clear(self) -> None:
        self._u.clear()
        self._f.clear()

    def add(self, before: Point, here: Point) -> None:
        self._u.append(here.u - before.u)
        self._f.append((before.gradient - here.gradient) / self._regularization)

    def direction(self, here: Point) -> FloatArray | None:
        """Anderson's step f − (ΔU + ΔF)γ, γ = argmin ‖f − ΔFγ‖ (Walker and Ni 2011, type II); None without memory.

        Near-dependent columns of ΔF are dropped by the least squares' rank tolerance.
        """
        if not self._u:
            return None
        f = -here.gradient / self._regularization
        residuals = np.array(self._f).T
        sizes = np.linalg.norm(residuals, axis=0)
        sizes[sizes == 0.0] = 1.0
        gamma = np.linalg.lstsq(residuals / sizes, f, rcond=_RANK_TOLERANCE)[0] / sizes
        return f - (np.array(self._u).T + residuals) @ gamma


def _accelerated(here: Point, memory: _Memory) -> Generator[FloatArray | Iterate, Answer, Point | None]:
    """The accelerated point, if there is one and J decreases sufficiently there."""
    direction = memory.direction(here)
    if direction is None:
        return None
    slope = float(here.gradient @ direction)
    if not slope < 0.0:
        return None
    point = yield from evaluate(here.u + direction)
    return point if decreases(here, slope, 1.0, point.J) else None
