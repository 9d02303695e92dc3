"""Depth grids."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.depth import graded_grid, graded_steps, uniform_grid

pytestmark = pytest.mark.serial  # nothing here knows of ranks


@given(
    T=st.floats(0.01, 1e4),
    first_step=st.floats(1e-3, 2.0),
    layer=st.just(0.0) | st.floats(1e-4, 20.0),
    growth=st.sampled_from([1.0, 1.0001]) | st.floats(1.01, 10.0),
)
def test_graded_grid_always(T: float, first_step: float, layer: float, growth: float) -> None:
    """Catches grids that miss T, are not symmetric, go backwards, exceed first_step in the layer, or grow too fast."""
    if max(T / first_step if growth < 1.01 else 0, min(layer, T) / first_step) > 1e5:
        return
    t = graded_grid(T, first_step, layer, growth)
    dt = np.diff(t)
    assert t[0] == 0.0
    assert t[-1] == T
    assert (dt > 0).all()
    assert np.abs(t + t[::-1] - T).max() <= 1e-13 * T
    assert len(dt) % 2 == 0
    assert np.count_nonzero(t == 0.5 * T) == 1
    slack = 1 + 1e-9
    inside = t[1:] <= min(layer, 0.5 * T) * (1 + 1e-12)
    assert (dt[inside] <= first_step * slack + 1e-14 * T).all()
    first_half = dt[: len(dt) // 2]
    ratio = first_half[1:] / first_half[:-1]
    beyond = t[1 : len(first_half)] > layer * slack  # the first step after the layer starts afresh from first_step
    assert (ratio[beyond] <= growth * slack).all()
    assert dt[: np.count_nonzero(inside) + 1].max() <= growth * first_step * slack + 1e-14 * T


def test_uniform_layer_steps_have_the_size_asked_for() -> None:
    """Catches steps in the layer that are halved or rounded up when first_step divides it."""
    dt = np.diff(graded_grid(80.0, 0.05, 4.0, 1.3))
    assert dt[:80] == pytest.approx(0.05, rel=1e-12)
    assert dt[-80:] == pytest.approx(0.05, rel=1e-10)
    assert dt[80] > 0.05


def test_number_of_steps_grows_like_the_logarithm_of_depth() -> None:
    """Catches a plateau that costs a step per unit of depth: doubling T must add about 2 log 2 / log 1.3 steps."""
    counts = [len(graded_grid(T, 0.05, 4.0, 1.3)) for T in (40.0, 80.0, 160.0, 320.0, 640.0)]
    added = np.diff(counts)
    assert (added >= 2).all()
    assert (added <= 2 * math.log(2) / math.log(1.3) + 4).all()
    assert counts[3] < 1.5 * counts[1]


def test_growth_of_one_is_uniform() -> None:
    """Catches a division by log 1 = 0."""
    dt = np.diff(graded_grid(10.0, 0.1, 2.0, 1.0))
    assert dt == pytest.approx(0.1, rel=1e-9)
    assert len(dt) == 100


def test_layer_longer_than_half_the_depth() -> None:
    """Catches the two layers overlapping: T = 4 with layer = 8 is a uniform grid."""
    dt = np.diff(graded_grid(4.0, 0.1, 8.0, 1.3))
    assert len(dt) == 40
    assert dt == pytest.approx(0.1, rel=1e-12)


def test_vanishing_layer_makes_no_vanishing_step() -> None:
    """Catches a layer below round-off of T giving a step of size zero at the end, by which the gradient is divided."""
    t = graded_grid(1.0, 0.1, 1e-20, 1.3)
    assert np.diff(t).min() > 1e-3


def test_steps_are_no_finer_than_needed() -> None:
    """Catches needless steps: the first half takes the fewest that the growth bound allows, give or take one."""
    steps = graded_steps(80.0, 0.05, 4.0, 1.3)
    rest, reach, count = 36.0, 0.0, 0
    while reach < rest:
        count += 1
        reach += 0.05 * 1.3**count
    assert abs(len(steps) - (80 + count)) <= 1
    assert steps.sum() == pytest.approx(40.0, rel=1e-13)


@given(st.floats(1e-3, 1e6), st.integers(1, 1000))
def test_uniform_grid(T: float, steps: int) -> None:
    """Catches an off-by-one in the number of steps or an end that misses T."""
    t = uniform_grid(T, steps)
    assert len(t) == steps + 1
    assert t[0] == 0.0
    assert t[-1] == T
    assert np.diff(t) == pytest.approx(T / steps, rel=1e-9)
