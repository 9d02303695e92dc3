"""The separable expansion of e^{⟨x,Ay⟩}."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import iv

from solver.attention import expansion as module
from solver.attention.expansion import Expansion, sample_points
from solver.attention.kernels import ExponentialKernel

CIRCLE = [((1.0, 0.65), 19), ((4.0, 2.0), 29), ((16.0, 8.0), 47)]
SPHERE = [((1.0, 0.65, 0.3), 82), ((4.0, 2.0, 1.0), 172), ((16.0, 8.0, 4.0), 370)]
ROTATED = np.array([[0.9, 0.25, -0.1], [0.25, 0.6, 0.15], [-0.1, 0.15, 0.4]])


def expand(matrix: np.ndarray, tolerance: float) -> Expansion:
    """Of the exponential kernel, relative to its maximum."""
    return module.expand(ExponentialKernel(matrix), len(matrix), tolerance)


def _unit(count: int, dimension: int, seed: int) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal((count, dimension))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def _error(expansion: Expansion, seed: int = 99) -> float:
    """Relative to the kernel's maximum, over all pairs of points unknown to the construction."""
    d = expansion.pivots.shape[1]
    x, y = _unit(300, d, seed), _unit(300, d, seed + 1)
    axes = np.vstack([np.eye(d), -np.eye(d)])
    x, y = np.vstack([x, axes]), np.vstack([y, axes])
    exact = expansion.kernel(x, y)
    series = (expansion.features(x) * expansion.signs) @ expansion.features(y).T
    return float(np.abs(series - exact).max() / np.abs(exact).max())


@pytest.mark.parametrize(("eigenvalues", "rank"), CIRCLE + SPHERE)
@pytest.mark.serial
def test_rank_is_near_the_number_of_significant_eigenvalues(eigenvalues: tuple[float, ...], rank: int) -> None:
    """Catches a basis that wastes terms (cost grows with the rank) or lacks some: within 20 % of the spectral count."""
    expansion = expand(np.diag(eigenvalues), 1e-10)
    assert 0.8 * rank <= expansion.rank <= 1.2 * rank
    assert expansion.weights.shape == (len(expansion.pivots), expansion.rank)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-6, 1e-10, 1e-12])
@pytest.mark.parametrize("matrix", [np.diag([1.0, 0.65]), np.diag([1.0, 0.65, 0.3]), np.diag([16.0, 8.0]), ROTATED])
@pytest.mark.serial
def test_error_is_within_the_tolerance_everywhere(matrix: np.ndarray, tolerance: float) -> None:
    """Catches an error measured too kindly: points the construction never saw, and the axes, must keep the
    tolerance.
    """
    expansion = expand(matrix, tolerance)
    assert 0.0 < expansion.error <= tolerance
    assert _error(expansion) <= tolerance


@pytest.mark.serial
def test_looser_tolerance_is_cheaper() -> None:
    """Catches a tolerance that is ignored."""
    ranks = [expand(np.diag([1.0, 0.65, 0.3]), tolerance).rank for tolerance in (1e-2, 1e-5, 1e-10)]
    assert ranks[0] < ranks[1] < ranks[2]


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.serial
def test_zero_matrix_is_one_constant_term(d: int) -> None:
    """Catches a breakdown of the pivoting at h ≡ 1: attention off must cost one term and be exact."""
    expansion = expand(np.zeros((d, d)), 1e-10)
    assert expansion.rank == 1
    assert np.abs(expansion.features(_unit(50, d, 0)) ** 2 - 1).max() <= 1e-14


@pytest.mark.serial
def test_singular_matrix() -> None:
    """Catches a requirement of strict definiteness: zeros among the eigenvalues are allowed."""
    expansion = expand(np.diag([1.0, 0.0, 0.0]), 1e-10)
    assert _error(expansion) <= 1e-10
    assert expansion.rank < expand(np.diag([1.0, 0.65, 0.3]), 1e-10).rank
    a, b = np.array([[0.6, 0.8, 0.0]]), np.array([[0.6, 0.0, -0.8]])
    assert np.abs(expansion.features(a) - expansion.features(b)).max() <= 1e-12  # same first coordinate


