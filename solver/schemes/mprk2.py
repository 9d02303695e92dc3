"""Modified Patankar–Runge–Kutta of order 2: positive and conservative at any Δt.

    (M + Δt L₀) μ¹ = M μⁿ,                L₀ = L(d(μⁿ, W_n))
    (M + Δt L̃) μⁿ⁺¹ = M μⁿ,               L̃ = ½ [L₀ diag(μⁿ/μ¹) + L(d(μ¹, W_n))]

Columns scaled by positive numbers keep their signs and sums, so both solves are with M-matrices, and Gibbs states stay
fixed (Burchard, Deleersnijder, Meister 2003; here with a nonlocal drift).
"""

from __future__ import annotations

import numpy as np

from solver.dynamics import Dynamics
from solver.operator import Rates
from solver.schemes.protocol import Cotangents, Step
from solver.space import Space
from solver.types import FloatArray

__all__ = ["MPRK2"]

_TINY = 1e-280  # below it a ratio of densities is taken as 1, with derivative 0


class MPRK2:
    """Second order, two solves a step."""

    def step(self, dynamics: Dynamics, mu: FloatArray, W: FloatArray, dt: float) -> Step:
        """See `Scheme.step`."""
        attention, operator, mass_mu = dynamics.attention, dynamics.operator, dynamics.space.mass * mu
        c0 = attention.moments(mu)
        rates0 = operator.rates(dynamics.drift(c0, W))
        mu1 = dynamics.solver.solve(rates0, dt, mass_mu, guess=mu)
        c1 = attention.moments(mu1)
        rates1 = operator.rates(dynamics.drift(c1, W))
        blended = _blend(dynamics.space, rates0, _ratio(mu, mu1), rates1)
        after = dynamics.solver.solve(blended, dt, mass_mu, guess=mu1)
        return Step(dt, W, mu, (c0, c1), (mu1, after))

    def pullback(self, dynamics: Dynamics, step: Step, mu_bar: FloatArray) -> Cotangents:
        """See `Scheme.pullback`."""
        space, operator, solver = dynamics.space, dynamics.operator, dynamics.solver
        dt, (c0, c1), (mu1, after) = step.dt, step.moments, step.stages
        d0, d1 = dynamics.drift(c0, step.W), dynamics.drift(c1, step.W)
        rates0, rates1 = operator.rates(d0), operator.rates(d1)
        slopes0 = operator.slopes(d0)
        ratio = _ratio(step.before, mu1)

        blended = _blend(space, rates0, ratio, rates1)
        p = solver.solve(blended, dt, mu_bar, guess=mu_bar / space.mass, transpose=True)
        d1_bar = (-0.5 * dt) * operator.drift_sensitivity(operator.slopes(d1), p, after)
        mu1_bar, W_bar = dynamics.drift_vjp(c1, d1_bar)
        ratio_bar = (-0.5 * dt) * operator.apply_transpose(rates0, p) * after
        quotient = np.where(mu1 < _TINY, 0.0, ratio_bar / np.maximum(mu1, _TINY))
        mu1_bar = mu1_bar - quotient * ratio

        q = solver.solve(rates0, dt, mu1_bar, guess=mu1_bar / space.mass, transpose=True)
        d0_bar = -dt * (
            0.5 * operator.drift_sensitivity(slopes0, p, ratio * after) + operator.drift_sensitivity(slopes0, q, mu1)
        )
        from_drift, W_bar0 = dynamics.drift_vjp(c0, d0_bar)
        from_ratio = np.where(step.before < 0.0, 0.0, quotient)
        return Cotangents(space.mass * (p + q) + from_ratio + from_drift, W_bar + W_bar0)


def _ratio(mu: FloatArray, mu1: FloatArray) -> FloatArray:
    """μⁿ/μ¹, and 1 where μ¹ vanishes. Round-off below zero in μⁿ counts as zero: a column never changes its sign."""
    return np.where(mu1 < _TINY, 1.0, np.maximum(mu, 0.0) / np.maximum(mu1, _TINY))


def _blend(space: Space, rates0: Rates, ratio: FloatArray, rates1: Rates) -> Rates:
    """L̃: the columns of L₀ scaled by the ratio at the node jumped from, averaged with L₁."""
    i, j = space.edges.T
    return Rates(
        0.5 * (rates0.forward * ratio[:, i] + rates1.forward),
        0.5 * (rates0.backward * ratio[:, j] + rates1.backward),
    )
