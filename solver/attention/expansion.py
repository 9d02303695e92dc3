"""Separable expansion of the attention kernel e^{⟨x,Ay⟩} on the sphere: h(x, y) = Σ_r s_r ψ_r(x) ψ_r(y).

The kernel is analytic, so few terms give ten digits. A pivoted Cholesky factorisation on sample points of the sphere
spans the kernel's sections (Nyström), and a rotation to principal directions of the uniform law drops what is not
needed. Nothing here knows of a mesh.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from solver.types import FloatArray

__all__ = ["Expansion", "expand", "exponential_kernel"]

_SAMPLES = {2: 2000, 3: 6000}
_SAMPLES_BEYOND = 6000
_CHECKED_PAIRS = 2000


@dataclass(frozen=True)
class Expansion:
    """h(x, y) ≈ Σ_r signs_r ψ_r(x) ψ_r(y), with ψ(x) = e^{⟨x,A·pivots⟩} @ weights.

    Attributes:
        matrix: A, shape (d, d).
        pivots: Points whose kernel sections span the expansion, shape (sections, d).
        weights: Shape (sections, rank).
        signs: ±1, shape (rank,); all +1 for a positive semidefinite kernel.
        error: Measured on random pairs of points: max |h − Σ| / max h.
    """

    matrix: FloatArray
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
        return exponential_kernel(self.matrix, x, self.pivots) @ self.weights


def exponential_kernel(matrix: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
    """e^{⟨x,Ay⟩} for all pairs, shape (points of x, points of y) (P1's symmetric unnormalised attention)."""
    return np.exp(x @ matrix @ y.T)


def expand(matrix: FloatArray, tolerance: float) -> Expansion:
    """Expand e^{⟨x,Ay⟩} on S^{d-1}. Pure: the same input gives the same bits.

    Args:
        matrix: A, symmetric positive semidefinite, shape (d, d).
        tolerance: Bound on max |h − Σ| / max h. The remainder of a positive semidefinite kernel is positive
            semidefinite, so its diagonal bounds all of it; the diagonal is what is controlled.

    Raises:
        ValueError: The tolerance is not reached with as many sections as sample points.
    """
    dimension = len(matrix)
    points = sample_points(dimension)
    scale = math.exp(float(np.linalg.eigvalsh(matrix)[-1]))
    pivots, factor, sections = _pivoted_cholesky(matrix, points, 0.01 * tolerance * scale)
    covariance = sections.T @ sections / len(points)
    _, rotation = np.linalg.eigh(covariance)
    rotation = rotation[:, ::-1]
    tails = np.cumsum(((sections @ rotation) ** 2)[:, ::-1], axis=1)[:, ::-1].max(axis=0)
    rank = max(1, int(np.count_nonzero(tails > 0.5 * tolerance * scale)))
    weights = solve_triangular(factor, rotation[:, :rank], lower=True, trans="T")
    expansion = Expansion(matrix, pivots, weights, np.ones(rank), 0.0)
    error = _measured_error(expansion, scale)
    if error > tolerance:
        raise ValueError(f"the attention kernel's expansion reaches {error:.1e}, not the tolerance {tolerance:.1e}")
    return Expansion(matrix, pivots, weights, expansion.signs, error)


def sample_points(dimension: int) -> FloatArray:
    """Points spread evenly over S^{d-1}: equal angles, a Fibonacci lattice, or (d > 3) seeded random ones."""
    count = _SAMPLES.get(dimension, _SAMPLES_BEYOND)
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


def _pivoted_cholesky(
    matrix: FloatArray, points: FloatArray, threshold: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Greedy Nyström basis: pivots P, factor R with K(P,P) = R Rᵀ, and K(points,P) R⁻ᵀ."""
    remainder = np.exp(np.einsum("nd,nd->n", points @ matrix, points))
    chosen: list[int] = []
    sections = np.empty((len(points), 64))
    while remainder.max() > threshold:
        if len(chosen) == len(points):
            raise ValueError("the attention kernel has too many significant terms for a separable expansion")
        pivot = int(np.argmax(remainder))
        count = len(chosen)
        if count == sections.shape[1]:
            sections = np.concatenate([sections, np.empty_like(sections)], axis=1)
        column = exponential_kernel(matrix, points, points[pivot : pivot + 1])[:, 0]
        column -= sections[:, :count] @ sections[pivot, :count]
        if column[pivot] <= 0.0:
            raise ValueError("the attention kernel's expansion reaches round-off before the tolerance")
        column /= math.sqrt(column[pivot])
        sections[:, count] = column
        chosen.append(pivot)
        remainder = np.maximum(remainder - column**2, 0.0)
        remainder[pivot] = 0.0
    sections = sections[:, : len(chosen)].copy()
    return points[chosen], np.tril(sections[chosen]), sections


def _measured_error(expansion: Expansion, scale: float) -> float:
    """Largest error on random pairs that took no part in the construction, relative to the kernel's maximum."""
    dimension = len(expansion.matrix)
    x, y = (_random_points(_CHECKED_PAIRS, dimension, seed) for seed in (2, 3))
    exact = np.exp(np.einsum("nd,nd->n", x @ expansion.matrix, y))
    series = np.einsum("nr,nr->n", expansion.features(x) * expansion.signs, expansion.features(y))
    return float(np.abs(series - exact).max() / scale)
