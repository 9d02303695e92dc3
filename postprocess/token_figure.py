"""Tokens on the circle or the sphere, coloured by their label, with the nearest maximiser of their kernel."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray

from postprocess.figures import BLUE
from postprocess.labelled import TokenState

__all__ = ["curve_pieces", "draw_tokens", "tokens_figure"]

FloatArray = NDArray[np.float64]

_SEEDS = 3
_ROUND_OFF = 1e-9
_JUMP = 0.5  # rad: a curve whose neighbours are further apart is interrupted there
_ELEVATION, _AZIMUTH = 22.0, -50.0  # of the eye, degrees
_CYCLE = "hsv"  # labels 0 and 1 are the same for most kernels


def tokens_figure(directory: Path, columns: dict[str, Any], manifold_dimension: int) -> Figure | None:
    """The tokens of up to three seeds at T; below them resultant and clusters, and the gap to the maximum, along depth.

    None where the manifold cannot be drawn.
    """
    if manifold_dimension not in {2, 3}:
        return None
    state = TokenState(directory)
    count = len(state.arrays["positions"])
    figure = Figure(figsize=(7.4, 5.4), layout="constrained")
    panels: Any = figure.subfigures(2, 1, height_ratios=[1.5, 1.0])
    top, bottom = panels
    axes = []
    for k in range(min(_SEEDS, count)):
        projection = "3d" if manifold_dimension == 3 else None
        axes.append(top.add_subplot(1, min(_SEEDS, count), k + 1, projection=projection))
        draw_tokens(axes[-1], state, k)
        axes[-1].set_title(f"seed {state.arrays['seeds'][k]}, $t$ = {columns['t'][-1]:g}", fontsize=9)
    words = [f"{state.case.title}: tokens of single seeds"]
    if np.ptp(state.labels) > 0.0:
        colours = ScalarMappable(_scale(state.labels), _CYCLE)
        top.colorbar(colours, ax=axes, label="label $ξ$ of a token", shrink=0.7, pad=0.02)
    if state.maximisers is not None:
        words.append("black: the nearest maximiser" if state.maximisers.exact else "black: the nearest known state")
    if manifold_dimension == 3:
        words.append("pale: the far side")
    top.suptitle("; ".join(words), fontsize=9)
    _draw_depth(bottom, columns, f"along depth: means over {count} seeds" if count > 1 else "along depth")
    return figure


def _draw_depth(panel: Any, columns: dict[str, Any], title: str) -> None:
    """Resultant and clusters, and the gap to the maximum or the energy, along depth."""
    panel.suptitle(title, fontsize=9)
    left, right = panel.subplots(1, 2)
    t = columns["t"]
    left.plot(t, columns["resultant"], label="resultant")
    left.set(xlabel="depth $t$", ylim=(-0.02, 1.02), ylabel="resultant")
    clusters = left.twinx()
    clusters.plot(t, columns["clusters"], color="0.6")
    clusters.set_ylabel("clusters (grey)")
    clusters.set_ylim(0.0, 1.05 * max(1.0, float(columns["clusters"].max())))
    clusters.grid(visible=False)
    gap = columns.get("interaction_gap")
    if gap is not None and gap.min() > -_ROUND_OFF:
        right.plot(t, np.maximum(gap, 1e-16))
        right.set(yscale="log", ylabel="gap to the maximum")
    else:
        right.plot(t, columns["interaction_energy"])
        right.set_ylabel("interaction energy")
    right.set_xlabel("depth $t$")


def draw_tokens(axes: Any, state: TokenState, seed: int) -> None:
    """Draw the tokens of one seed at T; in three dimensions into axes with that projection."""
    x, labels = state.tokens(seed), state.labels
    maximisers = state.maximisers
    curve = None if maximisers is None else maximisers.nearest(x)[np.argsort(labels, kind="stable")]
    if x.shape[1] == 3:
        azimuth, height = np.meshgrid(np.linspace(0.0, 2.0 * np.pi, 37), np.linspace(-0.5 * np.pi, 0.5 * np.pi, 19))
        ball = (np.cos(height) * np.cos(azimuth), np.cos(height) * np.sin(azimuth), np.sin(height))
        axes.computed_zorder = False
        axes.plot_wireframe(*ball, color="0.85", lw=0.4, rstride=2, cstride=3, zorder=1)
        axes.set(xlim=(-0.8, 0.8), ylim=(-0.8, 0.8), zlim=(-0.8, 0.8))
        axes.view_init(elev=_ELEVATION, azim=_AZIMUTH)
        axes.set_box_aspect((1, 1, 1))
    else:
        angle = np.linspace(0.0, 2.0 * np.pi, 200)
        axes.plot(np.cos(angle), np.sin(angle), color="0.85", lw=0.6)
        axes.set_aspect("equal")
    near, colours = _faces_eye(x), _colours(labels)
    flat = {"depthshade": False} if x.shape[1] == 3 else {}
    for mine, strength, zorder in ((~near, 0.3, 3), (near, 1.0, 5)):
        axes.scatter(*x[mine].T, s=12, lw=0, c=1.0 - strength * (1.0 - colours[mine]), zorder=zorder, **flat)
    for piece in () if curve is None else curve_pieces(curve):
        _draw_piece(axes, piece)
    axes.set_axis_off()


def curve_pieces(points: FloatArray) -> list[FloatArray]:
    """A closed curve through unit vectors (n, d) in their order, cut where neighbours are more than 0.5 rad apart.

    One piece that ends where it starts if there is no such place; pieces of one place have one point.
    """
    chords = np.linalg.norm(points - np.roll(points, -1, axis=0), axis=1)
    cuts = np.flatnonzero(chords > 2.0 * math.sin(0.5 * _JUMP)) + 1
    if len(cuts):
        pieces = np.split(np.roll(points, -cuts[0], axis=0), cuts[1:] - cuts[0])
    else:
        pieces = [np.vstack([points, points[:1]])]
    return [piece[:1] if np.abs(piece - piece[0]).max() < 1e-6 else piece for piece in pieces]


def _draw_piece(axes: Any, piece: FloatArray) -> None:
    """A line, or a ring around one place; in three dimensions paler on the far side."""
    if len(piece) == 1:
        near = bool(_faces_eye(piece)[0])
        axes.plot(*piece.T, "o", ms=7, mfc="none", mew=0.9, color="0.2" if near else "0.75", zorder=6 if near else 3)
        return
    sides = _faces_eye(piece)
    for side, colour, zorder in ((False, "0.75", 2), (True, "0.2", 4)):
        axes.plot(*np.where((sides == side)[:, None], piece, np.nan).T, color=colour, lw=0.9, zorder=zorder)


def _faces_eye(x: FloatArray) -> NDArray[np.bool_]:
    """Which of some unit vectors (n, d) lie on the near side of the sphere; on the circle all, (n,)."""
    if x.shape[1] != 3:
        return np.full(len(x), True)
    height, azimuth = math.radians(_ELEVATION), math.radians(_AZIMUTH)
    eye = np.array([math.cos(height) * math.cos(azimuth), math.cos(height) * math.sin(azimuth), math.sin(height)])
    faces: NDArray[np.bool_] = x @ eye >= 0.0
    return faces


def _scale(labels: FloatArray) -> Normalize:
    return Normalize(min(0.0, float(labels.min())), max(1.0, float(labels.max())))


def _colours(labels: FloatArray) -> FloatArray:
    """Red, green and blue of tokens, by label where these differ, (N, 3)."""
    if np.ptp(labels) == 0.0:
        return np.tile(to_rgb(BLUE), (len(labels), 1))
    colours: FloatArray = np.asarray(colormaps[_CYCLE](_scale(labels)(labels)))[:, :3]
    return colours
