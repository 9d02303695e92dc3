"""A loss: a function of finitely many averages over the tokens, loss(μ̄) = f(∫ s dμ̄)."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from solver.types import FloatArray

__all__ = ["Loss", "Reading", "SmoothStatistics"]


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


@runtime_checkable
class SmoothStatistics(Protocol):
    """A loss that knows the transposed derivative of its statistics; for others it is taken by differences."""

    def statistics_vjp(self, x: FloatArray, s_bar: FloatArray) -> FloatArray:
        """Σ_k s_bar_k ∇s_k(x) for points x (points, d) and s_bar (k,), shape (points, d)."""


@runtime_checkable
class Reading(Protocol):
    """A loss that has more to say along depth than its value: further columns of trajectory.csv."""

    def readings(self, S: FloatArray, mean: FloatArray) -> dict[str, float]:
        """Named numbers from the averages S (k,) and the mean token ∫x dμ̄ (d,)."""
