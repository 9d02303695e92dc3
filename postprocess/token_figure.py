"""Tokens on the circle or the sphere, coloured by their label, with the nearest maximiser of their kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from postprocess.labelled import TokenState

__all__ = ["draw_tokens", "tokens_figure"]

_SEEDS = 3
_ROUND_OFF = 1e-9


def tokens_figure(directory: Path, columns: dict[str, Any], manifold_dimension: int) -> Figure | None:
    """The tokens of up to three seeds at T; below them resultant and clusters, and the gap to the maximum, along depth.

    None where the manifold cannot be drawn.
    """
    if manifold_dimension not in {2, 3}:
        return None
    state = TokenState(directory)
    seeds = min(_SEEDS, len(state.arrays["positions"]))
    figure = Figure(figsize=(7.4, 5.0), layout="constrained")
    panels: Any = figure.subfigures(2, 1, height_ratios=[1.5, 1.0])
    top, bottom = panels
    for seed in range(seeds):
        projection = "3d" if manifold_dimension == 3 else None
        draw_tokens(top.add_subplot(1, seeds, seed + 1, projection=projection), state, seed)
    left, right = bottom.subplots(1, 2)
    t = columns["t"]
    left.plot(t, columns["resultant"], label="resultant")
    left.set(xlabel="depth $t$", ylim=(-0.02, 1.02), ylabel="resultant")
    clusters = left.twinx()
    clusters.plot(t, columns["clusters"], color="0.6")
    clusters.set_ylabel("clusters (grey)")
    clusters.grid(visible=False)
    gap = columns.get("interaction_gap")
    if gap is not None and gap.min() > -_ROUND_OFF:
        right.plot(t, np.maximum(gap, 1e-16))
        right.set(yscale="log", ylabel="gap to the maximum")
    else:
        right.plot(t, columns["interaction_energy"])
        right.set_ylabel("interaction energy")
    right.set_xlabel("depth $t$")
    return figure


def draw_tokens(axes: Any, state: TokenState, seed: int) -> None:
    """Draw the tokens of one seed at T; in three dimensions into axes with that projection."""
    x, labels = state.tokens(seed), state.labels
    order = np.argsort(labels, kind="stable")
    maximisers = state.maximisers
    colours = {"c": labels, "cmap": "hsv", "vmin": min(0.0, float(labels.min())), "vmax": max(1.0, float(labels.max()))}
    if x.shape[1] == 3:
        azimuth, height = np.meshgrid(np.linspace(0.0, 2.0 * np.pi, 37), np.linspace(-0.5 * np.pi, 0.5 * np.pi, 19))
        ball = (np.cos(height) * np.cos(azimuth), np.cos(height) * np.sin(azimuth), np.sin(height))
        axes.plot_wireframe(*ball, color="0.85", lw=0.4, rstride=2, cstride=3)
        axes.scatter(*x.T, s=12, depthshade=False, **colours)
        axes.set(xlim=(-0.8, 0.8), ylim=(-0.8, 0.8), zlim=(-0.8, 0.8))
        axes.view_init(elev=22.0, azim=-50.0)
        axes.set_box_aspect((1, 1, 1))
    else:
        angle = np.linspace(0.0, 2.0 * np.pi, 200)
        axes.plot(np.cos(angle), np.sin(angle), color="0.85", lw=0.6)
        axes.scatter(*x.T, s=12, **colours)
        axes.set_aspect("equal")
    if maximisers is not None:
        curve = maximisers.nearest(x)[order]
        axes.plot(*np.vstack([curve, curve[:1]]).T, color="0.2", lw=0.9)
    axes.set_axis_off()
