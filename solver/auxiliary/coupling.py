"""Separable expansion of a label kernel's bias: b(ξ, ζ) = Σ_k σ_k β_k(ξ) β_k(ζ), σ_k = ±1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from solver.case.load import CaseError
from solver.types import FloatArray

__all__ = ["LabelExpansion", "expand_bias"]

_SAMPLED = 1000  # labels whose values of b are diagonalised; more are reached by interpolation (Nyström)
_ROUND_OFF = 1e-13
_CHECKED = 500


@dataclass(frozen=True)
class LabelExpansion:
    """b on the labels of the tokens.

    Attributes:
        factors: β_k at every token's label, (N, terms).
        signs: σ_k = ±1, (terms,), falling |eigenvalues|.
        error: max |b − Σ| on labels, relative to max |b|.
    """

    factors: FloatArray
    signs: FloatArray
    error: float


def expand_bias(
    bias: Callable[[FloatArray, FloatArray], FloatArray], labels: FloatArray, tolerance: float
) -> LabelExpansion:
    """Expand b on the given labels (N,), to a tolerance relative to max |b|.

    Up to 1000 different labels: the eigenvectors of b. More: those of b on 1000 of them, extended to the others.

    Raises:
        CaseError: The tolerance is not reached: b has more terms than that.
    """
    different, number = np.unique(labels, return_inverse=True)
    few = len(different) <= _SAMPLED
    sample = different if few else different[np.linspace(0, len(different) - 1, _SAMPLED).astype(np.int64)]
    b = bias(sample, sample)
    scale = float(np.abs(b).max())
    if scale == 0.0:
        return LabelExpansion(np.zeros((len(labels), 1)), np.ones(1), 0.0)
    values, vectors = np.linalg.eigh(b)
    size = np.abs(values)
    kept = size > max(_ROUND_OFF * size.max(), 0.01 * tolerance * scale)
    order = np.argsort(-size[kept], kind="stable")
    values, vectors, size = values[kept][order], vectors[:, kept][:, order], size[kept][order]
    factors = vectors * np.sqrt(size) if few else bias(different, sample) @ (vectors / np.sqrt(size))
    signs = np.sign(values)
    checked = np.random.default_rng(1).permutation(len(different))[:_CHECKED]
    difference = (factors[checked] * signs) @ factors[checked].T - bias(different[checked], different[checked])
    error = float(np.abs(difference).max()) / scale
    if not error <= tolerance:
        raise CaseError(
            [f"auxiliary.labels: {len(different)} different labels make more than {_SAMPLED} significant terms of the "
             f"bias (error {error:.1e}, tolerance {tolerance:.1e}): take at most {_SAMPLED} labels, or a smooth decay "
             "such as 'gaussian' or 'cauchy'"]
        )  # fmt: skip
    return LabelExpansion(factors[number], signs, error)
