"""The papers' closed forms (docs/theory.md): small-ε limits for h = e^{⟨x,Ay⟩} with A = diag(λ₁ ≥ λ₂ ≥ …)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import ive

__all__ = [
    "antipodal_rate",
    "cluster_rate",
    "funk_hecke",
    "growth_rate",
    "hilltop_rates",
    "minimum_energy",
    "rotating_barrier",
    "splitting_barrier",
    "stability_ratio",
    "thermal_variance",
    "token_rate",
]


def minimum_energy(first: float) -> float:
    """E of a Dirac at e₁, −½ e^{λ₁}."""
    return -0.5 * math.exp(first)


def token_rate(first: float) -> float:
    """Relaxation of one token in the field of a cluster at e₁, λ₁ e^{λ₁}."""
    return first * math.exp(first)


def cluster_rate(first: float, other: float) -> float:
    """Relaxation of a whole cluster turned from e₁ towards e_k, (λ₁ − λ_k) e^{λ₁}: R_ρ of `align` with target e_k."""
    return (first - other) * math.exp(first)


def thermal_variance(first: float, epsilon: float) -> float:
    """∫ x_k² dμ of the cluster at e₁, in one direction k > 1: ε/(λ₁ e^{λ₁})."""
    return epsilon / token_rate(first)


def hilltop_rates(first: float, dimension: int, count: int) -> list[float]:
    """Rates of the modes at −e₁, n λ₁e^{−λ₁} for n = d − 1, d, …, each C(n − 1, d − 2) times.

    Near −e₁ tokens run away at rate κ = λ₁e^{−λ₁} in every one of the d − 1 directions: an inverted
    Ornstein–Uhlenbeck process, whose k-th rate in one direction is (k + 1) κ, k = 0, 1, ….
    """
    kappa = first * math.exp(-first)
    rates: list[float] = []
    n = dimension - 1
    while len(rates) < count:
        rates += [n * kappa] * math.comb(n - 1, dimension - 2)
        n += 1
    return rates[:count]


def rotating_barrier(first: float, second: float) -> float:
    """Highest gap on the path that turns the cluster through e₂, ½(e^{λ₁} − e^{λ₂})."""
    return 0.5 * (math.exp(first) - math.exp(second))


def splitting_barrier(first: float) -> float:
    """Highest gap on the path that moves mass from e₁ to −e₁ bit by bit, ¼(e^{λ₁} − e^{−λ₁})."""
    return 0.25 * (math.exp(first) - math.exp(-first))


def antipodal_rate(first: float, other: float) -> float:
    """Rate of two equal clusters at ±e₁ turned against each other towards e_k, λ₁ sinh λ₁ − λ_k cosh λ₁.

    At turns a and −a: a′ = ½[−(λ₁ − λ_k)e^{λ₁} + (λ₁ + λ_k)e^{−λ₁}] a. It is negative beyond `stability_ratio`.
    """
    return first * math.sinh(first) - other * math.cosh(first)


def stability_ratio(first: float) -> float:
    """λ₂/λ₁ beyond which two equal clusters at ±e₁ turn towards each other, tanh λ₁."""
    return math.tanh(first)


def funk_hecke(beta: float, degree: int, dimension: int) -> float:
    """Λ_ℓ, the eigenvalue of f ↦ ∫ e^{β⟨x,y⟩} f(y) dy/|S^{d−1}| on harmonics of degree ℓ; β > 0.

    Γ(d/2) (2/β)^{d/2−1} I_{ℓ+d/2−1}(β).
    """
    half = 0.5 * dimension
    return float(math.gamma(half) * (2.0 / beta) ** (half - 1.0) * ive(degree + half - 1.0, beta) * math.exp(beta))


def growth_rate(beta: float, epsilon: float, degree: int, dimension: int) -> float:
    """Growth of harmonics of degree ℓ around the uniform law for A = βI, ℓ(ℓ + d − 2)(Λ_ℓ − ε)."""
    return degree * (degree + dimension - 2) * (funk_hecke(beta, degree, dimension) - epsilon)


def principal_axes(matrix: Sequence[Sequence[float]]) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues of A, falling, (d,), and its axes as columns, (d, d), pointing along the coordinate axes' sides.

    Where an eigenvalue repeats, the axes are chosen as close to e₁, e₂, … as possible.
    """
    A = np.array(matrix, dtype=np.float64)
    values, vectors = np.linalg.eigh(A)
    order = np.argsort(-values, kind="stable")
    values, vectors = values[order], vectors[:, order]
    axes = np.empty_like(A)
    start = 0
    while start < len(values):
        end = start + int(np.count_nonzero(np.abs(values[start:] - values[start]) <= 1e-12 * max(abs(values[0]), 1.0)))
        space = vectors[:, start:end]
        axes[:, start:end] = _nearest_to_coordinates(space)
        start = end
    return values, axes


def _nearest_to_coordinates(space: np.ndarray) -> np.ndarray:
    """An orthonormal basis of a subspace (d, k): the coordinate axes projected, the longest first come."""
    chosen: list[np.ndarray] = []
    for _ in range(space.shape[1]):
        taken = np.array(chosen).reshape(-1, len(space)).T
        projector = space @ space.T - taken @ taken.T
        lengths = np.round(np.diag(projector), 12)
        axis = projector[:, int(np.argmax(lengths))]
        chosen.append(axis / np.linalg.norm(axis))
    return np.array(chosen).T
