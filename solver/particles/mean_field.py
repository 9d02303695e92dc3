"""The mean field of N tokens, its force on them, and the exact transpose of that force.

For a kernel b(ξ, ζ) f(⟨x, Ay⟩) and equal weights, Z(x_i) = (1/N) Σ_j b_ij f(⟨x_i, A x_j⟩), b = 1 where labels do not
matter; plain attention has V = Z, softmax attention V = log Z, and the force on a token is ∇V in R^d (to be projected
on the tangent space).

Arrays of tokens have shape (batch, N, d); every member of a batch is a system of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from solver.attention.expansion import Expansion
from solver.attention.kernels import DotProductKernel
from solver.auxiliary.coupling import LabelExpansion
from solver.types import FloatArray

__all__ = ["DenseField", "Force", "FramedField", "MeanField", "SeparableField"]

_BLOCK_ENTRIES = 200_000  # of an array held at once: 1.6 MB stay in cache, three times faster than 32 MB do


@dataclass(frozen=True)
class Force:
    """What a mean field does to its tokens.

    Attributes:
        value: ∇V(x_i) in R^d, (batch, N, d).
        Z: Z(x_i), (batch, N).
        density: w of `SeparableField`, (batch, terms of b, sections); None of others.
    """

    value: FloatArray
    Z: FloatArray
    density: FloatArray | None = None


class MeanField(Protocol):
    """Attention among tokens."""

    def force(self, x: FloatArray) -> Force:
        """∇V and Z at the tokens x (batch, N, d)."""

    def force_vjp(self, x: FloatArray, force: Force, force_bar: FloatArray) -> FloatArray:
        """Transpose of the derivative of `force` in x, applied to force_bar; shape (batch, N, d)."""


def _normalisation_vjp(force: Force, force_bar: FloatArray, softmax: bool) -> tuple[FloatArray, FloatArray | None]:
    """Sensitivities of G = ∇Z and of Z; the force is G, or G/Z for softmax."""
    if not softmax:
        return force_bar, None
    return force_bar / force.Z[..., None], -np.einsum("bnd,bnd->bn", force_bar, force.value) / force.Z


class SeparableField:
    """Through the separable expansion: O(N · rank · terms of b) work.

    With T = X A Pᵀ for the expansion's pivots P, h(X, P) = f(T), β the factors of b and σ their signs:
    c_k = mean over tokens of β_k f(T) @ weights, w_k = weights @ (signs c_k); token i sees w^i = Σ_k σ_k β_ik w_k:
    Z = f(T)·w^i and ∇Z = (f′(T) ∘ w^i) P A.

    Args:
        expansion: Of a `DotProductKernel`.
        softmax: V = log Z.
        labels: Expansion of b; None: b = 1.
    """

    def __init__(self, expansion: Expansion, softmax: bool, labels: LabelExpansion | None = None) -> None:
        kernel = expansion.kernel
        assert isinstance(kernel, DotProductKernel)
        self._kernel = kernel
        self._AP = expansion.pivots @ kernel.matrix  # (sections, d)
        self._weights, self._signs = expansion.weights, expansion.signs
        self._softmax, self._labels = softmax, labels

    def _blocks(self, x: FloatArray) -> Iterator[slice]:
        """Slices of the tokens such that (batch, tokens, sections) stays bounded."""
        size = max(1, _BLOCK_ENTRIES // (len(x) * len(self._AP)))
        for start in range(0, x.shape[1], size):
            yield slice(start, start + size)

    def _gather(self, values: FloatArray, block: slice) -> FloatArray:
        """Σ_i β_ik values_i over a block of tokens: (batch, tokens, sections) to (batch, terms, sections)."""
        if self._labels is None:
            return values.sum(axis=1, keepdims=True)
        gathered: FloatArray = self._labels.factors[block].T @ values
        return gathered

    def _spread(self, values: FloatArray, block: slice) -> FloatArray:
        """Σ_k σ_k β_ik values_k for a block of tokens: (batch, terms, sections) to (batch, tokens or 1, sections)."""
        if self._labels is None:
            return values
        spread: FloatArray = (self._labels.factors[block] * self._labels.signs) @ values
        return spread

    def moments(self, x: FloatArray) -> FloatArray:
        """c, (batch, terms, rank)."""
        total = sum(
            self._gather(self._kernel.derivatives(x[:, block] @ self._AP.T)[0], block) for block in self._blocks(x)
        )
        mean: FloatArray = total / x.shape[1]
        return mean @ self._weights

    def _density(self, c: FloatArray) -> FloatArray:
        """w_k, (batch, terms, sections)."""
        return (self._signs * c) @ self._weights.T

    def force(self, x: FloatArray) -> Force:
        """See `MeanField`."""
        density = self._density(self.moments(x))
        gradient, Z = np.empty_like(x), np.empty(x.shape[:2])
        for block in self._blocks(x):
            f, slope, _ = self._kernel.derivatives(x[:, block] @ self._AP.T)
            w = self._spread(density, block)
            Z[:, block] = _row_sums(f, w)
            gradient[:, block] = (slope * w) @ self._AP
        return Force(gradient / Z[..., None] if self._softmax else gradient, Z, density)

    def force_vjp(self, x: FloatArray, force: Force, force_bar: FloatArray) -> FloatArray:
        """See `MeanField`."""
        assert force.density is not None
        gradient_bar, Z_bar = _normalisation_vjp(force, force_bar, self._softmax)
        x_bar, w_bar = np.empty_like(x), np.zeros_like(force.density)
        for block in self._blocks(x):
            f, slope, curvature = self._kernel.derivatives(x[:, block] @ self._AP.T)
            w = self._spread(force.density, block)
            q = gradient_bar[:, block] @ self._AP.T
            x_bar[:, block] = (curvature * q * w) @ self._AP
            w_bar += self._gather(slope * q, block)
            if Z_bar is not None:
                x_bar[:, block] += Z_bar[:, block, None] * ((slope * w) @ self._AP)
                w_bar += self._gather(f * Z_bar[:, block, None], block)
        m_bar = (((w_bar @ self._weights) * self._signs) @ self._weights.T) / x.shape[1]
        for block in self._blocks(x):
            slope = self._kernel.derivatives(x[:, block] @ self._AP.T)[1]
            x_bar[:, block] += (slope * self._spread(m_bar, block)) @ self._AP
        return x_bar


def _row_sums(f: FloatArray, w: FloatArray) -> FloatArray:
    """Σ_s f w, (batch, tokens), of f (batch, tokens, sections) and w (batch, tokens or 1, sections)."""
    if w.shape[1] == 1:
        sums: FloatArray = (f @ w.transpose(0, 2, 1))[..., 0]
        return sums
    products: FloatArray = np.einsum("bns,bns->bn", f, w)
    return products


class FramedField:
    """Attention that compares tokens in frames of their own: h((x, ξ), (y, ζ)) = f(⟨R_ξ x, A R_ζ y⟩).

    Args:
        field: Attention among u = R_ξ x.
        frames: R of every token, orthogonal, (N, d, d).
    """

    def __init__(self, field: MeanField, frames: FloatArray) -> None:
        self._field, self._frames = field, frames

    def _turned(self, x: FloatArray) -> FloatArray:
        result: FloatArray = np.einsum("nij,bnj->bni", self._frames, x)
        return result

    def _turned_back(self, u: FloatArray) -> FloatArray:
        result: FloatArray = np.einsum("nji,bnj->bni", self._frames, u)
        return result

    def force(self, x: FloatArray) -> Force:
        """See `MeanField`."""
        force = self._field.force(self._turned(x))
        return replace(force, value=self._turned_back(force.value))

    def force_vjp(self, x: FloatArray, force: Force, force_bar: FloatArray) -> FloatArray:
        """See `MeanField`."""
        turned = replace(force, value=self._turned(force.value))
        return self._turned_back(self._field.force_vjp(self._turned(x), turned, self._turned(force_bar)))


class DenseField:
    """All pairs, in blocks of bounded memory: O(N²) work, for few tokens or kernels of high rank.

    Args:
        kernel: f and A.
        softmax: V = log Z.
        bias: b of all pairs, symmetric (N, N); None: b = 1.
    """

    def __init__(self, kernel: DotProductKernel, softmax: bool, bias: FloatArray | None = None) -> None:
        self._kernel, self._softmax, self._bias = kernel, softmax, bias

    def _pairs(self, x: FloatArray, y: FloatArray) -> Iterator[tuple[slice, tuple[FloatArray, FloatArray, FloatArray]]]:
        """Slices of the tokens, and b f, b f′, b f″ of their pairs with all, (batch, tokens, N)."""
        size = max(1, _BLOCK_ENTRIES // (len(x) * x.shape[1]))
        for start in range(0, x.shape[1], size):
            block = slice(start, start + size)
            f, slope, curvature = self._kernel.derivatives(x[:, block] @ y.transpose(0, 2, 1))
            if self._bias is not None:
                b = self._bias[block]
                f, slope, curvature = b * f, b * slope, b * curvature
            yield block, (f, slope, curvature)

    def force(self, x: FloatArray) -> Force:
        """See `MeanField`."""
        y = x @ self._kernel.matrix
        count = x.shape[1]
        gradient, Z = np.empty_like(x), np.empty(x.shape[:2])
        for block, (f, slope, _) in self._pairs(x, y):
            Z[:, block] = f.sum(axis=2) / count
            gradient[:, block] = slope @ y / count
        return Force(gradient / Z[..., None] if self._softmax else gradient, Z)

    def force_vjp(self, x: FloatArray, force: Force, force_bar: FloatArray) -> FloatArray:
        """See `MeanField`: every token is both where the field is felt and where it comes from."""
        A, count = self._kernel.matrix, x.shape[1]
        y = x @ A
        gradient_bar, Z_bar = _normalisation_vjp(force, force_bar, self._softmax)
        felt, caused = np.empty_like(x), np.zeros_like(x)
        for block, (_, slope, curvature) in self._pairs(x, y):
            pull = curvature * (gradient_bar[:, block] @ y.transpose(0, 2, 1))
            if Z_bar is not None:
                pull = pull + slope * Z_bar[:, block, None]
            felt[:, block] = pull @ y / count
            caused += pull.transpose(0, 2, 1) @ x[:, block] / count
            caused += slope.transpose(0, 2, 1) @ gradient_bar[:, block] / count
        return felt + caused @ A
