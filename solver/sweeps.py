"""Forward and backward sweeps through the depth of the network."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from solver.dynamics import Dynamics
from solver.linear import LinearSolveError
from solver.schemes import Cotangents, Scheme, Step
from solver.types import FloatArray

__all__ = ["SweepError", "backward_sweep", "forward_sweep"]


class SweepError(RuntimeError):
    """A depth step failed; says which, at which depth, and why."""


def forward_sweep(dynamics: Dynamics, scheme: Scheme, mu: FloatArray, t: FloatArray, W: FloatArray) -> Iterator[Step]:
    """Steps from t_0 to t_steps. Collective.

    Args:
        dynamics: Right-hand side.
        scheme: Depth step.
        mu: Density at t_0, (labels, local nodes), ghosts valid.
        t: Depth grid, (steps + 1,).
        W: Control, (steps, d, m).

    Raises:
        SweepError: A linear solve failed.
    """
    for n, dt in enumerate(np.diff(t)):
        try:
            step = scheme.step(dynamics, mu, W[n], float(dt))
        except LinearSolveError as error:
            raise SweepError(f"forward step {n} of {len(t) - 1} (depth {t[n]:.6g}, Δt = {dt:.3g}): {error}") from error
        mu = step.after
        yield step


def backward_sweep(
    dynamics: Dynamics, scheme: Scheme, steps: list[Step], mu_bar: FloatArray
) -> Iterator[tuple[int, Cotangents]]:
    """Exact transpose of the steps taken, last first. Collective.

    Args:
        dynamics: Right-hand side.
        scheme: The scheme that made the steps.
        steps: A whole forward sweep.
        mu_bar: Sensitivity of the objective to the last density's nodal values, (labels, local nodes).

    Yields:
        n, and the sensitivities to μⁿ and W_n.

    Raises:
        SweepError: A linear solve failed.
    """
    for n in reversed(range(len(steps))):
        try:
            cotangents = scheme.pullback(dynamics, steps[n], mu_bar)
        except LinearSolveError as error:
            raise SweepError(f"adjoint step {n} of {len(steps)} (Δt = {steps[n].dt:.3g}): {error}") from error
        mu_bar = cotangents.mu
        yield n, cotangents
