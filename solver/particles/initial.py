"""Tokens drawn from the initial law of a case, keyed by seed and particle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from solver.case.load import CaseError
from solver.case.schema import Case
from solver.initial import interpolated, read_law, smooth_random_field
from solver.particles.noise import INITIAL, generator
from solver.types import FloatArray
from solver.vonmises import angle_quantile

__all__ = ["draw_tokens"]

_ATTEMPTS = 10_000


@dataclass(frozen=True)
class _Proposal:
    """A law to draw from, and the chance to keep a draw.

    Attributes:
        means: Components' mean directions, (n, d).
        kappas: Their concentrations, (n,).
        weights: Their shares, (n,), of sum 1.
        keep: Chance in [0, 1] to keep a token at x (n, d) with label ξ (n,); None: always.
    """

    means: FloatArray
    kappas: FloatArray
    weights: FloatArray
    keep: Callable[[FloatArray, FloatArray], FloatArray] | None


def draw_tokens(case: Case, seed: int, labels: FloatArray) -> FloatArray:
    """Tokens of a seed, unit vectors (N, d), for labels (N,), which matter to perturbations only.

    The first of them are the same for any N.
    Von Mises–Fisher laws are drawn by inversion; nodal densities and perturbations by rejection.

    Raises:
        CaseError: The law's file cannot be used, or rejection keeps next to nothing.
    """
    proposal, count = _proposal(case), len(labels)
    x = np.empty((count, case.dimension))
    missing = np.ones(count, dtype=bool)
    for attempt in range(_ATTEMPTS):
        numbers = generator(seed, INITIAL + attempt).standard_normal((count, case.dimension + 3))[missing]
        drawn = _draw(proposal, numbers[:, 3:], ndtr(numbers[:, 0]), ndtr(numbers[:, 1]))
        chance = 1.0 if proposal.keep is None else proposal.keep(drawn, labels[missing])
        kept = ndtr(numbers[:, 2]) < chance
        where = np.flatnonzero(missing)[kept]
        x[where] = drawn[kept]
        missing[where] = False
        if not missing.any():
            return x
    raise CaseError(["initial.file: the density is too peaked to draw tokens from it"])


def _proposal(case: Case) -> _Proposal:
    """What a case's initial law is drawn from."""
    initial, e1 = case.initial, np.eye(case.dimension)[:1]
    one = np.ones(1)
    factors: list[Callable[[FloatArray, FloatArray], FloatArray]] = []
    if initial.law == "von_mises_fisher":
        means, kappas, weights = np.array([case.initial_mean]), np.array([initial.kappa]), one
    elif initial.law == "uniform":
        means, kappas, weights = e1, 0.0 * one, one
    elif initial.law == "mixture":
        means, kappas, weights = map(np.array, case.mixture)
    else:
        points, values, nodal = read_law(case)
        if nodal:
            largest = values.max()
            factors.append(lambda x, _: interpolated(x, points, values) / largest)
            means, kappas, weights = e1, 0.0 * one, one
        else:
            means, kappas, weights = points, np.full(len(points), initial.kappa), values
    size = initial.perturbation
    if size > 0.0:
        labelled = case.auxiliary.labelled

        def perturbed(x: FloatArray, labels: FloatArray) -> FloatArray:
            return (1.0 + size * smooth_random_field(x, initial.seed, labels if labelled else None)) / (1.0 + size)

        factors.append(perturbed)
    keep = (lambda x, labels: np.prod([factor(x, labels) for factor in factors], axis=0)) if factors else None
    return _Proposal(means, kappas, weights / weights.sum(), keep)


def _draw(proposal: _Proposal, direction: FloatArray, u: FloatArray, v: FloatArray) -> FloatArray:
    """Tokens from uniform numbers u (angle to the mean), v (component) and normal ones (n, d) (direction)."""
    chosen = np.minimum(np.searchsorted(np.cumsum(proposal.weights), v), len(proposal.weights) - 1)
    mean = proposal.means[chosen]
    theta = np.empty(len(u))
    for kappa in np.unique(proposal.kappas[chosen]):
        of_kappa = proposal.kappas[chosen] == kappa
        theta[of_kappa] = angle_quantile(float(kappa), mean.shape[1], u[of_kappa])
    tangent = direction - (direction * mean).sum(axis=1, keepdims=True) * mean
    tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    x = np.cos(theta)[:, None] * mean + np.sin(theta)[:, None] * tangent
    unit: FloatArray = x / np.linalg.norm(x, axis=1, keepdims=True)
    return unit
