"""Figures of the two families of optima, for docs/two-optima.md."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from postprocess.densities import load_densities
from postprocess.figures import BLUE, GREEN, ORANGE
from postprocess.members import Member, read_members
from postprocess.paper_figures import along_depth, save_figures
from postprocess.pruning_figure import draw_losses
from postprocess.two_optima import crossing_members, crossings, escape_depth, family, target_angle

__all__ = ["draw_two_optima"]

_TITLES = {"zero": "late escape", "steer": "via the saddle"}
_COLOURS = {"zero": BLUE, "steer": ORANGE}


def draw_two_optima(results: Path, folder: Path) -> list[Path]:
    """Draw what there are results for; returns the paths.

    Raises:
        RunError: A results folder is damaged.
        OSError: A picture cannot be written.
    """
    figures: dict[str, Callable[[Path], Figure | None]] = {
        "families_densities": _densities, "families_depth": _depth, "families_effort": _effort,
        "families_targets": _targets, "families_pruning": _pruning,
    }  # fmt: skip
    return save_figures(figures, results, folder)


def _families(results: Path, name: str) -> list[tuple[str, Member]]:
    members = sorted(read_members(results / name), key=lambda m: m.key("optimizer.start") != "zero")
    return [(m.key("optimizer.start"), m) for m in members]


def _densities(results: Path) -> Figure | None:
    """Density over depth and angle, side by side."""
    members = _families(results, "families")
    if not members:
        return None
    figure = Figure(figsize=(6.6, 3.2), layout="constrained")
    for axes, (start, member) in zip(
        figure.subplots(1, len(members), sharey=True, squeeze=False)[0], members, strict=True
    ):
        series = load_densities(member.directory, 2)
        angle = np.arctan2(series.points[:, 1], series.points[:, 0])
        order = np.argsort(angle)
        values = series.values[:, order]
        mesh = axes.pcolormesh(
            series.depths, angle[order], np.log10(np.maximum(values.T, 1e-3)), cmap="viridis", shading="nearest"
        )
        axes.set_title(_TITLES.get(start, start), fontsize=9)
        axes.set_xlabel("depth $t$")
        axes.grid(visible=False)
    figure.axes[0].set_ylabel("angle [rad]")
    figure.colorbar(mesh, ax=figure.axes, label=r"$\log_{10}\mu$")
    return figure


def _depth(results: Path) -> Figure | None:
    """Energy, angle and control of both families along depth."""
    runs = {_TITLES[start]: (m.run(), _COLOURS[start]) for start, m in _families(results, "families")}
    if not runs:
        return None
    columns = {"energy": "free energy $E$", "angle": "angle [rad]", "control_norm": r"control $\|W_t\|_F$"}
    return along_depth(runs, columns)


def _effort(results: Path) -> Figure | None:
    """Depth of the escape and J against evaluations, circle and sphere."""
    studies = {
        title: read_members(results / name) for title, name in (("circle", "effort"), ("sphere", "effort_sphere"))
    }
    studies = {title: members for title, members in studies.items() if members}
    if not studies:
        return None
    figure = Figure(figsize=(6.6, 4.4), layout="constrained")
    grid = figure.subplots(2, len(studies), sharex="col", squeeze=False)
    for column, (title, members) in enumerate(studies.items()):
        for method, colour in (("lbfgs", BLUE), ("gradient", GREEN)):
            chosen = sorted(
                (m for m in members if m.key("optimizer.method") == method),
                key=lambda m: m.key("optimizer.max_iterations"),
            )
            counts = [m.summary["optimizer"]["forward_solves"] for m in chosen]
            depths = [np.nan if (found := escape_depth(m)) is None else found for m in chosen]
            grid[0, column].semilogx(counts, depths, color=colour, marker="o", ms=4, label=method)
            grid[1, column].loglog(
                counts, [m.summary["objective"]["J"] for m in chosen], color=colour, marker="o", ms=4
            )
        for start, member in _families(results, "families" if title == "circle" else "families_sphere"):
            if start == "steer":
                J = member.summary["objective"]["J"]
                grid[1, column].axhline(J, color=ORANGE, ls="--", lw=1, label="via the saddle, from steer")
        grid[0, column].set_title(title, fontsize=9)
        grid[1, column].set_xlabel("evaluations")
    grid[0, 0].set_ylabel("passes 0.8 rad at depth")
    grid[1, 0].set_ylabel("$J$")
    grid[0, 0].legend()
    grid[1, -1].legend()
    return figure


def _targets(results: Path) -> Figure | None:
    """J of both families against the target, and the difference for small ε and narrow starts."""
    members, narrow = read_members(results / "targets"), crossings(crossing_members(results))
    if not members:
        return None
    figure = Figure(figsize=(6.6, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for kind, colour, title in (("late", BLUE, "late escape"), ("saddle", ORANGE, "via the saddle")):
        chosen = sorted((m for m in members if family(m) == kind), key=target_angle)
        angles = [math.degrees(target_angle(m)) for m in chosen]
        left.plot(angles, [m.summary["objective"]["J"] for m in chosen], color=colour, marker="o", ms=4, label=title)
    left.set_xlabel("target [degrees from $e_1$]")
    left.set_ylabel("$J$")
    left.legend()
    for one, colour, marker in zip(narrow, (BLUE, GREEN, ORANGE, "0.4"), "os^v", strict=False):
        label = rf"$\varepsilon={one.epsilon:g}$, $\kappa={one.kappa:g}$"
        right.plot(np.degrees(one.targets), one.difference, color=colour, marker=marker, ms=4, label=label)
        right.axvline(math.degrees(one.predicted), color="0.35", ls=":", lw=1)
    right.axhline(0.0, color="0.35", lw=1)
    right.set_xlabel("target [degrees from $e_1$]")
    right.set_ylabel(r"$J_{\mathrm{late}} - J_{\mathrm{saddle}}$")
    if narrow:
        right.legend()
    return figure


def _pruning(results: Path) -> Figure | None:
    """The loss without a window of the control, both families."""
    found = [(start, m.directory / "pruning.json") for start, m in _families(results, "families")]
    found = [(start, path) for start, path in found if path.exists()]
    if not found:
        return None
    figure = Figure(figsize=(3.6 * len(found), 3.2), layout="constrained")
    for axes, (start, path) in zip(figure.subplots(1, len(found), squeeze=False)[0], found, strict=True):
        draw_losses(axes, json.loads(path.read_text(encoding="utf-8")))
        axes.set_title(_TITLES[start], fontsize=9)
    return figure
