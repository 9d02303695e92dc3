"""A results folder as arrays, for notebooks and figures."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Run", "RunError", "load_labels", "load_run", "missing_file"]


class RunError(ValueError):
    """A folder that holds no complete run, with what is missing or damaged."""


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        directory: Its folder.
        summary: Content of summary.json.
        trajectory: Columns of trajectory.csv by name, (steps + 1,) each; depth and rates in units of depth, angles rad.
        history: Columns of history.csv by name.
        t: Depth grid, (steps + 1,).
        W: Control, (steps, d, m).
    """

    directory: Path
    summary: dict[str, Any]
    trajectory: dict[str, NDArray[np.float64]]
    history: dict[str, NDArray[np.float64]]
    t: NDArray[np.float64]
    W: NDArray[np.float64]


def load_run(directory: str | Path) -> Run:
    """Read a results folder.

    Raises:
        RunError: A file is missing or damaged; the message names it.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise RunError(f"{folder}: there is no such folder")
    current = ""
    try:
        current = "summary.json"
        summary = json.loads((folder / current).read_text(encoding="utf-8"))
        current = "trajectory.csv"
        trajectory = _columns(folder / current)
        current = "history.csv"
        history = _columns(folder / current)
        current = "control.npz"
        with np.load(folder / current, allow_pickle=False) as data:
            t, W = np.asarray(data["t"]), np.asarray(data["W"])
    except FileNotFoundError:
        raise RunError(missing_file(folder, current)) from None
    except Exception as error:  # json, csv, zipfile and numpy each have their own
        raise RunError(f"{folder / current}: damaged ({error})") from None
    missing = {"t", "energy_gap", "angle", "control_norm"} - set(trajectory)
    if missing:
        raise RunError(f"{folder / 'trajectory.csv'}: column {min(missing)} is missing")
    return Run(folder, summary, trajectory, history, t, W)


def missing_file(folder: Path, name: str) -> str:
    """What to say where a folder lacks a file of a finished run: the folder of a sweep has them in its members'."""
    if not (folder / "sweep.csv").exists():
        return f"{folder}: no {name} there; is this the folder of a finished run?"
    member = min(folder.glob("*/summary.json"), default=None)
    example = "none is finished yet" if member is None else f"such as {member.parent}"
    return f"{folder}: the folder of a sweep; name that of one of its members, {example}"


def load_labels(directory: str | Path) -> dict[str, NDArray[np.float64]] | None:
    """Content of labels.npz of a results folder (docs/results.md); None where tokens carry no labels.

    Raises:
        RunError: It is damaged.
    """
    path = Path(directory) / "labels.npz"
    try:
        with np.load(path, allow_pickle=False) as data:
            found = {name: np.asarray(data[name], float) for name in data.files}
        if found["mean"].shape[:2] != (len(found["t"]), len(found["labels"])):
            raise ValueError("its arrays do not fit together")
    except FileNotFoundError:
        return None
    except Exception as error:  # zipfile and numpy each have their own
        raise RunError(f"{path}: damaged ({error})") from None
    return found


def _columns(path: Path) -> dict[str, NDArray[np.float64]]:
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
        names = list(reader.fieldnames or ())
    if not names:
        raise ValueError("empty")
    return {name: np.array([float(row[name]) for row in rows]) for name in names}
