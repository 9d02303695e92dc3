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

__all__ = ["PARTIAL_LOG", "claim_folder", "write_results"]

PARTIAL_LOG = "run.log.partial"  # until the results are written; then run.log

_OWN_FILES = {
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
}


def claim_folder(comm: MPI.Comm, directory: Path, overwrite: bool) -> None:
    """Make sure that results can be written there, without touching what it holds. Collective.

    Raises:
        CaseError: It holds results and `overwrite` is not set, holds something else, or cannot be written.
    """

    def claim() -> None:
        try:
            _refuse_to_overwrite(directory, overwrite)
            directory.mkdir(parents=True, exist_ok=True)
            (directory / PARTIAL_LOG).write_text("", encoding="utf-8")
        except (OSError, ValueError) as error:
            if isinstance(error, CaseError):
                raise
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise CaseError([f"output.directory: {str(directory)!r} cannot be written: {why}"]) from None

    on_root(comm, claim)


def _refuse_to_overwrite(directory: Path, overwrite: bool) -> None:
    if directory.exists() and not directory.is_dir():
        raise CaseError([f"output.directory: {directory} is a file; name a folder"])
    found = {entry.name for entry in directory.iterdir()} if directory.exists() else set()
    found.discard(PARTIAL_LOG)
    if found and not overwrite:
        raise CaseError(
            [f"output.directory: {directory} is not empty; use another (-o DIR) or replace its results (--overwrite)"]
        )
    if found and "summary.json" not in found:
        stranger = min(found - _OWN_FILES, default=min(found))
        raise CaseError([f"output.directory: {directory} holds {stranger}, but no finished run; use another folder"])


def _clear(directory: Path) -> None:
    """Remove the results of an earlier run: what this program wrote and nothing else."""
    for name in _OWN_FILES - {"figures", "density"}:
        entry = directory / name
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)
    for entry in directory.glob("density/density_*.vtu"):
        entry.unlink()


def write_results(result: Result, directory: Path, case: Case) -> None:
    """Replace the folder's results by these: numbers first, fields last; not the figures. Collective.

    Raises:
        OSError: On every rank: a file could not be written. Whatever was written before stays.
    """
    comm = result.problem.comm
    on_root(comm, lambda: _write_numbers(result, directory, case))
    frames = frame_indices(len(result.problem.dt), case.output.frames)
    for kind in dict.fromkeys(case.output.formats):
        name, writer = WRITERS[kind]
        try:
            writer(result.problem.space, directory / name, _frames(result, frames, name))
        except (OSError, RuntimeError, ImportError) as error:
            raise OSError(f"{directory / name} could not be written: {error}; the other results are there") from error
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


def _write_numbers(result: Result, directory: Path, case: Case) -> None:
    _clear(directory)
    (directory / "case.toml").write_text(dump_case(case), encoding="utf-8")
    write_control(directory / "control.npz", result.trajectory.t, result.W)
    _write_csv(directory / "history.csv", list(HistoryRow.__dataclass_fields__), (asdict(r) for r in result.history))
    columns = trajectory_columns(result)
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    _write_csv(directory / "trajectory.csv", list(columns), rows)
    _write_json(directory / "summary.json", result.summary)
    (directory / PARTIAL_LOG).replace(directory / "run.log")


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
        **result.trajectory.readings,
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
