"""The loss without a window of the control, against the window's position; drawn from pruning.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from postprocess.figures import BLUE, ORANGE, STYLE

__all__ = ["draw_losses", "draw_pruning"]

_LOSS = "loss at $T$"


def draw_pruning(directory: Path) -> Path:
    """Draw a run's pruning.json into its figures/ folder; returns the path.

    Raises:
        OSError: The file is missing or the picture cannot be written.
    """
    pruning = json.loads((directory / "pruning.json").read_text(encoding="utf-8"))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.4, 3.2), layout="constrained")
        axes = figure.subplots()
        draw_losses(axes, pruning)
        path = directory / "figures" / "pruning.png"
        path.parent.mkdir(exist_ok=True)
        figure.savefig(path)
    return path


def draw_losses(axes: Axes, pruning: dict[str, Any]) -> None:
    """Loss (blue; band: standard deviation over seeds) and what the window held of ∫‖W‖² (orange, right axis)."""
    centre = 0.5 * (np.array(pruning["start"]) + np.array(pruning["end"]))
    loss = np.array(pruning["loss"])
    mean = loss.mean(axis=1)
    axes.plot(centre, mean, color=BLUE, marker=".", label="without the window")
    if loss.shape[1] > 1:
        spread = loss.std(axis=1, ddof=1)
        axes.fill_between(centre, mean - spread, mean + spread, color=BLUE, alpha=0.2, lw=0)
    for name, style in (("trained", "--"), ("untrained", ":")):
        axes.axhline(float(np.mean(pruning[name])), color="0.3", ls=style, lw=1, label=name)
    width = pruning["end"][0] - pruning["start"][0]
    axes.set_xlabel(f"depth of the window's middle (width {width:.3g})")
    axes.set_ylabel(_LOSS)
    share = axes.twinx()
    share.plot(centre, 100 * np.array(pruning["removed"]).mean(axis=1), color=ORANGE, lw=1)
    share.set_ylabel(r"% of $\int\|W\|^2$ in it", color=ORANGE)
    share.set_ylim(0, 105)
    share.grid(visible=False)
    axes.legend(loc="best", framealpha=0.9)
