"""Each closed form against an independent derivation: quadrature, a two-body ODE, or a maximum found numerically."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.linalg import eigh_tridiagonal
from scipy.optimize import minimize_scalar
from scipy.special import eval_gegenbauer

from solver.theory.closed_forms import (
    antipodal_rate,
    cluster_rate,
    funk_hecke,
    growth_rate,
    hilltop_rates,
    minimum_energy,
    principal_axes,
    rotating_barrier,
    splitting_barrier,
    stability_ratio,
    thermal_variance,
    token_rate,
)

pytestmark = pytest.mark.serial

PAIRS = [(1.0, 0.65), (1.7, 0.2), (0.4, 0.39)]
STEP = 1e-4


def _interaction(points: np.ndarray, weights: np.ndarray, A: np.ndarray) -> float:
    """E of a sum of Diracs at ε = 0."""
    return -0.5 * float(weights @ np.exp(points @ A @ points.T) @ weights)


def _velocities(points: np.ndarray, sources: np.ndarray, weights: np.ndarray, A: np.ndarray) -> np.ndarray:
    """P_x Σ w e^{⟨x,Ay⟩} A y over the sources y, for every x of `points`."""
    pull = (np.exp(points @ A @ sources.T) * weights) @ sources @ A
    return pull - (pull * points).sum(axis=1, keepdims=True) * points


def _on_circle(angle: float) -> np.ndarray:
    return np.array([math.cos(angle), math.sin(angle)])


def _turning_rate(points: np.ndarray, sources: np.ndarray, weights: np.ndarray, A: np.ndarray) -> float:
    """−θ′/STEP of the first point, at θ = STEP."""
    tangent = np.array([-points[0, 1], points[0, 0]])
    return -float(_velocities(points, sources, weights, A)[0] @ tangent) / STEP


@pytest.mark.parametrize("first", [0.4, 1.0, 1.7])
def test_minimum_energy_is_that_of_a_dirac_at_the_best_vertex(first: float) -> None:
    """Catches a missing ½ or a wrong vertex: the least E(α) of a Dirac over all angles, found numerically."""
    A = np.diag([first, 0.3 * first])
    best = minimize_scalar(
        lambda a: _interaction(_on_circle(a)[None], np.ones(1), A), bounds=(-1.0, 1.2), options={"xatol": 1e-10}
    )
    assert minimum_energy(first) == pytest.approx(best.fun, rel=1e-12)


@pytest.mark.parametrize(("first", "other"), PAIRS)
def test_rates_of_tokens_and_clusters(first: float, other: float) -> None:
    """Catches a token's rate and a cluster's exchanged: θ′/θ at a small angle, the field fixed or turning along."""
    A, one = np.diag([first, other]), np.ones(1)
    turned = _on_circle(STEP)[None]
    assert token_rate(first) == pytest.approx(_turning_rate(turned, _on_circle(0.0)[None], one, A), rel=1e-6)
    assert cluster_rate(first, other) == pytest.approx(_turning_rate(turned, turned, one, A), rel=1e-6)


@pytest.mark.parametrize(("first", "other"), PAIRS)
def test_antipodal_rate_from_the_two_body_equations(first: float, other: float) -> None:
    """Catches wrong signs of the far cluster's pull: two equal clusters at turns a and −a, and the change of sign."""
    pair = np.stack([_on_circle(STEP), _on_circle(math.pi - STEP)])
    half = np.full(2, 0.5)
    rate = _turning_rate(pair, pair, half, np.diag([first, other]))
    assert antipodal_rate(first, other) == pytest.approx(rate, rel=1e-6, abs=1e-7)
    critical = stability_ratio(first) * first
    assert _turning_rate(pair, pair, half, np.diag([first, 0.999 * critical])) > 0
    assert _turning_rate(pair, pair, half, np.diag([first, 1.001 * critical])) < 0


