"""Implicit Euler with the drift taken explicitly: (M + Δt L(d(μⁿ, W_n))) μⁿ⁺¹ = M μⁿ.

For a positive semidefinite kernel this is a convex splitting of the free energy: with W = 0 it never increases, at
any Δt.
"""

from __future__ import annotations

from solver.dynamics import Dynamics
from solver.schemes.protocol import Cotangents, Step
from solver.types import FloatArray

__all__ = ["Euler"]


class Euler:
    """First order, one solve a step."""

    def step(self, dynamics: Dynamics, mu: FloatArray, W: FloatArray, dt: float) -> Step:
        """See `Scheme.step`."""
        c = dynamics.attention.moments(mu)
        rates = dynamics.operator.rates(dynamics.drift(c, W))
        after = dynamics.solver.solve(rates, dt, dynamics.space.mass * mu, guess=mu)
        return Step(dt, W, mu, (c,), (after,))

    def pullback(self, dynamics: Dynamics, step: Step, mu_bar: FloatArray) -> Cotangents:
        """See `Scheme.pullback`."""
        mass, dt, (c,) = dynamics.space.mass, step.dt, step.moments
        d = dynamics.drift(c, step.W)
        p = dynamics.solver.solve(dynamics.operator.rates(d), dt, mu_bar, guess=mu_bar / mass, transpose=True)
        d_bar = -dt * dynamics.operator.drift_sensitivity(dynamics.operator.slopes(d), p, step.after)
        from_drift, W_bar = dynamics.drift_vjp(c, d_bar)
        return Cotangents(mass * p + from_drift, W_bar)
