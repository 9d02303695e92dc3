"""The turnpike bound on trajectories made of formulas."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from synthetic_runs import synthetic_run

from postprocess.load import Run
from solver.depth import graded_grid
from solver.theory.turnpike import LATE_ESCAPE, NEITHER, VIA_THE_SADDLE, bound_of_run, turnpike_bound

pytestmark = pytest.mark.serial  # nothing here knows of ranks
SADDLE = 0.4


def _late(T: float, a: float = 0.4, C: float = 0.3, F: float = 1e-6, b: float = 1.8) -> Run:
    t = np.linspace(0.0, T, round(T / 0.05) + 1)
    return synthetic_run(f"late{T:g}", t, F + C * (np.exp(-a * t) + np.exp(-b * (T - t))))


def _saddle(T: float) -> Run:
    """Waits at Δ = 0.4, starts and ends below."""
    t = np.linspace(0.0, T, 20 * round(T) + 1)
    return synthetic_run(f"saddle{T:g}", t, SADDLE - 0.15 * np.exp(-3 * t) - 0.2 * np.exp(-2 * (T - t)))


def test_rates_constant_and_floor_are_recovered() -> None:
    """Catches ends mixed up, a floor not subtracted, a window in T − t not turned back, and a = max instead of min."""
    found = bound_of_run(_late(200.0), SADDLE)
    assert found.family == LATE_ESCAPE
    assert pytest.approx(1e-6, rel=1e-9) == found.F
    assert found.entrance.rate == pytest.approx(0.4, rel=1e-6)
    assert found.exit.rate == pytest.approx(1.8, rel=1e-6)
    assert found.a == found.entrance.rate
    assert pytest.approx(0.3, rel=1e-6) == found.C
    assert found.unresolved is None
    # From 0.1 of the maximum 0.3 down to 10 F = 1e-5
    assert found.entrance.start == pytest.approx(math.log(10) / 0.4, abs=0.1)
    assert found.entrance.end == pytest.approx(math.log(0.3 / 1e-5) / 0.4, abs=0.1)
    assert found.exit.end == pytest.approx(200 - math.log(10) / 1.8, abs=0.1)
    assert found.exit.start == pytest.approx(200 - math.log(0.3 / 1e-5) / 1.8, abs=0.1)


def test_constant_is_the_smallest() -> None:
    """Catches C read at an end only: at depth 40, inside of the fitted window, four times as much is needed."""
    run = _late(200.0)
    excess = run.trajectory["energy_gap"] - 1e-6
    found = bound_of_run(
        synthetic_run("bulge", run.t, 1e-6 + excess * (1 + 3 * np.exp(-((run.t - 40.0) ** 2)))), SADDLE
    )
    assert pytest.approx(4 * 0.3, rel=1e-3) == found.C
    assert found.depth == pytest.approx(40.0, abs=1e-9)


def test_a_fast_start_does_not_pass_for_the_rate() -> None:
    """Catches a slope averaged over two rates: with it the bound would fail farther inside, more so for larger T."""
    t = np.linspace(0.0, 200.0, 4001)
    gap = 1e-5 + 0.3 * (0.98 * np.exp(-3.0 * t) + 0.02 * np.exp(-0.4 * t) + np.exp(-1.8 * (200 - t)))
    found = bound_of_run(synthetic_run("two rates", t, gap), SADDLE)
    assert found.entrance.far_rate == pytest.approx(0.4, rel=1e-3)
    assert found.entrance.mean_rate is not None
    assert found.entrance.mean_rate > 0.41
    assert found.a == found.entrance.far_rate


def test_coarse_steps_do_not_make_the_constant() -> None:
    """Catches the scheme's slow decay on long steps taken for the flow's: mass leaves like 1/(1 + z + z²/2)."""
    t = graded_grid(320.0, 0.05, 8.0, 1.3)
    z = 0.4 * np.diff(t)
    entrance = 0.3 * np.cumprod(np.append(1.0, 1.0 / (1.0 + z + z**2 / 2)))
    found = bound_of_run(synthetic_run("graded", t, entrance + 0.2 * np.exp(-1.8 * (320 - t))), SADDLE)
    assert found.a == pytest.approx(0.4, rel=1e-3)
    assert pytest.approx(0.3, rel=5e-3) == found.C  # Σ z³/6 over steps up to z = 0.25
    assert found.unresolved is not None
    start, end = found.unresolved
    assert 8.0 < start < 12.0
    assert start + end == pytest.approx(320.0)


@pytest.mark.parametrize(
    ("F", "reason"),
    [(0.008, "the window is shorter than one e-folding"), (0.02, "does not fall to 0.1 of its maximum")],
)
def test_no_window_no_rate(F: float, reason: str) -> None:
    """Catches a slope read off a handful of points above the floor, or off none."""
    t = np.linspace(0.0, 200.0, 4001)
    gap = F + np.exp(-0.4 * t) + np.exp(-1.8 * (200 - t))
    if F > 0.01:
        gap = F + 0.3 * (1 - t / 150) * (t < 100) + 0.3 * np.exp(-1.8 * (200 - t))
        gap[(t > 67) & (t < 134)] = F
    found = bound_of_run(synthetic_run("short", t, gap), SADDLE)
    assert found.a is None
    assert found.C is None
    assert found.entrance.rate is None
    assert found.reason is not None
    assert reason in found.reason


def test_independence_of_depth() -> None:
    """Catches a verdict without its two thresholds: 5 % in a, 20 % in C, and none on a single depth."""
    alike = turnpike_bound([_late(100.0), _late(200.0)], SADDLE).late
    assert alike.independent is True
    assert alike.runs == 2
    rates = turnpike_bound([_late(100.0, a=0.4), _late(200.0, a=0.43)], SADDLE).late
    assert rates.independent is False
    assert rates.rate_spread == pytest.approx(0.03 / 0.415, rel=1e-2)
    constants = turnpike_bound([_late(100.0, C=0.3), _late(200.0, C=0.4)], SADDLE).late
    assert constants.independent is False
    assert constants.rate_spread == pytest.approx(0.0, abs=0.01)
    assert constants.constant_spread == pytest.approx(0.1 / 0.35, rel=1e-2)
    single = turnpike_bound([_late(100.0), _late(100.0)], SADDLE).late
    assert single.independent is None
    assert single.reason == "two depths at least are needed"


@pytest.mark.parametrize("saddle_gap", [SADDLE, None])
def test_families_are_told_apart(saddle_gap: float | None) -> None:
    """Catches a wait at the saddle taken for a plateau: its F is no floor."""
    assert bound_of_run(_saddle(20.0), saddle_gap).family == VIA_THE_SADDLE
    assert bound_of_run(_late(40.0), saddle_gap).family == LATE_ESCAPE
    t = np.linspace(0.0, 20.0, 401)
    sliding = synthetic_run("sliding", t, SADDLE * (1.2 - t / 20))
    assert bound_of_run(sliding, saddle_gap).family == NEITHER


def test_a_wait_elsewhere_is_not_at_the_saddle() -> None:
    """Catches flatness taken for the saddle where the saddle's gap is known."""
    assert bound_of_run(_saddle(20.0), 2 * SADDLE).family == NEITHER


