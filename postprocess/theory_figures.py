"""Figures of the theory of a case: slow modes on the manifold, and the energy along the barrier's paths.

Drawn from theory.json and theory/modes.npz, which ``python -m solver.theory`` writes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from numpy.typing import NDArray

from postprocess.figures import BLUE, GREEN, ORANGE, STYLE

__all__ = ["barrier_figure", "draw_theory", "modes_figure"]

_PANELS = 6
_COLUMNS = 3
_LIFT = 0.45  # of the mode's curve off the circle
_COLOURS = {"rotate": BLUE, "split": ORANGE}
_WORDS = {"rotate": "rotating through $e_2$", "split": "splitting to $-e_1$"}


def draw_theory(directory: Path) -> list[Path]:
    """Draw what theory.json and theory/modes.npz hold into theory/; returns the paths.

    Raises:
        OSError: A file is missing or cannot be written.
    """
    theory = json.loads((directory / "theory.json").read_text(encoding="utf-8"))
    folder = directory / "theory"
    paths = []
    with mpl.rc_context(STYLE):
        if (folder / "modes.npz").exists() and theory["modes"]:
            with np.load(folder / "modes.npz", allow_pickle=False) as data:
                figure = modes_figure(theory, data["points"], data["cells"], data["modes"], data["pole"])
            paths.append(folder / "modes.png")
            figure.savefig(paths[-1])
        if theory["barrier"] is not None:
            paths.append(folder / "barrier.png")
            barrier_figure(theory).savefig(paths[-1])
    return paths


def modes_figure(
    theory: dict[str, Any],
    points: NDArray[np.float64],
    cells: NDArray[np.int64],
    modes: NDArray[np.float64],
    pole: NDArray[np.float64],
) -> Figure:
    """The slowest modes √ρ f on the circle or the sphere, each scaled to maximum 1.

    Args:
        theory: Content of theory.json.
        points: Nodes, (nodes, d).
        cells: Of the mesh, (cells, d).
        modes: (modes, nodes).
        pole: Place of the cluster, (d,).
    """
    count = min(_PANELS, len(modes))
    rows = -(-count // _COLUMNS)
    figure = Figure(figsize=(6.6, 2.3 * rows + 0.3), layout="constrained")
    sphere = points.shape[1] == 3
    for k in range(count):
        scaled = modes[k] / np.abs(modes[k]).max()
        row = theory["modes"][k]
        axes: Any = figure.add_subplot(rows, min(count, _COLUMNS), k + 1, projection="3d" if sphere else None)
        axes.set_title(f"$a = {row['rate']:.4f}$, {row['place']}", fontsize=9)
        if sphere:
            _on_sphere(axes, points, cells, scaled, pole if row["place"] == "cluster" else -pole)
        else:
            _on_circle(axes, points, scaled, pole)
    words = "seen from the cluster, or from the hilltop opposite" if sphere else "off the circle; dot: the cluster"
    what = rf"slow modes $\sqrt{{\rho}}\,f$ of $-H\Delta_\rho$, $\varepsilon = {theory['epsilon']:g}$"
    figure.suptitle(f"{theory['case']}: {what}\n{words}", fontsize=9)
    return figure


def _on_circle(axes: Axes, points: NDArray[np.float64], mode: NDArray[np.float64], pole: NDArray[np.float64]) -> None:
    order = np.argsort(np.arctan2(points[:, 1], points[:, 0]))
    order = np.roll(order, -int(np.argmin(np.abs(mode[order]))))  # the seam of the polygon is not to be seen
    ring = np.concatenate([order, order[:1]])
    x, value = points[ring], mode[ring]
    curve = x * (1.0 + _LIFT * value)[:, None]
    axes.plot(*x.T, color="0.6", lw=0.8)
    axes.fill(
        np.concatenate([curve[:, 0], x[::-1, 0]]), np.concatenate([curve[:, 1], x[::-1, 1]]), color=BLUE, alpha=0.2
    )
    axes.plot(*curve.T, color=BLUE, lw=1.2)
    axes.plot(*pole, "o", color=ORANGE, ms=5)
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.set_xlim(-1.5, 1.5)
    axes.set_ylim(-1.5, 1.5)


def _on_sphere(
    axes: Any,
    points: NDArray[np.float64],
    cells: NDArray[np.int64],
    mode: NDArray[np.float64],
    towards: NDArray[np.float64],
) -> None:
    colours = mpl.colormaps["RdBu_r"](0.5 * (1.0 + mode[cells].mean(axis=1)))
    surface = Poly3DCollection(points[cells], facecolors=colours, edgecolors=colours, linewidths=0.2)
    axes.add_collection3d(surface)
    axes.set_xlim(-0.72, 0.72)
    axes.set_ylim(-0.72, 0.72)
    axes.set_zlim(-0.72, 0.72)
    axes.set_box_aspect((1, 1, 1))
    axes.set_axis_off()
    azimuth = np.degrees(np.arctan2(towards[1], towards[0]))
    axes.view_init(elev=float(np.degrees(np.arcsin(np.clip(towards[2], -1, 1)))) + 10.0, azim=float(azimuth) + 10.0)


def barrier_figure(theory: dict[str, Any]) -> Figure:
    """The energy above the cluster's along both paths of least energy, with their saddles and closed forms."""
    figure = Figure(figsize=(6.0, 3.4), layout="constrained")
    axes = figure.subplots()
    quantities = theory["quantities"]
    minimum = quantities["minimum_energy"]["value"]
    for name, path in theory["barrier"]["paths"].items():
        colour = _COLOURS[name]
        axes.plot(path["s"], np.array(path["energy"]) - minimum, ".-", ms=4, color=colour,
                  label=f"{_WORDS[name]}: saddle {path['height']:.4f}, index {path['index']}")  # fmt: skip
        axes.axhline(path["height"], color=colour, lw=0.7)
        closed = quantities[f"barrier_{name}"]["closed_form"]
        if closed is not None:
            axes.axhline(closed, color=colour, ls=":", lw=1.2)
    axes.axhline(np.nan, color="0.4", ls=":", label=r"closed form, $\varepsilon \to 0$")
    axes.axhline(0.0, color=GREEN, lw=0.8)
    axes.set_xlabel("arc length in moments, from the cluster at $e_1$ to that at $-e_1$")
    axes.set_ylabel(r"energy $\mathcal{E} - E_{\min}$")
    figure.legend(loc="outside lower center", ncols=2)
    axes.set_title(
        f"{theory['case']}: $\\Delta_0 = {theory['barrier']['height']:.4f}$, $\\varepsilon = {theory['epsilon']:g}$",
        fontsize=9,
    )
    return figure
