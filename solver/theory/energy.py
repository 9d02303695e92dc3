"""The free energy, the gap above a stationary state, and its dissipation.

E(μ) = ε Σ ρ_ℓ ∫ μ_ℓ log μ_ℓ − ½ Σ ρ_ℓ ρ_m ∬ h dμ_ℓ dμ_m. Near a stationary density ρ both E(μ) − E(ρ) and the
dissipation are differences of nearly equal numbers; here they are computed from η = μ/ρ − 1, to full relative accuracy.
"""

from __future__ import annotations

import numpy as np

from solver.attention.protocol import Attention
from solver.attention.separable import SeparableAttention
from solver.operator import bernoulli
from solver.parallel import allreduce
from solver.space import Space
from solver.types import FloatArray

__all__ = ["dissipation", "energy_gap", "entropy", "free_energy"]


def entropy(space: Space, mu: FloatArray) -> FloatArray:
    """∫ μ_ℓ log μ_ℓ for every label (0·log 0 = 0; round-off below zero counts as zero). Collective."""
    positive = np.maximum(mu, 1e-320)
    return space.integrate(np.where(mu > 0, mu * np.log(positive), 0.0))


def free_energy(
    space: Space, attention: Attention, label_weights: FloatArray, epsilon: float, mu: FloatArray
) -> float | None:
    """E(μ) for μ (labels, local nodes); None where there is none. Collective."""
    if not attention.has_energy:
        return None
    interaction = attention.interaction_energy(attention.moments(mu))
    return epsilon * float(label_weights @ entropy(space, mu)) - interaction


def energy_gap(
    space: Space, attention: SeparableAttention, epsilon: float, rho: FloatArray, eta: FloatArray
) -> FloatArray:
    """Δ = E(ρ(1 + η)) − E(ρ) for a stationary ρ. Collective.

    Since ε log ρ − V[ρ] is constant, Δ = ε ∫ ρ [(1 + η) log(1 + η) − η] − ½ ∬ h δ δ with δ = ρη, ∫δ = 0.

    Args:
        space: P1 space.
        attention: With an energy.
        epsilon: ε.
        rho: ρ, (local nodes,).
        eta: η > −1, (samples, local nodes), with ∫ρη = 0.

    Returns:
        (samples,).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        convex = np.where(eta > -1.0, (1.0 + eta) * np.log1p(eta), 0.0) - eta
    small = np.abs(eta) < 1e-4  # the difference above cancels there
    convex = np.where(small, eta**2 * (0.5 - eta * (1 / 6 - eta / 12)), convex)
    moments = _moments(space, attention, rho * eta)
    return epsilon * space.integrate(rho * convex) - 0.5 * (moments**2 @ attention.signs)


def dissipation(
    space: Space, attention: SeparableAttention, epsilon: float, log_rho: FloatArray, eta: FloatArray
) -> FloatArray:
    """D = −dE/dt of the scheme at ρ(1 + η), for a stationary ρ. Collective.

    D = Σ_edges F_ij y_ij with y_ij = δE/δμ_i − δE/δμ_j = ε [log(1 + η_i) − log(1 + η_j)] + V[ρη]_j − V[ρη]_i and, with
    d_ij = V_j − V_i at ρ(1 + η), F_ij = w_ij β(d_ij) μ_j (e^{y_ij/ε} − 1): the continuum's ∫ |∇δE/δμ|² dμ.

    Args:
        space: P1 space.
        attention: With an energy.
        epsilon: ε.
        log_rho: log ρ, (local nodes,), ghosts valid.
        eta: η > −1, (samples, local nodes), ghosts valid.

    Returns:
        (samples,).
    """
    i, j = space.edges.T
    rho = np.exp(log_rho)
    moments = _moments(space, attention, rho * eta)
    change = (moments * attention.signs) @ attention.psi.T  # V[ρη], (samples, local nodes)
    logarithm = np.log1p(eta)
    y = epsilon * (logarithm[:, i] - logarithm[:, j]) + change[:, j] - change[:, i]
    d = epsilon * (log_rho[j] - log_rho[i]) + change[:, j] - change[:, i]
    _, back = bernoulli(d, epsilon)
    flux = space.w * back * (rho[j] * (1.0 + eta[:, j])) * np.expm1(y / epsilon)
    return allreduce(space.comm, (flux * y).sum(axis=1))


def _moments(space: Space, attention: SeparableAttention, density: FloatArray) -> FloatArray:
    """∫ ψ_r of each row of `density` (samples, local nodes), shape (samples, rank). Collective."""
    owned = slice(0, space.owned)
    return allreduce(space.comm, (density[:, owned] * space.mass[owned]) @ attention.psi[owned])
