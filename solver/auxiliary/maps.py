"""Target maps f from labels to the sphere (P2's prefix). To add one: write its function here and enter it in `MAPS`.

The law of f(ξ), ξ uniform in [0, 1), is the target of the tokens' marginal.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from solver.case.factories import is_factory
from solver.case.fields import unit
from solver.case.load import CaseError
from solver.case.schema import Case
from solver.parts import Guarded, build_part, check_alone
from solver.points import read_points
from solver.types import FloatArray
from solver.vonmises import angle_quantile

__all__ = ["MAPS", "Map", "create_map", "rotations_between"]

Map = Callable[[FloatArray], FloatArray]
_BITS = 52
_SCRAMBLE = 0x5555555555555  # binary 0.0101…: moves points from the corners of their cells to the inside
_SHARP = 1e-12  # labels that close to a step count as beyond it


def create_map(case: Case) -> Map:
    """f of a case: labels (n,) to unit vectors (n, d); labels count modulo 1.

    Raises:
        CaseError: Its file or a factory of the user's cannot be used.
    """
    table = case.auxiliary
    if not is_factory(table.map):
        return MAPS[table.map](case)
    part = build_part("auxiliary.map", table.map, case, table.map_parameters or {})
    if not callable(part):
        raise CaseError([f"auxiliary.map: {table.map} returned {type(part).__name__}: a function f(labels) is needed"])
    guarded = Guarded("auxiliary.map", table.map, part)

    def own(labels: FloatArray) -> FloatArray:
        places = np.mod(labels, 1.0)
        points = guarded(places)
        norms = np.linalg.norm(points, axis=-1) if points.ndim == 2 else np.zeros(1)
        needed = (len(labels), case.dimension)
        if points.shape != needed or not np.all(np.abs(norms - 1.0) < 1e-6):
            got = f"norms from {norms.min():g} to {norms.max():g}" if points.shape == needed else f"{points.shape}"
            raise CaseError(
                [f"auxiliary.map: {table.map} of {len(labels)} labels: unit vectors {needed} are needed, got {got}"]
            )
        check_alone(guarded, points, places)
        normalised: FloatArray = points / norms[:, None]
        return normalised

    return own


def rotations_between(start: FloatArray, end: FloatArray) -> FloatArray:
    """The smallest rotations Q with Q start = end, (n, d, d), of unit vectors (n, d) and (n, d) or (d,).

    Q = (1 − 2ttᵀ)(1 − 2ssᵀ), t the direction of s + e: orthogonal to round-off however near s is to −e. Opposite
    vectors: by π in the plane of s and an axis.
    """
    end = np.broadcast_to(end, start.shape)
    d = start.shape[1]
    total = start + end
    norm = np.linalg.norm(total, axis=1, keepdims=True)
    opposite = norm[:, 0] < 1e-7
    t = total / np.where(norm < 1e-7, 1.0, norm)
    Q = (np.eye(d) - 2.0 * t[:, :, None] * t[:, None, :]) @ (np.eye(d) - 2.0 * start[:, :, None] * start[:, None, :])
    for n in np.flatnonzero(opposite):
        axis = np.eye(d)[np.argmin(np.abs(start[n]))]
        axis = axis - (axis @ start[n]) * start[n]
        axis /= np.linalg.norm(axis)
        Q[n] = np.eye(d) - 2.0 * np.outer(start[n], start[n]) - 2.0 * np.outer(axis, axis)
    return Q


def _in_first_axes(d: int, *columns: FloatArray) -> FloatArray:
    x = np.zeros((len(columns[0]), d))
    for k, column in enumerate(columns):
        x[:, k] = column
    return x


def _on_latitude(d: int, azimuth: FloatArray, latitude: FloatArray) -> FloatArray:
    radius = np.cos(latitude)
    return _in_first_axes(d, radius * np.cos(azimuth), radius * np.sin(azimuth), np.sin(latitude))


def _points(case: Case) -> Map:
    table = case.auxiliary
    if table.file is not None:
        try:
            points, columns = read_points(table.file, case.dimension, ("weight",))
        except ValueError as error:
            raise CaseError([f"auxiliary.file: {error}"]) from None
        shares = columns.get("weight", np.ones(len(points)))
        if shares.min() < 0.0 or not 0.0 < sum(shares.tolist()) < np.inf:
            raise CaseError(
                [f"auxiliary.file: {table.file.name}: weights must be ≥ 0, not all zero, and have a finite sum"]
            )
    else:
        points = np.array([unit(point) for point in table.points or ()])
        shares = np.array(table.shares or (1.0,) * len(points))
    return lambda labels: points[_component(labels, shares)[0]]


def _component(labels: FloatArray, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Number of the share of [0, 1) in which each label lies, and the place in it, in [0, 1)."""
    ends = np.cumsum(shares) / shares.sum()
    place = np.mod(labels, 1.0)
    number = np.minimum(np.searchsorted(ends, place + _SHARP, side="right"), np.flatnonzero(shares)[-1])
    starts = ends - shares / shares.sum()
    inside = (place - starts[number]) / (shares / shares.sum())[number]
    return number, np.clip(inside, 0.0, 1.0 - 2.0**-_BITS)


