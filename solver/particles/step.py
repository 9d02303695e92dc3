"""One Euler–Maruyama step along geodesics of S^{d−1}, and its exact transpose.

    v = P_x [ Δt (∇V(x) + W σ(x)) + √(2εΔt) ξ ],      x⁺ = cos|v| x + sin|v| v/|v|

The exponential map carries the Itô drift −(d−1)εx by itself; weak order 1. x⁺ is divided by its norm, which is 1 up to
round-off: an error δ of a norm would otherwise become δ (1 − 2Δt⟨x, ∇V⟩) in a step, and grow where Δt⟨x, ∇V⟩ > 1. For
the same reason the transpose drops what lies along x⁺.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.ffn import FeatureMap
from solver.particles.mean_field import Force, MeanField
from solver.types import FloatArray

__all__ = ["TokenDynamics", "exponential_map", "exponential_map_vjp", "pullback", "step"]

_SMALL = 1e-4  # angles below which sin θ/θ and its slope are series


@dataclass(frozen=True)
class TokenDynamics:
    """The drift of a token.

    Attributes:
        field: Attention; None if it is switched off.
        features: σ.
        epsilon: ε.
    """

    field: MeanField | None
    features: FeatureMap
    epsilon: float

    def force(self, x: FloatArray) -> Force | None:
        """What attention does to the tokens x (batch, N, d); None if it is switched off."""
        return None if self.field is None else self.field.force(x)


def step(
    dynamics: TokenDynamics,
    x: FloatArray,
    W: FloatArray,
    dt: float,
    noise: FloatArray | None,
    force: Force | None = None,
) -> FloatArray:
    """Tokens one step later, (batch, N, d).

    Args:
        dynamics: Drift.
        x: Unit vectors, (batch, N, d).
        W: Weights, (batch, d, m).
        dt: Δt.
        noise: ξ, standard normal (batch, N, d); None where ε = 0.
        force: `TokenDynamics.force` of x, if it is known.
    """
    if force is None:
        force = dynamics.force(x)
    after = exponential_map(x, _tangent(x, _displacement(dynamics, x, W, dt, noise, force)))
    unit: FloatArray = after / np.linalg.norm(after, axis=-1, keepdims=True)
    return unit


def pullback(
    dynamics: TokenDynamics,
    x: FloatArray,
    W: FloatArray,
    dt: float,
    noise: FloatArray | None,
    after_bar: FloatArray,
    force: Force | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Transpose of the derivative of `step` in (x, W), noise held fixed, applied to the sensitivity of x⁺.

    Returns:
        Sensitivities of x (batch, N, d) and W (batch, d, m).
    """
    if force is None:
        force = dynamics.force(x)
    u = _displacement(dynamics, x, W, dt, noise, force)
    radial = np.einsum("bnd,bnd->bn", x, u)[..., None]
    v = u - radial * x
    after = exponential_map(x, v)
    norm = np.linalg.norm(after, axis=-1, keepdims=True)
    x_bar, v_bar = exponential_map_vjp(x, v, _tangent(after / norm, after_bar) / norm)
    along = np.einsum("bnd,bnd->bn", x, v_bar)[..., None]
    x_bar -= radial * v_bar + along * u
    drift_bar = dt * (v_bar - along * x)
    sigma = dynamics.features(x)
    W_bar = drift_bar.transpose(0, 2, 1) @ sigma
    x_bar += dynamics.features.vjp(x, drift_bar @ W)
    if dynamics.field is not None and force is not None:
        x_bar += dynamics.field.force_vjp(x, force, drift_bar)
    return x_bar, W_bar


def _displacement(
    dynamics: TokenDynamics, x: FloatArray, W: FloatArray, dt: float, noise: FloatArray | None, force: Force | None
) -> FloatArray:
    """Δt (∇V + Wσ) + √(2εΔt) ξ, not yet projected."""
    drift = dynamics.features(x) @ W.transpose(0, 2, 1)
    if force is not None:
        drift = drift + force.value
    u: FloatArray = dt * drift
    return u if noise is None else u + np.sqrt(2.0 * dynamics.epsilon * dt) * noise


def _tangent(x: FloatArray, u: FloatArray) -> FloatArray:
    """P_x u = u − ⟨x, u⟩ x."""
    result: FloatArray = u - np.einsum("bnd,bnd->bn", x, u)[..., None] * x
    return result


def exponential_map(x: FloatArray, v: FloatArray) -> FloatArray:
    """cos|v| x + sin|v| v/|v| for unit x and tangents v, (.., d)."""
    theta = np.linalg.norm(v, axis=-1, keepdims=True)
    result: FloatArray = np.cos(theta) * x + _sinc(theta) * v
    return result


def exponential_map_vjp(x: FloatArray, v: FloatArray, bar: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Sensitivities of x and of v from that of the exponential map."""
    theta = np.linalg.norm(v, axis=-1, keepdims=True)
    s, c = _sinc(theta), np.cos(theta)
    x_part = (x * bar).sum(axis=-1, keepdims=True)
    v_part = (v * bar).sum(axis=-1, keepdims=True)
    return c * bar, s * bar + v * (_sinc_slope(theta, s, c) * v_part - s * x_part)


def _sinc(theta: FloatArray) -> FloatArray:
    """sin θ/θ."""
    result: FloatArray = np.sinc(theta / np.pi)
    return result


def _sinc_slope(theta: FloatArray, s: FloatArray, c: FloatArray) -> FloatArray:
    """(d/dθ sin θ/θ)/θ = (cos θ − sin θ/θ)/θ²; −1/3 at 0."""
    small = theta < _SMALL
    square = np.where(small, 1.0, theta**2)
    return np.where(small, -1.0 / 3.0 + theta**2 / 30.0, (c - s) / square)
