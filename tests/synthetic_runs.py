"""Runs made of formulas, for what is read off trajectories."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from postprocess.load import Run

E_MIN = -1.3


def synthetic_run(name: str, t: np.ndarray, gap: np.ndarray, control_norm: np.ndarray | float = 0.0) -> Run:
    """A run with this gap (steps + 1,) and these ‖W_n‖ (steps,)."""
    norm = np.broadcast_to(control_norm, len(t) - 1)
    trajectory = {"t": t, "energy": E_MIN + gap, "energy_gap": gap, "control_norm": np.append(norm, norm[-1])}
    return Run(Path(name), {}, trajectory, {}, t, norm[:, None, None] * np.ones((1, 2, 2)) / 2)
