"""summary.json: what a run found, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.phases import find_phases, phase_values, terminal_rate
from solver.problem import Evaluation, Problem, Trajectory
from solver.results import FORMAT_VERSION, finite
from solver.software import software
from solver.types import FloatArray, Json

__all__ = ["Untrained", "summarise"]


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
    """The content of summary.json (docs/results.md); undefined values are None.

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
    conditional = problem.conditional_laws(trajectory)
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
        "auxiliary": None if conditional is None else conditional.summary(problem.case.auxiliary.kernel),
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
