"""Symmetric unnormalised attention, V[μ](x) = ∫ h(x, y) dμ̄(y), through a separable expansion."""

from __future__ import annotations

from mpi4py import MPI

import numpy as np

from solver.attention.expansion import Expansion
from solver.parallel import allreduce
from solver.space import Space
from solver.types import FloatArray

__all__ = ["SeparableAttention"]


class SeparableAttention:
    """V = Ψ s (Ψᵀ M μ̄): O(nodes · rank) work and one Allreduce of `rank` numbers.

    Args:
        space: Where the densities live.
        expansion: The kernel's separable expansion.
        label_weights: ρ_ℓ, shape (labels,).
    """

    def __init__(self, space: Space, expansion: Expansion, label_weights: FloatArray) -> None:
        self._space = space
        self._signs = expansion.signs
        self._psi = expansion.features(space.x)
        self._mass = space.mass[: space.owned]
        self._rho = label_weights

    @property
    def rank(self) -> int:
        """Number of terms of the expansion."""
        return len(self._signs)

    @property
    def psi(self) -> FloatArray:
        """ψ_r at the local nodes, (local nodes, rank)."""
        return self._psi

    @property
    def signs(self) -> FloatArray:
        """s_r = ±1, (rank,)."""
        return self._signs

    @property
    def has_energy(self) -> bool:
        """The flow descends the free energy: δV(x)/δμ(y) = h(x, y) is symmetric."""
        return True

    def moments(self, mu: FloatArray) -> FloatArray:
        """c_r = Σ_ℓ ρ_ℓ ∫ ψ_r dμ_ℓ, shape (rank,). Collective."""
        owned = self._space.owned
        mean_density = self._rho @ mu[:, :owned]
        return allreduce(self._space.comm, (self._mass * mean_density) @ self._psi[:owned])

    def field(self, c: FloatArray) -> FloatArray:
        """∫ h(x, y) dμ̄(y) = Σ_r s_r ψ_r(x) c_r, shape (local nodes,)."""
        result: FloatArray = self._psi @ (self._signs * c)
        return result

    def node_potential(self, c: FloatArray) -> FloatArray:
        """V, shape (local nodes,); this kernel ignores labels, so every label sees the same."""
        return self.field(c)

    def node_potential_vjp(self, c: FloatArray, V_bar: FloatArray) -> FloatArray:
        """This rank's share of c̄ = s Ψᵀ V̄, shape (rank,)."""
        result: FloatArray = self._signs * (V_bar @ self._psi)
        return result

    def variation_weight(self, c: FloatArray) -> FloatArray:
        """w(x), (local nodes,), of the potential's variation δV(x)/δμ(y) = w(x) h(x, y): one."""
        return np.ones(len(self._psi))

    def potential(self, c: FloatArray) -> FloatArray:
        """V for every label, (labels, local nodes)."""
        V = self.node_potential(c)
        return np.broadcast_to(V, (len(self._rho), len(V)))

    def drift(self, c: FloatArray) -> FloatArray:
        """d_ij = V_j − V_i."""
        (d,) = self._space.differences(self.node_potential(c)[None])
        return np.broadcast_to(d, (len(self._rho), len(d)))

    def drift_vjp(self, c: FloatArray, d_bar: FloatArray) -> FloatArray:
        """c̄, from V̄: the edge sensitivities added up at their ends. Collective."""
        (V_bar,) = self._space.differences_vjp(d_bar.sum(axis=0, keepdims=True))
        return allreduce(self._space.comm, self.node_potential_vjp(c, V_bar))

    def moments_vjp(self, c_bar: FloatArray) -> FloatArray:
        """μ̄_ℓ = ρ_ℓ M Ψ c̄ (owned entries valid)."""
        return self._rho[:, None] * (self._space.mass * (self._psi @ c_bar))

    def interaction_energy(self, c: FloatArray) -> float:
        """½ Σ_{ℓm} ρ_ℓ ρ_m ∬ h dμ_ℓ dμ_m = ½ Σ_r s_r c_r²."""
        return 0.5 * float(np.sum(self._signs * c**2))

    def dirac_interaction_energy(self) -> float:
        """½ max_i h(x_i, x_i) over the vertices. Collective."""
        owned = self._psi[: self._space.owned]
        best = float((owned**2 @ self._signs).max(initial=-np.inf))
        return 0.5 * float(allreduce(self._space.comm, best, MPI.MAX))
