"""A loss: a function of finitely many averages over the tokens, loss(μ̄) = f(∫ s dμ̄)."""

from __future__ import annotations

from typing import Protocol

from solver.types import FloatArray

__all__ = ["Loss"]


class Loss(Protocol):
    """The same definition serves a density (nodes with masses) and a cloud of particles.

    The first variation is δloss/δμ̄ (x) = ⟨f′(S), s(x)⟩ with S = ∫ s dμ̄.
    """

    def statistics(self, x: FloatArray) -> FloatArray:
        """s at points x (points, d), shape (points, k)."""

    def value(self, S: FloatArray) -> float:
        """f(S) for averages S of shape (k,)."""

    def derivative(self, S: FloatArray) -> FloatArray:
        """f′(S), shape (k,)."""
