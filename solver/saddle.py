"""The way to a target via the saddle (docs/two-optima.md): steer there at once, wait for free, slide down.

Where attention has λ₁ > λ₂ > 0, a cluster at ±v₂ is an equilibrium of the untrained flow, stable but for its rotation
towards ±v₁. Here: where the mean direction of the tokens is to be at every depth, and the correction of one step that
puts it there. `solver.steer` steers a density so, `solver.particles.steer` tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import null_space
from scipy.optimize import minimize

from solver.case.load import CaseError
from solver.case.schema import Case
from solver.losses import Loss
from solver.types import FloatArray

__all__ = ["Plan", "angle_between", "direction", "loss_direction", "saddle_near", "saddle_plan", "shoot"]

_SAMPLES = 2000  # random directions among which the loss of a Dirac is lowest
_ARC_POINTS = 4001
_EQUAL = 1e-9  # eigenvalues closer than this, relative to λ₁, count as equal
_ACROSS = 1e-6  # a direction whose projection is shorter lies across the eigenspace
_NEWTON_STEPS, _HALVINGS = 12, 8
_ON_PATH = 1e-10  # rad
_SMALLEST_RESULTANT = 0.1  # below it there is no cluster that has a direction


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


def saddle_plan(case: Case, t: FloatArray, start: FloatArray, end: FloatArray) -> Plan:
    """From `start` to the saddle, a wait, and on to `end`, in time for depth T.

    Along the great circles between them at the speed √(f² + v²), f the speed of the cluster in the untrained flow:
    downhill that is free, and uphill it is the cheapest way there is (against the flow at its own speed costs
    2 λ_reg ΔE). v = 2 (length of the path)/T, so that the unstable saddle is reached and left in finite depth and at
    least half of [0, T] is spent at it.

    Args:
        case: Its attention is used.
        t: Depth grid, (steps + 1,).
        start: Unit vector, (d,).
        end: Unit vector, (d,): `loss_direction`.
    """
    A, normalized = np.array(case.matrix), case.attention.normalized
    T = float(t[-1])
    saddle = saddle_near(A, end, start)
    slowest = 2.0 * (angle_between(start, saddle) + angle_between(saddle, end)) / T
    climb, arrival = _travel(start, saddle, A, normalized, slowest)
    slide, duration = _travel(saddle, end, A, normalized, slowest)
    release = T - duration
    path = np.array([climb(s) if s <= release else slide(s - release) for s in t])
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


def loss_direction(loss: Loss, dimension: int) -> FloatArray:
    """The direction in which a Dirac has the lowest loss; `align`: its target. Unit vector, (d,)."""

    def value(x: FloatArray) -> float:
        return loss.value(loss.statistics(x[None])[0])

    points = np.random.default_rng(0).standard_normal((_SAMPLES, dimension))
    points /= np.linalg.norm(points, axis=1)[:, None]
    best = points[np.argmin([value(x) for x in points])]
    tangents = tangents_at(best)

    def point(y: FloatArray) -> FloatArray:
        x: FloatArray = best + y @ tangents
        return x / float(np.linalg.norm(x))

    simplex = 0.1 * np.vstack([np.zeros(len(tangents)), np.eye(len(tangents))])
    options = {"initial_simplex": simplex, "xatol": 1e-9, "fatol": 1e-15}
    refined = minimize(lambda y: value(point(y)), simplex[0], method="Nelder-Mead", options=options)
    return point(np.asarray(refined.x, dtype=np.float64))


def _travel(
    start: FloatArray, end: FloatArray, A: FloatArray, normalized: bool, slowest: float
) -> tuple[Callable[[float], FloatArray], float]:
    """A journey along the great circle from start to end at the speed √(f² + slowest²).

    f = ⟨x', τ⟩ with x' = P_x A x e^{⟨x,Ax⟩} (softmax: P_x A x), the cluster's velocity as ε → 0, τ the tangent.

    Returns:
        Time since the start ↦ unit vector (the end once arrived), and the time it takes.
    """
    length = angle_between(start, end)
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


def shoot[S](
    first: tuple[S, FloatArray],
    attempt: Callable[[FloatArray], tuple[S, FloatArray] | None],
    derivative: Callable[[S, FloatArray], FloatArray],
    W: FloatArray,
    aim: FloatArray,
    depth: float,
) -> tuple[FloatArray, S, float]:
    """Correct the W of one step until the mean direction after it is `aim`, or as close as it gets.

    Newton's method: with D the exact derivative of the mean direction, the smallest change is δW = −D⁺ (offset),
    halved until the offset shrinks.

    Args:
        first: What the step leaves under the first W, and ∫x dμ̄ after it, (d,).
        attempt: W ↦ the same; None for a control too strong to step with.
        derivative: (what the step left, covector) ↦ derivative of ⟨covector, ∫x dμ̄⟩ in W, (d, m).
        W: First guess, (d, m).
        aim: Unit vector, (d,).
        depth: After the step, for messages.

    Returns:
        W, what the step left, and the angle that is left, rad.

    Raises:
        CaseError: The tokens have no direction.
    """
    (left, mean), tangents = first, tangents_at(aim)
    angle = angle_between(direction(mean, depth), aim)
    for _ in range(_NEWTON_STEPS):
        if angle <= _ON_PATH:
            break
        resultant, unit = float(np.linalg.norm(mean)), direction(mean, depth)
        covectors = (tangents - np.outer(tangents @ unit, unit)) / resultant
        rows = np.array([derivative(left, covector).ravel() for covector in covectors])
        change = -np.linalg.lstsq(rows, tangents @ unit, rcond=None)[0].reshape(W.shape)
        for _ in range(_HALVINGS):
            trial = attempt(W + change)
            if trial is not None:
                nearer = angle_between(direction(trial[1], depth), aim)
                if nearer < angle:
                    break
            change = 0.5 * change
        else:
            break
        W, (left, mean), angle = W + change, trial, nearer
    return W, left, angle


def direction(mean: FloatArray, depth: float) -> FloatArray:
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


def angle_between(x: FloatArray, y: FloatArray) -> float:
    """Angle between unit vectors, accurate also where it is small."""
    return 2.0 * math.atan2(float(np.linalg.norm(x - y)), float(np.linalg.norm(x + y)))


def tangents_at(x: FloatArray) -> FloatArray:
    """An orthonormal basis of the tangent space at x, (d − 1, d)."""
    basis: FloatArray = null_space(x[None]).T
    return basis
