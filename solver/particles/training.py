"""Training N tokens: one optimisation for every seed, all of them driven in lock-step on one batch."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from solver.log import LOG, format_seconds
from solver.optimisers import OPTIMISERS, Optimisation, Outcome
from solver.optimisers.settings import optimiser_settings
from solver.particles.problem import ParticleProblem
from solver.types import FloatArray

__all__ = ["SeedRow", "Trained", "train"]

_SECONDS_BETWEEN_LINES = 5.0


@dataclass(frozen=True)
class SeedRow:
    """One accepted iterate of one seed, a row of history.csv."""

    seed: int
    iteration: int
    J: float
    loss: float
    regularization: float
    gradient_norm: float
    step: float
    evaluations: int
    seconds: float


@dataclass(frozen=True)
class Trained:
    """The outcome for every seed of a batch.

    Attributes:
        W: Controls, (batch, steps, d, m).
        outcomes: How each optimisation ended; None where nothing was to be optimised.
        gradient_norms: ‖g‖ at W = 0 on each seed, (batch,).
        evaluations: Of each seed, (batch,).
        history: Accepted iterates of all seeds.
    """

    W: FloatArray
    outcomes: list[Outcome | None]
    gradient_norms: FloatArray
    evaluations: list[int]
    history: list[SeedRow]


def train(problem: ParticleProblem, start: FloatArray) -> Trained:
    """Minimise J for every seed from the controls `start` (batch, steps, d, m). Nothing here is collective."""
    case, count = problem.case, len(problem.seeds)
    shape, root = problem.control_shape, math.sqrt(problem.dt)
    started = time.perf_counter()
    zero = problem.evaluate(np.zeros((count, *shape)))
    norms = root * np.sqrt((zero.gradient**2).sum(axis=(1, 2, 3)))
    optimiser = OPTIMISERS[case.optimizer.method]
    tolerance = case.optimizer.gradient_tolerance
    running = [
        Optimisation(optimiser, root * own.ravel(), optimiser_settings(case, tolerance, float(norm)))
        for own, norm in zip(start, norms, strict=True)
    ]
    evaluations, history = [1] * count, []
    parts: list[dict[bytes, tuple[float, float]]] = [{} for _ in range(count)]
    last_line = started
    while active := [k for k in range(count) if running[k].ask() is not None]:
        asked = [running[k].ask() for k in active]
        found = problem.evaluate(np.stack([u.reshape(shape) / root for u in asked if u is not None]), active)
        for k, u, J, loss, penalty, gradient in zip(
            active, asked, found.J, found.loss, found.regularization, found.gradient, strict=True
        ):
            assert u is not None
            evaluations[k] += 1
            parts[k][u.tobytes()] = float(loss), float(penalty)
            running[k].tell(float(J) if math.isfinite(J) else math.inf, root * gradient.ravel())
            for iterate in running[k].accepted():
                loss_there, penalty_there = kept = parts[k][iterate.u.tobytes()]
                parts[k] = {iterate.u.tobytes(): kept}
                history.append(
                    SeedRow(
                        seed=problem.seeds[k],
                        iteration=iterate.iteration,
                        J=iterate.J,
                        loss=loss_there,
                        regularization=penalty_there,
                        gradient_norm=iterate.gradient_norm,
                        step=iterate.step,
                        evaluations=evaluations[k],
                        seconds=time.perf_counter() - started,
                    )
                )
        now = time.perf_counter()
        if now - last_line > _SECONDS_BETWEEN_LINES:
            last_line = now
            LOG.info("%d of %d seeds done, %s so far", count - len(active), count, format_seconds(now - started))
    outcomes = [optimisation.outcome for optimisation in running]
    W = np.stack([outcome.last.u.reshape(shape) / root for outcome in outcomes if outcome is not None])
    return Trained(W, outcomes, norms, evaluations, history)
