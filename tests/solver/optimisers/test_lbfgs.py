"""L-BFGS behind the optimiser interface."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from solver.optimisers import OPTIMISERS, Iterate, Settings

D = np.geomspace(1.0, 30.0, 40)


def quadratic(u: np.ndarray) -> tuple[float, np.ndarray]:
    return 0.5 * float(D @ (u - 1) ** 2), D * (u - 1)


def test_converges_and_reports_every_iterate() -> None:
    """Would catch stopping on SciPy's own criteria before the gradient tolerance, or a report that skips iterates."""
    seen: list[Iterate] = []
    outcome = OPTIMISERS["lbfgs"](quadratic, np.zeros(40), Settings(200, 1e-9), seen.append)
    assert outcome.converged
    assert outcome.last.gradient_norm <= 1e-9
    np.testing.assert_allclose(outcome.last.u, 1.0, atol=1e-8)
    assert [iterate.iteration for iterate in seen] == list(range(len(seen)))
    assert seen[-1] is outcome.last
    for before, after in itertools.pairwise(seen):
        assert after.J < before.J
        assert after.step == pytest.approx(np.linalg.norm(after.u - before.u))


def test_iteration_limit_is_not_convergence() -> None:
    """Would catch "converged" when only the iterations ran out."""
    outcome = OPTIMISERS["lbfgs"](quadratic, np.zeros(40), Settings(3, 1e-9), lambda _: None)
    assert not outcome.converged
    assert outcome.last.iteration == 3
    assert "3 iterations" in outcome.reason


def test_start_at_the_optimum() -> None:
    """Would catch a needless line search where nothing is left to do."""
    outcome = OPTIMISERS["lbfgs"](quadratic, np.ones(40), Settings(10, 1e-9), lambda _: None)
    assert outcome.converged
    assert outcome.last.iteration == 0


def test_wrong_gradient_is_a_failed_line_search() -> None:
    """Would catch a gradient of the wrong sign going unnoticed."""
    outcome = OPTIMISERS["lbfgs"](
        lambda u: (quadratic(u)[0], -quadratic(u)[1]), np.zeros(40), Settings(50, 1e-9), lambda _: None
    )
    assert not outcome.converged
    assert "line search" in outcome.reason