@pytest.mark.parametrize(("first", "other"), PAIRS)
def test_barriers_are_the_highest_gaps_on_their_paths(first: float, other: float) -> None:
    """Catches a wrong factor: E maximised numerically over the angle of a Dirac, and over the share split off."""
    A = np.diag([first, other])
    ground = _interaction(_on_circle(0.0)[None], np.ones(1), A)
    rotated = minimize_scalar(
        lambda a: -_interaction(_on_circle(a)[None], np.ones(1), A), bounds=(0.1, 3.0), options={"xatol": 1e-10}
    )
    assert rotating_barrier(first, other) == pytest.approx(-rotated.fun - ground, rel=1e-10)
    ends = np.stack([_on_circle(0.0), _on_circle(math.pi)])
    split = minimize_scalar(
        lambda p: -_interaction(ends, np.array([1 - p, p]), A), bounds=(0.05, 0.9), options={"xatol": 1e-10}
    )
    assert splitting_barrier(first) == pytest.approx(-split.fun - ground, rel=1e-10)


@pytest.mark.parametrize("first", [0.4, 1.0, 1.7])
def test_thermal_variance_by_quadrature(first: float) -> None:
    """Catches a factor 2 in the width: ∫x₂² of e^{V/ε}, V = e^{λ₁ cos θ} of a Dirac, extrapolated to ε → 0."""

    def ratio(epsilon: float) -> float:
        def weight(a: float) -> float:
            return math.exp((math.exp(first * math.cos(a)) - math.exp(first)) / epsilon)

        span = 12 * math.sqrt(epsilon / token_rate(first))
        square = quad(lambda a: math.sin(a) ** 2 * weight(a), -span, span, epsabs=0, epsrel=1e-10)[0]
        return square / quad(weight, -span, span, epsabs=0, epsrel=1e-10)[0] / thermal_variance(first, epsilon)

    assert 2 * ratio(5e-5) - ratio(1e-4) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("dimension", [2, 3, 5])
def test_hilltop_rates_count_the_directions(dimension: int) -> None:
    """Catches wrong multiplicities: Σ (k_i + 1) κ over all quantum numbers k of d − 1 directions, by enumeration."""
    first, highest = 1.3, 9
    kappa = first * math.exp(-first)
    numbers = itertools.product(range(1, highest + 1), repeat=dimension - 1)
    sums = sorted(total for total in map(sum, numbers) if total <= highest)
    rates = hilltop_rates(first, dimension, len(sums))
    assert rates == pytest.approx([kappa * total for total in sums], rel=1e-14)
    assert hilltop_rates(first, dimension, 2) == rates[:2]


def test_slowest_hilltop_rate_is_that_of_an_inverted_potential() -> None:
    """Catches κ with λ₁e^{λ₁}: an escaping token's flow εf″ − (κxf)′ on a wide interval, by finite differences."""
    first, epsilon = 1.0, 0.05
    away = _turning_rate(_on_circle(STEP)[None], _on_circle(math.pi)[None], np.ones(1), np.diag([first, 0.2]))
    kappa = -away  # at e₁, in the field of a Dirac at −e₁
    x = np.linspace(-4.0, 4.0, 1601)
    dx = x[1] - x[0]
    # g = e^{−κx²/4ε} f obeys εg″ − (κ²x²/4ε + κ/2) g: an oscillator
    main = 2 * epsilon / dx**2 + kappa**2 * x**2 / (4 * epsilon) + 0.5 * kappa
    values = eigh_tridiagonal(main, np.full(1600, -epsilon / dx**2), select="i", select_range=(0, 2))[0]
    assert hilltop_rates(first, 2, 3) == pytest.approx(values.tolist(), rel=1e-3)


