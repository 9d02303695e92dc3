"""Edge-averaged finite elements (Scharfetter–Gummel): the transport operator L(d) on the edges of the mesh.

For every edge i–j with conductance w and drift d = d_ij, mass jumps from i to j at the rate w β(−d) and back at the
rate w β(d), so that the flux is F_ij = w [β(−d) μ_i − β(d) μ_j] and m_i dμ_i/dt = −Σ_j F_ij = −(L μ)_i. Columns of L
add up to zero (mass), its off-diagonal entries are ≤ 0 (positivity), and F vanishes on μ ∝ e^{V/ε} (equilibria).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.space import Space
from solver.types import FloatArray

__all__ = ["EdgeAveragedOperator", "Rates", "bernoulli", "bernoulli_derivative"]

_SERIES_BELOW = 0.1


def bernoulli(s: FloatArray, epsilon: float) -> tuple[FloatArray, FloatArray]:
    """β(−s) and β(s) for β(s) = s / (e^{s/ε} − 1); ε = 0: β(s) = max(−s, 0), upwind.

    Both are ≥ 0, without overflow or cancellation for any s.
    """
    if epsilon == 0.0:
        return np.maximum(s, 0.0), np.maximum(-s, 0.0)
    size = np.abs(s)
    x = np.maximum(_ratio(size, epsilon), 1e-300)
    large = np.where(x < 1e-8, epsilon * (1.0 + 0.5 * x), size / -np.expm1(-x))  # β(−|s|)
    small = large * np.exp(-x)  # β(|s|)
    uphill = s >= 0
    return np.where(uphill, large, small), np.where(uphill, small, large)


def _ratio(size: FloatArray, epsilon: float) -> FloatArray:
    """size/ε, at most 1e300: beyond, e^{−size/ε} is zero anyway."""
    with np.errstate(over="ignore"):
        return np.minimum(size / epsilon, 1e300)


def bernoulli_derivative(s: FloatArray, epsilon: float) -> FloatArray:
    """β′(s) ∈ [−1, 0]; β′(−s) = −1 − β′(s). At the kink of ε = 0 it is −½."""
    if epsilon == 0.0:
        return 0.5 * (np.sign(s) - 1.0)
    x = _ratio(np.abs(s), epsilon)
    near = x < _SERIES_BELOW
    far = np.where(near, _SERIES_BELOW, x)
    decay = np.exp(-far)
    at_positive = decay * (1.0 - decay - far) / (1.0 - decay) ** 2
    z = x[near]
    at_positive[near] = -0.5 + z * (1 / 6 - z**2 * (1 / 180 - z**2 * (1 / 5040 - z**2 / 151200)))
    return np.where(s >= 0, at_positive, -1.0 - at_positive)


@dataclass(frozen=True)
class Rates:
    """Jump rates along the edges, times the mass of the node jumped from; shape (labels, edges) each.

    Attributes:
        forward: From the first node to the second, w β(−d).
        backward: From the second node to the first, w β(d).
    """

    forward: FloatArray
    backward: FloatArray


class EdgeAveragedOperator:
    """L(d) for drifts d of shape (labels, edges) on a space's edges, at diffusion ε."""

    def __init__(self, space: Space, epsilon: float) -> None:
        self._space = space
        self._epsilon = epsilon

    def rates(self, d: FloatArray) -> Rates:
        """The entries of L(d)."""
        forward, backward = bernoulli(d, self._epsilon)
        return Rates(self._space.w * forward, self._space.w * backward)

    def apply(self, rates: Rates, u: FloatArray) -> FloatArray:
        """L u for u (labels, local nodes) with valid ghosts; owned entries valid. Collective."""
        i, j = self._space.edges.T
        flux = rates.forward * u[:, i] - rates.backward * u[:, j]
        return self._space.sum_to_nodes(flux, -flux)

    def apply_transpose(self, rates: Rates, p: FloatArray) -> FloatArray:
        """Lᵀ p for p (labels, local nodes) with valid ghosts; owned entries valid. Collective."""
        i, j = self._space.edges.T
        difference = p[:, i] - p[:, j]
        return self._space.sum_to_nodes(rates.forward * difference, -rates.backward * difference)

    def slopes(self, d: FloatArray) -> FloatArray:
        """β′(d), what `drift_sensitivity` needs of the drift; shape (labels, edges)."""
        return bernoulli_derivative(d, self._epsilon)

    def drift_sensitivity(self, slopes: FloatArray, p: FloatArray, u: FloatArray) -> FloatArray:
        """∂(pᵀ L(d) u)/∂d_ij = w (p_i − p_j) [−β′(−d) u_i − β′(d) u_j], shape (labels, edges)."""
        i, j = self._space.edges.T
        return self._space.w * (p[:, i] - p[:, j]) * (u[:, i] + slopes * (u[:, i] - u[:, j]))
