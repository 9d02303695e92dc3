"""Depth grids: t_0 = 0 < t_1 < … < t_steps = T. One step is one layer of the network."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq

from solver.types import FloatArray

__all__ = ["graded_grid", "graded_steps", "uniform_grid"]


def uniform_grid(T: float, steps: int) -> FloatArray:
    """Equal steps, shape (steps + 1,)."""
    return np.linspace(0.0, T, steps + 1)


def graded_steps(T: float, first_step: float, layer: float, growth: float) -> FloatArray:
    """Step sizes of the first half of a graded grid, shape (steps / 2,); the second half mirrors them.

    Equal steps of at most `first_step` over `layer`, then steps growing by at most `growth` up to T/2.
    """
    half = 0.5 * T
    layer = min(layer, half) if layer > 1e-12 * half else 0.0
    count = math.ceil(layer / first_step * (1 - 1e-12))
    fine = np.full(count, layer / count) if count else np.empty(0)
    rest = half - layer
    if rest <= 1e-12 * half:
        return fine
    exponents = 1.0 + np.arange(_growing_steps(rest, first_step, growth))
    if len(exponents) == 1:
        return np.append(fine, rest)

    def surplus(ratio: float) -> float:
        return float(first_step * np.sum(ratio**exponents) - rest)

    ratio = growth if surplus(growth) <= 0 else brentq(surplus, 0.0, growth, xtol=1e-15)
    coarse = first_step * ratio**exponents
    return np.concatenate([fine, coarse * (rest / coarse.sum())])


def _growing_steps(rest: float, first_step: float, growth: float) -> int:
    """Smallest K with first_step · Σ_{k=1..K} growth^k ≥ rest."""
    if growth == 1.0:
        return math.ceil(rest / first_step * (1 - 1e-12))
    total = rest / first_step * (growth - 1.0) / growth + 1.0
    return max(1, math.ceil(math.log(total) / math.log(growth) - 1e-9))


def graded_grid(T: float, first_step: float, layer: float, growth: float) -> FloatArray:
    """Fine at both ends, coarse in the middle, symmetric about T/2; the number of steps grows like log T."""
    half = graded_steps(T, first_step, layer, growth)
    left = np.concatenate([[0.0], np.cumsum(half)])
    left[-1] = 0.5 * T
    return np.concatenate([left, T - left[-2::-1]])
