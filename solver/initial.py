"""Initial laws, as nodal densities of mass one."""

from __future__ import annotations

import numpy as np

from solver.space import Space
from solver.types import FloatArray

__all__ = ["von_mises_fisher"]


def von_mises_fisher(space: Space, mean: FloatArray, kappa: float) -> FloatArray:
    """Density ∝ e^{κ⟨x, mean⟩} at the nodes, scaled to lumped mass 1. Collective.

    Args:
        space: P1 space.
        mean: Unit vector, (d,).
        kappa: κ ≥ 0; 0 is the uniform law.

    Returns:
        Shape (local nodes,).
    """
    density = np.exp(kappa * (space.x @ mean - 1.0))
    result: FloatArray = density / space.integrate(density)
    return result
