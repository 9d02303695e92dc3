"""The free energy, the gap above a stationary state, and its dissipation.

E(μ) = ε Σ ρ_ℓ ∫ μ_ℓ log μ_ℓ − ½ Σ ρ_ℓ ρ_m ∬ h dμ_ℓ dμ_m. Near a stationary density ρ both E(μ) − E(ρ) and the
dissipation are differences of nearly equal numbers; from g = log(μ/ρ) they are computed to full relative accuracy.
"""

from __future__ import annotations

import numpy as np

from solver.attention.protocol import Attention
from solver.attention.separable import SeparableAttention
from solver.operator import bernoulli
from solver.parallel import allreduce
from solver.space import Space
from solver.types import FloatArray

__all__ = ["dissipation", "energy_gap", "entropy", "free_energy", "slope"]


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
    space: Space, attention: SeparableAttention, epsilon: float, log_rho: FloatArray, g: FloatArray
) -> FloatArray:
    """Δ = E(ρe^g) − E(ρ) for a stationary ρ. Collective.

    Since ε log ρ − V[ρ] is constant, Δ = ε ∫ ρ [g e^g − e^g + 1] − ½ ∬ h δ δ with δ = ρ(e^g − 1), ∫δ = 0.

    Args:
        space: P1 space.
        attention: With an energy.
        epsilon: ε.
        log_rho: log ρ, (local nodes,).
        g: log(μ/ρ), −inf where μ = 0, (samples, local nodes), with ∫ρe^g = 1.

    Returns:
        (samples,).
    """
    mu = np.exp(log_rho + g)
    delta = _difference(log_rho, g)
    small = np.abs(g) < 1e-3  # the difference cancels there
    near, finite = np.where(small, g, 0.0), np.where(mu > 0.0, g, 0.0)
    series = np.exp(log_rho) * near**2 * (0.5 + near * (1 / 3 + near * (1 / 8 + near * (1 / 30 + near / 144))))
    moments = _moments(space, attention, delta)
    return epsilon * space.integrate(np.where(small, series, mu * finite - delta)) - 0.5 * (
        moments**2 @ attention.signs
    )


def dissipation(
    space: Space, attention: SeparableAttention, epsilon: float, log_rho: FloatArray, g: FloatArray
) -> FloatArray:
    """D = −dE/dt of the scheme at ρe^g, for a stationary ρ. Collective.

    D = Σ_edges F_ij y_ij with y_ij = δE/δμ_i − δE/δμ_j = ε (g_i − g_j) + V[δ]_j − V[δ]_i, δ = ρ(e^g − 1), and, with
    d_ij = V_j − V_i at ρe^g, F_ij = w_ij β(d_ij) μ_j (e^{y_ij/ε} − 1): the continuum's ∫ |∇δE/δμ|² dμ.

    Args:
        space: P1 space.
        attention: With an energy.
        epsilon: ε.
        log_rho: log ρ, (local nodes,), ghosts valid.
        g: log(μ/ρ), (samples, local nodes), ghosts valid.

    Returns:
        (samples,).
    """
    i, j = space.edges.T
    change = (_moments(space, attention, _difference(log_rho, g)) * attention.signs) @ attention.psi.T  # V[δ]
    y = epsilon * (g[:, i] - g[:, j]) + change[:, j] - change[:, i]
    d = epsilon * (log_rho[j] - log_rho[i]) + change[:, j] - change[:, i]
    forward, back = bernoulli(d, epsilon)
    # F = w [β(−d) μ_i − β(d) μ_j]: the smaller of the two terms times expm1 of the quotient's logarithm, y/ε ≥ 0.
    uphill = y < 0.0
    node = np.where(uphill, i, j)
    smaller = np.where(uphill, forward, back) * np.exp(log_rho[node] + np.take_along_axis(g, node, axis=1))
    flux = space.w * smaller * np.expm1(np.minimum(np.abs(y) / epsilon, 700.0))
    return allreduce(space.comm, (flux * np.abs(y)).sum(axis=1))


def _difference(log_rho: FloatArray, g: FloatArray) -> FloatArray:
    """ρ(e^g − 1), whatever the size of g and ρ."""
    large = np.abs(g) > 1.0
    exact = np.exp(log_rho) * np.expm1(np.where(large, 0.0, g))
    return np.where(large, np.exp(log_rho + g) - np.exp(log_rho), exact)


def slope(space: Space, attention: SeparableAttention, epsilon: float, mu: FloatArray) -> float:
    """‖∇δE/δμ‖_{L²(μ)} = D^{1/2} at any density (local nodes,), ghosts valid: zero at stationary states. Collective."""
    i, j = space.edges.T
    log_mu = np.log(np.maximum(mu, 1e-320))
    V = attention.node_potential(_moments(space, attention, mu[None])[0])
    d = V[j] - V[i]
    y = epsilon * (log_mu[i] - log_mu[j]) + d
    forward, back = bernoulli(d, epsilon)
    flux = space.w * (forward * mu[i] - back * mu[j])
    return float(np.sqrt(max(float(allreduce(space.comm, float(flux @ y))), 0.0)))


def _moments(space: Space, attention: SeparableAttention, density: FloatArray) -> FloatArray:
    """∫ ψ_r of each row of `density` (samples, local nodes), shape (samples, rank). Collective."""
    owned = slice(0, space.owned)
    return allreduce(space.comm, (density[:, owned] * space.mass[owned]) @ attention.psi[owned])
