"""A first control of the family "via the saddle" (design, section 4): steer there at once, wait for free, slide down.

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
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import null_space
from scipy.optimize import minimize

from solver.case.load import CaseError
from solver.linear import LinearSolveError
from solver.log import LOG
from solver.parallel import allreduce, on_root
from solver.problem import Problem
from solver.schemes import Step
from solver.sweeps import SweepError
from solver.types import FloatArray

__all__ = ["Followed", "Plan", "carry", "follow", "loss_direction", "saddle_near", "saddle_plan", "steer"]

_SAMPLES = 2000  # random directions among which the loss of a Dirac is lowest
_ARC_POINTS = 4001
_EQUAL = 1e-9  # eigenvalues closer than this, relative to λ₁, count as equal
_ACROSS = 1e-6  # a direction whose projection is shorter lies across the eigenspace
_NEWTON_STEPS, _HALVINGS = 12, 8
_ON_PATH = 1e-10  # rad
_OFF_PATH = 1e-2  # rad; a control that misses its path by more deserves a warning
_DECADES = 8.0  # J bends like the square of the growth of errors: beyond, curvatures outgrow a double
_SMALLEST_RESULTANT = 0.1  # below it there is no cluster that has a direction


@dataclass(frozen=True)
class Followed:
    """A control made to follow a path.

    Attributes:
        W: Control, (steps, d, m).
        offset: Angle between the mean direction and the path at every depth, (steps + 1,), rad.
    """

    W: FloatArray
    offset: FloatArray


@dataclass(frozen=True)
class Plan:
    """Where the mean direction is to be.

    Attributes:
        path: Unit vector at every depth, (steps + 1, d).
        saddle: Where it waits, (d,).
        arrival: Depth at which it gets there.
        release: Depth at which it leaves.
    """

    path: FloatArray
    saddle: FloatArray
    arrival: float
    release: float


def steer(problem: Problem) -> FloatArray:
    """The first control of `optimizer.start = "steer"`, (steps, d, m). A pure function of the problem. Collective.

    Raises:
        CaseError: There is no cluster to steer.
        SweepError: A linear solve failed.
    """
    plan = saddle_plan(problem, _direction(_mean(problem, problem.initial), 0.0))
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

    Newton's method for each W_n: with D the exact derivative of the mean direction after the step (`Scheme.pullback`),
    the smallest change is δW = −D⁺ (offset), halved until the offset shrinks.

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
    offset = [_angle(_direction(_mean(problem, mu), 0.0), path[0])]
    for n, dt in enumerate(problem.dt):
        try:
            step, angle = _shoot(problem, mu, control[n], float(dt), path[n + 1], float(problem.t[n + 1]))
        except LinearSolveError as error:
            raise SweepError(
                f"optimizer.start: steering, step {n} (depth {problem.t[n]:.6g}, Δt = {dt:.3g}): {error}"
            ) from error
        control[n], mu = step.W, step.after
        offset.append(angle)
    return Followed(control, np.array(offset))


def saddle_plan(problem: Problem, start: FloatArray) -> Plan:
    """From `start` to the saddle, a wait, and on to where the loss is lowest, in time for depth T. Collective.

    Along the great circles between them at the speed √(f² + v²), f the speed of the cluster in the untrained flow:
    downhill that is free, and uphill it is the cheapest way there is (against the flow at its own speed costs
    2 λ_reg ΔE). v = 2 (length of the path)/T, so that the unstable saddle is reached and left in finite depth and at
    least half of [0, T] is spent at it.

    Args:
        problem: Its case, loss and depth grid are used.
        start: Unit vector, (d,).
    """
    A, normalized = np.array(problem.case.matrix), problem.case.attention.normalized
    T = float(problem.t[-1])
    end = loss_direction(problem)
    saddle = saddle_near(A, end, start)
    slowest = 2.0 * (_angle(start, saddle) + _angle(saddle, end)) / T
    climb, arrival = _travel(start, saddle, A, normalized, slowest)
    slide, duration = _travel(saddle, end, A, normalized, slowest)
    release = T - duration
    path = np.array([climb(t) if t <= release else slide(t - release) for t in problem.t])
    return Plan(path, saddle, arrival, release)


def saddle_near(A: FloatArray, end: FloatArray, start: FloatArray) -> FloatArray:
    """The saddle on the side of `end`: its projection onto the eigenspace of λ₂; where that vanishes, `start`'s.

    Args:
        A: Symmetric with λ₁ > λ₂, (d, d).
        end: Unit vector.
        start: Unit vector.
    """
    values, vectors = np.linalg.eigh(A)
    eigenspace = vectors[:, np.abs(values - values[-2]) <= _EQUAL * values[-1]]
    for direction in (end, start, eigenspace[:, 0]):
        projection: FloatArray = eigenspace @ (eigenspace.T @ direction)
        if np.linalg.norm(projection) > _ACROSS:
            break
    unit: FloatArray = projection / np.linalg.norm(projection)
    return unit


def loss_direction(problem: Problem) -> FloatArray:
    """The direction in which a Dirac has the lowest loss; `align`: its target. Unit vector, (d,). Collective."""

    def search() -> FloatArray:
        def value(x: FloatArray) -> float:
            return problem.loss.value(problem.loss.statistics(x[None])[0])

        points = np.random.default_rng(0).standard_normal((_SAMPLES, problem.case.dimension))
        points /= np.linalg.norm(points, axis=1)[:, None]
        best = points[np.argmin([value(x) for x in points])]
        tangents = _tangents(best)

        def point(y: FloatArray) -> FloatArray:
            x: FloatArray = best + y @ tangents
            return x / float(np.linalg.norm(x))

        simplex = 0.1 * np.vstack([np.zeros(len(tangents)), np.eye(len(tangents))])
        options = {"initial_simplex": simplex, "xatol": 1e-9, "fatol": 1e-15}
        refined = minimize(lambda y: value(point(y)), simplex[0], method="Nelder-Mead", options=options)
        return point(np.asarray(refined.x, dtype=np.float64))

    return on_root(problem.comm, search)


def _travel(
    start: FloatArray, end: FloatArray, A: FloatArray, normalized: bool, slowest: float
) -> tuple[Callable[[float], FloatArray], float]:
    """A journey along the great circle from start to end at the speed √(f² + slowest²).

    f = ⟨x', τ⟩ with x' = P_x A x e^{⟨x,Ax⟩} (softmax: P_x A x), the cluster's velocity as ε → 0, τ the tangent.

    Returns:
        Time since the start ↦ unit vector (the end once arrived), and the time it takes.
    """
    length = _angle(start, end)
    normal = end - (end @ start) * start
    if np.linalg.norm(normal) < 1e-9:  # the same point, or the antipode: then through the dominant eigenvector
        dominant = np.linalg.eigh(A)[1][:, -1]
        normal = dominant - (dominant @ start) * start
    normal = normal / np.linalg.norm(normal)
    theta = np.linspace(0.0, length, _ARC_POINTS)[:, None]
    x, tangent = np.cos(theta) * start + np.sin(theta) * normal, np.cos(theta) * normal - np.sin(theta) * start
    f = np.einsum("ni,ij,nj->n", tangent, A, x)
    if not normalized:
        f *= np.exp(np.einsum("ni,ij,nj->n", x, A, x))
    pace = 1.0 / np.hypot(f, max(slowest, np.finfo(float).tiny))
    time = np.concatenate([[0.0], np.cumsum(0.5 * (pace[1:] + pace[:-1]))]) * (length / (_ARC_POINTS - 1))

    def position(t: float) -> FloatArray:
        angle = float(np.interp(t, time, theta[:, 0])) if length > 0.0 else 0.0
        return math.cos(angle) * start + math.sin(angle) * normal

    return position, float(time[-1])


def _shoot(
    problem: Problem, mu: FloatArray, W: FloatArray, dt: float, aim: FloatArray, depth: float
) -> tuple[Step, float]:
    """One step of the scheme whose mean direction ends at `aim`, or as close as it gets, and the angle left."""

    def attempt(trial: FloatArray) -> tuple[Step, FloatArray, float]:
        step = problem.scheme.step(problem.dynamics, mu, trial, dt)
        mean = _mean(problem, step.after)
        return step, mean, _angle(_direction(mean, depth), aim)

    step, mean, angle = attempt(W)
    tangents = _tangents(aim)
    for _ in range(_NEWTON_STEPS):
        if angle <= _ON_PATH:
            break
        derivative = _direction_derivative(problem, step, mean, tangents)
        offset = tangents @ _direction(mean, depth)
        change = -np.linalg.lstsq(derivative.reshape(len(tangents), -1), offset, rcond=None)[0].reshape(W.shape)
        closer = None
        for _ in range(_HALVINGS):
            try:
                trial = attempt(step.W + change)
            except LinearSolveError:  # too strong a control: a weaker one may do
                trial = None
            if trial is not None and trial[2] < angle:
                closer = trial
                break
            change = 0.5 * change
        if closer is None:
            break
        step, mean, angle = closer
    return step, angle


def _direction_derivative(problem: Problem, step: Step, mean: FloatArray, tangents: FloatArray) -> FloatArray:
    """Derivative of ⟨tangents, m/|m|⟩ after a step with respect to its W, (d − 1, d, m). Collective."""
    resultant = float(np.linalg.norm(mean))
    unit = mean / resultant
    weights = problem.label_weights[:, None] * problem.space.mass
    rows = []
    for tangent in tangents:
        covector = (tangent - (tangent @ unit) * unit) / resultant
        cotangents = problem.scheme.pullback(problem.dynamics, step, weights * (problem.space.x @ covector))
        rows.append(cotangents.W)
    return allreduce(problem.comm, np.array(rows))


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
    angle = _angle(_direction(_mean(problem, final), float(problem.t[-1])), plan.path[-1])
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


def _direction(mean: FloatArray, depth: float) -> FloatArray:
    """m/|m|.

    Raises:
        CaseError: The tokens have no direction.
    """
    resultant = float(np.linalg.norm(mean))
    if resultant < _SMALLEST_RESULTANT:
        raise CaseError(
            [
                f"optimizer.start: 'steer' needs a cluster to steer, but |∫x dμ| is {resultant:.2g} at depth "
                f"{depth:.4g}, and {_SMALLEST_RESULTANT:g} at least are needed; start in a hemisphere, lower "
                f"noise.epsilon, or use 'zero'"
            ]
        )
    return mean / resultant


def _angle(x: FloatArray, y: FloatArray) -> float:
    """Angle between unit vectors, accurate also where it is small."""
    return 2.0 * math.atan2(float(np.linalg.norm(x - y)), float(np.linalg.norm(x + y)))


def _tangents(x: FloatArray) -> FloatArray:
    """An orthonormal basis of the tangent space at x, (d − 1, d)."""
    basis: FloatArray = null_space(x[None]).T
    return basis
