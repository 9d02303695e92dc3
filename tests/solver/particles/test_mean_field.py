"""The mean field of N tokens: separable and dense agree, and both are transposed exactly."""

from __future__ import annotations

import numpy as np
import pytest

from solver.attention.expansion import expand
from solver.attention.kernels import ExponentialKernel
from solver.particles import mean_field
from solver.particles.mean_field import DenseField, MeanField, SeparableField
from solver.types import FloatArray

pytestmark = pytest.mark.serial

MATRICES = {
    2: np.array([[1.0, 0.2], [0.2, 0.65]]),
    3: np.array([[0.9, 0.25, -0.1], [0.25, 0.6, 0.15], [-0.1, 0.15, 0.4]]),
    5: np.diag([1.0, 0.8, 0.6, 0.4, 0.2]),
}


def tokens(batch: int, count: int, d: int, seed: int = 0) -> FloatArray:
    x = np.random.default_rng(seed).standard_normal((batch, count, d)) + np.array([2.0, *([0.0] * (d - 1))])
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def fields(d: int, softmax: bool) -> tuple[SeparableField, DenseField]:
    kernel = ExponentialKernel(MATRICES[d])
    return SeparableField(expand(kernel, d, 1e-10 if d < 4 else 1e-4), softmax), DenseField(kernel, softmax)


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("d", [2, 3, 5])
def test_force_is_the_gradient_of_the_potential(d: int, softmax: bool) -> None:
    """Catches a missing A, 1/N or 1/Z: against the double sum, to the expansion's accuracy."""
    x = tokens(2, 40, d)
    A = MATRICES[d]
    h = np.exp(np.einsum("bnd,de,bme->bnm", x, A, x))
    Z = h.mean(axis=2)
    gradient = np.einsum("bnm,bmd->bnd", h, x @ A) / 40
    expected = gradient / Z[..., None] if softmax else gradient
    for field, tolerance in zip(fields(d, softmax), (1e-8 if d < 4 else 1e-2, 1e-13), strict=True):
        force = field.force(x)
        assert np.abs(force.Z - Z).max() <= tolerance
        assert np.abs(force.value - expected).max() <= tolerance


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("kind", [0, 1], ids=["separable", "dense"])
@pytest.mark.parametrize("d", [2, 3])
def test_transpose(d: int, kind: int, softmax: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a token's part as a source left out, or blocks added up wrongly: ⟨F̄, dF⟩ = ⟨x̄, dx⟩."""
    monkeypatch.setattr(mean_field, "_BLOCK_ENTRIES", 700)
    field: MeanField = fields(d, softmax)[kind]
    x, generator = tokens(2, 30, d), np.random.default_rng(1)
    dx, bar = generator.standard_normal((2, *x.shape))
    s = 1e-3
    shifted = [field.force(x + k * s * dx).value for k in (-2, -1, 1, 2)]
    difference = (shifted[0] - 8 * shifted[1] + 8 * shifted[2] - shifted[3]) / (12 * s)
    exact = float((field.force_vjp(x, field.force(x), bar) * dx).sum())
    assert float((bar * difference).sum()) == pytest.approx(exact, rel=1e-8)


def test_blocks_and_batches_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches tokens lost between blocks, and members of a batch that see each other."""
    x = tokens(3, 50, 3)
    whole = [field.force(x).value for field in fields(3, False)]
    alone = [np.concatenate([field.force(x[k : k + 1]).value for k in range(3)]) for field in fields(3, False)]
    monkeypatch.setattr(mean_field, "_BLOCK_ENTRIES", 1000)
    blocked = [field.force(x).value for field in fields(3, False)]
    for one, other, third in zip(whole, alone, blocked, strict=True):
        assert np.abs(one - other).max() <= 1e-13
        assert np.abs(one - third).max() <= 1e-13
