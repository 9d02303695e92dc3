"""solver.verify must be able to fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from solver.operator import EdgeAveragedOperator
from solver.problem import Problem
from solver.verify import checks, table


def failed(problem: Problem) -> set[str]:
    return {check.name for check in checks(problem) if check.passed is False}


@pytest.mark.serial
@pytest.mark.parametrize("scheme", ["mprk2", "euler"])
def test_passes_on_a_sound_solver(make_problem: Callable[..., Problem], scheme: str) -> None:
    """Would catch bounds that a correct solver does not meet."""
    problem = make_problem("circle", {"noise.epsilon": 0.1, "depth.scheme": scheme, "depth.T": 2.0, "depth.layer": 1.0})
    assert failed(problem) == set()


def test_without_noise_what_does_not_apply_is_said(make_problem: Callable[..., Problem]) -> None:
    """Would catch a Taylor test across upwind kinks being counted as a failure, or as a success."""
    found = checks(make_problem("circle", {"noise.epsilon": 0.0}))
    assert {check.passed for check in found if "Taylor" in check.name or "Gibbs" in check.name} == {None}
    assert "not applicable" in table(found)
    assert "all checks passed" in table(found)


@pytest.mark.serial
def test_catches_a_wrong_adjoint(make_problem: Callable[..., Problem], monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a table that says ok whatever the gradient is."""
    real = EdgeAveragedOperator.slopes
    monkeypatch.setattr(EdgeAveragedOperator, "slopes", lambda self, d: 1.01 * real(self, d))
    assert "Taylor order of the gradient" in failed(make_problem("circle", {"noise.epsilon": 0.1, "depth.T": 1.0}))


@pytest.mark.serial
def test_catches_lost_mass(make_problem: Callable[..., Problem]) -> None:
    """Would catch a mass check that cannot fail."""
    problem = make_problem("circle", {"noise.epsilon": 0.1, "depth.T": 1.0, "depth.layer": 0.5})
    assert not {name for name in failed(problem) if "mass" in name}
    problem.initial = problem.initial * (1 + 1e-6)
    assert {"mass error, ‖W‖ = 1", "mass error, W = 0"} <= failed(problem)
