"""First controls "via the saddle" for tokens (`solver.saddle`): one for every seed, as tokens and noise differ.

The control of a seed knows the noise of that seed: it keeps the mean direction on its path against every kick, which
a density needs no control for.
"""

from __future__ import annotations

import numpy as np

from solver.log import LOG, Progress
from solver.particles.problem import ParticleProblem
from solver.particles.step import pullback, step
from solver.saddle import direction, loss_direction, saddle_plan, shoot
from solver.types import FloatArray

__all__ = ["steer_tokens"]

_OFF_PATH = 1e-2  # rad


def steer_tokens(problem: ParticleProblem) -> FloatArray:
    """Controls that steer the tokens of each seed to the saddle, keep them there and release them in time.

    Returns:
        (batch, steps, d, m). A pure function of the problem.

    Raises:
        CaseError: There is no cluster to steer.
    """
    count = len(problem.seeds)
    W = np.zeros((count, *problem.control_shape))
    end = loss_direction(problem.loss, problem.case.dimension)
    progress, worst = Progress("steer: seed", count), 0.0
    for k in range(count):
        start = direction(problem.initial[k].mean(axis=0), 0.0)
        path = saddle_plan(problem.case, problem.t, start, end).path
        x = problem.initial[k : k + 1]
        for n in range(len(W[k])):
            noise = problem.step_noise(n, [k])
            W[k, n], x, angle = _shoot(problem, x, W[k, n], noise, path[n + 1], n)
            worst = max(worst, angle)
        progress(k + 1)
    if worst > _OFF_PATH:
        LOG.warning("optimizer.start: 'steer' misses its path by up to %.2g rad", worst)
    return W


def _shoot(
    problem: ParticleProblem, x: FloatArray, W: FloatArray, noise: FloatArray | None, aim: FloatArray, n: int
) -> tuple[FloatArray, FloatArray, float]:
    """One step of the tokens (1, N, d) whose mean direction ends at `aim`, or as close as it gets."""
    dynamics, dt = problem.dynamics, problem.dt
    force = dynamics.force(x)

    def attempt(trial: FloatArray) -> tuple[tuple[FloatArray, FloatArray], FloatArray]:
        after = step(dynamics, x, trial[None], dt, noise, force)
        return (trial, after), after[0].mean(axis=0)

    def derivative(left: tuple[FloatArray, FloatArray], covector: FloatArray) -> FloatArray:
        trial, after = left
        bar = np.broadcast_to(covector / after.shape[1], after.shape)
        W_bar = pullback(dynamics, x, trial[None], dt, noise, bar, force)[1]
        return np.asarray(W_bar[0])

    W, (_, after), angle = shoot(attempt(W), attempt, derivative, W, aim, float(problem.t[n + 1]))
    return W, after, angle