def test_constant_grows_with_depth_at_the_saddle() -> None:
    """Catches a bound that seems to hold because F took up the wait: C must grow like e^{aT/2}."""
    runs = [_saddle(T) for T in (40.0, 10.0, 20.0)]
    found = turnpike_bound(runs, SADDLE, rate=0.3)
    assert found.saddle.expected == 0.15
    # C = Δ(T/2) e^{aT/2}/2
    gaps = {run.t[-1]: np.interp(run.t[-1] / 2, run.t, run.trajectory["energy_gap"]) for run in runs}
    assert [(bound.T, bound.C) for bound in found.runs] == [
        (T, pytest.approx(gaps[T] * math.exp(0.15 * T) / 2, rel=2e-2)) for T in (10.0, 20.0, 40.0)
    ]
    assert found.saddle.growth == pytest.approx(0.15, rel=1e-2)
    assert found.late.independent is None
    json.dumps(asdict(found), allow_nan=False)


def test_saddle_takes_its_rate_from_late_escape() -> None:
    """Catches a rate of a run that has none: without one given, that of late escape; without either, none and why."""
    mixed = turnpike_bound([_saddle(20.0), _late(200.0), _saddle(10.0)], SADDLE)
    assert mixed.reference == pytest.approx(0.4, rel=1e-6)
    assert [bound.family for bound in mixed.runs] == [LATE_ESCAPE, VIA_THE_SADDLE, VIA_THE_SADDLE]
    assert mixed.saddle.growth == pytest.approx(0.2, rel=1e-2)
    alone = turnpike_bound([_saddle(20.0), _saddle(10.0)], SADDLE)
    assert alone.reference is None
    assert alone.saddle.growth is None
    assert alone.saddle.reason == "no rate is given, and no run of late escape has one"
    assert alone.runs[0].reason == "no rate is given for a run that waits at the saddle"
