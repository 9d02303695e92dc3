"""The dissipation inequality on trajectories made of formulas."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
from synthetic_runs import synthetic_run

from postprocess.load import Run
from solver.theory.along_run import ROUND_OFF, dissipation_inequality

pytestmark = pytest.mark.serial  # nothing here knows of ranks
A = 0.4


def _recursion(start: float, dt: np.ndarray, C: np.ndarray, norm: np.ndarray) -> np.ndarray:
    """Δ with Δ_{n+1} = e^{−aΔt}Δ_n + C_n ‖W_n‖² (1 − e^{−aΔt})/a."""
    gap = [start]
    for n, step in enumerate(dt):
        decay = np.exp(-A * step)
        gap.append(decay * gap[-1] + C[n] * norm[n] ** 2 * (1 - decay) / A)
    return np.array(gap)


def _known(steps: int = 200) -> tuple[Run, np.ndarray]:
    """C_n = 0.7 at step 20, 0.4 at step 150, 0.1 elsewhere; Δ falls from 1 to about 1e-3."""
    dt = np.linspace(0.05, 0.15, steps)
    C = np.full(steps, 0.1)
    C[20], C[150] = 0.7, 0.4
    norm = np.linspace(0.1, 0.02, steps)
    t = np.append(0.0, np.cumsum(dt))
    return synthetic_run("known", t, _recursion(1.0, dt, C, norm), norm), t


def test_smallest_constant_and_where_it_is_needed() -> None:
    """Catches ‖W‖ in place of ‖W‖², a missing 1/a, a step's end taken for its start, a neighbourhood left."""
    run, t = _known()
    found = dissipation_inequality(run, A, 0.5, neighbourhood=0.1)
    assert pytest.approx(0.7, rel=1e-8) == found.whole.C
    assert found.whole.depth == t[20]
    assert pytest.approx(0.4, rel=1e-8) == found.near.C
    assert found.near.depth == t[150]
    assert found.holds
    gap = run.trajectory["energy_gap"]
    assert found.near.steps == np.count_nonzero(np.maximum(gap[1:], gap[:-1]) <= 0.1)
    assert found.skipped == 0
    json.dumps(asdict(found), allow_nan=False)


def test_neighbourhood_wants_both_ends() -> None:
    """Catches a step counted as near ρ that starts or ends outside: the rise across the border needs C = 0.9."""
    dt, norm = np.full(40, 0.1), np.full(40, 0.5)
    C = np.full(40, 0.05)
    C[20] = 0.9
    gap = _recursion(0.01, dt, C, norm)
    run = synthetic_run("border", 0.1 * np.arange(41), gap, norm)
    border = 0.5 * (gap[20] + gap[21])
    assert pytest.approx(0.05, rel=1e-8) == dissipation_inequality(run, A, 0.5, border).near.C
    assert pytest.approx(0.9, rel=1e-8) == dissipation_inequality(run, A, 0.5, 1.01 * gap[21]).near.C


def test_round_off_of_the_energy_decides_nothing() -> None:
    """Catches C = round-off/‖W‖²: on the plateau Δ jitters by less than 1e-12 |E| under ‖W‖ = 1e-9."""
    t = 0.1 * np.arange(101)
    noise = 0.4 * ROUND_OFF * np.random.default_rng(0).uniform(-1.0, 1.0, 101)
    found = dissipation_inequality(synthetic_run("plateau", t, noise, 1e-9), A, 0.5, 0.1)
    assert found.skipped == 100
    assert found.whole.C is None
    assert found.whole.reason == "no step in the run says anything"
    assert found.holds


def test_a_free_rise_admits_no_constant() -> None:
    """Catches 0/0 and x/0 where W = 0 exactly: no C helps, the step is named; elsewhere W = 0 is no offence."""
    t = 0.1 * np.arange(51)
    gap = np.exp(-1.5 * A * t)
    gap[31] = 1.01 * gap[30]
    norm = np.zeros(50)
    norm[31:] = 0.1
    found = dissipation_inequality(synthetic_run("rise", t, gap, norm), A, 0.5, 2.0)
    assert (found.impossible.count, found.impossible.first, found.impossible.last) == (1, t[30], t[30])
    assert found.whole.C is None
    assert found.whole.reason is not None
    assert "1 steps W = 0" in found.whole.reason
    assert not found.holds


def test_no_constant_is_needed_where_the_gap_falls_faster() -> None:
    """Catches a negative C, and the depth of a step that needs none."""
    t = 0.1 * np.arange(51)
    found = dissipation_inequality(synthetic_run("fast", t, np.exp(-2 * A * t), 0.3), A, 0.5, 0.1)
    assert (found.whole.C, found.whole.depth) == (0.0, None)


def test_waiting_at_the_saddle_breaks_the_inequality() -> None:
    """Catches a failure in practice passed over: Δ = 0.4 held by ‖W‖ = 1e-4 from depth 2 on needs C = aΔ/‖W‖²."""
    t = 0.1 * np.arange(101)
    gap = np.where(t < 2.0, 0.4 - 0.1 * (2.0 - t), 0.4)
    norm = np.where(t[:-1] < 2.0 - 1e-9, 1.0, 1e-4)
    found = dissipation_inequality(synthetic_run("saddle", t, gap, norm), A, 0.5, 0.04)
    assert pytest.approx(A * 0.4 / 1e-8, rel=1e-6) == found.whole.C
    assert found.large.count == 80
    assert found.large.first == pytest.approx(2.0)
    assert found.large.last == pytest.approx(9.9)
    assert not found.holds
    assert found.near.reason == "no step in the neighbourhood says anything"


@pytest.mark.parametrize(("order", "fails"), [(1, False), (2, True)])
def test_steps_decided_by_the_scheme_are_skipped(order: int, fails: bool) -> None:
    """Catches an inequality refuted by the scheme: backward Euler decays like 1/(1 + aΔt), not faster than e^{−aΔt}."""
    dt = np.geomspace(0.05, 5.0, 30)
    gap = 0.1 * np.cumprod(np.append(1.0, 1.0 / (1.0 + A * dt)))
    run = synthetic_run("euler", np.append(0.0, np.cumsum(dt)), gap, 1e-8)
    found = dissipation_inequality(run, A, 0.5, 0.1, order=order)
    assert (found.large.count > 0) is fails
    assert (found.skipped == 30) is not fails


def test_what_cannot_be_asked() -> None:
    """Catches nan compared as if it were a gap, and a rate of zero divided by."""
    run, _ = _known()
    with pytest.raises(ValueError, match="positive"):
        dissipation_inequality(run, 0.0, 0.5, 0.1)
    softmax = synthetic_run("softmax", run.t, np.full_like(run.t, np.nan))
    with pytest.raises(ValueError, match="softmax: the run has no energy gap"):
        dissipation_inequality(softmax, A, 0.5, 0.1)
