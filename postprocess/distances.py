"""Wasserstein-1 distance between a law and tokens: exact on the circle, sliced on the sphere.

Circle (geodesic distance in rad): W₁ = min_c ∫₀^{2π} |F − G − c| dθ, F and G the cumulative functions from any origin;
the best c is the median of F − G over the circle (Rabin, Delon, Gousseau, J. Math. Imaging Vis. 41, 2011). Between two
neighbouring breakpoints (nodes and tokens) G is constant and F a rising parabola, so all of it is exact.

Sphere (chordal distance): the mean over fixed directions u of W₁ on the line between the projections ⟨u, ·⟩. For two
points a chord c apart it is c/2, and in general at most half the chordal W₁. The law enters through a quadrature of its
triangles.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from postprocess.densities import CircleLaw, DensitySeries, SphereLaw, mass_crossing

__all__ = [
    "circle_distance",
    "distance",
    "frame_distance",
    "sampling_distances",
    "sliced_distance",
    "sliced_law_distance",
]

FloatArray = NDArray[np.float64]

_DIRECTIONS = 48
_CELLS = 4096  # of [−1, 1], in which projections are sorted
_BISECTIONS = 60
_QUANTILES = 1000


def distance(law: CircleLaw | SphereLaw, tokens: FloatArray) -> float:
    """W₁ between a law and the empirical measure of unit vectors (N, d): rad on the circle, sliced on the sphere."""
    if isinstance(law, CircleLaw):
        return circle_distance(law, np.arctan2(tokens[:, 1], tokens[:, 0]))
    return sliced_law_distance(law, tokens, np.full(len(tokens), 1.0 / len(tokens)))


def sampling_distances(law: CircleLaw | SphereLaw, count: int, draws: int, key: Sequence[int]) -> FloatArray:
    """The distance that `count` independent samples of the law have from it, (draws,).

    Args:
        law: The law.
        count: N.
        draws: Number of independent repetitions.
        key: Seeds the random numbers; equal keys give equal numbers.
    """
    return np.array([distance(law, law.samples(np.random.default_rng([*key, k]), count)) for k in range(draws)])


def frame_distance(series: DensitySeries, first: int, second: int) -> float:
    """Distance between the laws of two frames; on the circle from 1000 quantiles of the second."""
    one, other = series.frame(first), series.frame(second)
    if isinstance(one, CircleLaw) and isinstance(other, CircleLaw):
        return circle_distance(one, other.quantiles((np.arange(_QUANTILES) + 0.5) / _QUANTILES))
    assert isinstance(one, SphereLaw)
    assert isinstance(other, SphereLaw)
    return _slices_distance(_law_slices(one), _law_slices(other))


def sliced_law_distance(law: SphereLaw, tokens: FloatArray, mass: FloatArray) -> float:
    """Sliced W₁ between a law on the sphere and masses (N,) of sum 1, of either sign, at unit vectors (N, 3)."""
    return _slices_distance(_law_slices(law), _slices(tokens, mass))


@lru_cache(maxsize=4)  # one law is compared with many sets of tokens
def _law_slices(law: SphereLaw) -> FloatArray:
    return _slices(*law.quadrature)


def circle_distance(law: CircleLaw, angles: FloatArray) -> float:
    """Exact W₁ between a law on the circle and N points at `angles` (N,), each of mass 1/N; rad."""
    start = law.angles[0]
    points = np.sort(start + np.mod(angles - start, 2.0 * np.pi))
    nodes = len(law.angles)
    breaks = np.concatenate([law.angles, points])
    order = np.argsort(breaks, kind="stable")  # merges two sorted runs
    at = breaks[order]
    tokens_below = np.cumsum(order >= nodes)[:-1] / len(points)
    cell = np.minimum(np.cumsum(order < nodes), nodes - 1) - 1
    width = law.angles[cell + 1] - law.angles[cell]
    offset = at - law.angles[cell]
    density = law.values[cell] + offset / width * (law.values[cell + 1] - law.values[cell])
    mass = law.cumulative[cell] + 0.5 * offset * (law.values[cell] + density)
    length = np.diff(at)
    kept = length > 0.0
    length, low = length[kept], (mass[:-1] - tokens_below)[kept]
    high = (mass[1:] - tokens_below)[kept]
    left, right = density[:-1][kept], density[1:][kept]
    shift = _median(low, high, length, left, right)
    crossing = np.where(low < shift, mass_crossing(np.maximum(shift - low, 0.0), length, left, right), 0.0)
    crossing = np.where(high <= shift, length, crossing)
    below = _integral(crossing, low - shift, length, left, right)
    whole = _integral(length, low - shift, length, left, right)
    return float((whole - 2.0 * below).sum())


def _integral(s: FloatArray, level: FloatArray, length: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
    """∫₀ˢ (level + mass from the interval's left end) for a density linear from `left` to `right` over `length`."""
    result: FloatArray = s * (level + s * (left / 2.0 + s * (right - left) / (6.0 * length)))
    return result


def _median(low: FloatArray, high: FloatArray, length: FloatArray, left: FloatArray, right: FloatArray) -> float:
    """c such that F − G < c on half the circle, F − G rising from `low` to `high` on every interval."""
    below, above = _weighted_median(low, length), _weighted_median(high, length)
    active = (low < above) & (high > below)
    settled = length[high <= below].sum()
    half = 0.5 * length.sum()
    low, length, left, right = low[active], length[active], left[active], right[active]
    rise = high[active] - low
    for _ in range(_BISECTIONS):
        c = 0.5 * (below + above)
        if not below < c < above:
            break
        part = mass_crossing(np.clip(c - low, 0.0, rise), length, left, right)
        part = np.where(c >= low + rise, length, part)
        if settled + part.sum() < half:
            below = c
        else:
            above = c
    return 0.5 * (below + above)


def _weighted_median(values: FloatArray, weights: FloatArray) -> float:
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order])
    return float(values[order[np.searchsorted(cumulative, 0.5 * cumulative[-1])]])


