"""Figures of P1's experiments, for docs/paper-tables.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from postprocess.figures import BLUE, GREEN, ORANGE, STYLE
from postprocess.load import Run
from postprocess.members import Member, Sample, read_members
from postprocess.pruning_figure import draw_losses
from postprocess.reported import DIVERGENCES, FITTED_RATES, WIDTHS

__all__ = ["draw_paper"]

_LAYER = 6.0  # units of depth at both ends that are drawn at full scale
_GREY = "0.35"


def draw_paper(results: Path, folder: Path) -> list[Path]:
    """Draw what there are results for; returns the paths.

    Raises:
        RunError: A results folder is damaged.
        OSError: A picture cannot be written.
    """
    figures: dict[str, Callable[[Path], Figure | None]] = {
        "paper_phases": _phases, "paper_rates": _rates, "paper_spread": _spread, "paper_widths": _widths,
        "paper_plateau": _plateau, "paper_pruning": _pruning,
    }  # fmt: skip
    return save_figures(figures, results, folder)


def save_figures(figures: dict[str, Callable[[Path], Figure | None]], results: Path, folder: Path) -> list[Path]:
    """Draw figures by name into a folder; those without results (None) are left out."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with mpl.rc_context(STYLE):
        for name, make in figures.items():
            figure = make(results)
            if figure is not None:
                paths.append(folder / f"{name}.png")
                figure.savefig(paths[-1])
    return paths


def _phases(results: Path) -> Figure | None:
    """Energy and angle along depth: no training, align, bag of words; λ₂ = 0.65, T = 80."""
    chosen: dict[str, tuple[Path, Callable[[Member], bool], str]] = {
        "no training": (results / "no_training", lambda member: member.second == 0.65, _GREY),
        "align, target $e_2$": (results / "align", lambda member: member.second == 0.65, BLUE),
        r"bag of words, $\kappa=2$": (
            results / "bag_of_words",
            lambda member: (member.key("objective.kappa"), member.key("objective.seed")) == (2.0, 0),
            ORANGE,
        ),
    }  # fmt: skip
    runs: dict[str, tuple[Run, str]] = {}
    for name, (folder, wanted, colour) in chosen.items():
        member = next((member for member in read_members(folder) if wanted(member)), None)
        if member is not None:
            runs[name] = member.run(), colour
    if not runs:
        return None
    return along_depth(runs, {"energy": "free energy $E$", "angle": "angle of the mean [rad]",
                              "dispersion": "dispersion [rad]"})  # fmt: skip


def along_depth(runs: dict[str, tuple[Run, str]], columns: dict[str, str]) -> Figure:
    """Columns of trajectory.csv of several runs: both ends of the depth at full scale, what lies between compressed."""
    figure = Figure(figsize=(6.6, 1.7 * len(columns) + 0.4), layout="constrained")
    T = float(max(run.t[-1] for run, _ in runs.values()))
    windows = [(0.0, _LAYER), (_LAYER, T - _LAYER), (T - _LAYER, T)] if T > 5 * _LAYER else [(0.0, T)]
    ratios = [1.4, 1.0, 1.4] if len(windows) == 3 else [1.0]
    grid = figure.subplots(len(columns), len(windows), sharey="row", width_ratios=ratios, squeeze=False)
    for row, (name, label) in zip(grid, columns.items(), strict=True):
        for axes, window in zip(row, windows, strict=True):
            for title, (run, colour) in runs.items():
                axes.plot(run.trajectory["t"], run.trajectory[name], color=colour, label=title)
            axes.set_xlim(*window)
        row[0].set_ylabel(label)
    for axes in grid[-1]:
        axes.set_xlabel("depth $t$")
    grid[0, -1].legend(loc="best")
    return figure


def _rates(results: Path) -> Figure | None:
    """Growth rate of the control against λ₂."""
    trained = sorted(read_members(results / "terminal_rates"), key=lambda member: member.second)
    tokens = read_members(results / "align-particles")
    if not trained:
        return None
    figure, axes = _one()
    second = np.linspace(0.15, 0.85, 50)
    first = float(trained[0].key("attention.eigenvalues")[0])
    axes.plot(
        second, (first - second) * np.exp(first), color=_GREY, ls=":", label=r"$(\lambda_1-\lambda_2)e^{\lambda_1}$"
    )
    x = [member.second for member in trained]
    for label, style, values in (
        (r"$R_\rho$, same mesh", {"color": BLUE, "marker": "x", "ls": "none", "ms": 8},
         [member.theory_value("R_rho") for member in trained]),
        ("optimal control", {"color": BLUE, "marker": "o", "ls": "none", "mfc": "none"},
         [member.summary["phases"]["terminal_rate"] for member in trained]),
        ("gradient at $W=0$", {"color": GREEN, "marker": "+", "ls": "none", "ms": 9},
         [member.summary["phases"]["untrained_gradient_rate"] for member in trained]),
    ):  # fmt: skip
        axes.plot(x, [np.nan if value is None else value for value in values], label=label, **style)
    _errorbar(
        axes, [m.second for m in tokens], [m.sample("terminal_rate") for m in tokens], ORANGE, "tokens, $\\Delta t=0.1$"
    )
    axes.plot(list(FITTED_RATES), [rate for rate, _ in FITTED_RATES.values()], "k^", ls="none", label="P1, fitted")
    axes.set_xlabel(r"$\lambda_2$")
    axes.set_ylabel("growth rate towards $T$")
    axes.set_ylim(bottom=0.0)
    axes.legend()
    return figure


