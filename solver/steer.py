"""A first control of the family "via the saddle" (docs/two-optima.md): steer there at once, wait for free, slide down.

Where attention has λ₁ > λ₂ > 0, a cluster at ±v₂ is an equilibrium of the untrained flow, stable but for its rotation
towards ±v₁. The control is found by feedback while stepping through depth: every W_n is a least-norm correction that
puts the mean direction after the step, as the scheme takes it, onto a given path. Proportional feedback would not do:
the middle steps of a graded grid are several times longer than the saddle's growth time.

What is returned is W alone, an open loop. While it waits, an error in the direction grows like e^{(λ₁−λ₂)e^{λ₂} t}
(softmax attention: e^{(λ₁−λ₂) t}): a control carried to another mesh must be made to `follow` its path again, and where
round-off grows to the size of the sphere no open loop holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from solver.linear import LinearSolveError
from solver.log import LOG
from solver.parallel import allreduce, on_root
from solver.problem import Problem
from solver.saddle import Plan, angle_between, direction, loss_direction, saddle_plan, shoot
from solver.schemes import Step
from solver.sweeps import SweepError
from solver.types import FloatArray

__all__ = ["Followed", "carry", "follow", "steer"]

_OFF_PATH = 1e-2  # rad; a control that misses its path by more deserves a warning
_DECADES = 8.0  # J bends like the square of the growth of errors: beyond, curvatures outgrow a double


@dataclass(frozen=True)
class Followed:
    """A control made to follow a path.

    Attributes:
        W: Control, (steps, d, m).
        offset: Angle between the mean direction and the path at every depth, (steps + 1,), rad.
    """

    W: FloatArray
    offset: FloatArray


def steer(problem: Problem) -> FloatArray:
    """The first control of `optimizer.start = "steer"`, (steps, d, m). A pure function of the problem. Collective.

    Raises:
        CaseError: There is no cluster to steer.
        SweepError: A linear solve failed.
    """
    end = on_root(problem.comm, lambda: loss_direction(problem.loss, problem.case.dimension))
    plan = saddle_plan(problem.case, problem.t, direction(_mean(problem, problem.initial), 0.0), end)
    LOG.info(
        "steer: at the saddle %s from depth %.4g to %.4g, on to %s",
        _shown(plan.saddle), plan.arrival, plan.release, _shown(plan.path[-1]),
    )  # fmt: skip
    followed = follow(problem, plan.path, problem.zero_control())
    worst = int(followed.offset.argmax())
    if followed.offset[worst] > _OFF_PATH:
        LOG.warning(
            "optimizer.start: 'steer' misses its path by %.2g rad at depth %.4g: on this mesh these features cannot "
            "turn the tokens so", followed.offset[worst], problem.t[worst],
        )  # fmt: skip
    _judge_open_loop(problem, followed.W, plan)
    return followed.W


def carry(coarse: Problem, W: FloatArray, fine: Problem) -> FloatArray:
    """A control with the same mean directions on another mesh of the same case, (steps, d, m). Collective.

    W itself, replayed on the other mesh, falls off the saddle once the difference between the meshes has grown.

    Raises:
        CaseError: The cluster dissolves.
        SweepError: A linear solve failed.
    """
    means = coarse.forward(W).mean
    return follow(fine, means / np.linalg.norm(means, axis=1)[:, None], W).W


def follow(problem: Problem, path: FloatArray, W: FloatArray) -> Followed:
    """Correct W step by step so that the mean direction follows a path. Collective.

    Every W_n by `shoot`, with the exact derivative of the mean direction after the step (`Scheme.pullback`).

    Args:
        problem: On any mesh.
        path: Directions at every depth, (steps + 1, d); the first is not used.
        W: Control to correct, (steps, d, m). Where it stays on the path by itself it is not changed.

    Raises:
        CaseError: The cluster dissolves.
        SweepError: A linear solve failed.
    """
    control = np.array(W)
    mu = problem.initial
    offset = [angle_between(direction(_mean(problem, mu), 0.0), path[0])]
    for n, dt in enumerate(problem.dt):
        try:
            control[n], step, angle = _shoot(problem, mu, control[n], float(dt), path[n + 1], float(problem.t[n + 1]))
        except LinearSolveError as error:
            raise SweepError(
                f"optimizer.start: steering, step {n} (depth {problem.t[n]:.6g}, Δt = {dt:.3g}): {error}"
            ) from error
        mu = step.after
        offset.append(angle)
    return Followed(control, np.array(offset))


def _shoot(
    problem: Problem, mu: FloatArray, W: FloatArray, dt: float, aim: FloatArray, depth: float
) -> tuple[FloatArray, Step, float]:
    """One step of the scheme whose mean direction ends at `aim`, or as close as it gets. Collective."""
    weights = problem.label_weights[:, None] * problem.space.mass

    def take(trial: FloatArray) -> tuple[Step, FloatArray]:
        step = problem.scheme.step(problem.dynamics, mu, trial, dt)
        return step, _mean(problem, step.after)

    def attempt(trial: FloatArray) -> tuple[Step, FloatArray] | None:
        try:
            return take(trial)
        except LinearSolveError:  # too strong a control: a weaker one may do
            return None

    def derivative(step: Step, covector: FloatArray) -> FloatArray:
        cotangents = problem.scheme.pullback(problem.dynamics, step, weights * (problem.space.x @ covector))
        return allreduce(problem.comm, cotangents.W)

    return shoot(take(W), attempt, derivative, W, aim, depth)


def _judge_open_loop(problem: Problem, W: FloatArray, plan: Plan) -> None:
    """Warn where round-off grows beyond use while waiting. Collective.

    Two signs: how much the continuous dynamics amplify an error, and where this W, rounded as by a change to the
    optimiser's variables and back, ends on this mesh (long steps of the grid amplify less).
    """
    second, first = np.linalg.eigvalsh(np.array(problem.case.matrix))[-2:]
    rate = (first - second) * (1.0 if problem.case.attention.normalized else math.exp(second))
    decades = rate * (plan.release - plan.arrival) / math.log(10.0)
    scale = np.sqrt(problem.dt)[:, None, None]
    final = problem.steps((scale * W) / scale)[-1].after
    angle = angle_between(direction(_mean(problem, final), float(problem.t[-1])), plan.path[-1])
    if decades > _DECADES or angle > _OFF_PATH:
        LOG.warning(
            "optimizer.start: 'steer' waits from depth %.4g to %.4g, where errors grow by 1e%.0f: rounded in its last "
            "digit the control ends %.2g rad from its path, and optimisation or another mesh will lose it; take "
            "depth.T smaller", plan.arrival, plan.release, decades, angle,
        )  # fmt: skip


def _shown(x: FloatArray) -> str:
    return np.array2string(x, precision=3, suppress_small=True)


def _mean(problem: Problem, mu: FloatArray) -> FloatArray:
    """∫ x dμ̄, (d,). Collective."""
    return problem.space.integrate((problem.label_weights @ mu) * problem.space.x.T)