def sliced_distance(x: FloatArray, x_mass: FloatArray, y: FloatArray, y_mass: FloatArray) -> float:
    """Sliced W₁ between points x (n, 3) and y (m, 3) with masses of sum 1: the mean over 48 directions."""
    return _slices_distance(_slices(x, x_mass), _slices(y, y_mass))


def _slices_distance(one: FloatArray, other: FloatArray) -> float:
    """Mean over directions of ∫ |F − G| between cumulative functions of `_slices`."""
    return float(np.abs(one - other).sum(axis=1).mean()) * 2.0 / _CELLS


def _slices(x: FloatArray, mass: FloatArray) -> FloatArray:
    """Cumulative functions of the projections ⟨u, x⟩ of points x (n, 3) on [−1, 1], (directions, cells).

    Every mass is shared by the two neighbouring points of an even grid such that its centre stays: sorting all
    projections would be exact, and cost a hundred times more for a millionth of the result.
    """
    result = np.empty((_DIRECTIONS, _CELLS))
    for k, direction in enumerate(_directions(_DIRECTIONS)):
        place = np.clip((x @ direction + 1.0) * (0.5 * _CELLS), 0.0, _CELLS)
        cell = np.minimum(place.astype(np.int64), _CELLS - 1)
        share = (place - cell) * mass
        total = np.bincount(cell, mass - share, _CELLS + 1) + np.bincount(cell + 1, share, _CELLS + 1)
        result[k] = np.cumsum(total)[:-1]
    return result


def _directions(count: int) -> FloatArray:
    """Fibonacci lattice on the upper half sphere, (count, 3): nearly even, so the mean of |⟨u, e⟩| is ½ for any e."""
    k = np.arange(count)
    z = (k + 0.5) / count
    angle = np.pi * (3.0 - np.sqrt(5.0)) * k
    r = np.sqrt(1.0 - z**2)
    return np.column_stack([r * np.cos(angle), r * np.sin(angle), z])
