"""The mean field of N tokens: separable and dense agree, and both are transposed exactly."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from solver.attention.expansion import Expansion, expand
from solver.attention.kernels import DotProductKernel, ExponentialKernel, LinearKernel
from solver.auxiliary.coupling import expand_bias
from solver.particles import mean_field
from solver.particles.mean_field import DenseField, MeanField, SeparableField
from solver.types import FloatArray

pytestmark = pytest.mark.serial

Bias = Callable[[FloatArray, FloatArray], FloatArray]
MATRICES = {
    2: np.array([[1.0, 0.2], [0.2, 0.65]]),
    3: np.array([[0.9, 0.25, -0.1], [0.25, 0.6, 0.15], [-0.1, 0.15, 0.4]]),
    5: np.diag([1.0, 0.8, 0.6, 0.4, 0.2]),
}


def tokens(batch: int, count: int, d: int, seed: int = 0) -> FloatArray:
    x = np.random.default_rng(seed).standard_normal((batch, count, d)) + np.array([2.0, *([0.0] * (d - 1))])
    unit: FloatArray = x / np.linalg.norm(x, axis=-1, keepdims=True)
    return unit


BIASES: dict[str, Bias] = {
    "cosine": lambda xi, zeta: np.cos(5.0 * (xi[:, None] - zeta)),
    "window": lambda xi, zeta: np.where(np.abs(xi[:, None] - zeta) <= 0.3, 1.0, 0.0),
    "exponential": lambda xi, zeta: np.exp(-np.abs(xi[:, None] - zeta) / 0.4),
}
# Softmax takes the logarithm of Z, and needs b > 0.
WEIGHTED = [*itertools.product([False, True], [None, "exponential"]), (False, "cosine"), (False, "window")]


def labels_of(count: int) -> FloatArray:
    """Of tokens, some of which share theirs."""
    return np.repeat(np.random.default_rng(9).random(count // 2), 2)


@cache
def expansion(d: int, linear: bool) -> Expansion:
    kernel = LinearKernel(MATRICES[d]) if linear else ExponentialKernel(MATRICES[d])
    return expand(kernel, d, 1e-10 if d < 4 else 1e-4)


def fields(d: int, softmax: bool, bias: str | None = None, count: int = 0, linear: bool = False) -> list[MeanField]:
    """Separable and dense."""
    labels, b = labels_of(count), BIASES[bias] if bias else None
    expanded, kernel = expand_bias(b, labels, 1e-12) if b else None, expansion(d, linear).kernel
    assert isinstance(kernel, DotProductKernel)
    return [
        SeparableField(expansion(d, linear), softmax, expanded),
        DenseField(kernel, softmax, b(labels, labels) if b else None),
    ]


@pytest.mark.parametrize(("softmax", "bias"), WEIGHTED)
@pytest.mark.parametrize("d", [2, 3, 5])
def test_force_is_the_gradient_of_the_potential(d: int, softmax: bool, bias: str | None) -> None:
    """Catches a missing A, b, 1/N or 1/Z: against the double sum, to the expansion's accuracy."""
    x = tokens(2, 40, d)
    A, labels = MATRICES[d], labels_of(40)
    b = BIASES[bias](labels, labels) if bias else np.ones((40, 40))
    h = b * np.exp(np.einsum("bnd,de,bme->bnm", x, A, x))
    Z = h.mean(axis=2)
    gradient = np.einsum("bnm,bmd->bnd", h, x @ A) / 40
    expected = gradient / Z[..., None] if softmax else gradient
    for field, tolerance in zip(fields(d, softmax, bias, 40), (1e-8 if d < 4 else 1e-2, 1e-13), strict=True):
        force = field.force(x)
        assert np.abs(force.Z - Z).max() <= tolerance
        assert np.abs(force.value - expected).max() <= tolerance


@pytest.mark.parametrize("d", [2, 3])
def test_linear_content(d: int) -> None:
    """Catches f, f′ and f″ of the exponential taken for those of ⟨x, Ay⟩: ∇Z = (1/N) Σ b A y."""
    x, labels = tokens(2, 40, d), labels_of(40)
    b = BIASES["cosine"](labels, labels)
    expected = np.einsum("nm,bmd->bnd", b, x @ MATRICES[d]) / 40
    Z = np.einsum("nm,bnd,bmd->bn", b, x, x @ MATRICES[d]) / 40
    for field in fields(d, False, "cosine", 40, linear=True):
        force = field.force(x)
        assert np.abs(force.Z - Z).max() <= 1e-10
        assert np.abs(force.value - expected).max() <= 1e-10


@pytest.mark.parametrize(
    ("linear", "softmax", "bias"),
    [*((False, *item) for item in WEIGHTED), (True, False, None), (True, False, "cosine")],
)
@pytest.mark.parametrize("kind", [0, 1], ids=["separable", "dense"])
@pytest.mark.parametrize("d", [2, 3])
def test_transpose(
    d: int, kind: int, linear: bool, softmax: bool, bias: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a token's part as a source left out, or blocks added up wrongly: ⟨F̄, dF⟩ = ⟨x̄, dx⟩."""
    monkeypatch.setattr(mean_field, "_BLOCK_ENTRIES", 700)
    field = fields(d, softmax, bias, 30, linear)[kind]
    x, generator = tokens(2, 30, d), np.random.default_rng(1)
    dx, bar = generator.standard_normal((2, *x.shape))
    s = 1e-3
    shifted = [field.force(x + k * s * dx).value for k in (-2, -1, 1, 2)]
    difference = (shifted[0] - 8 * shifted[1] + 8 * shifted[2] - shifted[3]) / (12 * s)
    exact = float((field.force_vjp(x, field.force(x), bar) * dx).sum())
    assert float((bar * difference).sum()) == pytest.approx(exact, rel=1e-8)


@pytest.mark.parametrize("bias", [None, "window"])
def test_blocks_and_batches_change_nothing(bias: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches tokens lost between blocks, labels of another block, and members of a batch that see each other."""
    x = tokens(3, 50, 3)
    both = fields(3, False, bias, 50)
    bar = np.random.default_rng(2).standard_normal(x.shape)

    def found() -> list[FloatArray]:
        forces = [field.force(x) for field in both]
        back = [field.force_vjp(x, force, bar) for field, force in zip(both, forces, strict=True)]
        return [*(force.value for force in forces), *back]

    whole = found()
    alone = [np.concatenate([field.force(x[k : k + 1]).value for k in range(3)]) for field in both]
    monkeypatch.setattr(mean_field, "_BLOCK_ENTRIES", 1000)
    blocked = found()
    for one, other in zip(whole[:2], alone, strict=True):
        assert np.abs(one - other).max() <= 1e-13
    for one, other in zip(whole, blocked, strict=True):
        assert np.abs(one - other).max() <= 1e-12
