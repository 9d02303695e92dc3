"""Features σ and the edge integrals G_ij = ∫ t ⊗ σ ds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from solver.ffn import ACTIVATIONS, FeatureMap, edge_integrals, feature_map

pytestmark = pytest.mark.serial  # nothing here knows of ranks


def _edges(d: int, h: float, count: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Arcs of length h in random places and directions, and their first tangents."""
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((count, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    t = generator.standard_normal((count, d))
    t -= (t * x).sum(axis=1, keepdims=True) * x
    t /= np.linalg.norm(t, axis=1, keepdims=True)
    return x, math.cos(h) * x + math.sin(h) * t, t


def _fine(features: FeatureMap, start: np.ndarray, tangent: np.ndarray, h: float, panels: int = 400) -> np.ndarray:
    """The same integral by a composite rule of 4 Gauss points on each of many panels."""
    nodes, weights = np.polynomial.legendre.leggauss(4)
    result = np.zeros((start.shape[1], features.size, len(start)))
    for k in range(panels):
        for node, weight in zip(nodes, weights, strict=True):
            s = h * (k + 0.5 * (1 + node)) / panels
            x = math.cos(s) * start + math.sin(s) * tangent
            t = -math.sin(s) * start + math.cos(s) * tangent
            result += 0.5 * weight * h / panels * np.einsum("ed,em->dme", t, features(x))
    return result


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("h", [0.01, 0.3, 1.0])
def test_identity_features_have_a_closed_form(d: int, h: float) -> None:
    """Catches a wrong arc, tangent or length: ∫ t xᵀ ds = ½(x_j x_jᵀ − x_i x_iᵀ) + ½h (t x_iᵀ − x_i tᵀ)."""
    start, end, t = _edges(d, h)
    G = edge_integrals(feature_map(ACTIVATIONS["identity"], False, 0, 0, d), start, end)
    symmetric = 0.5 * (np.einsum("ea,eb->abe", end, end) - np.einsum("ea,eb->abe", start, start))
    rotation = 0.5 * h * (np.einsum("ea,eb->abe", t, start) - np.einsum("ea,eb->abe", start, t))
    assert np.abs(G - symmetric - rotation).max() <= 3e-14


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize(("bias", "width"), [(False, 0), (True, 0), (True, 7)])
def test_antisymmetric(activation: str, bias: bool, width: int) -> None:
    """Catches G_ij ≠ −G_ji: the flux of an edge would depend on the order of its ends, thus on the partition."""
    start, end, _ = _edges(3, 0.2)
    features = feature_map(ACTIVATIONS[activation], bias, width, 4, 3)
    G = edge_integrals(features, start, end)
    assert G.shape == (3, features.size, len(start))
    assert np.abs(G + edge_integrals(features, end, start)).max() <= 1e-14


@pytest.mark.parametrize("activation", ["identity", "tanh", "gelu"])
@pytest.mark.parametrize("width", [0, 5])
@pytest.mark.parametrize("h", [0.1, 0.5])
def test_smooth_activations_against_a_finer_rule(activation: str, width: int, h: float) -> None:
    """Catches a wrong activation or a rule of low order: smooth features must come out to 1e-10."""
    start, end, t = _edges(3, h)
    features = feature_map(ACTIVATIONS[activation], True, width, 1, 3)
    assert np.abs(edge_integrals(features, start, end) - _fine(features, start, t, h, 20)).max() <= 1e-10


def test_relu_against_a_finer_rule() -> None:
    """Catches a kink handled worse than 8 Gauss points do: the error must stay below slope · h²/256, and be 0 off the
    kink.
    """
    h = 0.2
    start, end, t = _edges(3, h, 200)
    features = feature_map(ACTIVATIONS["relu"], False, 0, 0, 3)
    error = np.abs(edge_integrals(features, start, end) - _fine(features, start, t, h)).max(axis=0)  # (m, edges)
    crosses = (start * end < 0).T
    assert crosses.any()
    assert error[~crosses].max() <= 1e-12
    assert error[crosses].max() <= h**2 / 256


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("identity", lambda x: x),
        ("tanh", lambda x: (math.exp(x) - math.exp(-x)) / (math.exp(x) + math.exp(-x))),
        ("relu", lambda x: x if x > 0 else 0.0),
        ("gelu", lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2)))),
    ],
)
def test_activations_are_the_textbook_ones(name: str, function) -> None:  # type: ignore[no-untyped-def]
    """Catches e.g. the tanh approximation of GELU, which differs in the fourth digit."""
    x = np.linspace(-4, 4, 41)
    assert ACTIVATIONS[name](x) == pytest.approx([function(value) for value in x], rel=1e-13, abs=1e-15)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_bias_is_a_constant_last_feature(activation: str) -> None:
    """Catches a bias passed through the activation (tanh 1 ≠ 1): its work along an arc is ∫ t ds = x_j − x_i."""
    start, end, _ = _edges(3, 0.3)
    features = feature_map(ACTIVATIONS[activation], True, 0, 0, 3)
    assert features.size == 4
    assert (features(start)[:, -1] == 1).all()
    G = edge_integrals(features, start, end)
    assert np.abs(G[:, -1] - (end - start).T).max() <= 1e-14
    assert np.array_equal(G[:, :-1], edge_integrals(feature_map(ACTIVATIONS[activation], False, 0, 0, 3), start, end))


@pytest.mark.ranks
def test_random_features_come_from_the_seed() -> None:
    """Catches features that change from run to run or rank to rank, or do not depend on the seed."""
    x = _edges(3, 0.1)[0]
    first, again, other = (feature_map(ACTIVATIONS["tanh"], False, 6, seed, 3) for seed in (11, 11, 12))
    assert first.size == 6
    assert np.array_equal(first(x), again(x))
    assert np.abs(first(x) - other(x)).max() > 1e-3
    assert first.U is not None
    assert first.b is not None
    assert np.abs(first(x) - np.tanh(x @ first.U.T + first.b)).max() <= 1e-15
    assert first.U.shape == (6, 3)
    assert first.b.shape == (6,)


def test_features_keep_leading_axes() -> None:
    """Catches features that only take a flat list of points."""
    x = _edges(3, 0.1, 12)[0]
    features = feature_map(ACTIVATIONS["gelu"], True, 5, 0, 3)
    assert np.array_equal(features(x.reshape(3, 4, 3)), features(x).reshape(3, 4, 6))


def test_tiny_edges_keep_their_digits() -> None:
    """Catches the arc length taken from arccos of the inner product, which has none left at 1e-6."""
    h = 1e-6
    start, end, t = _edges(3, h)
    G = edge_integrals(feature_map(ACTIVATIONS["identity"], True, 0, 0, 3), start, end)
    exact = h * np.einsum("ed,em->dme", t, np.concatenate([start, np.ones((len(start), 1))], axis=1))
    assert np.abs(G - exact).max() <= 1e-5 * h  # the ends themselves are rounded at 1e-16/h of an edge, and O(h)


def test_no_edges() -> None:
    """Catches a rank that owns no edge (more ranks than cells)."""
    G = edge_integrals(feature_map(ACTIVATIONS["tanh"], True, 0, 0, 2), np.empty((0, 2)), np.empty((0, 2)))
    assert G.shape == (2, 3, 0)
