"""The seam between attention and the rest of the solver."""

from __future__ import annotations

from typing import Protocol

from solver.types import FloatArray

__all__ = ["Attention"]


class Attention(Protocol):
    """A mean field: densities → moments → drift on the edges, with the exact transposes of both maps.

    Densities have shape (labels, local nodes), drifts (labels, edges). Moments are what ranks exchange: one reduction.
    """

    @property
    def rank(self) -> int:
        """Number of moments."""

    @property
    def signs(self) -> FloatArray:
        """±1 for each of the moments, (rank,): what the interaction energy is a sum of squares with."""

    @property
    def has_energy(self) -> bool:
        """Whether the untrained flow descends the free energy ε ∫ μ log μ − interaction energy."""

    def moments(self, mu: FloatArray) -> FloatArray:
        """c[μ], the same on every rank. Collective."""

    def drift(self, c: FloatArray) -> FloatArray:
        """d_ij, the integral of the mean field's velocity along each edge."""

    def drift_vjp(self, c: FloatArray, d_bar: FloatArray) -> FloatArray:
        """Sensitivity of c from that of the drift. Collective."""

    def moments_vjp(self, c_bar: FloatArray) -> FloatArray:
        """Sensitivity of the nodal values μ from that of c."""

    def potential(self, c: FloatArray) -> FloatArray | None:
        """V at the local nodes, (labels, local nodes); None if the drift is no gradient."""

    def interaction_energy(self, c: FloatArray) -> float:
        """½ Σ_{ℓm} ρ_ℓ ρ_m ∬ h dμ_ℓ dμ_m."""