@pytest.mark.parametrize("dimension", [2, 3, 4, 6])
@pytest.mark.parametrize("beta", [0.3, 1.0, 5.0])
def test_funk_hecke_by_quadrature(dimension: int, beta: float) -> None:
    """Catches a wrong index of the Bessel function or Γ: ∫ e^{βt} P_ℓ(t) (1 − t²)^{(d−3)/2} dt, normalised."""

    def harmonic(degree: int, a: float) -> float:
        if dimension == 2:
            return math.cos(degree * a)
        order = 0.5 * dimension - 1.0
        return float(eval_gegenbauer(degree, order, math.cos(a)) / eval_gegenbauer(degree, order, 1.0))

    area = quad(lambda a: math.sin(a) ** (dimension - 2), 0.0, math.pi)[0]
    for degree in range(4):
        exact = quad(
            lambda a, n=degree: math.exp(beta * math.cos(a)) * harmonic(n, a) * math.sin(a) ** (dimension - 2),
            0.0,
            math.pi,
            epsabs=1e-13,
            epsrel=1e-12,
        )[0]
        assert funk_hecke(beta, degree, dimension) == pytest.approx(exact / area, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_growth_of_the_uniform_law_on_the_circle(degree: int) -> None:
    """Catches a wrong sign of ε or a wrong Laplacian: the PDE's right-hand side at (1 + s cos kθ)/2π, by FFT."""
    beta, epsilon, nodes = 1.4, 0.3, 64
    theta = 2 * np.pi * np.arange(nodes) / nodes
    wave = 1j * np.fft.fftfreq(nodes, 1 / nodes)

    def derivative(f: np.ndarray) -> np.ndarray:
        return np.real(np.fft.ifft(wave * np.fft.fft(f)))

    def velocity(s: float) -> float:
        mu = (1 + s * np.cos(degree * theta)) / (2 * np.pi)
        V = np.exp(beta * np.cos(theta[:, None] - theta)) @ mu * 2 * np.pi / nodes
        change = epsilon * derivative(derivative(mu)) - derivative(mu * derivative(V))
        return float(change @ np.cos(degree * theta)) * 4 * np.pi / nodes

    rate = (velocity(1e-3) - velocity(-1e-3)) / 2e-3
    assert growth_rate(beta, epsilon, degree, 2) == pytest.approx(rate, rel=1e-6)
    assert growth_rate(beta, funk_hecke(beta, degree, 3), degree, 3) == 0.0
    assert growth_rate(beta, 0.0, degree, 3) == pytest.approx(degree * (degree + 1) * funk_hecke(beta, degree, 3))


def _rotation(seed: int, size: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))[0]


@pytest.mark.parametrize(
    ("diagonal", "order"),
    [
        ((1.0, 0.65), (0, 1)),
        ((0.65, 1.0), (1, 0)),
        ((1.0, 0.65, 0.3), (0, 1, 2)),
        ((0.3, 1.0, 0.65), (1, 2, 0)),
        ((2.0, 2.0), (0, 1)),
        ((0.7, 0.7, 0.7), (0, 1, 2)),
        ((1.0, 0.5, 0.5), (0, 1, 2)),
        ((0.5, 1.0, 0.5), (1, 0, 2)),
        ((0.5, 0.5, 1.0), (2, 0, 1)),
        ((0.0, 0.0), (0, 1)),
    ],
)
def test_principal_axes_of_diagonal_matrices(diagonal: tuple[float, ...], order: tuple[int, ...]) -> None:
    """Catches axes with wrong signs or order, and arbitrary ones where eigenvalues repeat: all must be +e_k."""
    values, axes = principal_axes(np.diag(diagonal).tolist())
    np.testing.assert_allclose(values, np.sort(diagonal)[::-1], atol=1e-15)
    np.testing.assert_allclose(axes, np.eye(len(diagonal))[:, list(order)], atol=1e-12)


@pytest.mark.parametrize("eigenvalues", [(1.0, 0.65, 0.3), (1.0, 1.0, 0.3), (1.0, 0.3, 0.3), (0.8, 0.8, 0.8)])
@pytest.mark.parametrize("seed", range(4))
def test_principal_axes_of_rotated_matrices(eigenvalues: tuple[float, ...], seed: int) -> None:
    """Catches axes that are no orthonormal eigenvectors, or point away from the coordinate axis they are nearest to."""
    R = _rotation(seed, 3)
    A = R @ np.diag(eigenvalues) @ R.T
    A = 0.5 * (A + A.T)
    values, axes = principal_axes(A.tolist())
    np.testing.assert_allclose(values, eigenvalues, atol=1e-13)
    np.testing.assert_allclose(axes.T @ axes, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(A @ axes, axes * values, atol=1e-12)
    longest = np.abs(axes).argmax(axis=0)
    assert (axes[longest, range(3)] > 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_first_axis_of_a_plane_is_the_nearest_to_a_coordinate_axis(seed: int) -> None:
    """Catches any other basis of a degenerate plane: no unit vector of it has a larger component along some e_k."""
    R = _rotation(seed, 3)
    A = R @ np.diag([1.0, 1.0, 0.3]) @ R.T
    axes = principal_axes((0.5 * (A + A.T)).tolist())[1]
    turns = np.linspace(0.0, np.pi, 2001)
    plane = np.outer(R[:, 0], np.cos(turns)) + np.outer(R[:, 1], np.sin(turns))
    assert np.abs(axes[:, 0]).max() >= np.abs(plane).max() - 1e-12
