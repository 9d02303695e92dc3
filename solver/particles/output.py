"""What a particle run leaves in its results folder: like a run of the PDE, with a row and a column for the seeds."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from solver.case import Case, dump_case
from solver.control import write_control
from solver.log import LOG
from solver.particles.ensemble import Ensemble, SeedResult
from solver.particles.training import SeedRow
from solver.phases import find_phases, phase_values, terminal_rate
from solver.results import (
    FORMAT_VERSION,
    clear_folder,
    finite,
    write_collection,
    write_columns,
    write_csv,
    write_json,
)
from solver.software import software
from solver.types import FloatArray, Json

__all__ = ["ensemble_summary", "seed_rows", "write_ensemble"]

_PHASES = (
    "initial_width",
    "plateau_width",
    "final_width",
    "plateau_variation",
    "displacement",
    "terminal_rate",
)
_MEASURED = (
    "J",
    "loss",
    "regularization",
    "untrained_loss",
    "interaction_energy",
    "resultant",
    "dispersion",
    *_PHASES,
)
_TRAINED = ("J", "loss", "displacement", "initial_width", "plateau_width", "final_width", "terminal_rate")
_UNTRAINED = ("interaction_energy", "interaction_gap", "maximiser_angle_max", "resultant", "dispersion", "clusters")
_VERDICTS = ("clustered", "plateau", "escaped", "converged")
_WORDS = {True: "yes", False: "no", None: "–"}
_ROWS = 40  # seeds in the table


def write_ensemble(ensemble: Ensemble | None, directory: Path, case: Case) -> None:
    """Replace the folder's results by these. On one rank."""
    if ensemble is None:
        return
    text, rows = dump_case(case), seed_rows(ensemble)
    clear_folder(directory)
    (directory / "case.toml").write_text(text, encoding="utf-8")
    write_csv(directory / "seeds.csv", list(rows[0]), rows)
    write_csv(directory / "history.csv", list(SeedRow.__dataclass_fields__), map(asdict, ensemble.history))
    write_columns(directory / "trajectory.csv", _mean_columns(ensemble))
    write_control(directory / "control.npz", ensemble.t, ensemble.seeds[0].W)
    found = ensemble.diagnostics
    arrays: dict[str, Any] = dict(
        seeds=[result.seed for result in ensemble.seeds],
        t=ensemble.t,
        labels=ensemble.labels,
        W=np.stack([result.W for result in ensemble.seeds]),
        depths=ensemble.t[ensemble.frames],
        positions=found.frames,
        mean=found.mean,
        angle=found.angle,
        interaction_energy=found.interaction_energy,
        dispersion=found.dispersion,
        **found.readings,
    )
    np.savez(directory / "particles.npz", **arrays)
    write_json(directory / "summary.json", ensemble_summary(ensemble, case, rows))
    if "vtk" in case.output.formats:
        _write_points(directory, ensemble)
    for line in _closing_lines(rows):
        LOG.info("%s", line)
    LOG.info("results written to %s", directory)


def seed_rows(ensemble: Ensemble) -> list[Json]:
    """One table row for each seed: what was reached, and the phases read off minus the interaction energy."""
    return [_seed_row(ensemble, k, result) for k, result in enumerate(ensemble.seeds)]


def _seed_row(ensemble: Ensemble, k: int, result: SeedResult) -> Json:
    found, t = ensemble.diagnostics, ensemble.t
    energy = -found.interaction_energy[k]
    resultant = found.readings.get("conditional_resultant", found.resultant)[k]
    phases = find_phases(t, energy, resultant, found.angle[k])
    row: Json = {
        "seed": result.seed,
        "J": result.J,
        "loss": result.loss,
        "regularization": result.regularization,
        "untrained_loss": result.untrained_loss,
        "converged": result.converged,
        "iterations": result.iterations,
        "evaluations": result.evaluations,
        "gradient_norm": result.gradient_norm,
        "gradient_norm_initial": result.gradient_norm_initial,
        "interaction_energy": float(found.interaction_energy[k, -1]),
        "resultant": float(found.resultant[k, -1]),
        "dispersion": float(found.dispersion[k, -1]),
        **{name: float(values[k, -1]) for name, values in found.readings.items() if name != "loss"},
        **phase_values(phases, float(t[-1])),
        "terminal_rate": terminal_rate(t, result.W) if result.W.any() else None,
    }
    cleaned: Json = finite(row)
    return cleaned


