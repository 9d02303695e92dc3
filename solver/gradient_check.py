"""Is it the gradient? Asked when a line search finds no lower point."""

from __future__ import annotations

import itertools
import math

import numpy as np

from solver.log import LOG
from solver.problem import Problem
from solver.sweeps import SweepError
from solver.types import FloatArray

__all__ = ["judge_gradient"]

_RELATIVE_ROUND_OFF = 1e-11  # of J
_DIFFERENCES = 10.0 ** -np.arange(3.0, 10.0)  # lengths relative to ‖W‖


def judge_gradient(problem: Problem, W: FloatArray) -> str:
    """Compare the gradient with differences of J along itself; log the verdict and return it. Collective.

    The best of central differences along the gradient over several lengths counts: long ones are spoilt by the
    curvature of J, short ones by round-off. Where they do not settle, nothing can be said.
    """
    _, gradient = problem.gradient(W)
    norm = math.sqrt(problem.squared_norm(gradient))
    direction = gradient / norm
    size = max(1.0, math.sqrt(problem.squared_norm(W)))
    measured = []
    for scale in size * _DIFFERENCES:
        try:
            ahead, behind = (problem.gradient(W + sign * scale * direction)[0] for sign in (1.0, -1.0))
        except SweepError:
            continue
        if abs(ahead - behind) > _RELATIVE_ROUND_OFF * abs(ahead):
            measured.append((ahead - behind) / (2.0 * scale))
    best = min(measured, key=lambda slope: abs(slope - norm), default=math.nan)
    settled = any(abs(b - a) < 1e-2 * abs(b) for a, b in itertools.pairwise(measured))
    if abs(best - norm) < 1e-3 * norm:
        verdict = "the gradient is right; J cannot be lowered further in double precision"
    elif not settled:
        verdict = "inconclusive: J bends too sharply for differences above round-off; J cannot be lowered further"
    else:
        verdict = "the gradient does not match J: check a loss of your own with solver.verify, else report this case"
    LOG.warning("gradient check along itself: %.6e, by differences %.6e: %s", norm, best, verdict)
    return verdict
