"""Softmax attention, V[μ] = log Z[μ] with Z(x) = ∫ h(x, y) dμ̄(y), through the same separable expansion.

For h = e^{⟨x,Ay⟩} the drift is ∇V = P_x ∫ A y e^{⟨x,Ay⟩} dμ̄(y) / Z(x). δV(x)/δμ(y) = h(x, y)/Z(x) is not symmetric: the
flow descends no free energy, and the nonlocal term of its adjoint has h(y, x)/Z(y).
"""

from __future__ import annotations

import numpy as np

from solver.attention.separable import SeparableAttention
from solver.types import FloatArray

__all__ = ["SoftmaxAttention"]


class SoftmaxAttention(SeparableAttention):
    """The mean field's logarithm. The expansion must be accurate relative to the kernel's smallest value."""

    @property
    def has_energy(self) -> bool:
        """No: no gradient flow."""
        return False

    def node_potential(self, c: FloatArray) -> FloatArray:
        """log Z, shape (local nodes,)."""
        return np.log(self.field(c))

    def variation_weight(self, c: FloatArray) -> FloatArray:
        """w = 1/Z, (local nodes,): δV(x)/δμ(y) = h(x, y)/Z(x)."""
        weight: FloatArray = 1.0 / self.field(c)
        return weight

    def node_potential_vjp(self, c: FloatArray, V_bar: FloatArray) -> FloatArray:
        """This rank's share of c̄ = s Ψᵀ (V̄/Z), shape (rank,)."""
        return super().node_potential_vjp(c, V_bar / self.field(c))