def _spread(results: Path) -> Figure | None:
    """Spread of the trained tokens against the concentration κ of the words."""
    figure, axes = _one()
    drawn = False
    for folder, marker, source in (("bag_of_words", "o", "density"), ("bag_of_words-particles", "s", "tokens")):
        members = read_members(results / folder)
        kappas = sorted({member.key("objective.kappa") for member in members})
        for name, colour, label in (
            ("angular_divergence", BLUE, r"$\Delta\theta$"),
            ("dispersion", ORANGE, "dispersion"),
        ):
            samples = []
            for kappa in kappas:
                found = [m.sample(name) for m in members if m.key("objective.kappa") == kappa]
                samples.append(Sample(tuple(v for s in found for v in s.values), sum(s.count for s in found)))
            if kappas:
                drawn = True
                shift = 0.08 if source == "tokens" else -0.08
                _errorbar(axes, [k + shift for k in kappas], samples, colour, f"{label}, {source}", marker)
    if not drawn:
        return None
    for kappa, (mean, sd) in DIVERGENCES.items():
        axes.errorbar(
            kappa, mean, sd, color="k", marker="^", ls="none", capsize=3, label="P1" if kappa == 2.0 else None
        )
    axes.set_xlabel(r"concentration $\kappa$ of the words")
    axes.set_ylabel("spread at $T$ [rad]")
    axes.set_ylim(bottom=0.0)
    axes.legend(ncols=2)
    return figure


def _widths(results: Path) -> Figure | None:
    """Initial and final width against T."""
    density, tokens = read_members(results / "depth"), read_members(results / "depth-particles")
    if not density + tokens:
        return None
    figure, axes = _one()
    for index, (name, colour) in enumerate((("initial_width", BLUE), ("final_width", ORANGE))):
        words = name.replace("_", " ")
        for members, marker, source in ((density, "o", "density"), (tokens, "s", "tokens")):
            depths = [float(member.key("depth.T")) for member in members]
            _errorbar(axes, depths, [member.sample(name) for member in members], colour, f"{words}, {source}", marker)
        axes.plot(
            list(WIDTHS),
            [pair[index] for pair in WIDTHS.values()],
            color=colour,
            marker="^",
            ls=":",
            label=f"{words}, P1",
        )
    axes.set_xlabel("depth $T$")
    axes.set_ylabel("width")
    axes.set_ylim(bottom=0.0)
    axes.legend(ncols=2)
    return figure


def _plateau(results: Path) -> Figure | None:
    """Variation of the plateau against λ₂."""
    density, tokens = read_members(results / "align"), read_members(results / "align-particles")
    if not density + tokens:
        return None
    figure, axes = _one()
    for members, colour, label in ((density, BLUE, "density"), (tokens, ORANGE, "tokens, N = 64")):
        _errorbar(axes, [m.second for m in members], [m.sample("plateau_variation") for m in members], colour, label)
    axes.axhline(0.05, color=_GREY, ls="--", lw=1, label="P1's bound for a plateau")
    axes.set_yscale("log")
    axes.set_xlabel(r"$\lambda_2$")
    axes.set_ylabel("relative variation of the energy on $[T/3, 2T/3]$")
    axes.legend()
    return figure


def _pruning(results: Path) -> Figure | None:
    """The loss without a window of the control: align and bag of words, densities and tokens."""
    folders = {
        "align, density": results / "align" / "eigenvalues=1.0,0.65",
        "align, 20 × 64 tokens": results / "align-particles" / "eigenvalues=1.0,0.65",
        "bag of words, density": results / "bag_of_words" / "kappa=2.0_seed=0",
    }
    found = {title: folder / "pruning.json" for title, folder in folders.items() if (folder / "pruning.json").exists()}
    if not found:
        return None
    figure = Figure(figsize=(3.6 * len(found), 3.2), layout="constrained")
    for axes, (title, path) in zip(figure.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True):
        draw_losses(axes, json.loads(path.read_text(encoding="utf-8")))
        axes.set_title(title, fontsize=9)
    return figure


def _one() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(5.4, 3.6), layout="constrained")
    return figure, figure.subplots()


def _errorbar(
    axes: Axes, x: Sequence[float], samples: Sequence[Sample], colour: str, label: str, marker: str = "o"
) -> None:
    """Means with standard deviations, sorted by x."""
    order = np.argsort(x)
    means = [samples[k].mean for k in order]
    spreads = [samples[k].sd or 0.0 for k in order]
    axes.errorbar(
        [x[k] for k in order], means, spreads if any(spreads) else None,
        color=colour, marker=marker, ms=4, lw=1, capsize=2, label=label,
    )  # fmt: skip
