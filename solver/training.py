"""Training: the control problem solved mesh by mesh, from coarse to fine, and the outcome diagnosed."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from solver.control import control_on_grid
from solver.diagnostics import adjoint_norm
from solver.geometry import continuation_cases
from solver.gradient_check import judge_gradient
from solver.log import LOG, Progress, format_seconds
from solver.optimisers import OPTIMISERS, Iterate, Optimisation, Outcome
from solver.optimisers.settings import optimiser_settings
from solver.parallel import on_root
from solver.problem import Evaluation, Problem, Trajectory
from solver.resolution import check_resolution
from solver.schemes import Step
from solver.steer import carry, steer
from solver.summary import Untrained, summarise
from solver.sweeps import SweepError
from solver.types import FloatArray, Json

__all__ = ["HistoryRow", "Result", "solve"]

_COARSE_TOLERANCE = 1e-2
_MASS_WARNING, _MASS_FAILURE = 1e-9, 1e-6
_SECONDS_BETWEEN_LINES = 2.0


@dataclass(frozen=True)
class HistoryRow:
    """One accepted iterate, a row of history.csv. Sweeps and seconds count from the start of the run."""

    nodes: int
    iteration: int
    J: float
    loss: float
    regularization: float
    gradient_norm: float
    step: float
    forward_solves: int
    adjoint_solves: int
    seconds: float


@dataclass(frozen=True)
class Result:
    """A solved case.

    Attributes:
        problem: On the finest mesh.
        W: Control, (steps, d, m).
        trajectory: Densities and diagnostics under W.
        phi: Adjoint φ at every depth, (labels, local nodes) each.
        adjoint_norm: ‖∇φ‖_{L²(μ)} along depth, (steps + 1,).
        history: Accepted iterates on all meshes.
        summary: Content of summary.json.
        converged: Whether the gradient tolerance was met on the finest mesh (True if nothing was to be optimised).
    """

    problem: Problem
    W: FloatArray
    trajectory: Trajectory
    phi: list[FloatArray] = field(repr=False)
    adjoint_norm: FloatArray
    history: list[HistoryRow] = field(repr=False)
    summary: Json
    converged: bool


class _Tally:
    """History and sweep counts over all meshes."""

    def __init__(self) -> None:
        self.history: list[HistoryRow] = []
        self.started = time.perf_counter()
        self._forward = self._adjoint = 0

    def leave(self, problem: Problem) -> None:
        """Add a mesh that is done with."""
        self._forward += problem.counts.forward
        self._adjoint += problem.counts.adjoint

    def solves(self, problem: Problem) -> tuple[int, int]:
        """Forward and adjoint sweeps so far, on all meshes."""
        return self._forward + problem.counts.forward, self._adjoint + problem.counts.adjoint

    def record(self, problem: Problem, iterate: Iterate, evaluation: Evaluation) -> None:
        """Add an accepted iterate."""
        self.history.append(
            HistoryRow(
                problem.space.nodes,
                iterate.iteration,
                evaluation.J,
                evaluation.loss,
                evaluation.regularization,
                iterate.gradient_norm,
                iterate.step,
                *self.solves(problem),
                time.perf_counter() - self.started,
            )
        )


def solve(problem: Problem) -> Result:
    """Train through the meshes of the problem's case, then diagnose the control that was found. Collective.

    Raises:
        CaseError: The start does not fit, or a mesh pins the cluster.
        SweepError: A linear solve failed.
    """
    case = problem.case
    tally = _Tally()
    optimise = case.optimizer.method != "none"
    previous: tuple[Problem, FloatArray] | None = None
    for coarse_case in continuation_cases(case):
        coarse = Problem(coarse_case, problem.comm)
        tolerance = max(case.optimizer.gradient_tolerance, _COARSE_TOLERANCE)
        reached, _ = _train(coarse, _start(coarse, previous), tolerance, tally, final=False)
        previous = coarse, reached.last.u.reshape(problem.control_shape) / np.sqrt(coarse.dt)[:, None, None]
        tally.leave(coarse)
    W = _start(problem, previous)
    outcome: Outcome | None = None
    if optimise:
        outcome, untrained = _train(problem, W, case.optimizer.gradient_tolerance, tally, final=True)
        W = outcome.last.u.reshape(problem.control_shape) / np.sqrt(problem.dt)[:, None, None]
    steps = problem.steps(W, Progress("forward step", len(problem.dt)))
    if not optimise:
        untrained_final = problem.steps(None)[-1].after if W.any() else steps[-1].after
        untrained = Untrained(untrained_final, problem.terminal_loss(untrained_final), None, math.nan)
    return _finish(problem, W, steps, outcome, untrained, tally)


def _start(problem: Problem, previous: tuple[Problem, FloatArray] | None) -> FloatArray:
    """The control to start from on this mesh: what the previous mesh found, or optimizer.start's. Collective."""
    start = problem.case.optimizer.start
    if previous is not None:
        return carry(*previous, problem) if start == "steer" else previous[1]
    if start == "zero":
        return problem.zero_control()
    if start == "steer":
        return steer(problem)
    return on_root(problem.comm, lambda: control_on_grid(Path(start), problem.t, problem.control_shape[1:]))


