"""The verdict after a failed line search."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from conftest import smooth_control

from solver.gradient_check import judge_gradient
from solver.problem import Problem

MakeProblem = Callable[..., Problem]
SHORT = {"depth.T": 0.6, "depth.layer": 0.2, "depth.first_step": 0.1}


@pytest.mark.serial
def test_right_gradient_is_cleared(make_problem: MakeProblem) -> None:
    """Catches a check that accuses a right gradient."""
    problem = make_problem("circle", SHORT)
    assert "the gradient is right" in judge_gradient(problem, smooth_control(problem, 1.0, 1))


@pytest.mark.serial
def test_wrong_gradient_is_found(make_problem: MakeProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a check that cannot fail: one per cent is enough."""
    problem = make_problem("circle", SHORT)
    exact = problem.gradient
    monkeypatch.setattr(problem, "gradient", lambda W: (exact(W)[0], 1.01 * exact(W)[1]))
    assert "does not match" in judge_gradient(problem, smooth_control(problem, 1.0, 1))


def test_sharp_bend_is_inconclusive(make_problem: MakeProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches the accusation of a right gradient where J bends within 1e-9 of W, as when waiting long at a saddle."""
    problem = make_problem("circle", SHORT)
    W = smooth_control(problem, 1.0, 1)
    J, gradient = problem.gradient(W)
    norm = np.sqrt(problem.squared_norm(gradient))

    def bent(control: np.ndarray) -> tuple[float, np.ndarray]:
        s = float(np.sum(problem.dt[:, None, None] * (control - W) * gradient)) / norm
        return J + s * norm + 1e20 * s**3, gradient

    monkeypatch.setattr(problem, "gradient", bent)
    assert "inconclusive" in judge_gradient(problem, W)
