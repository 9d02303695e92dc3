"""The von Mises–Fisher law on S^{d−1}, density ∝ e^{κ⟨x, mean⟩}: its angle to the mean, by inversion."""

from __future__ import annotations

import numpy as np

from solver.types import FloatArray

__all__ = ["angle_quantile"]

_ANGLES = 20_001


def angle_quantile(kappa: float, d: int, u: FloatArray) -> FloatArray:
    """Inverse of the distribution function of the angle to the mean, whose density is ∝ sin^{d−2}θ e^{κ cos θ}."""
    reach = min(np.pi, 12.0 * np.sqrt(d / max(kappa, 1e-12)))  # beyond, nothing is left
    theta = np.linspace(0.0, reach, _ANGLES)
    density = np.sin(theta) ** (d - 2) * np.exp(kappa * (np.cos(theta) - 1.0))
    below = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    quantile: FloatArray = np.interp(u * below[-1], below, theta)
    return quantile
