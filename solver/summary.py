"""summary.json: what a run found, in numbers."""

from __future__ import annotations

import importlib.metadata
import math
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpi4py import MPI

import dolfinx
import numpy as np

from solver import __version__
from solver.phases import PLATEAU_VARIATION, Phases, find_phases, terminal_rate
from solver.problem import Evaluation, Problem, Trajectory
from solver.types import FloatArray, Json

__all__ = ["FORMAT_VERSION", "Untrained", "finite", "phase_values", "software", "summarise"]

FORMAT_VERSION = 1
_PACKAGES = ("fenics-dolfinx", "dolfinx-solver-real", "petsc4py", "mpi4py", "numpy", "scipy", "gmsh", "pydantic")
_PHASE_KEYS = (
    "clustered",
    "plateau",
    "escaped",
    "clustered_relative",
    "escaped_relative",
    "initial_width",
    "plateau_width",
    "final_width",
    "plateau_variation",
    "displacement",
)


@dataclass(frozen=True)
class Untrained:
    """The run with W = 0 on one mesh.

    Attributes:
        final: μ_T, (labels, local nodes).
        loss: loss(μ̄_T).
        gradient: Gradient at W = 0, (steps, d, m); None if it was not needed.
        gradient_norm: Its L² norm (nan without it).
    """

    final: FloatArray
    loss: float
    gradient: FloatArray | None
    gradient_norm: float


def summarise(
    problem: Problem,
    trajectory: Trajectory,
    evaluation: Evaluation,
    untrained: Untrained,
    minimum_energy: float | None,
    optimizer: Json,
    seconds: float,
) -> Json:
    """The content of summary.json (design, section 8); undefined values are None.

    Args:
        problem: On the finest mesh.
        trajectory: Under the final control.
        evaluation: J and its parts there.
        untrained: The run with W = 0.
        minimum_energy: E_min; None where the flow descends no energy.
        optimizer: That section, ready.
        seconds: Time since training began.
    """
    diagnostics, t, W = trajectory.diagnostics, trajectory.t, trajectory.W
    phases = find_phases(t, diagnostics.energy, diagnostics.conditional_resultant, diagnostics.angle)
    counts = problem.counts
    rise = float(np.diff(diagnostics.energy).max() / np.abs(diagnostics.energy).max())
    content: Json = {
        "format_version": FORMAT_VERSION,
        "case": problem.case.title,
        "manifold": problem.case.geometry.manifold,
        "ranks": problem.comm.size,
        "dofs": problem.space.nodes,
        "steps": len(problem.dt),
        "objective": {
            "J": evaluation.J,
            "loss": evaluation.loss,
            "regularization": evaluation.regularization,
            "untrained_loss": untrained.loss,
            **{name: float(column[-1]) for name, column in trajectory.readings.items() if name != "loss"},
        },
        "optimizer": optimizer,
        "invariants": {
            "mass_error": float(np.abs(diagnostics.mass - 1.0).max()),
            "min_density": float(diagnostics.min_density.min()),
            "energy_increase": None if W.any() else max(rise, 0.0),
        },
        "energy": {
            "initial": float(diagnostics.energy[0]),
            "minimum": minimum_energy,
            "plateau": None if phases is None else phases.plateau_energy,
            "final": float(diagnostics.energy[-1]),
        },
        "phases": {
            **phase_values(phases, float(t[-1])),
            "terminal_rate": terminal_rate(t, W) if W.any() else None,
            "untrained_gradient_rate": None if untrained.gradient is None else terminal_rate(t, untrained.gradient),
        },
        "timing": {
            "setup": problem.setup_seconds,
            "forward": counts.forward_seconds / max(counts.forward, 1),
            "adjoint": counts.adjoint_seconds / max(counts.adjoint, 1),
            "total": problem.setup_seconds + seconds,
        },
        "software": software(),
    }
    cleaned: Json = finite(content)
    return cleaned


def phase_values(phases: Phases | None, T: float) -> Json:
    """The three phases; all None where there is no energy to tell them by."""
    if phases is None:
        return dict.fromkeys(_PHASE_KEYS)
    start, end = phases.plateau or (None, None)
    values = (
        phases.clustered,
        phases.plateau is not None and phases.plateau_variation <= PLATEAU_VARIATION,
        phases.escaped,
        phases.clustered_relative,
        phases.escaped_relative,
        start,
        None if start is None or end is None else end - start,
        None if end is None else T - end,
        phases.plateau_variation,
        phases.displacement,
    )
    return dict(zip(_PHASE_KEYS, values, strict=True))


def software() -> Json:
    """Versions of what computed the result, and the commit of a checkout."""
    versions: Json = {"turnpike": __version__, "python": platform.python_version(), "commit": _commit()}
    from petsc4py import PETSc
    from slepc4py import SLEPc

    versions["petsc"] = ".".join(map(str, PETSc.Sys.getVersion()))
    versions["slepc"] = ".".join(map(str, SLEPc.Sys.getVersion()))
    versions["dolfinx"] = dolfinx.__version__
    versions["mpi"] = MPI.Get_library_version().splitlines()[0].strip("\x00 ")
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _commit() -> str | None:
    folder = Path(__file__).resolve().parents[1]
    if not (folder / ".git").exists():
        return None
    try:
        run = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout.strip()


def finite(value: Any) -> Any:
    """JSON has no nan: None instead."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
