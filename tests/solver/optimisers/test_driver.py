"""Ask and tell."""

from __future__ import annotations

import gc
import threading
import warnings

import numpy as np
import pytest
from descent import minimise, quadratic, valley

from solver.optimisers import OPTIMISERS, Optimisation, Settings

pytestmark = pytest.mark.serial  # nothing here knows of ranks

METHODS = sorted(OPTIMISERS)
SETTINGS = Settings(40, 1e-8, regularization=0.5)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("inside-out")]


@pytest.mark.parametrize("method", METHODS)
def test_asking_twice_gives_the_same_point(method: str) -> None:
    """Catches an ask that advances, or hands out an array whose change by the caller leads the optimiser astray."""
    with Optimisation(OPTIMISERS[method], np.zeros(40), SETTINGS) as optimisation:
        for _ in range(4):
            first = optimisation.ask()
            assert first is not None
            again = first.copy()
            first[:] = np.nan
            np.testing.assert_array_equal(optimisation.ask(), again)
            J, gradient = quadratic(again)
            optimisation.tell(J, gradient)
            gradient[:] = np.nan
        assert np.isfinite(optimisation.ask()).all()


@pytest.mark.parametrize("method", METHODS)
def test_end_is_told(method: str) -> None:
    """Catches an outcome before the end, points asked for after it, and an answer nobody asked for going unnoticed."""
    optimisation = Optimisation(OPTIMISERS[method], np.zeros(40), SETTINGS)
    while (u := optimisation.ask()) is not None:
        assert optimisation.outcome is None
        optimisation.tell(*quadratic(u))
    assert optimisation.outcome is not None
    assert optimisation.accepted()[-1] is optimisation.outcome.last
    assert optimisation.accepted() == []
    with pytest.raises(RuntimeError, match="nothing was asked for"):
        optimisation.tell(*quadratic(np.zeros(40)))


@pytest.mark.parametrize("method", METHODS)
def test_two_in_lock_step_go_as_alone(method: str) -> None:
    """Catches state shared between optimisations: batches over particle seeds drive many side by side."""
    starts = [np.zeros(40), np.linspace(-1.0, 1.0, 40)]
    alone = [minimise(method, valley, start, SETTINGS)[1] for start in starts]
    pair = [Optimisation(OPTIMISERS[method], start, SETTINGS) for start in starts]
    together = [optimisation.accepted() for optimisation in pair]
    while any(optimisation.ask() is not None for optimisation in pair):
        for optimisation, path in zip(pair, together, strict=True):
            u = optimisation.ask()
            if u is not None:
                optimisation.tell(*valley(u))
                path += optimisation.accepted()
    for one, other in zip(alone, together, strict=True):
        assert [(i.J, i.u.tobytes()) for i in one] == [(i.J, i.u.tobytes()) for i in other]


@pytest.mark.parametrize("method", METHODS)
def test_replaying_logged_evaluations_resumes_the_path(method: str) -> None:
    """Catches an optimiser that depends on anything but the answers: a run resumed from its log must go on bitwise."""
    log: list[tuple[float, np.ndarray]] = []

    def logged(u: np.ndarray) -> tuple[float, np.ndarray]:
        log.append(valley(u))
        return log[-1]

    _, path, evaluations = minimise(method, logged, np.zeros(40), SETTINGS)
    optimisation = Optimisation(OPTIMISERS[method], np.zeros(40), SETTINGS)
    asked = 0
    while (u := optimisation.ask()) is not None:
        optimisation.tell(*(log[asked] if asked < evaluations // 2 else valley(u)))
        asked += 1
    assert asked == evaluations
    assert [i.u.tobytes() for i in optimisation.accepted()] == [i.u.tobytes() for i in path]


@pytest.mark.parametrize("how", ["closed", "collected", "broken off", "ended"])
def test_no_thread_is_left(how: str) -> None:
    """Catches SciPy's thread waiting for ever once its optimisation is given up, and noise when it ends."""

    def broken(u: np.ndarray) -> tuple[float, np.ndarray]:
        if u.any():
            assert threads()
            raise ArithmeticError
        return quadratic(u)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if how == "broken off":
            with pytest.raises(ArithmeticError):
                minimise("lbfgs", broken, np.zeros(40), SETTINGS)
        elif how == "ended":
            minimise("lbfgs", quadratic, np.zeros(40), SETTINGS)
        else:
            optimisation = Optimisation(OPTIMISERS["lbfgs"], np.zeros(40), SETTINGS)
            for _ in range(3):
                u = optimisation.ask()
                assert u is not None
                optimisation.tell(*quadratic(u))
            assert threads()
            if how == "closed":
                optimisation.close()
                assert optimisation.ask() is None
            del optimisation
        gc.collect()
    assert threads() == []
