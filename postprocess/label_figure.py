"""The labels' densities of a run on the circle or the sphere, and what is measured of them along depth."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from numpy.typing import NDArray

from postprocess.densities import CircleLaw, load_densities
from postprocess.load import Run, RunError, load_labels

__all__ = ["draw_conditional", "labels_figure"]

FloatArray = NDArray[np.float64]

_VIEW = (22.0, 10.0)  # elevation and azimuth of the eye, degrees
_BREAK = 0.9  # rad: neighbouring maximisers further apart are not joined by a line
_FLOOR = 0.08  # of a label's highest density: below it a cell is left blank


def labels_figure(run: Run) -> Figure:
    """Conditional densities at T, if density.pvd holds them; resultants and distances to the maximum along depth."""
    saved = (run.directory / "density.pvd").exists()
    figure = Figure(figsize=(9.0 if saved else 6.0, 3.1), layout="constrained")
    dimension = run.W.shape[1]
    columns, t = run.trajectory, run.t
    if saved:
        axes: Any = figure.add_subplot(1, 3, 1, projection="3d" if dimension == 3 else None)
        draw_conditional(axes, run.directory)
        axes.set_title("densities of the labels at T", fontsize=9)
    resultant, gap = (figure.add_subplot(1, 2 + saved, 1 + saved + k) for k in range(2))
    resultant.plot(t, columns["resultant"], label="of all tokens")
    resultant.plot(t, columns["conditional_resultant"], label="mean of the labels'")
    resultant.set(xlabel="depth $t$", ylabel="resultant", ylim=(-0.02, 1.02))
    resultant.legend(fontsize=8)
    if "interaction_gap" in columns:
        gap.plot(t, columns["interaction_gap"], label="gap to the maximum")
        gap.plot(t, columns["conditional_angle"], label="angle of means to $x^*$ [rad]")
        gap.plot(t, columns["conditional_dispersion"], label="width of the labels' laws [rad]")
        gap.legend(fontsize=8)
    else:
        gap.plot(t, columns["interaction_energy"])
        gap.set_ylabel("interaction energy")
    gap.set_xlabel("depth $t$")
    figure.suptitle(run.summary["case"], fontsize=9)
    return figure


def draw_conditional(axes: Any, directory: Path, depth: float | None = None) -> None:
    """The labels' densities of a run, each in the colour of its label, and the maximisers x*(ξ), black.

    Args:
        axes: On the sphere with projection "3d".
        directory: Results folder with density.pvd and labels.npz.
        depth: Nearest saved depth to it; None is T.

    Raises:
        RunError: A file is missing or damaged.
    """
    arrays = load_labels(directory)
    if arrays is None:
        raise RunError(f"{directory}: no labels.npz there; tokens carry no labels")
    count, dimension = arrays["mean"].shape[1:]
    fields = [f"mu_{k}" for k in range(count)] if count > 1 else ["mu"]
    series = [load_densities(directory, dimension, field, last_only=depth is None) for field in fields]
    points, cells, depths = series[0].points, series[0].cells, series[0].depths
    frame = -1 if depth is None else int(np.abs(depths - depth).argmin())
    palette = mpl.colormaps["hsv"](np.arange(count) / count)[:, :3]
    if dimension == 2:
        _lines(axes, [one.frame(frame) for one in series], palette, arrays.get("maximiser"))
        return
    heights = np.stack([one.values[frame][cells].mean(axis=1) for one in series])  # (labels, cells)
    heights /= heights.max(axis=1, keepdims=True)
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


def _lines(axes: Any, laws: list[Any], palette: FloatArray, maximisers: FloatArray | None) -> None:
    """Densities on the circle over the angle, with the places of the maximisers below."""
    for law, colour in zip(laws, palette, strict=True):
        assert isinstance(law, CircleLaw)
        angle = np.mod(law.angles[:-1] + np.pi, 2.0 * np.pi) - np.pi
        order = np.argsort(angle)
        axes.plot(angle[order], law.values[:-1][order], color=colour, lw=1.0)
    if maximisers is not None:
        axes.plot(np.arctan2(maximisers[:, 1], maximisers[:, 0]), np.zeros(len(maximisers)), "k.", ms=4, clip_on=False)
    axes.set(xlabel="angle [rad]", ylabel="density [1/rad]", ylim=(0.0, None))
