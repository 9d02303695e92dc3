"""Objectives with known minima, and a way to run an optimiser on them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from solver.optimisers import OPTIMISERS, Iterate, Optimisation, Outcome, Settings

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]

CURVATURES = np.geomspace(1.0, 30.0, 40)
STIFF = np.array(
    [152.0, *([0.01] * 39)]
)  # the Hessian near an optimal control: one stiff direction, λ_reg for the rest


def quadratic(u: np.ndarray) -> tuple[float, np.ndarray]:
    """Curvatures from 1 to 30, minimum 0 at (1, .., 1)."""
    return 0.5 * float(CURVATURES @ (u - 1) ** 2), CURVATURES * (u - 1)


def stiff(u: np.ndarray) -> tuple[float, np.ndarray]:
    """Curvatures `STIFF` in rotated axes, minimum 0 at (1, .., 1)."""
    axis = np.arange(1.0, 41.0) / np.linalg.norm(np.arange(1.0, 41.0))
    e = u - 1
    gradient = STIFF[1] * e + (STIFF[0] - STIFF[1]) * (axis @ e) * axis
    return 0.5 * float(e @ gradient), gradient


def valley(u: np.ndarray) -> tuple[float, np.ndarray]:
    """Rosenbrock's, in pairs of variables: curved, not convex; minimum 0 at (1, .., 1)."""
    x, y = u[::2], u[1::2]
    gradient = np.empty_like(u)
    gradient[::2] = 2 * (x - 1) - 40 * x * (y - x**2)
    gradient[1::2] = 20 * (y - x**2)
    return float(((x - 1) ** 2 + 10 * (y - x**2) ** 2).sum()), gradient


def minimise(
    method: str, objective: Objective, start: np.ndarray, settings: Settings
) -> tuple[Outcome, list[Iterate], int]:
    """Outcome, accepted iterates and number of evaluations."""
    iterates, evaluations = [], 0
    with Optimisation(OPTIMISERS[method], start, settings) as optimisation:
        while (u := optimisation.ask()) is not None:
            evaluations += 1
            optimisation.tell(*objective(u))
            iterates += optimisation.accepted()
    assert optimisation.outcome is not None
    return optimisation.outcome, iterates, evaluations
