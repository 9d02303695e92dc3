"""The two results folders that are compared, read and found to be of the same case."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from postprocess.load import Run, RunError, load_run, missing_file

__all__ = ["ParticleRun", "case_differences", "load_pair", "load_particles"]

FloatArray = NDArray[np.float64]

# What defines the problem. Mesh, depth grid, optimiser and the rest are the discretisation's own business.
_SECTIONS = ("attention", "noise", "ffn", "initial", "objective", "auxiliary")
_KEYS = (("geometry", "manifold"), ("geometry", "dimension"), ("depth", "T"))
_NUMERICAL = {("attention", "tolerance")}
_ARRAYS = ("t", "W", "depths", "positions", "mean", "angle", "interaction_energy", "dispersion")
_COLUMNS = {"interaction_energy", "resultant", "angle", "dispersion", "mean_1", "mean_2"}


@dataclass(frozen=True)
class ParticleRun:
    """A finished run of N tokens for several seeds.

    Attributes:
        directory: Its folder.
        summary: Content of summary.json.
        t: Depth grid, (steps + 1,).
        W: Controls, (seeds, steps, d, m).
        depths: Depths at which positions were saved, (frames,).
        positions: Unit vectors, (seeds, frames, N, d).
        mean: (seeds, steps + 1, d).
        angle: Of the mean, unwrapped, (seeds, steps + 1), rad.
        interaction_energy: (seeds, steps + 1).
        dispersion: Root mean square angle to the mean, (seeds, steps + 1), rad.
        labels: Of the tokens, (N,); None in folders of earlier versions.
    """

    directory: Path
    summary: dict[str, Any]
    t: FloatArray
    W: FloatArray
    depths: FloatArray
    positions: FloatArray
    mean: FloatArray
    angle: FloatArray
    interaction_energy: FloatArray
    dispersion: FloatArray
    labels: FloatArray | None = None


def load_pair(directory: Path, particle_directory: Path) -> tuple[Run, ParticleRun]:
    """Both runs, once their cases are found to be the same.

    Raises:
        RunError: A folder is not what it should be, or the cases differ; the message names every key and both values.
    """
    for folder, wanted in ((directory, False), (particle_directory, True)):
        if (_summary(folder).get("kind") == "particles") != wanted:
            kinds = ("a run of the PDE", "a run of particles")
            raise RunError(
                f"{folder}: {kinds[not wanted]}, where {kinds[wanted]} is needed (RUN first, PARTICLE_RUN second)"
            )
    different = case_differences(_case(directory), _case(particle_directory))
    if different:
        lines = [f"  {key}: {one} in {directory}, {other} in {particle_directory}" for key, one, other in different]
        raise RunError("\n".join(["these are not runs of the same case:", *lines]))
    run = load_run(directory)
    missing = _COLUMNS - set(run.trajectory)
    if missing:
        raise RunError(f"{directory / 'trajectory.csv'}: column {min(missing)} is missing")
    return run, load_particles(particle_directory)


def case_differences(one: dict[str, Any], other: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Keys that define the problem and differ between two resolved cases: key, value here, value there."""
    keys = [(name, key) for name in _SECTIONS for key in {**one.get(name, {}), **other.get(name, {})}]
    found = []
    for section, key in [*_KEYS, *keys]:
        values = [case.get(section, {}).get(key) for case in (one, other)]
        if values[0] != values[1] and (section, key) not in _NUMERICAL:
            one_value, other_value = ("not set" if value is None else repr(value) for value in values)
            found.append((f"{section}.{key}", one_value, other_value))
    return found


def load_particles(directory: Path) -> ParticleRun:
    """Read a results folder of `solver.particles`.

    Raises:
        RunError: A file is missing or damaged; the message names it.
    """
    summary = _summary(directory)
    path = directory / "particles.npz"
    try:
        with np.load(path, allow_pickle=False) as data:
            arrays = {name: np.asarray(data[name], float) for name in _ARRAYS}
            if "labels" in data:
                arrays["labels"] = np.asarray(data["labels"], float)
        seeds, frames = arrays["positions"].shape[:2]
        if frames != len(arrays["depths"]) or seeds != len(summary["seeds"]) or seeds != len(arrays["angle"]):
            raise ValueError("its arrays, or its seeds and those of summary.json, do not fit together")
    except FileNotFoundError:
        raise RunError(missing_file(directory, "particles.npz")) from None
    except Exception as error:  # zipfile and numpy each have their own
        raise RunError(f"{path}: damaged ({error})") from None
    return ParticleRun(directory, summary, **arrays)


def _summary(directory: Path) -> dict[str, Any]:
    summary = _read(directory, "summary.json", json.loads)
    if not isinstance(summary, dict):
        raise RunError(f"{directory / 'summary.json'}: damaged (no table)")
    return summary


def _case(directory: Path) -> dict[str, Any]:
    case: dict[str, Any] = _read(directory, "case.toml", tomllib.loads)
    return case


def _read(directory: Path, name: str, parse: Any) -> Any:
    if not directory.is_dir():
        raise RunError(f"{directory}: there is no such folder")
    try:
        return parse((directory / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(missing_file(directory, name)) from None
    except ValueError as error:  # of json, tomllib and of decoding
        raise RunError(f"{directory / name}: damaged ({error})") from None
