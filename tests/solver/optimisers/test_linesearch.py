"""Backtracking."""

from __future__ import annotations

import math

import numpy as np
import pytest
from descent import Objective, quadratic

from solver.optimisers.linesearch import backtrack
from solver.optimisers.protocol import Point

pytestmark = pytest.mark.serial  # nothing here knows of ranks

START_J = quadratic(np.zeros(40))[0]


def search(objective: Objective, direction: np.ndarray, step: float) -> tuple[tuple[float, Point] | None, int]:
    """What `backtrack` finds from zero, and its evaluations."""
    start = np.zeros(len(direction))
    line = backtrack(Point(start, *objective(start)), direction, step)
    evaluations = 0
    try:
        u = next(line)
        while True:
            assert isinstance(u, np.ndarray)
            evaluations += 1
            u = line.send(objective(u))
    except StopIteration as end:
        return end.value, evaluations


def test_good_step_costs_one_evaluation() -> None:
    """Catches a first trial that is shortened although J falls enough."""
    found, evaluations = search(quadratic, -quadratic(np.zeros(40))[1], 1e-2)
    assert found is not None
    assert (found[0], evaluations) == (1e-2, 1)


def test_parabola_is_minimised_at_the_second_trial() -> None:
    """Catches interpolation with a wrong sign or factor: on a parabola the second trial is the minimum."""

    def parabola(u: np.ndarray) -> tuple[float, np.ndarray]:
        return float(5.0 * (u[0] - 1) ** 2), 10.0 * (u - 1)

    found, evaluations = search(parabola, np.array([10.0]), 0.9)
    assert found is not None
    assert evaluations == 2
    assert found[1].u[0] == pytest.approx(1.0, rel=1e-14)


def test_steps_over_points_without_an_objective() -> None:
    """Catches nan or ∞ of a failed sweep spoiling the interpolation."""

    def bounded(u: np.ndarray) -> tuple[float, np.ndarray]:
        return quadratic(u) if np.abs(u).max() < 1 else (math.inf, np.full(40, math.nan))

    found, _ = search(bounded, -quadratic(np.zeros(40))[1], 1e6)
    assert found is not None
    assert found[1].J < START_J


def test_control_beyond_double_precision_is_not_asked_for() -> None:
    """Catches a control whose norm overflows handed to the solver, or a numpy warning in its place."""
    here = Point(np.zeros(2), 1.0, np.array([-1.0, 0.0]))
    u = next(backtrack(here, np.array([10.0, 0.0]), 1e160))
    assert isinstance(u, np.ndarray)
    assert np.isfinite(u @ u)
    with pytest.raises(StopIteration):
        next(backtrack(here, np.array([10.0, 0.0]), 1e308))


def test_ascent_is_given_up() -> None:
    """Catches an endless loop where no step lowers J."""
    found, evaluations = search(lambda u: (quadratic(u)[0], -quadratic(u)[1]), quadratic(np.zeros(40))[1], 1.0)
    assert found is None
    assert evaluations <= 60
