"""Gradient descent: fixed steps or Armijo's."""

from __future__ import annotations

import math

from solver.optimisers.linesearch import NO_LOWER_POINT, backtrack, moved
from solver.optimisers.protocol import Outcome, Proposals, Settings, ending, evaluate, iterate_at
from solver.types import FloatArray

__all__ = ["gradient"]

_GROWTH = 2.0
_DIVERGED = 1e4  # ‖∇J‖ over that at the start


def gradient(start: FloatArray, settings: Settings) -> Proposals:
    """See `Optimiser`. u ← u − α∇J with `settings.step` as α, or with an α such that J decreases sufficiently.

    In L²(0,T) this is W ← W − α g; a single fixed step from W = 0 is P1's 1-GD, W = −α g. Armijo's first trial moves W
    by 1, later ones by twice the last accepted α; an iteration costs one evaluation and one more for every trial that
    fails (fixed steps: one).
    """
    fixed = None if settings.step == "armijo" else settings.step
    here = yield from evaluate(start)
    first = last = iterate_at(here)
    yield last
    step: float | None = None
    while (outcome := ending(last, settings)) is None:
        if fixed is not None:
            here = yield from evaluate(moved(here.u, -fixed, here.gradient))
            if not math.isfinite(here.J):
                return Outcome(last, False, f"diverged: J is not finite after a step of {fixed:g}; take a smaller step")
        else:
            trial = 1.0 / last.gradient_norm if step is None else _GROWTH * step
            found = yield from backtrack(here, -here.gradient, trial)
            if found is None:
                return Outcome(last, False, NO_LOWER_POINT)
            step, here = found
        last = iterate_at(here, last)
        yield last
        if last.gradient_norm > _DIVERGED * first.gradient_norm and last.iteration < settings.max_iterations:
            grown = f"the gradient has grown {last.gradient_norm / first.gradient_norm:.1e}-fold"
            return Outcome(last, False, f"diverged: {grown} with steps of {settings.step}; take a smaller step")
    return outcome
