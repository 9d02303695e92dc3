"""Controls: functions of depth alone, unchanged from mesh to mesh and averaged from depth grid to depth grid."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from solver.case.load import CaseError
from solver.log import LOG
from solver.types import FloatArray

__all__ = ["control_on_grid", "read_control", "same_grid", "transfer", "write_control"]


def write_control(path: Path, t: FloatArray, W: FloatArray) -> None:
    """control.npz: `t` (steps + 1,), `W` (steps, d, m). The same arrays give the same bytes."""
    np.savez(path, t=t, W=W)


def read_control(path: Path, key: str = "optimizer.start") -> tuple[FloatArray, FloatArray]:
    """t and W of a control.npz.

    Args:
        path: The file.
        key: What named it, for messages.

    Raises:
        CaseError: Not such a file, or its arrays do not fit together.
    """
    try:
        with np.load(path, allow_pickle=False) as data:
            t, W = (np.asarray(data[name]).astype(np.float64, casting="safe") for name in ("t", "W"))
    except FileNotFoundError:
        raise CaseError([f"{key}: there is no file {path}"]) from None
    except OSError as error:
        raise CaseError([f"{key}: {path} cannot be read: {error.strerror or error}"]) from None
    except Exception:  # zipfile and numpy each have their own, and their own words
        raise CaseError([f"{key}: {path.name} is no control.npz with real arrays t and W"]) from None
    if W.ndim != 3 or not len(W) or t.shape != (len(W) + 1,) or t[0] != 0.0 or not np.all(np.diff(t) > 0):
        wanted = "(steps + 1,), rising from 0, and (steps, d, m)"
        raise CaseError([f"{key}: {path.name}: t {t.shape} and W {W.shape} must be {wanted}"])
    if not np.isfinite(W).all():
        raise CaseError([f"{key}: {path.name}: W is not finite"])
    return t, W


def same_grid(a: FloatArray, b: FloatArray) -> bool:
    """Whether two depth grids are equal to round-off."""
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=0.0, atol=1e-12 * b[-1]))


def control_on_grid(path: Path, grid: FloatArray, shape: tuple[int, ...], key: str = "optimizer.start") -> FloatArray:
    """The control of a file, averaged onto a depth grid where it has another, (steps, d, m).

    Args:
        path: A control.npz.
        grid: Depth grid, (steps + 1,).
        shape: (d, m) of the problem.
        key: What named the file, for messages.

    Raises:
        CaseError: It cannot be read, or has another (d, m) or another depth.
    """
    t, W = read_control(path, key)
    if W.shape[1:] != shape:
        raise CaseError([f"{key}: that control has (d, m) = {W.shape[1:]} a step, this case {shape}"])
    if not same_grid(t, grid):
        LOG.info("control averaged from %d onto %d depth steps", len(W), len(grid) - 1)
    return transfer(t, W, grid, key)


def transfer(t: FloatArray, W: FloatArray, new: FloatArray, key: str = "optimizer.start") -> FloatArray:
    """Mean of a piecewise constant control over each step of another grid of the same depth.

    Args:
        t: Grid of W, (steps + 1,).
        W: (steps, d, m).
        new: Other grid, (new steps + 1,).
        key: What named the control, for messages.

    Raises:
        CaseError: The depths differ.
    """
    if same_grid(t, new):
        return W
    if abs(t[-1] - new[-1]) > 1e-9 * new[-1]:
        raise CaseError([f"{key}: that control reaches depth {t[-1]:g}, this case {new[-1]:g}"])
    flat = W.reshape(len(W), -1)
    integral = np.concatenate([np.zeros((1, flat.shape[1])), np.cumsum(np.diff(t)[:, None] * flat, axis=0)])
    at_new = np.column_stack([np.interp(new, t, column) for column in integral.T])
    return (np.diff(at_new, axis=0) / np.diff(new)[:, None]).reshape(len(new) - 1, *W.shape[1:])
