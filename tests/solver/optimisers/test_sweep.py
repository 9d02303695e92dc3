"""Forward-backward sweeps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from descent import STIFF, Objective, minimise, quadratic, stiff, valley

from solver.optimisers import OPTIMISERS, Iterate, Optimisation, Settings
from solver.problem import Problem

MakeProblem = Callable[..., Problem]


def settings(**changes: object) -> Settings:
    return Settings(**{"max_iterations": 300, "gradient_norm": 1e-7, "regularization": STIFF[1], **changes})  # type: ignore[arg-type]


def falls(seen: list[Iterate]) -> bool:
    return all(after.J < before.J for before, after in itertools.pairwise(seen))


def test_first_step_is_the_relaxed_fixed_point() -> None:
    """Catches a relaxation of the wrong map: ω(G(u) − u) = −ω∇J/λ_reg must be the first point tried."""
    optimisation = Optimisation(OPTIMISERS["sweep"], np.zeros(40), settings(relaxation=0.25))
    J, g = stiff(np.zeros(40))
    optimisation.tell(J, g)
    np.testing.assert_allclose(optimisation.ask(), -0.25 * g / STIFF[1], rtol=1e-15)


def test_undamped_sweep_solves_what_regularisation_alone_determines() -> None:
    """Catches a relaxation that shrinks without need: where J = λ/2‖u − 1‖², ω = 1 is exact in one step."""

    def plain(u: np.ndarray) -> tuple[float, np.ndarray]:
        return 0.005 * float((u - 1) @ (u - 1)), 0.01 * (u - 1)

    outcome, _, evaluations = minimise("sweep", plain, np.zeros(40), settings(relaxation=1.0))
    assert outcome.converged
    assert (outcome.last.iteration, evaluations) == (1, 2)


@pytest.mark.parametrize("anderson", [0, 1, 5])
@pytest.mark.parametrize(("objective", "limit"), [(stiff, 60), (quadratic, 150), (valley, 300)])
def test_reaches_the_minimum_and_never_rises(objective: Objective, limit: int, anderson: int) -> None:
    """Catches ω stuck at what the stiff direction allows (10⁴ sweeps), and an accelerated point that raises J."""
    outcome, seen, evaluations = minimise("sweep", objective, np.zeros(40), settings(anderson=anderson))
    assert outcome.converged
    np.testing.assert_allclose(outcome.last.u, 1.0, atol=2e-5)
    assert falls(seen)
    assert evaluations <= limit


def test_anderson_needs_fewer_evaluations() -> None:
    """Catches an acceleration whose points are always rejected: it would cost evaluations and bring nothing."""
    damped, accelerated = (
        minimise("sweep", stiff, np.zeros(40), settings(anderson=m, gradient_norm=1e-9))[2] for m in (0, 5)
    )
    assert accelerated < damped


def test_points_without_an_objective_are_stepped_over() -> None:
    """Catches a first sweep of length ω/λ_reg that ends the run because the solver cannot follow it there."""

    def bounded(u: np.ndarray) -> tuple[float, np.ndarray]:
        return stiff(u) if np.linalg.norm(u) < 10 else (math.inf, np.full(40, math.nan))

    outcome, seen, _ = minimise("sweep", bounded, np.zeros(40), settings())
    assert outcome.converged
    assert falls(seen)


@pytest.mark.serial
@pytest.mark.parametrize("anderson", [0, 5])
def test_control_problem(anderson: int, make_problem: MakeProblem) -> None:
    """Catches a J that rises, or another optimum than L-BFGS's, on a real control problem."""
    common = {"noise.epsilon": 0.1, "depth.T": 2.0, "depth.layer": 1.0, "optimizer.gradient_tolerance": 1e-5}
    expected = make_problem("circle", common).solve().summary["objective"]["J"]
    result = make_problem("circle", {**common, "optimizer.method": "sweep", "optimizer.anderson": anderson}).solve()
    J = [row.J for row in result.history]
    assert result.converged
    assert all(after < before for before, after in itertools.pairwise(J))
    assert J[-1] == pytest.approx(expected, rel=1e-6)
    # The fixed point itself: W = −(1/λ_reg) Σρ∫∇φσᵀdμ, that is g = 0 where g = λ_reg W + Σρ∫∇φσᵀdμ.
    problem = result.problem
    _, g = problem.gradient(result.W)
    regularization = problem.case.objective.regularization
    fixed = result.W - g / regularization
    assert math.sqrt(problem.squared_norm(fixed - result.W)) <= 1e-2 * math.sqrt(problem.squared_norm(result.W))
