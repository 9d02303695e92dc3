"""Costs of the two families in the cluster limit, against optimal control of the cluster's own equation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from solver.theory.families import cluster_energy, crossing, family_costs

pytestmark = pytest.mark.serial

EIGENVALUES = (1.0, 0.65)
START, STRENGTH = 0.6, 0.01


def force(a: float) -> float:
    """E′ of the cluster."""
    return -(EIGENVALUES[0] - EIGENVALUES[1]) * math.sin(2 * a) * cluster_energy(EIGENVALUES, a)


def best_control(target: float, T: float, first: np.ndarray) -> float:
    """min J over u for α̇ = −E'(α) + u, explicit midpoint steps, from a first control; gradient by its own adjoint."""
    steps = len(first)
    dt = T / steps

    def slope(a: float) -> float:
        return (force(a + 1e-5) - force(a - 1e-5)) / 2e-5

    def objective(v: np.ndarray) -> tuple[float, np.ndarray]:
        u, angle, middle = v / math.sqrt(dt), [START], []
        for k in range(steps):
            middle.append(angle[k] + 0.5 * dt * (u[k] - force(angle[k])))
            angle.append(angle[k] + dt * (u[k] - force(middle[k])))
        bar, u_bar = math.sin(angle[-1] - target), np.empty(steps)
        for k in range(steps - 1, -1, -1):
            middle_bar = -bar * dt * slope(middle[k])
            u_bar[k] = bar * dt + 0.5 * dt * middle_bar
            bar += middle_bar * (1 - 0.5 * dt * slope(angle[k]))
        J = 1 - math.cos(angle[-1] - target) + 0.5 * STRENGTH * dt * float(u @ u)
        return J, (u_bar + STRENGTH * dt * u) / math.sqrt(dt)

    options = {"maxiter": 300, "maxcor": 30, "ftol": 1e-15, "gtol": 1e-9}
    found = minimize(objective, first * math.sqrt(dt), jac=True, method="L-BFGS-B", options=options)
    return float(found.fun)


def test_late_escape() -> None:
    """Catches a wrong factor of the cost, and forgetting the loss that is left; descent from 0 finds this family."""
    costs = family_costs(EIGENVALUES, START, math.radians(45.0), STRENGTH)
    found = best_control(math.radians(45.0), 16.0, np.zeros(400))
    assert found == pytest.approx(costs.late, rel=2e-3)
    assert 0.9 * math.radians(45.0) < costs.late_end < math.radians(45.0)


def test_via_the_saddle() -> None:
    """Catches the wrong climb: from the start, not from v₁. Feedback climbing at E′ + s comes down to it."""
    target, T, dt = math.radians(60.0), 30.0, 1e-3
    costs = family_costs(EIGENVALUES, START, target, STRENGTH)

    def climb(speed: float, rim: float) -> float:
        slide, angle = 0.0, rim
        while angle > target:
            angle, slide = angle - dt * force(angle), slide + dt
        angle, effort = START, 0.0
        for k in range(round(T / dt)):  # up to the rim, a wait, and down in time
            u = 0.0 if k * dt > T - slide else 2.0 * force(angle) + speed if angle < rim else force(angle)
            angle, effort = angle + dt * (u - force(angle)), effort + dt * u * u
        return 1.0 - math.cos(angle - target) + 0.5 * STRENGTH * effort

    found = [climb(speed, 0.5 * math.pi - 0.5 * speed) for speed in (0.04, 0.02, 0.01)]
    assert found[0] > found[1] > found[2] > 0.995 * costs.saddle
    assert found[2] == pytest.approx(costs.saddle, rel=0.02)
    assert costs.saddle < costs.late


def test_crossing() -> None:
    """50.8° for a start at 0.6 rad; the loss that the late escape leaves moves it up a little."""
    assert math.degrees(crossing(EIGENVALUES, START, 0.0)) == pytest.approx(50.8, abs=0.05)
    at = crossing(EIGENVALUES, START, STRENGTH)
    costs = family_costs(EIGENVALUES, START, at, STRENGTH)
    assert costs.late == pytest.approx(costs.saddle, rel=1e-9)
    assert 0.0 < math.degrees(at) - 50.832 < 0.5


def test_target_at_the_saddle_prefers_the_saddle() -> None:
    """Climbing from the start costs less than from v₁, for every start in between; from v₁ both cost the same."""
    for start in (0.2, 0.8, 1.4):
        costs = family_costs(EIGENVALUES, start, 0.5 * math.pi, 1e-6)
        assert costs.saddle < costs.late
    equal = family_costs(EIGENVALUES, 0.0, 0.5 * math.pi, 1e-6)
    assert equal.saddle == pytest.approx(equal.late, rel=1e-4)
