"""The mean field of N tokens, its force on them, and the exact transpose of that force.

For a kernel h(x, y) = f(⟨x, Ay⟩) and equal weights, Z(x) = (1/N) Σ_j h(x, x_j); plain attention has V = Z, softmax
attention V = log Z, and the force on a token is ∇V in R^d (to be projected on the tangent space).

Arrays of tokens have shape (batch, N, d); every member of a batch is a system of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from solver.attention.expansion import Expansion
from solver.attention.kernels import DotProductKernel
from solver.types import FloatArray

__all__ = ["DenseField", "Force", "FramedField", "MeanField", "SeparableField"]

_BLOCK_ENTRIES = 200_000  # of an array held at once: 1.6 MB stay in cache, three times faster than 32 MB do


@dataclass(frozen=True)
class Force:
    """What a mean field does to its tokens.

    Attributes:
        value: ∇V(x_i) in R^d, (batch, N, d).
        Z: Z(x_i), (batch, N).
        density: w of `SeparableField`, (batch, sections); None of others.
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
    """Through the separable expansion: O(N · rank) work.

    With T = X A Pᵀ for the expansion's pivots P, h(X, P) = f(T), c = mean over tokens of f(T) @ weights, and
    w = weights @ (signs c): Z = f(T) w and ∇Z = (f′(T) ∘ w) P A.

    Args:
        expansion: Of a `DotProductKernel`.
        softmax: V = log Z.
    """

    def __init__(self, expansion: Expansion, softmax: bool) -> None:
        kernel = expansion.kernel
        assert isinstance(kernel, DotProductKernel)
        self._kernel = kernel
        self._AP = expansion.pivots @ kernel.matrix  # (sections, d)
        self._weights, self._signs = expansion.weights, expansion.signs
        self._softmax = softmax

    def _blocks(self, x: FloatArray) -> Iterator[slice]:
        """Slices of the tokens such that (batch, tokens, sections) stays bounded."""
        size = max(1, _BLOCK_ENTRIES // (len(x) * len(self._AP)))
        for start in range(0, x.shape[1], size):
            yield slice(start, start + size)

    def moments(self, x: FloatArray) -> FloatArray:
        """c, (batch, rank)."""
        total = sum(self._kernel.derivatives(x[:, block] @ self._AP.T)[0].sum(axis=1) for block in self._blocks(x))
        mean: FloatArray = total / x.shape[1]
        return mean @ self._weights

    def _density(self, c: FloatArray) -> FloatArray:
        """w, (batch, sections)."""
        return (self._signs * c) @ self._weights.T

    def force(self, x: FloatArray) -> Force:
        """See `MeanField`."""
        density = self._density(self.moments(x))
        w = density[:, None, :]
        gradient, Z = np.empty_like(x), np.empty(x.shape[:2])
        for block in self._blocks(x):
            f, slope, _ = self._kernel.derivatives(x[:, block] @ self._AP.T)
            Z[:, block] = (f @ w.transpose(0, 2, 1))[..., 0]
            gradient[:, block] = (slope * w) @ self._AP
        return Force(gradient / Z[..., None] if self._softmax else gradient, Z, density)

    def force_vjp(self, x: FloatArray, force: Force, force_bar: FloatArray) -> FloatArray:
        """See `MeanField`."""
        assert force.density is not None
        w = force.density[:, None, :]
        gradient_bar, Z_bar = _normalisation_vjp(force, force_bar, self._softmax)
        x_bar, w_bar = np.empty_like(x), np.zeros((len(x), len(self._AP)))
        for block in self._blocks(x):
            f, slope, curvature = self._kernel.derivatives(x[:, block] @ self._AP.T)
            q = gradient_bar[:, block] @ self._AP.T
            x_bar[:, block] = (curvature * q * w) @ self._AP
            w_bar += np.einsum("bns,bns->bs", slope, q)
            if Z_bar is not None:
                x_bar[:, block] += Z_bar[:, block, None] * ((slope * w) @ self._AP)
                w_bar += np.einsum("bns,bn->bs", f, Z_bar[:, block])
        m_bar = (((w_bar @ self._weights) * self._signs) @ self._weights.T)[:, None, :] / x.shape[1]
        for block in self._blocks(x):
            slope = self._kernel.derivatives(x[:, block] @ self._AP.T)[1]
            x_bar[:, block] += (slope * m_bar) @ self._AP
        return x_bar


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
    """

    def __init__(self, kernel: DotProductKernel, softmax: bool) -> None:
        self._kernel, self._softmax = kernel, softmax

    def _blocks(self, x: FloatArray) -> Iterator[slice]:
        size = max(1, _BLOCK_ENTRIES // (len(x) * x.shape[1]))
        for start in range(0, x.shape[1], size):
            yield slice(start, start + size)

    def force(self, x: FloatArray) -> Force:
        """See `MeanField`."""
        y = x @ self._kernel.matrix
        count = x.shape[1]
        gradient, Z = np.empty_like(x), np.empty(x.shape[:2])
        for block in self._blocks(x):
            f, slope, _ = self._kernel.derivatives(x[:, block] @ y.transpose(0, 2, 1))
            Z[:, block] = f.sum(axis=2) / count
            gradient[:, block] = slope @ y / count
        return Force(gradient / Z[..., None] if self._softmax else gradient, Z)

    def force_vjp(self, x: FloatArray, force: Force, force_bar: FloatArray) -> FloatArray:
        """See `MeanField`: every token is both where the field is felt and where it comes from."""
        A, count = self._kernel.matrix, x.shape[1]
        y = x @ A
        gradient_bar, Z_bar = _normalisation_vjp(force, force_bar, self._softmax)
        felt, caused = np.empty_like(x), np.zeros_like(x)
        for block in self._blocks(x):
            s = x[:, block] @ y.transpose(0, 2, 1)
            _, slope, curvature = self._kernel.derivatives(s)
            pull = curvature * (gradient_bar[:, block] @ y.transpose(0, 2, 1))
            if Z_bar is not None:
                pull = pull + slope * Z_bar[:, block, None]
            felt[:, block] = pull @ y / count
            caused += pull.transpose(0, 2, 1) @ x[:, block] / count
            caused += slope.transpose(0, 2, 1) @ gradient_bar[:, block] / count
        return felt + caused @ A
