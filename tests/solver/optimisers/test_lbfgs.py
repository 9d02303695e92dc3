"""L-BFGS behind the optimiser interface."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from descent import minimise, quadratic, valley
from scipy.optimize import minimize

from solver.optimisers import Settings

pytestmark = pytest.mark.serial  # nothing here knows of ranks


def test_converges_and_reports_every_iterate() -> None:
    """Would catch stopping on SciPy's own criteria before the gradient tolerance, or a report that skips iterates."""
    outcome, seen, _ = minimise("lbfgs", quadratic, np.zeros(40), Settings(200, 1e-9))
    assert outcome.converged
    assert outcome.last.gradient_norm <= 1e-9
    np.testing.assert_allclose(outcome.last.u, 1.0, atol=1e-8)
    assert [iterate.iteration for iterate in seen] == list(range(len(seen)))
    assert seen[-1] is outcome.last
    for before, after in itertools.pairwise(seen):
        assert after.J < before.J
        assert after.step == pytest.approx(np.linalg.norm(after.u - before.u))


def test_path_is_scipys_own() -> None:
    """Would catch a last bit changed, or a point evaluated twice, on the way through the thread."""
    points: list[np.ndarray] = []

    def counted(u: np.ndarray) -> tuple[float, np.ndarray]:
        points.append(u.copy())
        return valley(u)

    path: list[np.ndarray] = []
    options = {"maxcor": 30, "maxls": 30, "ftol": 0.0, "gtol": 0.0, "maxiter": 20}
    minimize(
        counted, np.zeros(40), jac=True, method="L-BFGS-B", callback=lambda u: path.append(u.copy()), options=options
    )
    _, seen, evaluations = minimise("lbfgs", valley, np.zeros(40), Settings(20, 0.0))
    assert [iterate.u.tobytes() for iterate in seen[1:]] == [u.tobytes() for u in path]
    assert evaluations == len(points)


def test_iteration_limit_is_not_convergence() -> None:
    """Would catch "converged" when only the iterations ran out."""
    outcome, _, _ = minimise("lbfgs", quadratic, np.zeros(40), Settings(3, 1e-9))
    assert not outcome.converged
    assert outcome.last.iteration == 3
    assert "3 iterations" in outcome.reason


@pytest.mark.parametrize("method", ["lbfgs", "sweep", "gradient"])
def test_start_at_the_optimum(method: str) -> None:
    """Would catch a needless line search where nothing is left to do."""
    outcome, seen, evaluations = minimise(method, quadratic, np.ones(40), Settings(10, 1e-9, regularization=1.0))
    assert outcome.converged
    assert (outcome.last.iteration, len(seen), evaluations) == (0, 1, 1)


@pytest.mark.parametrize("method", ["lbfgs", "sweep", "gradient"])
def test_no_iterations_allowed(method: str) -> None:
    """Would catch an iteration too many where max_iterations = 0 asks for the start's numbers only."""
    outcome, seen, evaluations = minimise(method, quadratic, np.zeros(40), Settings(0, 1e-9, regularization=1.0))
    assert not outcome.converged
    assert (len(seen), evaluations) == (1, 1)
    assert "no iterations" in outcome.reason


@pytest.mark.parametrize("method", ["lbfgs", "sweep", "gradient"])
def test_wrong_gradient_is_a_failed_line_search(method: str) -> None:
    """Would catch a gradient of the wrong sign going unnoticed, or explained in SciPy's words ("CONVERGENCE: ..")."""
    settings = Settings(50, 1e-9, regularization=1.0)
    outcome, _, _ = minimise(method, lambda u: (quadratic(u)[0], -quadratic(u)[1]), np.zeros(40), settings)
    assert not outcome.converged
    assert outcome.reason.endswith("J cannot be lowered further along the search direction")
    assert "CONVERGENCE" not in outcome.reason


def test_objective_that_cannot_be_computed_ends_with_a_reason() -> None:
    """Would catch nan going round in SciPy's line search when a trial point is beyond the solver."""

    def broken(u: np.ndarray) -> tuple[float, np.ndarray]:
        return quadratic(u) if np.linalg.norm(u) < 2 else (math.inf, np.full(40, math.nan))

    outcome, seen, _ = minimise("lbfgs", broken, np.zeros(40), Settings(50, 1e-9))
    assert not outcome.converged
    assert "not finite" in outcome.reason
    assert outcome.last is seen[-1]
