"""Metastability of the base model: how long two equal clusters live before they merge (P2; docs/auxiliary.md).

Two clusters of half the tokens each, at an angle θ < 90°, obey θ̇ = −β e^{β cos θ} sin θ under e^{β⟨x,y⟩}. From θ₀ on
they live for

    ∫ dθ / (β e^{β cos θ} sin θ)  ≈  e^{−β cos θ₀} / (β² sin²θ₀)        (β → ∞),

in units of e^{−β}, the time of collapse within a cluster, e^{β(1 − cos θ₀)} / (β² sin²θ₀).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.integrate import quad

from solver.attention.kernels import ExponentialKernel
from solver.particles.mean_field import DenseField
from solver.particles.step import exponential_map
from solver.types import FloatArray

__all__ = ["MERGED", "lifetime_integral", "lifetime_slope", "token_lifetime"]

MERGED = 0.1  # rad: closer clusters count as merged
_TURN = 1e-3  # rad: largest change of the angle in a step


def token_lifetime(beta: float, angle: float, end: float = MERGED) -> float:
    """Depth at which two tokens, `angle` rad apart, are `end` apart, by the tokens' own steps, each of 10⁻³ rad.

    Clusters are tokens at one place; as they all feel the same, one for each will do.
    """
    field = DenseField(ExponentialKernel(beta * np.eye(2)), softmax=False)
    half, depth = 0.5 * angle, 0.0
    x = np.array([[[math.cos(half), math.sin(half)], [math.cos(half), -math.sin(half)]]])
    while True:
        now = _angle_between(x)
        force = field.force(x).value
        tangent = force - np.einsum("bni,bni->bn", force, x)[..., None] * x
        dt = min(_TURN, now - end) / (2.0 * float(np.linalg.norm(tangent[0, 0])))
        x = exponential_map(x, dt * tangent)
        x /= np.linalg.norm(x, axis=-1, keepdims=True)
        depth += dt
        if _angle_between(x) <= end * (1.0 + 1e-9):
            return depth


def _angle_between(x: FloatArray) -> float:
    return 2.0 * math.asin(0.5 * float(np.linalg.norm(x[0, 0] - x[0, 1])))


def lifetime_integral(beta: float, angle: float, end: float = MERGED) -> float:
    """∫ dθ / (β e^{β cos θ} sin θ) from `end` to `angle`: the same depth, of the differential equation."""
    scaled, _ = quad(
        lambda theta: math.exp(beta * (math.cos(angle) - math.cos(theta))) / (beta * math.sin(theta)),
        end, angle, epsabs=0.0, epsrel=1e-10, limit=500, points=[max(end, angle - 10.0 / (beta * math.sin(angle)))],
    )  # fmt: skip
    return math.exp(-beta * math.cos(angle)) * float(scaled)


def lifetime_slope(betas: Sequence[float], angle: float, lifetimes: Sequence[float]) -> float:
    """Slope in β of the logarithm of lifetimes in units of e^{−β}, less the algebraic factor 1/(β² sin²θ₀).

    It tends to 1 − cos θ₀.
    """
    scaled = [
        math.log(life) + beta + 2.0 * math.log(beta * math.sin(angle))
        for beta, life in zip(betas, lifetimes, strict=True)
    ]
    return float(np.polyfit(betas, scaled, 1)[0])
