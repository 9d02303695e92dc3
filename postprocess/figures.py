"""Figures of a run.

python -m postprocess.figures RUN
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from postprocess.load import Run, RunError, load_run

__all__ = ["BLUE", "GREEN", "ORANGE", "STYLE", "depth_windows", "draw_figures", "main"]

# Okabe–Ito colours: told apart by colour-blind readers and in grey.
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
_PHASE_SHADES = ("#CFE3F1", "#FFFFFF", "#F7DCC9")
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "figure.dpi": 160,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw_figures(directory: Path) -> list[Path]:
    """Draw all figures of a run into its figures/ folder; returns their paths.

    Raises:
        RunError: The folder holds no complete run.
    """
    run = load_run(directory)
    folder = run.directory / "figures"
    folder.mkdir(exist_ok=True)
    with mpl.rc_context(STYLE):
        figures = {"phases.png": phases_figure(run)}
        if "clusters" in run.trajectory:
            from postprocess.token_figure import tokens_figure  # it loads the solver

            dimension = sum(name.startswith("mean_") for name in run.trajectory)
            tokens = tokens_figure(directory, run.trajectory, dimension)
            figures |= {} if tokens is None else {"tokens.png": tokens}
        if "conditional_dispersion" in run.trajectory:
            from postprocess.label_figure import labels_figure

            figures["labels.png"] = labels_figure(run)
        for name, figure in figures.items():
            figure.savefig(folder / name)
    return [folder / name for name in figures]


def phases_figure(run: Run) -> Figure:
    """Energy gap, angle of the mean, and ‖W_t‖ along depth, with the three phases shaded.

    Where there is no free energy (softmax attention) the interaction energy is drawn in its place.
    The plateau is by far the longest phase, so depth is drawn in three panels side by side: both ends at one scale, the
    plateau between them compressed.
    """
    t, columns = run.trajectory["t"], run.trajectory
    figure = Figure(figsize=(6.6, 5.6), layout="constrained")
    windows = depth_windows(run)
    ratios = [1.4 if width == "end" else 1.0 for _, _, width in windows]
    grid = figure.subplots(3, len(windows), sharey="row", width_ratios=ratios, squeeze=False)
    middle = 0.5 * (t[1:] + t[:-1])
    norm = columns["control_norm"][:-1]
    gap = columns["energy_gap"]
    has_energy = bool(np.isfinite(gap).any())
    for column, (start, end, _) in enumerate(windows):
        energy, angle, control = grid[:, column]
        energy.plot(t, np.where(gap > 0, gap, np.nan) if has_energy else columns["interaction_energy"], color=BLUE)
        angle.plot(t, columns["angle"], color=GREEN)
        control.plot(middle, np.where(norm > 0, norm, np.nan), color=ORANGE)
        for axes in (energy, angle, control):
            axes.set_xlim(start, end)
            _shade(axes, run)
        if has_energy:
            energy.set_yscale("log")
        if np.any(norm > 0):
            control.set_yscale("log")
        else:
            control.set_yticks([])
            control.text(0.5, 0.5, "$W = 0$", transform=control.transAxes, ha="center")
        control.set_xlabel("depth $t$")
    left = grid[:, 0]
    left[0].set_ylabel(r"energy gap $E-E_{\min}$" if has_energy else "interaction energy")
    left[1].set_ylabel("angle of the mean [rad]")
    left[2].set_ylabel(r"control $\|W_t\|_F$")
    if has_energy and np.any(gap > 0):
        largest = gap.max()
        left[0].set_ylim(max(gap[gap > 0].min(), 1e-12 * largest) / 2, 3 * largest)
    figure.suptitle(_title(run), fontsize=9)
    return figure


def depth_windows(run: Run) -> list[tuple[float, float, str]]:
    """Depth intervals of the panels: the two ends and what lies between, or all of it where there is no plateau."""
    T = float(run.t[-1])
    phases = run.summary["phases"]
    if phases["plateau_width"] is None:
        return [(0.0, T, "end")]
    end = 2.5 * max(phases["initial_width"], phases["final_width"], T / 50)
    if 2 * end >= 0.8 * T:
        return [(0.0, T, "end")]
    if phases["final_width"] == 0.0:
        return [(0.0, end, "end"), (end, T, "middle")]
    return [(0.0, end, "end"), (end, T - end, "middle"), (T - end, T, "end")]


def _shade(axes: Axes, run: Run) -> None:
    phases, T = run.summary["phases"], float(run.t[-1])
    if phases["plateau_width"] is None:
        return
    edges = [0.0, phases["initial_width"], T - phases["final_width"], T]
    for start, end, colour in zip(edges[:-1], edges[1:], _PHASE_SHADES, strict=True):
        axes.axvspan(start, end, color=colour, zorder=0, lw=0)


def _title(run: Run) -> str:
    phases = run.summary["phases"]
    if phases["clustered"] is None:
        return f"{run.summary['case']}: no free energy, so no phases"
    if phases["plateau_width"] is None:
        return f"{run.summary['case']}: no plateau around T/2"
    if not phases["clustered"]:
        start, width = phases["initial_width"], phases["plateau_width"]
        return f"{run.summary['case']}: no cluster forms; a plateau of {width:.1f} from {start:.2f} on"
    text = f"{run.summary['case']}: clustering {phases['initial_width']:.2f} (blue), "
    if phases["final_width"] == 0.0:
        return f"{text}then a plateau of {phases['plateau_width']:.1f} to the end"
    third = "escape" if phases["escaped"] else "end"
    return f"{text}plateau {phases['plateau_width']:.1f}, {third} {phases['final_width']:.2f} (orange)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the figures of a run from the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m postprocess.figures", description="Draw the figures of a run.")
    parser.add_argument("run", metavar="RUN", type=Path, help="results folder")
    options = parser.parse_args(arguments)
    try:
        for path in draw_figures(options.run):
            print(path)
    except RunError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{options.run}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
