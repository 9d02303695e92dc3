"""What attention makes of L labels: their frames Q_ξ, and their bias b(ξ, ζ) = Σ_k σ_k β_k(ξ) β_k(ζ), σ_k = ±1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from solver.attention.kernels import DotProductKernel
from solver.auxiliary.kernels import create_label_kernel
from solver.auxiliary.labels import label_law
from solver.case.load import CaseError
from solver.case.schema import Case
from solver.types import FloatArray

__all__ = ["Coupling", "LabelExpansion", "check_softmax", "create_coupling", "expand_bias"]

_SAMPLED = 1000  # labels whose values of b are diagonalised; more are reached by interpolation (Nyström)
_ROUND_OFF = 1e-13
_CHECKED = 500
_MOST = 10_000  # labels of the PDE


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


@dataclass(frozen=True)
class Coupling:
    """L labels, and what attention makes of them.

    Attributes:
        labels: ξ_ℓ, (labels,).
        weights: ρ_ℓ, of sum 1, (labels,).
        frames: Q_ξ of every label, orthogonal (labels, d, d); None: Q = 1.
        bias: Expansion of b on the labels; None: b = 1.
        content: f and A where they are not those of the case.
    """

    labels: FloatArray
    weights: FloatArray
    frames: FloatArray | None
    bias: LabelExpansion | None
    content: DotProductKernel | None

    @property
    def matters(self) -> bool:
        """Whether attention sees labels at all."""
        return self.frames is not None or self.bias is not None


def create_coupling(case: Case) -> Coupling:
    """The labels of a case's densities; one label where it has none. Labels of weight 0 are left out, as by tokens.

    Raises:
        CaseError: There are too many, a part or a file of the user's cannot be used, the bias has too many terms, or
            softmax attention would divide by a bias that is not positive.
    """
    labels, weights = label_law(case, case.particles.n)
    labels, weights = labels[weights > 0.0], weights[weights > 0.0]
    if len(labels) > _MOST:
        raise CaseError(
            [f"auxiliary.labels: {len(labels)} labels make as many densities: at most {_MOST} for the PDE, such as 64"]
        )
    kernel = create_label_kernel(case)
    if kernel.bias is not None and case.attention.normalized:
        check_softmax(case.auxiliary.kernel, kernel.bias, labels)
    return Coupling(
        labels,
        weights,
        None if kernel.frames is None else kernel.frames(labels),
        None if kernel.bias is None else expand_bias(kernel.bias, labels, case.attention.tolerance),
        kernel.content,
    )


def check_softmax(name: str, bias: Callable[[FloatArray, FloatArray], FloatArray], labels: FloatArray) -> None:
    """Softmax attention divides by Σ_j b_ij f_ij.

    Raises:
        CaseError: It may be negative, or zero.
    """
    some = labels[:: -(-len(labels) // _SAMPLED)]
    b = bias(some, some)
    if b.min() < 0.0:
        raise CaseError(
            [f"attention.normalized: the bias of {name} falls to {b.min():.3g}: softmax attention needs b ≥ 0"]
        )
    alone = ~b.any(axis=1)
    if len(some) == len(labels) and alone.any():
        raise CaseError(
            [f"attention.normalized: the bias of {name} between label {some[alone][0]:g} and all others is 0: softmax "
             "attention needs one above 0"]
        )  # fmt: skip
