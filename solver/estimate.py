"""What a case will cost, from its meshes and a few of its steps: what ``solver.run --dry-run`` prints."""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass

from mpi4py import MPI

import numpy as np

from solver.case.schema import Case
from solver.geometry import continuation_cases
from solver.log import format_seconds
from solver.parallel import allreduce
from solver.problem import Problem

__all__ = ["Estimate", "estimate", "lines"]

_SAMPLED_STEPS = 8
_BYTES = 8
_TYPICAL_EVALUATIONS = 25  # to a relative gradient of 1e-3, on one mesh


@dataclass(frozen=True)
class Estimate:
    """Sizes and costs on one mesh.

    Attributes:
        h: Longest edge, rad.
        nodes: Of the mesh.
        labels: Number of densities.
        steps: In depth.
        control_shape: (steps, d, m).
        rank: Terms of the attention's expansion.
        expansion_error: Measured, relative.
        evaluation: Seconds of one forward and one adjoint sweep, from a few steps of each.
        memory: Bytes at the end of a run, all ranks together: what is in use now, and the states along depth.
    """

    h: float
    nodes: int
    labels: int
    steps: int
    control_shape: tuple[int, int, int]
    rank: int
    expansion_error: float
    evaluation: float
    memory: float


def estimate(case: Case, comm: MPI.Comm) -> list[Estimate]:
    """Costs on every mesh of the case, coarsest first. Builds them and takes a few steps; writes nothing. Collective.

    Raises:
        CaseError: As `Problem`.
        LinearSolveError: A step failed.
    """
    return [_on_one_mesh(Problem(on_mesh, comm)) for on_mesh in [*continuation_cases(case), case]]


def _on_one_mesh(problem: Problem) -> Estimate:
    """A few steps spread over the depth grid, from the initial density on. Collective."""
    dynamics, scheme = problem.dynamics, problem.scheme
    W = np.zeros(problem.control_shape[1:])
    sampled = np.unique(np.linspace(0, len(problem.dt) - 1, _SAMPLED_STEPS).astype(int))
    mu = problem.initial
    warm = scheme.step(dynamics, mu, W, float(problem.dt[0]))  # creates what the solver keeps
    scheme.pullback(dynamics, warm, problem.space.mass * mu)
    problem.comm.Barrier()
    started = time.perf_counter()
    taken = []
    for n in sampled:
        taken.append(scheme.step(dynamics, mu, W, float(problem.dt[n])))
        mu = taken[-1].after
    mu_bar = problem.space.mass * problem.first_variation(mu)
    for step in reversed(taken):
        mu_bar = scheme.pullback(dynamics, step, mu_bar).mu
    seconds = float(allreduce(problem.comm, time.perf_counter() - started, MPI.MAX))
    # Kept along depth: every stage of every step, and the adjoint of the final control.
    states = len(taken[0].stages) + 1
    local = len(problem.label_weights) * len(problem.space.x) * _BYTES * states * len(problem.dt)
    in_use = 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Estimate(
        problem.space.h,
        problem.space.nodes,
        len(problem.label_weights),
        len(problem.dt),
        problem.control_shape,
        problem.attention.rank,
        problem.expansion.error,
        seconds / len(sampled) * len(problem.dt),
        float(allreduce(problem.comm, in_use + local)),
    )


def lines(found: list[Estimate], case: Case, ranks: int) -> list[str]:
    """The estimates in words, for people."""
    finest = found[-1]
    steps, d, m = finest.control_shape
    total = sum(mesh.evaluation for mesh in found)
    limit = case.optimizer.max_iterations
    text = [
        *(
            f"mesh: {mesh.nodes} nodes, h = {mesh.h:.3g}; about {mesh.evaluation:.2g} s for J and its gradient"
            for mesh in found
        ),
        f"depth: {finest.steps} steps to T = {case.depth.T:g}; control of {steps} × {d} × {m} numbers",
        *([f"labels: {finest.labels}, a density each"] if finest.labels > 1 else []),
        f"attention: rank {finest.rank}, relative error {finest.expansion_error:.1e}",
        f"memory: about {finest.memory / 2**30:.2f} GiB on {ranks} rank{'s' if ranks > 1 else ''} together",
    ]
    if case.optimizer.method == "none":
        return [*text, f"time: about {format_seconds(2 * total)} (nothing is optimised)"]
    typical = min(_TYPICAL_EVALUATIONS, limit)
    return [
        *text,
        f"time: about {format_seconds(total * typical)} if {typical} evaluations do on each mesh, "
        f"{format_seconds(total * limit)} for all {limit} iterations allowed",
    ]
