"""Figures of labels in the continuum, for docs/joined.md."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from numpy.typing import NDArray

from postprocess.densities import load_densities
from postprocess.figures import BLUE, GREEN, ORANGE
from postprocess.joined import KERNELS, LOSSES, kernel, trained
from postprocess.load import RunError, load_labels
from postprocess.members import Member, read_members
from postprocess.paper_figures import save_figures

__all__ = ["draw_conditional", "draw_joined"]

FloatArray = NDArray[np.float64]

_COLOURS = dict(zip(KERNELS, ("0.45", BLUE, GREEN, ORANGE), strict=True))
_VIEW = (22.0, -50.0)  # elevation and azimuth of the eye, degrees
_BREAK = 0.9  # rad: neighbouring maximisers further apart are not joined by a line
_FLOOR = 0.08  # of a label's highest density: below it a cell is left blank


def draw_joined(results: Path, folder: Path) -> list[Path]:
    """Draw what there are results for; returns the paths.

    Raises:
        RunError: A results folder is damaged.
        OSError: A picture cannot be written.
    """
    figures: dict[str, Callable[[Path], Figure | None]] = {
        "joined_diracs": _diracs, "joined_trained": _trained, "joined_resultant": _resultant,
    }  # fmt: skip
    return save_figures(figures, results, folder)


def draw_conditional(axes: Any, directory: Path, depth: float | None = None) -> None:
    """The labels' densities of a run on the sphere, each in the colour of its label, and the maximisers x*(ξ), black.

    Args:
        axes: With projection "3d".
        directory: Results folder with density.pvd and labels.npz.
        depth: Nearest saved depth to it; None is T.

    Raises:
        RunError: A file is missing or damaged.
    """
    arrays = load_labels(directory)
    if arrays is None:
        raise RunError(f"{directory}: no labels.npz there; tokens carry no labels")
    series = [load_densities(directory, 3, f"mu_{k}", last_only=depth is None) for k in range(len(arrays["labels"]))]
    points, cells, depths = series[0].points, series[0].cells, series[0].depths
    frame = -1 if depth is None else int(np.abs(depths - depth).argmin())
    heights = np.stack([one.values[frame][cells].mean(axis=1) for one in series])  # (labels, cells)
    heights /= heights.max(axis=1, keepdims=True)
    palette = mpl.colormaps["hsv"](np.arange(len(series)) / len(series))[:, :3]
    strongest = heights.argmax(axis=0)
    alpha = heights.max(axis=0)
    shown = (alpha > _FLOOR) & _in_front(points[cells].mean(axis=1))
    colours = np.column_stack([palette[strongest], np.clip(alpha, 0.0, 1.0)])
    azimuth, height = np.meshgrid(np.linspace(0.0, 2.0 * np.pi, 37), np.linspace(-0.5 * np.pi, 0.5 * np.pi, 19))
    ball = (np.cos(height) * np.cos(azimuth), np.cos(height) * np.sin(azimuth), np.sin(height))
    axes.plot_wireframe(*ball, color="0.88", lw=0.4, rstride=2, cstride=3)
    axes.add_collection3d(Poly3DCollection(points[cells[shown]], facecolors=colours[shown], edgecolors="none"))
    if "maximiser" in arrays:
        _curve(axes, arrays["maximiser"], arrays["labels"])
    axes.set(xlim=(-0.8, 0.8), ylim=(-0.8, 0.8), zlim=(-0.8, 0.8))
    axes.view_init(*_VIEW)
    axes.set_box_aspect((1, 1, 1))
    axes.set_axis_off()


def _in_front(x: FloatArray) -> NDArray[np.bool_]:
    """Whether points of the sphere face the eye."""
    elevation, azimuth = np.radians(_VIEW)
    eye = np.array([np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)])
    return np.asarray(x @ eye > -0.05)


def _curve(axes: Any, maximisers: FloatArray, labels: FloatArray) -> None:
    """x*(ξ) as points in the order of the labels, joined where neighbours are near; paler on the far side."""
    ordered = maximisers[np.argsort(labels, kind="stable")]
    front = _in_front(ordered)
    for side, colour in ((front, "black"), (~front, "0.7")):
        axes.plot(*(1.02 * ordered[side]).T, ".", color=colour, ms=4)
    closed = np.vstack([ordered, ordered[:1]])
    for one, other in itertools.pairwise(closed):
        if one @ other > np.cos(_BREAK):
            arc = one + np.linspace(0.0, 1.0, 9)[:, None] * (other - one)
            arc *= 1.02 / np.linalg.norm(arc, axis=1, keepdims=True)
            axes.plot(*arc.T, color="black" if _in_front(arc[4:5])[0] else "0.7", lw=0.8)


def _panels(chosen: list[tuple[str, Path, float | None]], columns: int) -> Figure | None:
    if not chosen:
        return None
    rows = -(-len(chosen) // columns)
    figure = Figure(figsize=(2.6 * columns, 2.75 * rows), layout="constrained")
    for place, (title, directory, depth) in enumerate(chosen, start=1):
        axes = figure.add_subplot(rows, columns, place, projection="3d")
        draw_conditional(axes, directory, depth)
        axes.set_title(title, fontsize=9)
    return figure


def _diracs(results: Path) -> Figure | None:
    """Conditional densities at T as the noise falls."""
    chosen: list[tuple[str, Path, float | None]] = []
    for name in ("rope", "prefix"):
        members = sorted(read_members(results / f"diracs_{name}"), key=lambda m: -float(m.key("noise.epsilon")))
        chosen += [(f"{name}, ε = {member.key('noise.epsilon'):g}", member.directory, None) for member in members]
    return _panels(chosen, 3)


def _of(results: Path, name: str, key: str, optimised: bool) -> Member | None:
    found = [m for m in read_members(results / name) if kernel(m) == key and trained(m) == optimised]
    return found[0] if found else None


def _trained(results: Path) -> Figure | None:
    """Conditional densities under the trained control, loss `align`: on the plateau and at T."""
    chosen: list[tuple[str, Path, float | None]] = []
    for wanted in ("plateau", "end"):
        for key, title in KERNELS.items():
            member = _of(results, "align", key, optimised=True)
            if member is not None:
                middle = 0.5 * float(member.key("depth.T"))
                name = title.replace("`", "")
                depth = middle if wanted == "plateau" else None
                chosen.append((f"{name}, {'t = T/2' if depth else 't = T'}", member.directory, depth))
    return _panels(chosen, len(chosen) // 2 or 1)


def _resultant(results: Path) -> Figure | None:
    """Resultant of the marginal along depth, with and without training, and the energy of the trained run."""
    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    grid = figure.subplots(2, len(LOSSES), sharex=True, squeeze=False)
    drawn = False
    for column, (name, title) in enumerate(LOSSES.items()):
        resultant, energy = grid[:, column]
        for key, label in KERNELS.items():
            for optimised in (False, True):
                member = _of(results, name, key, optimised)
                if member is None:
                    continue
                columns, style = member.run().trajectory, {"color": _COLOURS[key], "ls": "-" if optimised else "--"}
                resultant.plot(columns["t"], columns["resultant"], lw=1.2, **style)
                if optimised:
                    energy.plot(columns["t"], columns["energy"], lw=1.2, label=label.replace("`", ""), **style)
                    drawn = True
        resultant.set(title=title, ylim=(-0.02, 1.02))
        energy.set_xlabel("depth $t$")
    grid[0, 0].set_ylabel("resultant; dashed: W = 0")
    grid[1, 0].set_ylabel("energy, trained")
    if drawn:
        handles, labels = grid[1, 0].get_legend_handles_labels()
        figure.legend(handles, labels, fontsize=8, loc="outside lower center", ncols=len(KERNELS))
    return figure if drawn else None