def ensemble_summary(ensemble: Ensemble, case: Case, rows: list[Json]) -> Json:
    """The content of summary.json: `seeds` holds every seed's row, `statistics` means and standard deviations."""
    names = [*_MEASURED, *(name for name in ensemble.diagnostics.readings if name != "loss")]
    statistics = {name: _statistics([row[name] for row in rows]) for name in names}
    return {
        "format_version": FORMAT_VERSION,
        "kind": "particles",
        "case": case.title,
        "manifold": case.geometry.manifold,
        "ranks": ensemble.ranks,
        "n": case.particles.n,
        "steps": len(ensemble.t) - 1,
        "auxiliary": _labels_summary(ensemble, case),
        "objective": {key: statistics[key]["mean"] for key in ("J", "loss", "regularization", "untrained_loss")},
        "optimizer": {
            "method": case.optimizer.method,
            "iterations": sum(row["iterations"] for row in rows),
            "converged": None if rows[0]["converged"] is None else ensemble.converged,
            "evaluations": sum(row["evaluations"] for row in rows),
        },
        "phases": {
            **{key: rows[0][key] for key in ("clustered", "plateau", "escaped")},
            **{key: statistics[key]["mean"] for key in _PHASES},
        },
        "counts": {key: sum(row[key] is True for row in rows) for key in _VERDICTS},
        "statistics": statistics,
        "seeds": rows,
        "timing": {"total": ensemble.seconds},
        "software": software(),
    }  # fmt: skip


def _labels_summary(ensemble: Ensemble, case: Case) -> Json:
    """The label kernel, and what is known of its maximisers (null where nothing is)."""
    known = ensemble.maximisers
    return {
        "kernel": case.auxiliary.kernel,
        "labels": len(np.unique(ensemble.labels)),
        "maximum": None if known is None else known.energy,
        "exact": None if known is None else known.exact,
        "symmetry": None if known is None else known.symmetry,
    }


def _statistics(values: list[float | None]) -> Json:
    """Mean, standard deviation (n − 1) and number of the values that are defined."""
    defined = [value for value in values if value is not None]
    mean = float(np.mean(defined)) if defined else None
    return {"mean": mean, "sd": float(np.std(defined, ddof=1)) if len(defined) > 1 else None, "count": len(defined)}


def _mean_columns(ensemble: Ensemble) -> dict[str, FloatArray]:
    """Columns of trajectory.csv: means over the seeds; an empirical measure has no free energy (nan)."""
    found = ensemble.diagnostics
    W = np.stack([result.W for result in ensemble.seeds])
    norm = np.sqrt((W**2).sum(axis=(2, 3))).mean(axis=0)
    undefined = np.full(len(ensemble.t), np.nan)
    return {
        "t": ensemble.t,
        "energy": undefined,
        "energy_gap": undefined,
        "interaction_energy": found.interaction_energy.mean(axis=0),
        **{f"mean_{k + 1}": column for k, column in enumerate(found.mean.mean(axis=0).T)},
        "angle": found.angle.mean(axis=0),
        "resultant": found.resultant.mean(axis=0),
        "dispersion": found.dispersion.mean(axis=0),
        "control_norm": np.append(norm, norm[-1]),
        **{name: values.mean(axis=0) for name, values in found.readings.items()},
    }


def _write_points(directory: Path, ensemble: Ensemble) -> None:
    """particles.pvd: every saved depth as a cloud of points, with the seed and label of each; d ≤ 3 only."""
    import pyvista

    frames = ensemble.diagnostics.frames  # (seeds, frames, N, d)
    count, dimension = frames.shape[2:]
    if dimension > 3:
        LOG.info("no particles.pvd: ParaView draws at most three dimensions")
        return
    folder = directory / "particles"
    folder.mkdir(exist_ok=True)
    seeds = np.repeat([result.seed for result in ensemble.seeds], count)
    labels = np.tile(ensemble.labels, len(ensemble.seeds))
    entries = []
    for number, n in enumerate(ensemble.frames):
        points = np.zeros((len(seeds), 3))
        points[:, :dimension] = frames[:, number].reshape(-1, dimension)
        cloud = pyvista.PolyData(points)
        cloud.point_data["seed"] = seeds
        cloud.point_data["label"] = labels
        name = f"particles/particles_{number:04d}.vtp"
        cloud.save(directory / name)
        entries.append((float(ensemble.t[n]), name))
    write_collection(directory / "particles.pvd", entries)


def _closing_lines(rows: list[Json]) -> list[str]:
    """The table of seeds, and means ± standard deviations; without a control what attention made of the tokens."""
    trained = any(row["regularization"] for row in rows) or rows[0]["converged"] is not None
    shown = _TRAINED if trained else tuple(name for name in _UNTRAINED if name in rows[0])
    verdicts = _VERDICTS if trained else ()
    lines = [" seed  " + "  ".join([*(f"{name:>19}" for name in shown), *verdicts])]
    for row in rows[:_ROWS]:
        words = [f"{_WORDS[row[name]]:>{len(name)}}" for name in verdicts]
        lines.append(f"{row['seed']:5d}  " + "  ".join([*(f"{_number(row[name]):>19}" for name in shown), *words]))
    for key in ("mean", "sd"):
        numbers = "  ".join(f"{_number(_statistics([row[name] for row in rows])[key]):>19}" for name in shown)
        lines.append(f"{key:>5}  {numbers}")
    return lines


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.6g}"
