"""The geodesic Euler–Maruyama step: norms, known laws, and its exact transpose."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ive

from solver.attention.expansion import expand
from solver.attention.kernels import ExponentialKernel
from solver.ffn import ACTIVATIONS, DERIVATIVES, FeatureMap, feature_map
from solver.particles.mean_field import DenseField, SeparableField
from solver.particles.noise import INITIAL, generator, normals
from solver.particles.step import TokenDynamics, exponential_map, exponential_map_vjp, pullback, step
from solver.types import FloatArray

pytestmark = pytest.mark.serial


def unit(shape: tuple[int, ...], seed: int = 0) -> FloatArray:
    x = np.random.default_rng(seed).standard_normal(shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def identity(d: int) -> FeatureMap:
    return feature_map(ACTIVATIONS["identity"], False, 0, 0, d, DERIVATIVES["identity"])


def test_noise_is_keyed_by_seed_particle_and_step() -> None:
    """Catches numbers that depend on the batch, on N or on what was drawn before."""
    alone = normals([7], 3, 10, 2)[0]
    assert np.array_equal(normals([5, 7, 9], 3, 20, 2)[1, :10], alone)
    assert not np.array_equal(normals([7], 4, 10, 2)[0], alone)
    assert not np.array_equal(normals([8], 3, 10, 2)[0], alone)
    many = normals(range(50), 0, 2000, 2)
    assert abs(many.mean()) < 0.01
    assert many.std() == pytest.approx(1.0, abs=0.01)
    assert abs(np.corrcoef(normals([1], 0, 5000, 1)[0, :, 0], normals([1], 1, 5000, 1)[0, :, 0])[0, 1]) < 0.05
    assert generator(0, INITIAL).random() != generator(0, 0).random()


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
@pytest.mark.parametrize("width", [0, 6])
def test_features_are_transposed(name: str, width: int) -> None:
    """Catches a derivative of another activation, and U left out."""
    features = feature_map(ACTIVATIONS[name], True, width, 3, 3, DERIVATIVES[name])
    x = unit((4, 5, 3), 1)
    dx, bar = (
        np.random.default_rng(2).standard_normal(x.shape),
        np.random.default_rng(3).standard_normal((4, 5, features.size)),
    )
    s = 1e-6
    difference = (features(x + s * dx) - features(x - s * dx)) / (2 * s)
    assert float((bar * difference).sum()) == pytest.approx(float((features.vjp(x, bar) * dx).sum()), rel=1e-7)


@pytest.mark.parametrize("size", [0.0, 1e-9, 1e-5, 1e-3, 0.5, 3.0])
def test_exponential_map_and_its_transpose(size: float) -> None:
    """Catches 0/0 for small steps and a chord in place of the arc: norm one, angle |v|."""
    x = unit((6, 3))
    v = size * unit((6, 3), 1)
    v -= (x * v).sum(axis=1, keepdims=True) * x
    y = exponential_map(x, v)
    assert np.abs(np.linalg.norm(y, axis=1) - 1).max() <= 1e-15 * 4
    angle = 2 * np.arcsin(0.5 * np.linalg.norm(y - x, axis=1))
    assert angle == pytest.approx(np.linalg.norm(v, axis=1), rel=1e-6, abs=1e-15)
    dx, dv, bar = np.random.default_rng(2).standard_normal((3, 6, 3))
    x_bar, v_bar = exponential_map_vjp(x, v, bar)
    s = 1e-3
    values = [exponential_map(x + k * s * dx, v + k * s * dv) for k in (-2, -1, 1, 2)]
    difference = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * s)
    assert float((bar * difference).sum()) == pytest.approx(float((x_bar * dx + v_bar * dv).sum()), rel=1e-8)


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("d", [2, 3])
def test_pullback_is_the_transpose_of_one_step(d: int, softmax: bool) -> None:
    """Catches the projection or the attention left out of the transpose, with noise and random features."""
    kernel = ExponentialKernel(np.diag([1.0, 0.65, 0.3][:d]))
    features = feature_map(ACTIVATIONS["tanh"], True, 4, 0, d, DERIVATIVES["tanh"])
    dynamics = TokenDynamics(SeparableField(expand(kernel, d, 1e-10), softmax), features, 0.1)
    x, noise = unit((2, 20, d)), normals([0, 1], 0, 20, d)
    rng = np.random.default_rng(4)
    W, dW = rng.standard_normal((2, 2, d, features.size))
    dx, bar = rng.standard_normal((2, *x.shape))
    x_bar, W_bar = pullback(dynamics, x, W, 0.3, noise, bar)
    s = 1e-3
    values = [step(dynamics, x + k * s * dx, W + k * s * dW, 0.3, noise) for k in (-2, -1, 1, 2)]
    difference = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * s)
    exact = float((x_bar * dx).sum() + (W_bar * dW).sum())
    assert float((bar * difference).sum()) == pytest.approx(exact, rel=1e-7)


# Only ε Δt enters, and it is the same for all: every d once, and every ε once.
@pytest.mark.parametrize(("d", "epsilon"), [(2, 0.3), (3, 0.05), (5, 1.0)])
def test_noise_decorrelates_at_the_rate_of_the_laplacian(d: int, epsilon: float) -> None:
    """Catches ε in place of 2ε, and a missing curvature drift: E⟨X_t, X_0⟩ = e^{−(d−1)εt}, three standard errors."""
    T, steps, count = 0.5 / epsilon, 200, 40_000
    dynamics = TokenDynamics(None, identity(d), epsilon)
    start = x = np.broadcast_to(np.eye(d)[0], (1, count, d)).copy()
    W = np.zeros((1, d, d))
    for n in range(steps):
        x = step(dynamics, x, W, T / steps, normals([0], n, count, d))
    cosines = (x * start).sum(axis=-1)[0]
    expected = np.exp(-(d - 1) * epsilon * T)
    assert abs(cosines.mean() - expected) <= 3 * cosines.std() / np.sqrt(count)


@pytest.mark.parametrize("d", [2, 3])
def test_bias_of_the_stationary_law_falls_with_the_step(d: int) -> None:
    """Catches a step of lower weak order: in the potential w x₁ the law is von Mises–Fisher, κ = w/ε.

    E x₁ = I_{d/2}(κ)/I_{d/2−1}(κ); its error at Δt = 1, ½, ¼ falls at order 1 or better.
    """
    epsilon, w, count = 0.2, 0.6, 40_000
    kappa = w / epsilon
    exact = ive(d / 2, kappa) / ive(d / 2 - 1, kappa)
    features = feature_map(ACTIVATIONS["identity"], True, 0, 0, d, DERIVATIVES["identity"])
    dynamics, W = TokenDynamics(None, features, epsilon), np.zeros((1, d, d + 1))
    W[0, 0, d] = w
    biases, errors = [], []
    for dt in (1.0, 0.5, 0.25):
        x = np.broadcast_to(np.eye(d)[0], (1, count, d)).copy()
        means = []
        for n in range(round(30 / dt)):
            x = step(dynamics, x, W, dt, normals([0], n, count, d))
            if n * dt > 10:
                means.append(x[0, :, 0].mean())
        blocks = [block.mean() for block in np.array_split(np.array(means), 5)]  # of four units of depth each
        biases.append(np.mean(means) - exact)
        errors.append(np.std(blocks, ddof=1) / np.sqrt(5))
    for coarse, fine, error in zip(biases[:-1], biases[1:], errors[1:], strict=True):
        assert abs(fine) > 10 * error
        assert coarse / fine >= 2.0


def test_norms_stay_one_where_steps_are_too_long() -> None:
    """Catches attention that amplifies the round-off of a norm: β e^β Δt = 22 threw tokens off the sphere in 10 steps,
    to energies above the maximum.
    """
    x, W = unit((1, 8, 3)), np.zeros((1, 3, 3))
    dynamics = TokenDynamics(DenseField(ExponentialKernel(4.0 * np.eye(3)), softmax=False), identity(3), 0.0)
    for _ in range(50):
        x = step(dynamics, x, W, 0.1, None)
        assert np.abs(np.linalg.norm(x, axis=-1) - 1).max() <= 1e-15


@pytest.mark.parametrize(("steps", "bound"), [(10_000, 1e-13), pytest.param(100_000, 1e-12, marks=pytest.mark.slow)])
def test_norms_stay_one(steps: int, bound: float) -> None:
    """Catches drift off the sphere: 1e-12 over 10⁵ steps, or 1e-17 a step, noise and drift on."""
    dynamics = TokenDynamics(None, identity(3), 0.3)
    x, W = unit((1, 4, 3)), np.random.default_rng(1).standard_normal((1, 3, 3))
    noise = normals([0], 0, 4, 3)
    for n in range(steps):
        x = step(dynamics, x, W, 0.01, noise if n % 2 else -noise)
    assert np.abs(np.linalg.norm(x, axis=-1) - 1).max() <= bound
