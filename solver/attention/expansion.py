"""Separable expansion of an attention kernel on the sphere: h(x, y) = Σ_r s_r ψ_r(x) ψ_r(y).

The kernel is analytic, so few terms give ten digits. For a positive semidefinite kernel a pivoted Cholesky
factorisation on sample points of the sphere spans the kernel's sections (Nyström), and a rotation to principal
directions of the uniform law drops what is not needed. A kernel with negative directions is expanded in the
eigenvectors of its values on sample points, with their signs. Nothing here knows of a mesh.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

from solver.attention.kernels import Kernel
from solver.types import FloatArray

__all__ = ["Expansion", "expand", "kernel_range", "sample_points"]

_SAMPLES = {2: 2000, 3: 6000}
_SAMPLES_BEYOND = 6000
_SPECTRAL_SAMPLES = 1499  # an eigenvalue problem of this size; prime, lest symmetric kernels be met at their kinks only
_RANGE_SAMPLES = 600
_CHECKED_POINTS = 400  # all pairs of them
_BLOCK = 200
_ROUND_OFF = 1e-14


@dataclass(frozen=True)
class Expansion:
    """h(x, y) ≈ Σ_r signs_r ψ_r(x) ψ_r(y), with ψ(x) = h(x, pivots) @ weights.

    Attributes:
        kernel: h.
        pivots: Points whose kernel sections span the expansion, shape (sections, d).
        weights: Shape (sections, rank).
        signs: ±1, shape (rank,); all +1 for a positive semidefinite kernel.
        error: Measured on random pairs of points: max |h − Σ|, relative to what the tolerance is relative to.
    """

    kernel: Kernel
    pivots: FloatArray
    weights: FloatArray
    signs: FloatArray
    error: float

    @property
    def rank(self) -> int:
        """Number of terms."""
        return len(self.signs)

    def features(self, x: FloatArray) -> FloatArray:
        """ψ(x), shape (points, rank), for unit vectors x of shape (points, d)."""
        return self.kernel(x, self.pivots) @ self.weights


def kernel_range(kernel: Kernel, dimension: int) -> tuple[float, float]:
    """Smallest and largest value of h on points spread evenly over S^{d-1}.

    Raises:
        ValueError: h has a wrong shape, is not finite or not symmetric.
    """
    x = sample_points(dimension, _RANGE_SAMPLES)
    h = np.asarray(kernel(x, x))
    if h.shape != (len(x), len(x)):
        raise ValueError(f"the kernel of {len(x)} and {len(x)} points has shape {h.shape}")
    if not np.isfinite(h).all():
        raise ValueError("the kernel is not finite")
    if np.abs(h - h.T).max() > 1e-12 * np.abs(h).max():
        raise ValueError("the kernel is not symmetric: h(x, y) = h(y, x) is needed")
    opposite = _pairwise(kernel, x, -x)
    return float(min(h.min(), opposite.min())), float(max(h.max(), opposite.max()))


def expand(
    kernel: Kernel, dimension: int, tolerance: float, reference: float | None = None, limit: int | None = None
) -> Expansion:
    """Expand a symmetric kernel on S^{d-1}. Pure: the same input gives the same bits.

    Args:
        kernel: h.
        dimension: d.
        tolerance: Bound on max |h − Σ| / reference. The remainder of a positive semidefinite kernel is positive
            semidefinite, so its diagonal bounds all of it; the diagonal is what is controlled.
        reference: What errors are relative to; None is max |h|. The logarithm of a mean field needs min h.
        limit: Largest number of sections; None is as many as there are sample points.

    Raises:
        ValueError: The tolerance is not reached.
    """
    if reference is None:
        reference = max(map(abs, kernel_range(kernel, dimension)))
    if reference == 0.0:  # h = 0
        return Expansion(kernel, sample_points(dimension, 2)[:1], np.ones((1, 1)), np.ones(1), 0.0)
    expansion = _positive(kernel, dimension, tolerance * reference, limit)
    if expansion is None:
        expansion = _indefinite(kernel, dimension, tolerance * reference)
    error = _measured_error(expansion, dimension) / reference
    if not error <= tolerance:  # nan too
        raise ValueError(f"the attention kernel's expansion reaches {error:.1e}, not the tolerance {tolerance:.1e}")
    return replace(expansion, error=error)


def sample_points(dimension: int, count: int | None = None) -> FloatArray:
    """Points spread evenly over S^{d-1}: equal angles, a Fibonacci lattice, or (d > 3) seeded random ones."""
    count = count or _SAMPLES.get(dimension, _SAMPLES_BEYOND)
    k: FloatArray = np.arange(count, dtype=np.float64)
    if dimension == 2:
        angle = 2 * math.pi / count * k
        return np.column_stack([np.cos(angle), np.sin(angle)])
    if dimension == 3:
        height = 1 - (2 * k + 1) / count
        angle = math.pi * (3 - math.sqrt(5)) * k
        radius = np.sqrt(1 - height**2)
        return np.column_stack([radius * np.cos(angle), radius * np.sin(angle), height])
    return _random_points(count, dimension, seed=1)


def _random_points(count: int, dimension: int, seed: int) -> FloatArray:
    x = np.random.default_rng(seed).standard_normal((count, dimension))
    points: FloatArray = x / np.linalg.norm(x, axis=1, keepdims=True)
    return points


def _pairwise(kernel: Kernel, x: FloatArray, y: FloatArray) -> FloatArray:
    """h(x_n, y_n), shape (points,), by blocks."""
    blocks = [np.diagonal(kernel(x[n : n + _BLOCK], y[n : n + _BLOCK])) for n in range(0, len(x), _BLOCK)]
    return np.concatenate(blocks)


def _positive(kernel: Kernel, dimension: int, threshold: float, limit: int | None) -> Expansion | None:
    """Expansion of a positive semidefinite kernel up to this absolute error; None if it is not one."""
    points = sample_points(dimension)
    found = _pivoted_cholesky(kernel, points, 0.01 * threshold, len(points) if limit is None else limit)
    if found is None:
        return None
    pivots, factor, sections = found
    _, rotation = np.linalg.eigh(sections.T @ sections / len(points))
    rotation = rotation[:, ::-1]
    tails = np.cumsum(((sections @ rotation) ** 2)[:, ::-1], axis=1)[:, ::-1].max(axis=0)
    rank = max(1, int(np.count_nonzero(tails > 0.5 * threshold)))
    weights = solve_triangular(factor, rotation[:, :rank], lower=True, trans="T")
    return Expansion(kernel, pivots, weights, np.ones(rank), 0.0)


def _pivoted_cholesky(
    kernel: Kernel, points: FloatArray, threshold: float, limit: int
) -> tuple[FloatArray, FloatArray, FloatArray] | None:
    """Greedy Nyström basis: pivots P, factor R with K(P,P) = R Rᵀ, and K(points,P) R⁻ᵀ; None if K is indefinite."""
    remainder = _pairwise(kernel, points, points)
    round_off = _ROUND_OFF * np.abs(remainder).max()
    chosen: list[int] = []
    sections = np.empty((len(points), 64))
    while remainder.max() > threshold:
        if len(chosen) >= min(limit, len(points)):
            raise ValueError("the attention kernel has too many significant terms for a separable expansion")
        pivot = int(np.argmax(remainder))
        count = len(chosen)
        if count == sections.shape[1]:
            sections = np.concatenate([sections, np.empty_like(sections)], axis=1)
        column = kernel(points, points[pivot : pivot + 1])[:, 0]
        column -= sections[:, :count] @ sections[pivot, :count]
        if column[pivot] <= 0.0:
            raise ValueError("the attention kernel's expansion reaches round-off before the tolerance")
        column /= math.sqrt(column[pivot])
        sections[:, count] = column
        chosen.append(pivot)
        remainder = remainder - column**2
        if remainder.min() < -max(threshold, 100 * round_off):
            return None
        remainder[pivot] = 0.0
    if remainder.min() < -max(threshold, 100 * round_off) or not chosen:
        return None
    sections = sections[:, : len(chosen)].copy()
    return points[chosen], np.tril(sections[chosen]), sections


def _indefinite(kernel: Kernel, dimension: int, threshold: float) -> Expansion:
    """Expansion with signs, from the eigenvectors of the kernel's values on points spread evenly."""
    points = sample_points(dimension, _SPECTRAL_SAMPLES)
    values, vectors = np.linalg.eigh(kernel(points, points))
    size = np.abs(values)
    # A term's field is at most |λ| |u_r(x)|² ~ |λ|/n; below round-off of the largest, dividing by λ adds noise only.
    kept = size > max(0.01 * threshold * len(points), _ROUND_OFF * size.max())
    order = np.argsort(-size[kept])
    weights = (vectors[:, kept] / np.sqrt(size[kept]))[:, order]
    return Expansion(kernel, points, weights, np.sign(values[kept])[order], 0.0)


def _measured_error(expansion: Expansion, dimension: int) -> float:
    """Largest error on all pairs of random points that took no part in the construction."""
    x, y = (_random_points(_CHECKED_POINTS, dimension, seed) for seed in (2, 3))
    series = (expansion.features(x) * expansion.signs) @ expansion.features(y).T
    return float(np.abs(series - expansion.kernel(x, y)).max())
