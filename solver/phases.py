"""P1's three phases and the terminal rate, read off a run (docs/model.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solver.types import FloatArray, Json

__all__ = ["Phases", "find_phases", "phase_values", "terminal_rate", "weighted_median"]

PLATEAU_VARIATION = 0.05
ENERGY_STEP = 0.1
RELATIVE_ENERGY_STEP = 0.075
CLUSTERED_RESULTANT = 0.9
COARSEST_FITTED_STEP = 4.0  # in last steps
_FLOOR_ITERATIONS = 20


_PHASE_KEYS = (
    "clustered",
    "plateau",
    "escaped",
    "clustered_relative",
    "escaped_relative",
    "initial_width",
    "plateau_width",
    "final_width",
    "plateau_variation",
    "displacement",
)


@dataclass(frozen=True)
class Phases:
    """Initial clustering, plateau, escape.

    Attributes:
        clustered: E(0) − E_p ≥ 0.1 and resultant > 0.9 throughout the plateau.
        escaped: E(T) − E_p ≥ 0.1.
        clustered_relative: As `clustered`, with the threshold 0.075 |E_p|.
        escaped_relative: As `escaped`, with the threshold 0.075 |E_p|.
        plateau: (start, end) in depth of the interval around T/2 with |E − E_p| ≤ 0.05 |E_p|; None if T/2 is not in it.
        plateau_energy: E_p, the median of E over [T/3, 2T/3].
        plateau_variation: (max E − min E)/|E_p| over [T/3, 2T/3].
        displacement: Angle at T minus the plateau's median angle, rad; None without a plateau.
    """

    clustered: bool
    escaped: bool
    clustered_relative: bool
    escaped_relative: bool
    plateau: tuple[float, float] | None
    plateau_energy: float
    plateau_variation: float
    displacement: float | None


def weighted_median(t: FloatArray, values: FloatArray, start: float, end: float) -> float:
    """Median over depth of the piecewise linear function through (t, values) on [start, end].

    Every sample weighs half the depth of its two neighbouring intervals.
    """
    samples, weights = _samples(t, values, start, end)
    order = np.argsort(samples, kind="stable")
    cumulative = np.cumsum(weights[order])
    return float(np.interp(0.5 * cumulative[-1], cumulative - 0.5 * weights[order], samples[order]))


def _samples(t: FloatArray, values: FloatArray, start: float, end: float) -> tuple[FloatArray, FloatArray]:
    """Values at start, the grid points between, and end, with their depth weights."""
    inside = t[(t > start) & (t < end)]
    points = np.concatenate([[start], inside, [end]])
    half = 0.5 * np.diff(points)
    weights = np.concatenate([half, [0.0]]) + np.concatenate([[0.0], half])
    return np.interp(points, t, values), weights


def find_phases(t: FloatArray, energy: FloatArray, resultant: FloatArray, angle: FloatArray) -> Phases | None:
    """Apply P1's criteria to arrays of shape (steps + 1,); None where there is no energy (nan) to read them off.

    Args:
        t: Depth grid from 0 to T.
        energy: Free energy.
        resultant: Length of the mean vector (with labels: the mean conditional resultant).
        angle: Unwrapped angle of the mean, rad.
    """
    if not np.isfinite(energy).all():
        return None
    T = float(t[-1])
    level = weighted_median(t, energy, T / 3, 2 * T / 3)
    middle, _ = _samples(t, energy, T / 3, 2 * T / 3)
    band = PLATEAU_VARIATION * abs(level)
    plateau = _interval_around(t, np.abs(energy - level) - band, 0.5 * T)
    compact = False
    displacement = None
    if plateau is not None:
        compact = bool(_samples(t, resultant, *plateau)[0].min() > CLUSTERED_RESULTANT)
        displacement = float(angle[-1]) - weighted_median(t, angle, *plateau)
    drop, rise = float(energy[0]) - level, float(energy[-1]) - level
    relative = RELATIVE_ENERGY_STEP * abs(level)
    return Phases(
        clustered=drop >= ENERGY_STEP and compact,
        escaped=rise >= ENERGY_STEP,
        clustered_relative=drop >= relative and compact,
        escaped_relative=rise >= relative,
        plateau=plateau,
        plateau_energy=level,
        plateau_variation=float(middle.max() - middle.min()) / abs(level) if level else math.nan,
        displacement=displacement,
    )


def phase_values(phases: Phases | None, T: float) -> Json:
    """The three phases; all None where there is no energy to tell them by."""
    if phases is None:
        return dict.fromkeys(_PHASE_KEYS)
    start, end = phases.plateau or (None, None)
    values = (
        phases.clustered,
        phases.plateau is not None and phases.plateau_variation <= PLATEAU_VARIATION,
        phases.escaped,
        phases.clustered_relative,
        phases.escaped_relative,
        start,
        None if start is None or end is None else end - start,
        None if end is None else T - end,
        phases.plateau_variation,
        phases.displacement,
    )
    return dict(zip(_PHASE_KEYS, values, strict=True))


def _interval_around(t: FloatArray, excess: FloatArray, centre: float) -> tuple[float, float] | None:
    """Connected interval around `centre` where the piecewise linear `excess` is ≤ 0."""
    if float(np.interp(centre, t, excess)) > 0.0:
        return None
    above = excess > 0
    right = np.flatnonzero(above & (t > centre))
    left = np.flatnonzero(above & (t < centre))
    end = _crossing(t, excess, int(right[0]) - 1, int(right[0])) if len(right) else float(t[-1])
    start = _crossing(t, excess, int(left[-1]), int(left[-1]) + 1) if len(left) else float(t[0])
    return start, end


def _crossing(t: FloatArray, excess: FloatArray, a: int, b: int) -> float:
    return float(t[a] + (t[b] - t[a]) * excess[a] / (excess[a] - excess[b]))


def terminal_rate(t: FloatArray, W: FloatArray) -> float | None:
    """Growth rate a of the control towards T: slope of log ‖W_t − c‖ at mid-step depths.

    c is the mean of W over [T/3, T/2], less what the fitted growth itself puts there: a floor that the initial mass
    near −e₁ and its hilltop mode keep alive. (The mean over the whole plateau would hold the onset of the escape, and
    hide it where the energy rises by little.) The fit uses the last stretch on which ‖W_t − c‖ lies between 10 times
    that mean and 0.05 of its maximum and steps are at most four times the last one. Where the terminal layer of the
    grid is shorter than that stretch (about 8 units of depth for rates near 1), the larger steps distort the rate by a
    few per cent; compare it with that of the gradient at W = 0 on the same grid.

    Args:
        t: Depth grid, (steps + 1,).
        W: Control or gradient, (steps, d, m).

    Returns:
        The rate; None if the stretch is shorter than one e-folding.
    """
    T = float(t[-1])
    dt, middle = np.diff(t), 0.5 * (t[1:] + t[:-1])
    flat = W.reshape(len(dt), -1)
    overlap = np.clip(np.minimum(t[1:], T / 2) - np.maximum(t[:-1], T / 3), 0.0, None)
    mean = overlap / overlap.sum() @ flat
    size = np.linalg.norm(flat - mean, axis=1)
    fine = (dt <= COARSEST_FITTED_STEP * dt[-1]) & (middle > 0.5 * T)
    inside = fine & (size >= 10.0 * np.linalg.norm(mean)) & (size <= 0.05 * size.max()) & (size > 0)
    window = _last_stretch(inside)
    if window is None or np.ptp(np.log(size[window])) < 1.0:
        return None
    floor = mean
    rate, offset = np.polyfit(middle[window] - T, np.log(size[window]), 1)
    for _ in range(_FLOOR_ITERATIONS):
        deviation = flat[window] - floor
        direction = (deviation / size[window, None]).mean(axis=0)
        growth = float(overlap @ np.exp(rate * (middle - T) + offset)) / overlap.sum()
        floor = mean - growth * direction
        size = np.linalg.norm(flat - floor, axis=1)
        rate, offset = np.polyfit(middle[window] - T, np.log(size[window]), 1)
    return float(rate)


def _last_stretch(inside: NDArray[np.bool_]) -> slice | None:
    """The last run of at least three True in a row that ends at the last True."""
    candidates = np.flatnonzero(inside)
    if len(candidates) == 0:
        return None
    first = last = int(candidates[-1])
    while first > 0 and inside[first - 1]:
        first -= 1
    return slice(first, last + 1) if last - first >= 2 else None
