"""Attention that sees labels: h((x, ξ), (y, ζ)) = b(ξ, ζ) f(⟨Q_ξ x, A Q_ζ y⟩), through the same separable expansion.

With b = Σ_k σ_k β_k(ξ) β_k(ζ) and h₀ = Σ_r s_r ψ_r ψ_r the kernel of the tokens' content,

    h = Σ_kr σ_k s_r [β_k(ξ) ψ_r(Q_ξ x)] [β_k(ζ) ψ_r(Q_ζ y)],

so L labels are coupled by terms(b) · rank(h₀) moments only, and everything costs O(L · nodes · rank).
"""

from __future__ import annotations

import numpy as np

from solver.attention.expansion import Expansion
from solver.auxiliary.coupling import Coupling
from solver.parallel import allreduce
from solver.space import Space
from solver.types import FloatArray

__all__ = ["LabelledAttention", "SoftmaxLabelledAttention"]


class LabelledAttention:
    """V_ℓ = Σ_m ρ_m ∫ h((·, ξ_ℓ), (y, ξ_m)) dμ_m(y); one Allreduce of terms · rank numbers.

    Args:
        space: Where the densities live.
        expansion: Separable expansion of f(⟨x, Ay⟩).
        coupling: The labels, and what attention makes of them.
    """

    def __init__(self, space: Space, expansion: Expansion, coupling: Coupling) -> None:
        self._space = space
        count = len(coupling.labels)
        frames = np.eye(space.dimension)[None] if coupling.frames is None else coupling.frames
        self._psi = np.stack([expansion.features(space.x @ Q.T) for Q in frames])  # (labels or 1, local nodes, rank)
        self._mass = space.mass[: space.owned]
        self._rho = coupling.weights
        self._factors = np.ones((count, 1)) if coupling.bias is None else coupling.bias.factors  # (labels, terms)
        signs = np.ones(1) if coupling.bias is None else coupling.bias.signs
        self._signs = signs[:, None] * expansion.signs  # (terms, rank)

    @property
    def rank(self) -> int:
        """Number of moments: terms of b times terms of h₀."""
        return self._signs.size

    @property
    def signs(self) -> FloatArray:
        """σ_k s_r = ±1, (rank,)."""
        return self._signs.ravel()

    @property
    def has_energy(self) -> bool:
        """The flow descends the free energy: the kernel is symmetric."""
        return True

    def moments(self, mu: FloatArray) -> FloatArray:
        """c_kr = Σ_ℓ ρ_ℓ β_k(ξ_ℓ) ∫ ψ_r(Q_ℓ x) dμ_ℓ, shape (rank,). Collective."""
        owned = self._space.owned
        each = self._project(self._rho[:, None] * self._mass * mu[:, :owned])
        return allreduce(self._space.comm, self._factors.T @ each).ravel()

    def field(self, c: FloatArray) -> FloatArray:
        """Z_ℓ = Σ_m ρ_m ∫ h dμ_m at the local nodes, (labels, local nodes)."""
        return self._evaluate(self._factors @ (self._signs * c.reshape(self._signs.shape)))

    def field_vjp(self, Z_bar: FloatArray) -> FloatArray:
        """This rank's share of c̄, (rank,), from Z̄ (labels, local nodes)."""
        each = self._factors.T @ self._project(Z_bar)
        return (self._signs * each).ravel()

    def potential(self, c: FloatArray) -> FloatArray:
        """V for every label, (labels, local nodes)."""
        return self.field(c)

    def potential_vjp(self, c: FloatArray, V_bar: FloatArray) -> FloatArray:
        """This rank's share of c̄, (rank,)."""
        return self.field_vjp(V_bar)

    def drift(self, c: FloatArray) -> FloatArray:
        """d_ij = V_j − V_i for every label, (labels, edges)."""
        return self._space.differences(self.potential(c))

    def drift_vjp(self, c: FloatArray, d_bar: FloatArray) -> FloatArray:
        """c̄, (rank,). Collective."""
        return allreduce(self._space.comm, self.potential_vjp(c, self._space.differences_vjp(d_bar)))

    def moments_vjp(self, c_bar: FloatArray) -> FloatArray:
        """μ̄_ℓ = ρ_ℓ M Σ_k β_k(ξ_ℓ) Ψ_ℓ c̄_k (owned entries valid)."""
        each = self._evaluate(self._factors @ c_bar.reshape(self._signs.shape))
        result: FloatArray = self._rho[:, None] * self._space.mass * each
        return result

    def interaction_energy(self, c: FloatArray) -> float:
        """½ Σ_{ℓm} ρ_ℓ ρ_m ∬ h dμ_ℓ dμ_m = ½ Σ_kr σ_k s_r c_kr²."""
        return 0.5 * float(self.signs @ c**2)

    def _project(self, values: FloatArray) -> FloatArray:
        """Σ_i values_ℓi ψ_r(Q_ℓ x_i) over the first nodes, (labels, rank), for values (labels, n)."""
        psi = self._psi[:, : values.shape[1]]
        if len(psi) == 1:
            shared: FloatArray = values @ psi[0]
            return shared
        projected: FloatArray = np.matmul(values[:, None, :], psi)[:, 0]
        return projected

    def _evaluate(self, w: FloatArray) -> FloatArray:
        """Σ_r w_ℓr ψ_r(Q_ℓ x) at the local nodes, (labels, local nodes), for w (labels, rank)."""
        if len(self._psi) == 1:
            shared: FloatArray = w @ self._psi[0].T
            return shared
        evaluated: FloatArray = np.matmul(self._psi, w[:, :, None])[:, :, 0]
        return evaluated


class SoftmaxLabelledAttention(LabelledAttention):
    """V_ℓ = log Z_ℓ; needs b ≥ 0. δV(x)/δμ(y) = h/Z(x) is not symmetric: no free energy."""

    @property
    def has_energy(self) -> bool:
        """No: no gradient flow."""
        return False

    def potential(self, c: FloatArray) -> FloatArray:
        """log Z for every label, (labels, local nodes)."""
        return np.log(self.field(c))

    def potential_vjp(self, c: FloatArray, V_bar: FloatArray) -> FloatArray:
        """This rank's share of c̄ for V̄, (rank,)."""
        return self.field_vjp(V_bar / self.field(c))
