"""Tokens on the sphere, coloured by their label, with the maximiser of their kernel that is nearest to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from postprocess.labelled import TokenState

__all__ = ["draw_tokens"]


def draw_tokens(axes: Any, state: TokenState, seed: int) -> None:
    """Draw the tokens of one seed at T into three-dimensional axes; d = 3 only."""
    x, labels = state.tokens(seed), state.labels
    azimuth, height = np.meshgrid(np.linspace(0.0, 2.0 * np.pi, 37), np.linspace(-0.5 * np.pi, 0.5 * np.pi, 19))
    ball = (np.cos(height) * np.cos(azimuth), np.cos(height) * np.sin(azimuth), np.sin(height))
    axes.plot_wireframe(*ball, color="0.85", lw=0.4, rstride=2, cstride=3)
    order = np.argsort(labels, kind="stable")
    curve = state.maximisers.nearest(x)[order]
    axes.plot(*np.vstack([curve, curve[:1]]).T, color="0.2", lw=0.9)
    axes.scatter(*x.T, c=labels, cmap="hsv", vmin=0.0, vmax=1.0, s=12, depthshade=False)
    axes.set_box_aspect((1, 1, 1))
    axes.set_axis_off()
    axes.set(xlim=(-0.8, 0.8), ylim=(-0.8, 0.8), zlim=(-0.8, 0.8))
    axes.view_init(elev=22.0, azim=-50.0)
