"""What a run of the PDE leaves in its results folder (docs/results.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np

from solver.case import Case, dump_case
from solver.control import write_control
from solver.fields import WRITERS, Frame, field_names
from solver.log import LOG, Progress
from solver.parallel import on_root
from solver.results import clear_folder, frame_indices, write_columns, write_csv, write_json
from solver.training import HistoryRow, Result
from solver.types import FloatArray

__all__ = ["trajectory_columns", "write_results"]


def write_results(result: Result, directory: Path, case: Case) -> None:
    """Replace the folder's results by these: numbers first, fields last; figures are drawn later. Collective.

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
        values = {} if len(mu) == 1 else {"mu": result.problem.label_weights @ mu}
        for label, (mu_name, phi_name) in enumerate(names):
            values[mu_name], values[phi_name] = mu[label], phi[label]
        yield float(result.trajectory.t[n]), values
        progress(done)


def _write_numbers(result: Result, directory: Path, case: Case) -> None:
    text = dump_case(case)
    clear_folder(directory)
    (directory / "case.toml").write_text(text, encoding="utf-8")
    write_control(directory / "control.npz", result.trajectory.t, result.W)
    write_csv(directory / "history.csv", list(HistoryRow.__dataclass_fields__), (asdict(r) for r in result.history))
    write_columns(directory / "trajectory.csv", trajectory_columns(result))
    conditional = result.problem.conditional_laws(result.trajectory)
    if conditional is not None:
        rows = conditional.rows()
        write_csv(directory / "labels.csv", list(rows[0]), rows)
        with (directory / "labels.npz").open("wb") as file:
            np.savez(file, allow_pickle=False, t=result.trajectory.t, **conditional.arrays())
    write_json(directory / "summary.json", result.summary)


def trajectory_columns(result: Result) -> dict[str, FloatArray]:
    """Columns of trajectory.csv, (steps + 1) values each."""
    diagnostics, W = result.trajectory.diagnostics, result.W
    minimum = result.summary["energy"]["minimum"]
    conditional = result.problem.conditional_laws(result.trajectory)
    control_norm = np.linalg.norm(W.reshape(len(W), -1), axis=1)
    return {
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
        **({} if conditional is None else conditional.columns()),
        **result.trajectory.readings,
    }