def _train(problem: Problem, W: FloatArray, tolerance: float, tally: _Tally, final: bool) -> tuple[Outcome, Untrained]:
    """Optimise on one mesh from W, after checking that the mesh resolves the cluster. Collective."""
    case = problem.case
    steps = problem.steps(None)
    gradient, _ = problem.adjoint(steps, problem.zero_control())
    mu = steps[-1].after
    untrained = Untrained(mu, problem.terminal_loss(mu), gradient, math.sqrt(problem.squared_norm(gradient)))
    if not math.isfinite(untrained.gradient_norm):
        raise SweepError(f"the gradient at W = 0 is not finite (norm {untrained.gradient_norm})")
    check_resolution(problem, mu, gradient, final)
    if problem.epsilon == 0.0 and final:
        LOG.warning("noise.epsilon = 0: upwind fluxes have kinks, so J is not smooth and training may stop early")
    settings = optimiser_settings(case, tolerance, untrained.gradient_norm)
    LOG.info(
        "mesh: %d nodes, h = %.3g; %d depth steps; attention rank %d (error %.1e); gradient at W = 0: %.4g",
        problem.space.nodes, problem.space.h, len(problem.dt), problem.attention.rank, problem.expansion.error,
        untrained.gradient_norm,
    )  # fmt: skip

    scale = np.sqrt(problem.dt)[:, None, None]
    lines = _IterationLines(untrained.gradient_norm, settings.gradient_norm, settings.max_iterations)
    evaluations: dict[bytes, Evaluation] = {}  # at the last iterate and the trial points since
    with Optimisation(OPTIMISERS[case.optimizer.method], (scale * W).ravel(), settings) as optimisation:
        while (u := optimisation.ask()) is not None:
            try:
                with np.errstate(over="ignore"):  # overflow at a wild trial point ends in a SweepError
                    evaluation = problem.evaluate(u.reshape(problem.control_shape) / scale)
            except SweepError as error:
                if not evaluations:
                    raise
                LOG.warning("trial point left aside: %s", error)
                optimisation.tell(math.inf, np.full_like(u, math.nan))
            else:
                evaluations[u.tobytes()] = evaluation
                optimisation.tell(evaluation.J, (scale * evaluation.gradient).ravel())
            for iterate in optimisation.accepted():
                accepted = evaluations[iterate.u.tobytes()]
                evaluations = {iterate.u.tobytes(): accepted}
                tally.record(problem, iterate, accepted)
                lines(iterate, *tally.solves(problem))
    outcome = optimisation.outcome
    assert outcome is not None
    last = outcome.last
    verdict = "converged" if outcome.converged else "NOT converged"
    LOG.log(
        20 if outcome.converged else 30,
        "%s on %d nodes, iteration %d: %s; J = %.8g, relative gradient %.2e (tolerance %.1e)",
        verdict, problem.space.nodes, last.iteration, outcome.reason, last.J,
        last.gradient_norm / untrained.gradient_norm if untrained.gradient_norm else math.nan, tolerance,
    )  # fmt: skip
    if "line search" in outcome.reason:
        judge_gradient(problem, last.u.reshape(problem.control_shape) / scale)
    return outcome, untrained


