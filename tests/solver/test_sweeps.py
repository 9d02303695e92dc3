"""Forward and backward sweeps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from conftest import smooth_control

from solver.linear import LinearSolveError
from solver.problem import Problem
from solver.schemes import SCHEMES, Step
from solver.sweeps import SweepError, backward_sweep, forward_sweep

MakeProblem = Callable[..., Problem]
SHORT = {"depth.T": 0.5, "depth.layer": 0.25, "depth.first_step": 0.1}


def test_forward_sweep_chains_the_steps(make_problem: MakeProblem) -> None:
    """Catches a step that starts from another density, Δt or W_n than its predecessor and the grid say."""
    problem = make_problem("circle", SHORT)
    W = smooth_control(problem, 1.0, 0)
    steps = list(forward_sweep(problem.dynamics, problem.scheme, problem.initial, problem.t, W))
    assert len(steps) == len(problem.dt)
    mu = problem.initial
    for n, step in enumerate(steps):
        assert step.before is mu
        assert step.dt == problem.dt[n]
        assert np.array_equal(step.W, W[n])
        mu = step.after


def test_backward_sweep_goes_from_last_to_first(make_problem: MakeProblem) -> None:
    """Catches cotangents yielded under the wrong step number, or chained in the wrong order."""
    problem = make_problem("circle", SHORT)
    W = smooth_control(problem, 1.0, 0)
    steps = problem.steps(W)
    bar = problem.space.mass * problem.first_variation(steps[-1].after)
    found = list(backward_sweep(problem.dynamics, problem.scheme, steps, bar))
    assert [n for n, _ in found] == list(range(len(steps)))[::-1]
    for n, cotangents in found:
        expected = problem.scheme.pullback(problem.dynamics, steps[n], bar)
        assert np.array_equal(expected.mu, cotangents.mu)
        assert np.array_equal(expected.W, cotangents.W)
        bar = cotangents.mu


@pytest.mark.ranks
def test_failed_forward_step_is_named(make_problem: MakeProblem) -> None:
    """Catches a bare linear-solver message: the error must say which step, at which depth, and why, on all ranks."""
    problem = make_problem("circle", SHORT)

    class FailsAtThird:
        calls = 0

        def step(self, dynamics, mu, W, dt) -> Step:  # type: ignore[no-untyped-def]
            self.calls += 1
            if self.calls == 3:
                raise LinearSolveError("the matrix is tired")
            return SCHEMES["euler"].step(dynamics, mu, W, dt)

    sweep = forward_sweep(problem.dynamics, FailsAtThird(), problem.initial, problem.t, problem.zero_control())  # type: ignore[arg-type]
    message = rf"forward step 2 of {len(problem.dt)} \(depth {problem.t[2]:.6g}, .*\): the matrix is tired"
    with pytest.raises(SweepError, match=message):
        list(sweep)


def test_failed_adjoint_step_is_named(make_problem: MakeProblem) -> None:
    """Catches the same for the backward sweep, with nan entering through the terminal condition."""
    problem = make_problem("circle", SHORT)
    steps = problem.steps(None)
    bar = np.full_like(problem.initial, np.nan)
    with pytest.raises(SweepError, match=rf"adjoint step {len(steps) - 1} of {len(steps)} .*not finite"):
        list(backward_sweep(problem.dynamics, problem.scheme, steps, bar))


@pytest.mark.ranks
def test_failed_sweep_leaves_the_problem_usable(make_problem: MakeProblem) -> None:
    """Catches a solver poisoned by a trial step of the line search that overflowed."""
    problem = make_problem("circle", SHORT)
    J, _ = problem.gradient(None)
    good = problem.initial
    problem.initial = np.full_like(good, np.nan)
    with pytest.raises(SweepError, match="forward step 0"):
        problem.gradient(None)
    problem.initial = good
    assert problem.gradient(None)[0] == J
