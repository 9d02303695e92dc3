"""The separable expansion of a label kernel's bias."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from solver.auxiliary.coupling import LabelExpansion, expand_bias
from solver.auxiliary.kernels import create_label_kernel
from solver.case import Case, CaseError
from solver.types import FloatArray

pytestmark = pytest.mark.serial

Labelled = Callable[..., Case]
Bias = Callable[[FloatArray, FloatArray], FloatArray]


def cosine(xi: FloatArray, zeta: FloatArray) -> FloatArray:
    return np.cos(5.0 * (xi[:, None] - zeta))


def gaussian(xi: FloatArray, zeta: FloatArray) -> FloatArray:
    return np.exp(-0.5 * ((xi[:, None] - zeta) / 0.2) ** 2)


def window(xi: FloatArray, zeta: FloatArray) -> FloatArray:
    return np.where(np.abs(xi[:, None] - zeta) <= 0.15, 1.0, 0.0)


def decay(xi: FloatArray, zeta: FloatArray) -> FloatArray:
    return 3.0 * np.exp(-np.abs(xi[:, None] - zeta) / 0.2)


def off(found: LabelExpansion, bias: Bias, labels: FloatArray) -> float:
    """max |b − Σ σβ β| over all pairs, relative to max |b|."""
    assert found.factors.shape == (len(labels), len(found.signs))
    b = bias(labels, labels)
    return float(np.abs(found.factors * found.signs @ found.factors.T - b).max() / np.abs(b).max())


@pytest.mark.parametrize("count", [2, 40, 1100])
def test_cosine_has_two_terms(count: int) -> None:
    """Catches terms of round-off, which cost as much as others: cos ω(ξ − ζ) = cos cos + sin sin."""
    labels = np.random.default_rng(0).random(count)
    found = expand_bias(cosine, labels, 1e-10)
    assert found.signs.tolist() == [1.0, 1.0]
    assert off(found, cosine, labels) <= 1e-13
    assert found.error <= 1e-13


def test_window_is_indefinite() -> None:
    """Catches square roots of negative eigenvalues, or their signs lost: the eigenvalues of b have both."""
    labels = np.arange(60) / 60
    found = expand_bias(window, labels, 1e-10)
    eigenvalues = np.linalg.eigvalsh(window(labels, labels))
    assert (found.signs < 0).sum() == (eigenvalues < -1e-10).sum() > 0
    assert (found.signs > 0).sum() == (eigenvalues > 1e-10).sum() > 0
    assert set(found.signs) == {-1.0, 1.0}
    assert off(found, window, labels) <= 1e-12
    strength = (found.factors**2).sum(axis=0)
    assert np.abs(strength - np.sort(np.abs(eigenvalues))[::-1][: len(strength)]).max() <= 1e-12


@pytest.mark.parametrize("bias", [cosine, gaussian, window, decay])
@pytest.mark.parametrize("tolerance", [1e-10, 1e-3])
def test_few_labels(bias: Bias, tolerance: float) -> None:
    """Catches factors of the wrong token, and an error that is not the one there is."""
    labels = np.random.default_rng(1).random(150)
    found = expand_bias(bias, labels, tolerance)
    assert off(found, bias, labels) <= tolerance
    assert found.error == pytest.approx(off(found, bias, labels), rel=1e-3, abs=1e-14)


def test_a_looser_tolerance_takes_fewer_terms() -> None:
    """Catches a tolerance that is ignored: work grows with the terms."""
    labels = np.arange(200) / 200
    counts = [len(expand_bias(gaussian, labels, tolerance).signs) for tolerance in (1e-12, 1e-6, 1e-2)]
    assert counts[0] > counts[1] > counts[2]


@pytest.mark.parametrize("bias", [cosine, gaussian, window, decay])
def test_repeated_labels(bias: Bias) -> None:
    """Catches tokens of one label that get different factors, and terms counted once for each token."""
    labels = np.random.default_rng(2).permutation(np.tile([0.9, 0.1, 0.35, 0.36, 0.7], 500))
    found = expand_bias(bias, labels, 1e-10)
    assert len(found.signs) <= 5
    assert off(found, bias, labels) <= 1e-12
    for label in (0.9, 0.1, 0.35, 0.36, 0.7):
        assert np.ptp(found.factors[labels == label], axis=0).max() == 0.0


def test_no_bias_at_all() -> None:
    """Catches a division by the largest |b| = 0."""
    found = expand_bias(lambda xi, zeta: np.zeros((len(xi), len(zeta))), np.arange(4) / 4, 1e-10)
    assert (found.factors.shape, found.error) == ((4, 1), 0.0)
    assert not (found.factors * found.signs @ found.factors.T).any()


@pytest.mark.parametrize(("decay", "law"), [("gaussian", "random"), ("cauchy", "grid")])
def test_many_labels(decay: str, law: str, labelled: Labelled) -> None:
    """Catches labels beyond the sampled ones that are interpolated badly: smooth decays, checked on other pairs."""
    bias = create_label_kernel(labelled(2, {"kernel": "distance_bias", "decay": decay, "length": 0.3})).bias
    assert bias is not None
    labels = np.arange(1700) / 1700 if law == "grid" else np.random.default_rng(3).random(1700)
    found = expand_bias(bias, labels, 1e-10)
    assert len(found.signs) <= 80
    assert off(found, bias, labels) <= 1e-10


def test_many_labels_that_repeat() -> None:
    """Catches the different labels and the tokens mixed up where b is sampled."""
    labels = np.random.default_rng(4).permutation(np.tile(np.arange(1200) / 1200, 2))
    found = expand_bias(gaussian, labels, 1e-10)
    assert off(found, gaussian, labels) <= 1e-10


@pytest.mark.parametrize("name", ["exponential", "window"])
def test_kinks_among_many_labels_are_refused(name: str, labelled: Labelled) -> None:
    """Catches an expansion that is accurate at the sampled labels only, and a message that does not say what to do."""
    bias = create_label_kernel(labelled(2, {"kernel": "distance_bias", "decay": name})).bias
    assert bias is not None
    with pytest.raises(CaseError) as caught:
        expand_bias(bias, np.arange(3000) / 3000, 1e-10)
    (line,) = caught.value.lines
    assert line.startswith("auxiliary.labels: 3000 different labels make more than 1000 significant terms of the bias")
    assert line.endswith("take at most 1000 labels, or a smooth decay such as 'gaussian' or 'cauchy'")
    assert "tolerance 1.0e-10" in line
