"""The three phases and the terminal rate, on curves made by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.phases import find_phases, terminal_rate, weighted_median

pytestmark = pytest.mark.serial  # nothing here knows of ranks


def _curve(t: np.ndarray, drop: float = 0.5, rise: float = 0.4, level: float = -1.2) -> np.ndarray:
    """Linear fall to `level` over [0, 10], flat, linear rise over [70, 80]."""
    return level + drop * np.clip(1 - t / 10, 0, 1) + rise * np.clip((t - 70) / 10, 0, 1)


GRIDS = {
    "uniform": np.linspace(0, 80, 801),
    "graded": np.concatenate([np.linspace(0, 12, 121), np.linspace(12, 68, 8)[1:], np.linspace(68, 80, 121)[1:]]),
    "uneven": np.concatenate([np.linspace(0, 30, 400), np.linspace(30, 80, 131)[1:]]),
}


@pytest.mark.parametrize("grid", sorted(GRIDS))
def test_crossings_are_interpolated(grid: str) -> None:
    """Catches widths rounded to the grid, or dependent on it: |E − E_p| = 0.06 at t = 8.8 and t = 71.5."""
    t = GRIDS[grid]
    phases = find_phases(t, _curve(t), np.full(t.shape, 0.99), np.where(t < 75, 0.3, 1.3))
    assert phases.plateau_energy == pytest.approx(-1.2, abs=1e-12)
    assert phases.plateau == pytest.approx((8.8, 71.5), abs=1e-9)
    assert phases.plateau_variation == pytest.approx(0.0, abs=1e-12)
    assert phases.displacement == pytest.approx(1.0, abs=1e-12)
    assert phases.clustered
    assert phases.escaped
    assert phases.clustered_relative
    assert phases.escaped_relative


@pytest.mark.parametrize(("drop", "clustered"), [(0.0999, False), (0.1001, True)])
def test_clustering_needs_a_drop_of_a_tenth(drop: float, clustered: bool) -> None:
    """Catches a changed threshold or the wrong end of the curve."""
    t = GRIDS["uniform"]
    assert find_phases(t, _curve(t, drop=drop), np.ones(t.shape), t * 0).clustered is clustered


@pytest.mark.parametrize(("rise", "escaped"), [(0.0999, False), (0.1001, True)])
def test_escape_needs_a_rise_of_a_tenth(rise: float, escaped: bool) -> None:
    """Catches a changed threshold or the wrong end of the curve."""
    t = GRIDS["uniform"]
    assert find_phases(t, _curve(t, rise=rise), np.ones(t.shape), t * 0).escaped is escaped


@pytest.mark.parametrize(("level", "size", "verdict"), [(-2.0, 0.149, False), (-2.0, 0.151, True), (-0.4, 0.031, True)])
def test_relative_verdicts(level: float, size: float, verdict: bool) -> None:
    """Catches second verdicts that repeat the first: their threshold is 0.075 |E_p|."""
    t = GRIDS["uniform"]
    phases = find_phases(t, _curve(t, size, size, level), np.ones(t.shape), t * 0)
    assert phases.clustered_relative is verdict
    assert phases.escaped_relative is verdict
    assert phases.clustered is (size >= 0.1)


def test_scattered_tokens_are_not_clustered() -> None:
    """Catches a plateau accepted without a cluster: the resultant must exceed 0.9 all along it, and only there."""
    t = GRIDS["uniform"]
    early = np.where(t < 8, 0.2, 0.95)
    assert find_phases(t, _curve(t), early, t * 0).clustered
    once = np.where(np.abs(t - 30) < 0.2, 0.89, 0.95)
    phases = find_phases(t, _curve(t), once, t * 0)
    assert not phases.clustered
    assert not phases.clustered_relative
    assert phases.escaped


def test_no_plateau_where_the_middle_is_off() -> None:
    """Catches a plateau invented around a steep middle: |E(T/2) − E_p| > 0.05 |E_p| gives None, widths and
    displacement too.
    """
    t = GRIDS["uniform"]
    energy = np.full(t.shape, -1.0)
    energy[np.abs(t - 40) < 2] = -0.5
    phases = find_phases(t, energy, np.ones(t.shape), t * 0)
    assert phases.plateau is None
    assert phases.displacement is None
    assert not phases.clustered
    assert phases.plateau_variation == pytest.approx(0.5)


def test_plateau_is_the_connected_interval_around_the_middle() -> None:
    """Catches a plateau that jumps over an excursion to an equal level elsewhere."""
    t = GRIDS["uniform"]
    energy = np.full(t.shape, -1.0)
    energy[(t > 14.95) & (t < 16.05)] = -0.5  # up between 14.9 and 15.0, down between 16.0 and 16.1
    phases = find_phases(t, energy, np.ones(t.shape), t * 0)
    assert phases.plateau is not None
    assert phases.plateau[0] == pytest.approx(16.1 - 0.1 * 0.05 / 0.5, abs=1e-9)
    assert phases.plateau[1] == 80.0


def test_median_ignores_a_short_excursion_in_depth_however_many_steps_it_takes() -> None:
    """Catches a median over steps: a tenth of the depth with nine tenths of the steps must not decide."""
    t = np.concatenate([np.linspace(0, 9, 10), np.linspace(9, 10, 91)[1:]])
    values = np.where(t <= 9, 1.0, 2.0)
    assert weighted_median(t, values, 0.0, 10.0) == pytest.approx(1.0, abs=1e-12)


@given(st.floats(-5, 5), st.floats(-2, 2), st.floats(0.01, 0.4), st.floats(0.6, 0.99))
def test_median_of_a_linear_function_is_its_middle(a: float, b: float, start: float, end: float) -> None:
    """Catches weights that do not belong to the depth between samples: exact for linear values on any grid and
    interval.
    """
    t = np.concatenate([np.linspace(0, 0.3, 31), np.linspace(0.3, 1, 701)[1:]])
    assert weighted_median(t, a + b * t, start, end) == pytest.approx(
        a + b * 0.5 * (start + end), abs=0.011 * abs(b) + 1e-12
    )


RATE = 0.9434
DIRECTION = np.array([[0.8, -0.1], [0.5, 0.3]])
DIRECTION = DIRECTION / np.linalg.norm(DIRECTION)


def _control(t: np.ndarray, floor: np.ndarray) -> np.ndarray:
    middle = 0.5 * (t[1:] + t[:-1])
    return floor + DIRECTION * np.exp(RATE * (middle - t[-1]))[:, None, None]


@pytest.mark.parametrize("grid", ["uniform", "graded"])
@pytest.mark.parametrize("floor", [0.0, 1e-4, 1e-3])
def test_terminal_rate_of_an_exponential_on_a_floor(grid: str, floor: float) -> None:
    """Catches a fit that includes the floor or the saturated end, or step ends in place of mid-depths."""
    t = GRIDS[grid]
    W = _control(t, floor * np.array([[0.6, 0.0], [0.0, 0.8]]))
    # With no floor, c is the onset of the growth itself, and the fit starts at ten times that: a bias below 0.2 %.
    assert terminal_rate(t, W) == pytest.approx(RATE, rel=1e-5 if floor else 2e-3)


@pytest.mark.parametrize("factor", [1.0, -3.0, 1e-6])
def test_terminal_rate_is_exact_without_a_floor(factor: float) -> None:
    """Catches a rate scaled by the number of entries, a log of squares, or an absolute threshold."""
    t = GRIDS["uniform"]
    W = factor * _control(t, np.zeros((2, 2)))
    W[:600] = 0.0  # nothing over [T/3, 2T/3]
    assert terminal_rate(t, W) == pytest.approx(RATE, rel=1e-9)


def test_terminal_rate_of_a_constant_floor_plus_noiseless_end() -> None:
    """Catches a floor subtracted as a norm: the vector mean must cancel exactly, also when it opposes the growth."""
    t = GRIDS["uniform"]
    assert terminal_rate(t, _control(t, -1e-3 * DIRECTION)) == pytest.approx(RATE, rel=1e-6)


@pytest.mark.parametrize("size", [0.0, 1.0])
def test_no_rate_without_growth(size: float) -> None:
    """Catches a rate read off a flat or zero control, or log 0."""
    t = GRIDS["uniform"]
    assert terminal_rate(t, np.full((800, 2, 2), size)) is None


def test_no_rate_in_less_than_one_e_folding() -> None:
    """Catches a rate from a window too short to mean anything: the floor reaches up to 0.05 of the maximum."""
    t = GRIDS["uniform"]
    W = _control(t, 3e-3 * DIRECTION)  # ten times the floor is 0.03, e-folding of 0.05 ends at 0.018
    assert terminal_rate(t, W) is None


def test_rate_is_that_of_the_last_stretch() -> None:
    """Catches a bump before the escape fitted together with the terminal growth."""
    t = GRIDS["uniform"]
    middle = 0.5 * (t[1:] + t[:-1])
    floor = np.array([[0.0, 1e-4], [0.0, 0.0]])
    W = _control(t, floor) + DIRECTION * (0.02 * np.exp(-((middle - 62) ** 2)))[:, None, None]
    assert terminal_rate(t, W) == pytest.approx(RATE, rel=1e-5)


def test_rate_is_not_fitted_where_steps_are_coarse() -> None:
    """Catches the distorted rate of the plateau's large steps in the fit: beyond 4 last steps nothing is used."""
    t = np.concatenate([np.linspace(0, 72, 73), np.linspace(72, 80, 161)[1:]])
    W = _control(t, np.zeros((2, 2)))
    W[:54] = 0.0
    W[54:72] *= np.exp(-0.3 * np.arange(18))[::-1, None, None]  # another rate on the coarse part
    assert terminal_rate(t, W) == pytest.approx(RATE, rel=1e-9)
