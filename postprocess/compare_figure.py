"""The figure of a comparison: PDE and particles along depth, their distance, and densities beside histograms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from postprocess.compare_load import ParticleRun
from postprocess.densities import CircleLaw, DensitySeries
from postprocess.figures import BLUE, GREEN, ORANGE, STYLE, depth_windows
from postprocess.load import Run

__all__ = ["comparison_figure", "draw_comparison"]

FloatArray = NDArray[np.float64]

_BINS = 60
_REACH = 1e-3  # of the highest density: where histograms are cut off


def draw_comparison(run: Run, particles: ParticleRun, series: DensitySeries, found: dict[str, Any], path: Path) -> Path:
    """Draw the figure of compare.json's content `found` into `path`, a PNG; returns it."""
    with mpl.rc_context(STYLE):
        comparison_figure(run, particles, series, found).savefig(path)
    return path


def comparison_figure(run: Run, particles: ParticleRun, series: DensitySeries, found: dict[str, Any]) -> Figure:
    """Interaction energy, angle and distance along depth; on the circle densities and histograms at three depths."""
    circle = found["manifold"] == "circle"
    figure = Figure(figsize=(9.2 if circle else 6.6, 6.2), layout="constrained")
    parts = figure.subfigures(1, 2 if circle else 1, width_ratios=[2.0, 1.0] if circle else None, squeeze=False)[0]
    left = parts[0]
    if circle:
        _histograms(parts[1].subplots(3, 1), particles, series)
    windows = depth_windows(run)
    ratios = [1.4 if width == "end" else 1.0 for *_, width in windows]
    grid = left.subplots(3, len(windows), sharey="row", width_ratios=ratios, squeeze=False)
    for column, (start, end, _) in enumerate(windows):
        energy, angle, gap = grid[:, column]
        _pair(energy, run.t, run.trajectory["interaction_energy"], particles.t, particles.interaction_energy)
        # The plateau's angle is that of e₁ plus any multiple of 2π: bring the tokens' to the PDE's branch.
        turns = np.round((particles.angle[:, :1] - run.trajectory["angle"][0]) / (2 * np.pi))
        _pair(angle, run.t, run.trajectory["angle"], particles.t, particles.angle - 2 * np.pi * turns)
        _distances(gap, found["distance"], found["n"])
        for axes in (energy, angle, gap):
            axes.set_xlim(start, end)
        gap.set_xlabel("depth $t$")
    grid[0, 0].set_ylabel("interaction energy")
    grid[1, 0].set_ylabel("angle of the mean [rad]")
    unit = "$W_1$ [rad]" if circle else "sliced $W_1$ [chord]"
    grid[2, 0].set_ylabel(f"{unit} to the density")
    grid[0, 0].legend(loc="lower right")
    grid[2, -1].legend(loc="upper left")
    seeds = found["seeds"]
    figure.suptitle(
        f"{found['case']}: PDE, and {found['n']} tokens, {seeds} seed{'s' if seeds > 1 else ''}", fontsize=9
    )
    return figure


def _pair(axes: Axes, t: FloatArray, pde: FloatArray, depths: FloatArray, seeds: FloatArray) -> None:
    mean = seeds.mean(axis=0)
    if len(seeds) > 1:
        sd = seeds.std(axis=0, ddof=1)
        axes.fill_between(depths, mean - sd, mean + sd, color=ORANGE, alpha=0.3, lw=0, label="± sd over seeds")
    axes.plot(depths, mean, color=ORANGE, lw=1.2, label="particles")
    axes.plot(t, pde, color=BLUE, lw=1.2, ls="--", label="PDE")


def _distances(axes: Axes, reached: dict[str, Any], count: int) -> None:
    t, mean, exact = reached["depths"], np.array(reached["mean"]), reached["exact_samples"]
    for values, sd, colour, marker, label in (
        (mean, reached["sd"], ORANGE, "o", "particles"),
        (np.array(exact["mean"]), exact["sd"], GREEN, "s", f"{count} exact samples"),
    ):
        axes.plot(t, values, color=colour, marker=marker, ms=2.5, lw=1.0, label=label)
        if sd is not None:
            low = np.maximum(values - np.array(sd), 0.3 * values)  # a band on a logarithmic axis stays positive
            axes.fill_between(t, low, values + np.array(sd), color=colour, alpha=0.25, lw=0)
    axes.set_yscale("log")


def _histograms(panels: NDArray[Any], particles: ParticleRun, series: DensitySeries) -> None:
    """At depth 0, in the middle, and at T: the density over the angle, and all seeds' tokens in 60 bins."""
    T = float(particles.depths[-1])
    for axes, wanted in zip(panels, (0.0, 0.5 * T, T), strict=True):
        k = int(np.abs(particles.depths - wanted).argmin())
        depth = float(particles.depths[k])
        law = series.at(depth)
        assert isinstance(law, CircleLaw)
        peak = law.angles[int(law.values[:-1].argmax())]
        around = np.mod(law.angles[:-1] - peak + np.pi, 2 * np.pi) - np.pi + peak
        order = np.argsort(around)
        theta, density = around[order], law.values[:-1][order]
        tokens = particles.positions[:, k].reshape(-1, 2)
        angle = np.mod(np.arctan2(tokens[:, 1], tokens[:, 0]) - peak + np.pi, 2 * np.pi) - np.pi + peak
        inside = theta[density > _REACH * density.max()]
        low, high = min(inside[0], np.quantile(angle, 1e-3)), max(inside[-1], np.quantile(angle, 1 - 1e-3))
        edges = np.linspace(low, high, _BINS + 1)
        heights = np.histogram(angle, edges)[0] / (len(angle) * np.diff(edges))
        axes.stairs(heights, edges, fill=True, color=ORANGE, alpha=0.45, label="particles, all seeds")
        axes.plot(theta, density, color=BLUE, lw=1.2, label="PDE")
        axes.set_xlim(low, high)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("density [1/rad]")
        axes.set_title(f"$t$ = {depth:g}", fontsize=9)
    panels[0].set_ylim(top=1.45 * panels[0].get_ylim()[1])  # room for the legend
    panels[0].legend(loc="upper right")
    panels[-1].set_xlabel("angle [rad]")