@pytest.mark.serial
def test_full_matrix_is_the_rotated_diagonal_one() -> None:
    """Catches the use of A's diagonal alone: the kernel of QΛQᵀ at (Qx, Qy) is that of Λ at (x, y)."""
    values, Q = np.linalg.eigh(ROTATED)
    full, diagonal = expand(ROTATED, 1e-10), expand(np.diag(values), 1e-10)
    x, y = _unit(40, 3, 1), _unit(40, 3, 2)
    rotated = (full.features(x @ Q.T) * full.signs) @ full.features(y @ Q.T).T
    assert np.abs(rotated - (diagonal.features(x) * diagonal.signs) @ diagonal.features(y).T).max() <= 3e-10 * math.e


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.serial
def test_isotropic_kernel_has_the_funk_hecke_spectrum(d: int) -> None:
    """Catches a wrong weight of the terms: under the uniform law Σ_r‖ψ_r‖² eigenvalues are Γ(d/2)(2/β)^{d/2−1}
    I_{ℓ+d/2−1}(β).
    """
    beta = 1.5
    expansion = expand(beta * np.eye(d), 1e-10)
    psi = expansion.features(sample_points(d))
    spectrum = np.linalg.eigvalsh(psi.T @ psi / len(psi))[::-1]
    expected = []
    for degree in range(4):
        value = math.gamma(d / 2) * (2 / beta) ** (d / 2 - 1) * iv(degree + d / 2 - 1, beta)
        expected += [value] * ((1 if degree == 0 else 2) if d == 2 else 2 * degree + 1)
    # sample_points integrate to 1e-3 or better on the sphere, to round-off on the circle
    assert spectrum[: len(expected)] == pytest.approx(expected, rel=1e-9 if d == 2 else 2e-3)


@pytest.mark.parametrize("d", [2, 3, 5])
@pytest.mark.serial
def test_sample_points_lie_evenly_on_the_sphere(d: int) -> None:
    """Catches points off the sphere or bunched: mean 0 and second moment I/d."""
    points = sample_points(d)
    assert np.abs(np.linalg.norm(points, axis=1) - 1).max() <= 1e-14
    loose = 1e-3 if d < 4 else 0.05
    assert np.abs(points.mean(axis=0)).max() <= loose
    assert np.abs(points.T @ points / len(points) - np.eye(d) / d).max() <= loose


@pytest.mark.serial
def test_beyond_three_dimensions() -> None:
    """Catches a construction tied to the circle and the sphere: particles live in any dimension."""
    expansion = expand(np.diag([1.0, 0.6, 0.4, 0.2]), 1e-4)
    assert _error(expansion) <= 1e-4


@pytest.mark.ranks
def test_same_input_same_bits() -> None:
    """Catches an unseeded generator: reruns, and ranks, must agree to the bit."""
    first, second = expand(ROTATED, 1e-8), expand(ROTATED, 1e-8)
    assert np.array_equal(first.pivots, second.pivots)
    assert np.array_equal(first.weights, second.weights)
    assert first.error == second.error


@pytest.mark.serial
def test_unreachable_tolerance_is_an_error() -> None:
    """Catches an expansion that claims digits round-off does not leave."""
    with pytest.raises(ValueError, match=r"expansion reaches|too many significant terms|round-off"):
        expand(np.diag([1.0, 0.65, 0.3]), 1e-17)


@pytest.mark.serial
def test_inputs_are_not_changed() -> None:
    """Catches scaling of A in place."""
    matrix = ROTATED.copy()
    expand(matrix, 1e-6)
    assert np.array_equal(matrix, ROTATED)