class _IterationLines:
    """A line per iteration, thinned out, with an ETA from the mean rate at which the gradient has fallen."""

    def __init__(self, reference: float, target: float, limit: int) -> None:
        self._reference, self._target, self._limit = reference, target, limit
        self._started = time.perf_counter()
        self._last = -math.inf

    def __call__(self, iterate: Iterate, forward: int, adjoint: int) -> None:
        now = time.perf_counter()
        done = iterate.gradient_norm <= self._target
        if now - self._last < _SECONDS_BETWEEN_LINES and not done:
            return
        self._last = now
        relative = iterate.gradient_norm / self._reference if self._reference else math.nan
        LOG.info(
            "iteration %3d/%d  J %.8f  gradient %.2e of W = 0  step %.2e  sweeps %d+%d  %s",
            iterate.iteration, self._limit, iterate.J, relative, iterate.step,
            forward, adjoint, "" if done else f"ETA {self._eta(iterate, now - self._started)}",
        )  # fmt: skip

    def _eta(self, iterate: Iterate, elapsed: float) -> str:
        if iterate.iteration < 3 or not 0.0 < iterate.gradient_norm < self._reference:
            return "unknown"
        fallen = math.log(self._reference / iterate.gradient_norm)
        if fallen < 0.5:
            return "unknown"
        by_gradient = elapsed * math.log(iterate.gradient_norm / self._target) / fallen
        by_limit = elapsed * (self._limit - iterate.iteration) / iterate.iteration
        return format_seconds(min(by_gradient, by_limit))


def _judge_mass(problem: Problem, trajectory: Trajectory) -> None:
    """Round-off in the mass grows with Δt ‖M⁻¹L‖: warn where it shows, stop where it spoils the result.

    Raises:
        SweepError: The mass is off by more than 1e-6.
    """
    error = float(np.abs(trajectory.diagnostics.mass - 1.0).max())
    if error <= _MASS_WARNING:
        return
    text = f"mass off by {error:.1e}: round-off, with Δt up to {problem.dt.max():.3g} and ε = {problem.epsilon:g}"
    if error > _MASS_FAILURE:
        raise SweepError(f"{text}; take smaller steps")
    LOG.warning("%s", text)


def _finish(
    problem: Problem,
    W: FloatArray,
    steps: list[Step],
    outcome: Outcome | None,
    untrained: Untrained,
    tally: _Tally,
) -> Result:
    """Diagnose the final control. Collective."""
    gradient, phi = problem.adjoint(steps, W, keep=True)
    loss, regularization = problem.objective(steps[-1].after, W)
    evaluation = Evaluation(loss + regularization, loss, regularization, gradient)
    gradient_norm = math.sqrt(problem.squared_norm(gradient))
    if outcome is None:
        tally.record(problem, Iterate(0, W, evaluation.J, gradient_norm, 0.0), evaluation)
    trajectory = problem.trajectory(steps, W)
    _judge_mass(problem, trajectory)
    norms = np.array(
        [
            adjoint_norm(problem.space, problem.label_weights, mu, p)
            for mu, p in zip(trajectory.densities, phi, strict=True)
        ]
    )
    tally.leave(problem)
    forward, adjoint = tally.solves(problem)
    summary = summarise(
        problem,
        trajectory,
        evaluation,
        untrained=untrained if W.any() else replace(untrained, gradient=gradient),
        minimum_energy=problem.minimum_energy(untrained.final),
        optimizer={
            "method": problem.case.optimizer.method,
            "iterations": sum(row.iteration > 0 for row in tally.history),
            "converged": outcome.converged if outcome else None,
            "reason": outcome.reason if outcome else "nothing to optimise",
            "gradient_norm": gradient_norm,
            "gradient_norm_initial": gradient_norm if outcome is None else untrained.gradient_norm,
            "forward_solves": forward - problem.counts.forward,
            "adjoint_solves": adjoint - problem.counts.adjoint,
        },
        seconds=time.perf_counter() - tally.started,
    )
    converged = outcome is None or outcome.converged
    return Result(problem, W, trajectory, phi, norms, tally.history, summary, converged)
