"""The results folder (design, section 8)."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from mpi4py import MPI

import numpy as np

from solver.case import Case, CaseError, dump_case
from solver.control import write_control
from solver.fields import WRITERS, Frame, field_names, frame_indices
from solver.log import LOG, Progress
from solver.parallel import on_root
from solver.training import HistoryRow, Result
from solver.types import Json

__all__ = ["prepare_folder", "write_results"]

_OWN_FILES = (
    "case.toml",
    "run.log",
    "summary.json",
    "trajectory.csv",
    "history.csv",
    "control.npz",
    "density.pvd",
    "density.bp",
    "density",
    "figures",
)


def prepare_folder(comm: MPI.Comm, directory: Path, case: Case, overwrite: bool) -> None:
    """Create the folder and write case.toml into it. Collective.

    Raises:
        CaseError: It holds results and `overwrite` is not set, holds something else, or cannot be written.
    """

    def prepare() -> None:
        try:
            _claim(directory, overwrite)
            (directory / "case.toml").write_text(dump_case(case), encoding="utf-8")
        except OSError as error:
            raise CaseError([f"output.directory: {directory} cannot be written: {error.strerror or error}"]) from None

    on_root(comm, prepare)


def _claim(directory: Path, overwrite: bool) -> None:
    if directory.exists() and not directory.is_dir():
        raise CaseError([f"output.directory: {directory} is a file; name a folder"])
    found = sorted(entry.name for entry in directory.iterdir()) if directory.exists() else []
    strangers = [name for name in found if name not in _OWN_FILES]
    if found and not overwrite:
        raise CaseError(
            [f"output.directory: {directory} is not empty; use another (-o DIR) or replace its results (--overwrite)"]
        )
    if found and "case.toml" not in found and strangers:
        raise CaseError([f"output.directory: {directory} holds no results of a run but {strangers[0]}; use another"])
    directory.mkdir(parents=True, exist_ok=True)
    for name in set(found) & set(_OWN_FILES):
        entry = directory / name
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def write_results(result: Result, directory: Path, case: Case) -> None:
    """Everything but the figures: numbers first, fields last. Collective.

    Raises:
        OSError: On every rank, if rank 0 cannot write.
    """
    comm = result.problem.comm
    on_root(comm, lambda: _write_numbers(result, directory))
    frames = frame_indices(len(result.problem.dt), case.output.frames)
    for kind in dict.fromkeys(case.output.formats):
        name, writer = WRITERS[kind]
        writer(result.problem.space, directory / name, _frames(result, frames, name))
    on_root(comm, lambda: _write_json(directory / "summary.json", result.summary))
    LOG.info("results written to %s", directory)


def _frames(result: Result, indices: list[int], what: str) -> Iterator[Frame]:
    names = field_names(len(result.problem.label_weights))
    progress = Progress(f"writing {what}", len(indices))
    for done, n in enumerate(indices, start=1):
        mu, phi = result.trajectory.densities[n], result.phi[n]
        values = {}
        for label, (mu_name, phi_name) in enumerate(names):
            values[mu_name], values[phi_name] = mu[label], phi[label]
        yield float(result.trajectory.t[n]), values
        progress(done)


def _write_numbers(result: Result, directory: Path) -> None:
    write_control(directory / "control.npz", result.trajectory.t, result.W)
    _write_csv(directory / "history.csv", list(HistoryRow.__dataclass_fields__), (asdict(r) for r in result.history))
    columns = trajectory_columns(result)
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    _write_csv(directory / "trajectory.csv", list(columns), rows)


def trajectory_columns(result: Result) -> dict[str, list[float]]:
    """Columns of trajectory.csv, (steps + 1) values each."""
    diagnostics, W = result.trajectory.diagnostics, result.W
    minimum = result.summary["energy"]["minimum"]
    control_norm = np.linalg.norm(W.reshape(len(W), -1), axis=1)
    columns = {
        "t": result.trajectory.t,
        "energy": diagnostics.energy,
        "energy_gap": diagnostics.energy - (np.nan if minimum is None else minimum),
        "interaction_energy": diagnostics.interaction_energy,
        **{f"mean_{k + 1}": column for k, column in enumerate(diagnostics.mean.T)},
        "angle": diagnostics.angle,
        "resultant": diagnostics.resultant,
        "dispersion": diagnostics.dispersion,
        "control_norm": np.append(control_norm, control_norm[-1]),
        "adjoint_norm": result.adjoint_norm,
        "mass": diagnostics.mass,
        "min_density": diagnostics.min_density,
        "max_density": diagnostics.max_density,
    }
    return {name: [float(value) for value in column] for name, column in columns.items()}


def _write_csv(path: Path, names: list[str], rows: Iterator[Json]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows({name: repr(value) if isinstance(value, float) else value for name, value in row.items()}
                         for row in rows)  # fmt: skip


def _write_json(path: Path, content: Json) -> None:
    path.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
