"""Which label every token carries: the law ρ of the labels, dealt out to N tokens."""

from __future__ import annotations

import numpy as np

from solver.auxiliary.maps import create_map
from solver.case.load import CaseError
from solver.case.schema import Case
from solver.types import FloatArray

__all__ = ["label_law", "token_labels"]

_ON_ORBIT = 1e-9


def label_law(case: Case, count: int) -> tuple[FloatArray, FloatArray]:
    """Labels (L,) and their shares ρ_ℓ of sum 1, (L,), for `count` tokens; one label 0 where the case has none.

    Raises:
        CaseError: A map of the user's fails, or points that should lie on an orbit do not.
    """
    table = case.auxiliary
    if not table.labelled:
        return np.zeros(1), np.ones(1)
    given = table.atoms if table.law == "atoms" else table.weights if table.law == "weights" else None
    number = len(given) if given is not None else table.labels or count
    shares = np.ones(number) if table.weights is None else np.array(table.weights)
    if table.law == "atoms":
        labels = np.array(table.atoms)
    elif table.law == "random":
        labels = np.random.Generator(np.random.Philox(key=table.seed)).random(number)
    else:
        labels = np.arange(number) / number
        if table.law == "orbit":
            labels = _orbit_labels(case, labels)
    return labels, shares / shares.sum()


def token_labels(case: Case, count: int) -> FloatArray:
    """The label of each of `count` tokens, the same for every seed, (count,).

    Equal shares: token i has the label number i mod L. Others: the labels in order, each as often as the largest
    remainders of N ρ_ℓ say.

    Raises:
        CaseError: A label with a share gets no token.
    """
    labels, shares = label_law(case, count)
    exact = count * shares
    each = np.floor(exact).astype(np.int64)
    order = np.argsort(-(exact - each), kind="stable")
    each[order[: count - each.sum()]] += 1
    starved = np.flatnonzero((each == 0) & (shares > 0.0))
    if len(starved):
        first = starved[0]
        raise CaseError(
            [f"particles.n: {count} tokens leave label number {first}, of share {shares[first]:.3g}, without one"]
        )
    return np.resize(labels, count) if np.ptp(shares) == 0.0 else np.repeat(labels, each)


def _orbit_labels(case: Case, parameters: FloatArray) -> FloatArray:
    """ξ with R_ξᵀ v = f(parameter), where v = f at the first parameter: azimuths in the plane of rotation, over −ω."""
    table = case.auxiliary
    points = create_map(case)(parameters)
    (i, j), *_ = table.planes
    (frequency,) = table.frequencies or (2.0 * np.pi,)
    fixed = np.delete(points, [i - 1, j - 1], axis=1)
    off = float(np.abs(fixed - fixed[0]).max(initial=0.0))
    if off > _ON_ORBIT:
        raise CaseError(
            [f"auxiliary.map: its points do not lie on one orbit of the rotations in plane {[i, j]}: {off:.2g} off"]
        )
    azimuth = np.arctan2(points[:, j - 1], points[:, i - 1])
    labels: FloatArray = np.mod(azimuth[0] - azimuth, 2.0 * np.pi) / frequency
    return labels
