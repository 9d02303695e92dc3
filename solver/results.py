"""Results folders: claimed early, cleared late, and the files in them (docs/results.md)."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mpi4py import MPI

import numpy as np

from solver.case import CaseError
from solver.parallel import on_root
from solver.types import FloatArray, Json

__all__ = [
    "PARTIAL_LOG",
    "PICTURES",
    "claim_folder",
    "clear_folder",
    "finish_folder",
    "is_finished",
    "refuse_to_overwrite",
    "write_collection",
    "write_columns",
    "write_csv",
    "write_json",
]

FORMAT_VERSION = 1  # of summary.json
PARTIAL_LOG = "run.log.partial"  # until the results are written; then run.log

_OWN_FILES = {
    "case.toml",
    "run.log",
    "summary.json",
    "trajectory.csv",
    "history.csv",
    "control.npz",
    "labels.csv",
    "labels.npz",
    "density.pvd",
    "density.bp",
    "density",
    "particles.npz",
    "particles.pvd",
    "particles",
    "seeds.csv",
    "pruning.json",
    "compare.json",
    "figures",
}
PICTURES = ("phases.png", "tokens.png", "labels.png", "compare.png", "pruning.png")  # drawn from results into figures/

_COMPANIONS = {"theory.json", "theory"}  # of solver.theory, which may share the folder; a run leaves them alone
_SERIES = {"density", "particles"}  # folders of one VTK file per depth, named by the series


def claim_folder(comm: MPI.Comm, directory: Path, overwrite: bool) -> None:
    """Make sure that results can be written there, without touching what it holds. Collective.

    Raises:
        CaseError: It holds results and `overwrite` is not set, holds something else, or cannot be written.
    """

    def claim() -> None:
        try:
            refuse_to_overwrite(directory, overwrite)
            directory.mkdir(parents=True, exist_ok=True)
            (directory / PARTIAL_LOG).write_text("", encoding="utf-8")
        except (OSError, ValueError) as error:
            if isinstance(error, CaseError):
                raise
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise CaseError([f"output.directory: {str(directory)!r} cannot be written: {why}"]) from None

    on_root(comm, claim)


def refuse_to_overwrite(directory: Path, overwrite: bool) -> None:
    """Whether results may be written into a folder; touches nothing.

    Raises:
        CaseError: They may not.
    """
    if directory.exists() and not directory.is_dir():
        raise CaseError([f"output.directory: {directory} is a file; name a folder"])
    found = {entry.name for entry in directory.iterdir()} if directory.exists() else set()
    unfinished = PARTIAL_LOG in found and found <= {
        PARTIAL_LOG,
        *_OWN_FILES,
        *_COMPANIONS,
    }  # a run that died while writing
    found -= {PARTIAL_LOG, *_COMPANIONS}
    if found and not overwrite:
        raise CaseError(
            [f"output.directory: {directory} is not empty; use another (-o DIR) or replace its results (--overwrite)"]
        )
    if found and "summary.json" not in found and not unfinished:
        stranger = min(found - _OWN_FILES, default=min(found))
        raise CaseError([f"output.directory: {directory} holds {stranger}, but no finished run; use another folder"])


def finish_folder(directory: Path) -> None:
    """Everything is written: run.log takes its name. Until then the run counts as unfinished."""
    (directory / PARTIAL_LOG).replace(directory / "run.log")


def is_finished(directory: Path) -> bool:
    """Whether a run has written everything it writes there."""
    return (directory / "summary.json").exists() and not (directory / PARTIAL_LOG).exists()


def clear_folder(directory: Path) -> None:
    """Remove the results of an earlier run: what this program wrote and nothing else."""
    for name in _OWN_FILES - {"figures", *_SERIES}:
        entry = directory / name
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)
    for series in _SERIES:
        for entry in directory.glob(f"{series}/{series}_*.vt?"):
            entry.unlink()
    for picture in PICTURES:
        (directory / "figures" / picture).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not there, or with a user's own files in it
        (directory / "figures").rmdir()


def frame_indices(steps: int, frames: int) -> list[int]:
    """At most `frames` of the depths 0..steps, first and last among them, evenly by step: fine where the grid is."""
    return [int(n) for n in np.unique(np.round(np.linspace(0, steps, min(frames, steps + 1))))]


def write_csv(path: Path, names: list[str], rows: Iterable[Json]) -> None:
    """A table with a header; floats with all their digits."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows({name: repr(value) if isinstance(value, float) else value for name, value in row.items()}
                         for row in rows)  # fmt: skip


def write_columns(path: Path, columns: dict[str, FloatArray]) -> None:
    """A table from columns of equal length."""
    rows = (dict(zip(columns, map(float, row), strict=True)) for row in zip(*columns.values(), strict=True))
    write_csv(path, list(columns), rows)


def write_collection(path: Path, entries: Iterable[tuple[float, str]]) -> None:
    """A .pvd that lists one VTK file per depth."""
    lines = [f'    <DataSet timestep="{depth!r}" part="0" file="{name}"/>' for depth, name in entries]
    head = ['<?xml version="1.0"?>', '<VTKFile type="Collection" version="0.1">', "  <Collection>"]
    text = "\n".join([*head, *lines, "  </Collection>", "</VTKFile>"])
    path.write_text(f"{text}\n", encoding="utf-8")


def write_json(path: Path, content: Json) -> None:
    """Indented; every value must be finite or None. What was there stays until all of it is written.

    Raises:
        OSError: It could not be written; names the file.
    """
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    fresh = path.with_name(f"{path.name}.partial")
    try:
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None


def finite(value: Any) -> Any:
    """JSON has no nan: None instead."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
