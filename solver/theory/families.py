"""The two families of optima in the cluster limit: one cluster on the circle, ε → 0, T → ∞ (docs/two-optima.md).

A cluster at angle α from v₁ has the energy E(α) = −½ exp(λ₁cos²α + λ₂sin²α) and moves by α̇ = −E'(α) + u; the smallest
‖W‖_F that gives it the speed u is |u| (features σ = x). For α from a to b > a uphill, (λ_reg/2) ∫ u² dt is smallest at
u = 2E', where it is 2λ_reg (E(b) − E(a)); downhill nothing is needed, and v₁ and v₂ are places to wait for free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.optimize import brentq, minimize_scalar

__all__ = ["FamilyCosts", "cluster_energy", "crossing", "family_costs"]


@dataclass(frozen=True)
class FamilyCosts:
    """J of both families for the loss 1 − cos(α_T − target), and where the late escape ends (rad)."""

    late: float
    saddle: float
    late_end: float


def cluster_energy(eigenvalues: tuple[float, float], angle: float) -> float:
    """E of a Dirac at an angle (rad) from v₁, ε = 0."""
    first, second = eigenvalues
    return -0.5 * math.exp(first * math.cos(angle) ** 2 + second * math.sin(angle) ** 2)


def family_costs(eigenvalues: tuple[float, float], start: float, target: float, strength: float) -> FamilyCosts:
    """Late escape: 2λ_reg (E(end) − E(v₁)) and what loss is left; via the saddle: 2λ_reg (E(v₂) − E(start)), no loss.

    Args:
        eigenvalues: λ₁ > λ₂ of attention.
        start: Angle of the cluster at t = 0, in [0, π/2], rad.
        target: In (0, π/2], rad.
        strength: λ_reg ≥ 0.
    """
    lowest = cluster_energy(eigenvalues, 0.0)

    def late(end: float) -> float:
        return 2.0 * strength * (cluster_energy(eigenvalues, end) - lowest) + 1.0 - math.cos(end - target)

    found = minimize_scalar(late, bounds=(0.0, target), method="bounded", options={"xatol": 1e-12})
    end = min((float(found.x), target), key=late)
    climb = cluster_energy(eigenvalues, 0.5 * math.pi) - cluster_energy(eigenvalues, start)
    return FamilyCosts(late(end), 2.0 * strength * climb, end)


def crossing(eigenvalues: tuple[float, float], start: float, strength: float) -> float:
    """The target (rad) at which both families cost the same; the late escape is the lower one for nearer targets.

    Args:
        eigenvalues: λ₁ > λ₂ of attention.
        start: Angle of the cluster at t = 0, in (0, π/2), rad.
        strength: λ_reg; at 0 the limit λ_reg → 0, E(target) − E(v₁) = E(v₂) − E(start).
    """

    def difference(target: float) -> float:
        if strength == 0.0:
            climbs = cluster_energy(eigenvalues, target) + cluster_energy(eigenvalues, start)
            return climbs - cluster_energy(eigenvalues, 0.0) - cluster_energy(eigenvalues, 0.5 * math.pi)
        costs = family_costs(eigenvalues, start, target, strength)
        return costs.late - costs.saddle

    return float(brentq(difference, 1e-6, 0.5 * math.pi, xtol=1e-12))
