"""Figures of the turnpike bound and of one step of gradient descent."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_runs import synthetic_run

from postprocess.load import Run
from postprocess.theory_run_figures import bound_figure, one_step_figure
from solver.theory.one_step import read_off
from solver.theory.turnpike import turnpike_bound

pytestmark = pytest.mark.serial  # nothing here knows of ranks


def _late(T: float) -> Run:
    t = np.linspace(0.0, T, 20 * round(T) + 1)
    return synthetic_run(f"late{T:g}", t, 1e-7 + 0.3 * (np.exp(-0.4 * t) + np.exp(-1.8 * (T - t))))


def _saddle(T: float) -> Run:
    t = np.linspace(0.0, T, 20 * round(T) + 1)
    return synthetic_run(f"saddle{T:g}", t, 0.4 - 0.1 * np.exp(-3 * t) - 0.2 * np.exp(-2 * (T - t)))


def test_every_run_lies_below_its_bound() -> None:
    """Catches runs in the row of the other family, T − t mirrored, and bounds drawn with another run's constants."""
    runs = [_saddle(10.0), _late(100.0), _saddle(20.0), _late(80.0)]
    figure = bound_figure(runs, turnpike_bound(runs, 0.4))
    assert len(figure.axes) == 4
    for axes, label in zip(figure.axes[::2], ("late escape", "via the saddle"), strict=True):
        assert label in axes.get_ylabel()
    for axes in figure.axes:
        lines = axes.get_lines()
        assert [line.get_linestyle() for line in lines] == ["-", "--"] * 2
        for run, bound in zip(lines[::2], lines[1::2], strict=True):
            order = np.argsort(bound.get_xdata())
            limit = np.interp(
                run.get_xdata(), np.asarray(bound.get_xdata())[order], np.asarray(bound.get_ydata())[order]
            )
            assert (np.asarray(run.get_ydata()) <= limit * (1 + 1e-3)).all()
    left, right = figure.axes[:2]
    assert left.get_lines()[0].get_ydata()[0] == right.get_lines()[0].get_ydata()[0]
    assert left.get_lines()[0].get_xdata()[0] == 0.0
    assert right.get_lines()[0].get_xdata()[0] == 80.0
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["$T=80$", "$T=100$"]


def test_a_run_without_a_bound_is_drawn_without() -> None:
    """Catches a crash where a rate is undefined: the run appears alone."""
    t = np.linspace(0.0, 20.0, 401)
    run = synthetic_run("sliding", t, 0.4 * (1.2 - t / 20))
    figure = bound_figure([run], turnpike_bound([run], 0.4))
    assert [len(axes.get_lines()) for axes in figure.axes] == [1, 1]


@pytest.mark.parametrize("untrained", [0.0, 1.0])
def test_one_step(untrained: float) -> None:
    """Catches Δ not divided by α², and a window drawn where there is none."""
    t, alphas = np.linspace(0.0, 10.0, 201), np.array([0.08, 0.04, 0.02])
    quadratic = 0.06 * np.exp(-1.8 * (10.0 - t))
    gap = untrained + quadratic * alphas[:, None] ** 2
    step = read_off(t, alphas, np.full(201, untrained), gap, 0.95, 1.0, 1e-14)
    (axes,) = one_step_figure(step).axes
    lines = axes.get_lines()
    assert len(lines) == (5 if untrained == 0.0 else 4)
    assert len(axes.patches) == (1 if untrained == 0.0 else 0)
    assert np.asarray(lines[1].get_ydata()) == pytest.approx(untrained / 0.04**2 + quadratic)
    assert axes.get_xlim()[1] == 0.0