def _latitude_circle(case: Case) -> Map:
    latitude, d = case.auxiliary.latitude, case.dimension
    return lambda labels: _on_latitude(d, 2.0 * np.pi * labels, np.full(len(labels), latitude))


def _great_circle(case: Case) -> Map:
    d = case.dimension
    return lambda labels: _in_first_axes(d, np.cos(2.0 * np.pi * labels), np.sin(2.0 * np.pi * labels))


def _wave(case: Case) -> Map:
    table, d = case.auxiliary, case.dimension
    return lambda labels: _on_latitude(
        d, 2.0 * np.pi * labels, table.amplitude * np.sin(2.0 * np.pi * table.waves * labels)
    )


def _spiral(case: Case) -> Map:
    turns, d = case.auxiliary.turns, case.dimension

    def spiral(labels: FloatArray) -> FloatArray:
        place = np.mod(labels, 1.0)
        return _on_latitude(d, 2.0 * np.pi * turns * place, np.arcsin(np.clip(1.0 - 2.0 * place, -1.0, 1.0)))

    return spiral


def _uniform(case: Case) -> Map:
    d = case.dimension
    return lambda labels: _about_first_axis(_coordinates(np.mod(labels, 1.0), d - 1), 0.0)


def _von_mises_fisher(case: Case) -> Map:
    table, d = case.auxiliary, case.dimension
    means = np.array([unit(mean) for mean in table.means or (tuple(np.eye(d)[0]),)])
    kappas = np.array(table.kappas or (10.0,) * len(means))
    shares = np.array(table.shares or (1.0,) * len(means))
    turns = rotations_between(np.broadcast_to(np.eye(d)[0], means.shape), means)

    def law(labels: FloatArray) -> FloatArray:
        number, place = _component(labels, shares)
        coordinates = _coordinates(place, d - 1)
        x = np.empty((len(labels), d))
        for k in np.unique(number):
            mine = number == k
            x[mine] = _about_first_axis(coordinates[mine], float(kappas[k])) @ turns[k].T
        return x

    return law


def _coordinates(place: FloatArray, count: int) -> FloatArray:
    """Measure-preserving map of [0, 1) onto the unit cube, (n, count): the binary digits dealt out in turn."""
    digits = _BITS // count
    whole = (place * 2.0 ** (digits * count)).astype(np.uint64)
    result = np.zeros((len(place), count), dtype=np.uint64)
    for k in range(digits * count):
        digit = (whole >> np.uint64(digits * count - 1 - k)) & np.uint64(1)
        result[:, k % count] |= digit << np.uint64(digits - 1 - k // count)
    result ^= np.uint64(_SCRAMBLE >> (_BITS - digits))
    cube: FloatArray = (result.astype(np.float64) + 0.5) / 2.0**digits
    return cube


def _about_first_axis(coordinates: FloatArray, kappa: float) -> FloatArray:
    """Points whose law is von Mises–Fisher about e₁ where the coordinates are uniform in the cube (n, d − 1)."""
    d = coordinates.shape[1] + 1
    if d == 2:
        signed = 2.0 * coordinates[:, 0] - 1.0
        angle = np.sign(signed) * angle_quantile(kappa, 2, np.abs(signed))
        return np.column_stack([np.cos(angle), np.sin(angle)])
    angle = angle_quantile(kappa, d, coordinates[:, 0])
    rest = _about_first_axis(coordinates[:, 1:], 0.0)
    return np.column_stack([np.cos(angle), np.sin(angle)[:, None] * rest])


MAPS: dict[str, Callable[[Case], Map]] = {
    "points": _points,
    "latitude_circle": _latitude_circle,
    "great_circle": _great_circle,
    "wave": _wave,
    "spiral": _spiral,
    "uniform": _uniform,
    "von_mises_fisher": _von_mises_fisher,
}
