"""Gradient descent with fixed steps and Armijo's."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from descent import CURVATURES, minimise, quadratic, stiff, valley

from solver.optimisers import Settings
from solver.problem import Problem

pytestmark = pytest.mark.serial  # nothing here knows of ranks

MakeProblem = Callable[..., Problem]


def test_fixed_steps_follow_the_recursion() -> None:
    """Catches a step in another metric, or one adapted in secret: on a quadratic u_k − 1 = (1 − αD)^k (u_0 − 1)."""
    outcome, seen, evaluations = minimise("gradient", quadratic, np.zeros(40), Settings(25, 0.0, step=0.05))
    assert (outcome.last.iteration, evaluations) == (25, 26)
    np.testing.assert_allclose(seen[25].u - 1, -((1 - 0.05 * CURVATURES) ** 25), rtol=0, atol=1e-14)
    assert outcome.reason == "stopped after 25 iterations"


def test_one_fixed_step_from_zero_is_one_step_gradient_descent(make_problem: MakeProblem) -> None:
    """Catches W ≠ −α g, by a scaling with √Δt or by a continuation mesh slipped in before: P1's 1-GD."""
    settings = {"optimizer.method": "gradient", "optimizer.step": 0.3, "optimizer.max_iterations": 1}
    problem = make_problem("circle", {**settings, "geometry.continuation": [0.2]})
    result = problem.solve()
    _, g = make_problem("circle").gradient(None)
    np.testing.assert_allclose(result.W, -0.3 * g, rtol=1e-14, atol=1e-300)
    assert [(row.nodes, row.iteration) for row in result.history] == [
        (problem.space.nodes, 0),
        (problem.space.nodes, 1),
    ]
    assert result.summary["optimizer"]["reason"] == "stopped after 1 iteration"


def test_fixed_steps_that_diverge_end_with_a_reason() -> None:
    """Catches 200 iterations of a blow-up, or a traceback at the end of it."""
    outcome, seen, _ = minimise("gradient", quadratic, np.zeros(40), Settings(200, 1e-9, step=0.2))
    assert not outcome.converged
    assert outcome.reason.startswith("diverged: the gradient has grown")
    assert "smaller step" in outcome.reason
    assert len(seen) < 30


@pytest.mark.parametrize("step", [1e160, 1e306])
def test_fixed_step_beyond_double_precision(step: float, make_problem: MakeProblem) -> None:
    """Catches a SweepError or numpy's overflow instead of an outcome that keeps what was reached."""
    settings = {"optimizer.method": "gradient", "optimizer.step": step}
    result = make_problem("circle", settings).solve()
    assert not result.converged
    assert not result.W.any()
    assert "J is not finite after a step" in result.summary["optimizer"]["reason"]


def test_armijo_never_raises_the_objective() -> None:
    """Catches a step accepted without a decrease, and a step length that never recovers after a narrow passage."""
    outcome, seen, evaluations = minimise("gradient", valley, np.zeros(40), Settings(2000, 1e-6))
    assert outcome.converged
    np.testing.assert_allclose(outcome.last.u, 1.0, atol=1e-4)
    assert all(after.J < before.J for before, after in itertools.pairwise(seen))
    assert evaluations < 2.5 * len(seen)


def test_armijo_adapts_to_the_scale_of_the_objective() -> None:
    """Catches a step with a hidden unit: J multiplied by 1e±6 must take the same path."""
    reference = minimise("gradient", stiff, np.zeros(40), Settings(20, 0.0))[1]
    for scale in (2.0**-20, 2.0**20):
        scaled = minimise(
            "gradient", lambda u, s=scale: tuple(s * v for v in stiff(u)), np.zeros(40), Settings(20, 0.0)
        )[1]
        np.testing.assert_allclose(scaled[-1].u, reference[-1].u, rtol=1e-9)


def test_armijo_on_a_control_problem(make_problem: MakeProblem) -> None:
    """Catches a method that is entered in the registry but not driven: J falls, and history holds every iterate."""
    overrides = {"optimizer.method": "gradient", "optimizer.max_iterations": 8, "noise.epsilon": 0.1}
    result = make_problem("circle", overrides).solve()
    J = [row.J for row in result.history]
    assert len(J) == 9
    assert all(after < before for before, after in itertools.pairwise(J))
    assert J[-1] < 0.5 * J[0]
