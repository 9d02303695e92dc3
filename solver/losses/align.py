"""`align`: 1 − ⟨∫x dμ̄, target⟩ (P1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.types import FloatArray

__all__ = ["Align"]


@dataclass(frozen=True)
class Align:
    """Mean token direction against a target.

    Attributes:
        target: Unit vector, shape (d,).
    """

    target: FloatArray

    def statistics(self, x: FloatArray) -> FloatArray:
        """s(x) = x."""
        return x

    def value(self, S: FloatArray) -> float:
        """1 − ⟨S, target⟩."""
        return 1.0 - float(S @ self.target)

    def derivative(self, S: FloatArray) -> FloatArray:
        """−target."""
        return -self.target

    def statistics_vjp(self, x: FloatArray, s_bar: FloatArray) -> FloatArray:
        """s_bar at every point."""
        return np.broadcast_to(s_bar, x.shape)
