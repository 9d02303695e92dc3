"""Initial laws, as nodal densities of mass one. To add one: write its function here and enter it in `INITIAL_LAWS`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial import ConvexHull, KDTree

from solver.attention.expansion import sample_points
from solver.case.load import CaseError
from solver.case.schema import Case
from solver.parallel import on_root
from solver.points import read_points
from solver.types import FloatArray

if TYPE_CHECKING:
    from solver.auxiliary.coupling import Coupling
    from solver.space import Space

__all__ = [
    "INITIAL_LAWS",
    "initial_densities",
    "initial_density",
    "interpolated",
    "mixture",
    "read_law",
    "smooth_random_field",
    "von_mises_fisher",
]

_WAVES, _WAVE_NUMBER = 12, 3.0
_LABEL_TURNS, _LABELS_LOOKED_AT = 2, 32
_NEAREST = 8
_INSIDE = -1e-9
_BLOCK = 500
_VANISHING = 1e-200


def initial_density(space: Space, case: Case, label: float | None = None) -> FloatArray:
    """The density of a case's [initial] at the nodes, with lumped mass 1, shape (local nodes,). Collective.

    Args:
        space: P1 space.
        case: Resolved case.
        label: ξ, on which the perturbation depends; None where tokens carry none.

    Raises:
        CaseError: Its file cannot be used.
    """
    density = INITIAL_LAWS[case.initial.law](space, case)
    if case.initial.perturbation > 0.0:
        labels = None if label is None else np.full(len(space.x), label)
        density = density * (1.0 + case.initial.perturbation * smooth_random_field(space.x, case.initial.seed, labels))
    if case.initial.law == "file" and not float(space.integrate(density)) > _VANISHING:
        raise CaseError([f"initial.file: that density vanishes at the nodes of this mesh (h = {space.h:.3g})"])
    return _of_mass_one(space, density)


def initial_densities(space: Space, case: Case, coupling: Coupling) -> FloatArray:
    """The density of every label, (labels, local nodes). Collective.

    The law of [initial] is that of x; with ``auxiliary.start = "u"`` it is that of u = Q_ξ x, which is that of x on
    the mesh turned by Q_ξ.

    Raises:
        CaseError: As `initial_density`.
    """
    turned = coupling.frames if case.auxiliary.start == "u" else None
    if turned is None and (case.initial.perturbation == 0.0 or not case.auxiliary.labelled):
        return np.repeat(initial_density(space, case)[None], len(coupling.labels), axis=0)
    spaces = [space] * len(coupling.labels) if turned is None else [replace(space, x=space.x @ Q.T) for Q in turned]
    return np.stack([initial_density(s, case, float(xi)) for s, xi in zip(spaces, coupling.labels, strict=True)])


def _of_mass_one(space: Space, density: FloatArray) -> FloatArray:
    result: FloatArray = density / space.integrate(density)
    return result


def von_mises_fisher(space: Space, mean: FloatArray, kappa: float) -> FloatArray:
    """Density ∝ e^{κ⟨x, mean⟩} of lumped mass 1, shape (local nodes,). Collective.

    Args:
        space: P1 space.
        mean: Unit vector, (d,).
        kappa: κ ≥ 0; 0 is the uniform law.
    """
    return _of_mass_one(space, np.exp(kappa * (space.x @ mean - 1.0)))


def mixture(space: Space, means: FloatArray, kappas: FloatArray, weights: FloatArray) -> FloatArray:
    """Σ_k weights_k · von Mises–Fisher(means_k, kappas_k), shape (local nodes,). Collective.

    Args:
        space: P1 space.
        means: Unit vectors, (n, d).
        kappas: (n,).
        weights: ≥ 0 with a positive sum, (n,).
    """
    shares, density = weights / weights.sum(), np.zeros(len(space.x))
    for start in range(0, len(means), _BLOCK):
        block = slice(start, start + _BLOCK)
        bumps = np.exp(kappas[block, None] * (means[block] @ space.x.T - 1.0))
        density += (shares[block] / space.integrate(bumps)) @ bumps
    return density


def smooth_random_field(x: FloatArray, seed: int, labels: FloatArray | None = None) -> FloatArray:
    """A random sum of plane waves with wave numbers about 3, between −1 and 1, at points (n, d); shape (n,).

    With labels (n,), the waves run along them too, with period 1 or a fraction of it, or stand still: labels differ,
    near ones little.
    """
    generator = np.random.default_rng(seed)
    waves = _WAVE_NUMBER * generator.standard_normal((_WAVES, x.shape[1])) / np.sqrt(x.shape[1])
    phases = generator.uniform(0.0, 2.0 * np.pi, _WAVES)
    turns = 2.0 * np.pi * generator.integers(-_LABEL_TURNS, _LABEL_TURNS + 1, _WAVES)

    def field(points: FloatArray, shifts: FloatArray) -> FloatArray:
        result: FloatArray = np.cos(points @ waves.T + phases + shifts).sum(axis=1)
        return result

    sample = sample_points(x.shape[1])
    looked_at = np.zeros(1) if labels is None else np.arange(_LABELS_LOOKED_AT) / _LABELS_LOOKED_AT
    everywhere = np.concatenate([field(sample, label * turns) for label in looked_at])
    middle, half = 0.5 * (everywhere.max() + everywhere.min()), 0.5 * np.ptp(everywhere)
    shifts = np.zeros((1, _WAVES)) if labels is None else labels[:, None] * turns
    scaled: FloatArray = (field(x, shifts) - middle) / half
    return scaled


def interpolated(x: FloatArray, points: FloatArray, values: FloatArray) -> FloatArray:
    """Nodal values carried to other points of the sphere, linearly on the convex hull of the nodes.

    Args:
        x: Where the values are wanted, unit vectors (n, d).
        points: Nodes, unit vectors (m, d); the origin must lie inside their hull.
        values: At the nodes, (m,).

    Returns:
        Shape (n,); never beyond the extreme values.

    Raises:
        ValueError: The nodes lie on one side of the sphere.
    """
    cells = _hull_cells(points)
    inverse = np.linalg.inv(points[cells].transpose(0, 2, 1))  # x = Σ_k λ_k vertex_k, cell by cell
    count = min(_NEAREST, len(cells))
    nearby = KDTree(points[cells].mean(axis=1)).query(x, k=count)[1].reshape(len(x), count)
    coefficients = np.einsum("nkij,nj->nki", inverse[nearby], x)
    best = coefficients.min(axis=2).argmax(axis=1)
    rows = np.arange(len(x))
    chosen, weights = nearby[rows, best], coefficients[rows, best]
    lost = np.flatnonzero(weights.min(axis=1) < _INSIDE)  # long cells: search all of them
    for block in itertools.batched(lost, _BLOCK):
        some = np.array(block)
        every = np.einsum("kij,nj->nki", inverse, x[some])
        chosen[some] = every.min(axis=2).argmax(axis=1)
        weights[some] = every[np.arange(len(some)), chosen[some]]
    weights = np.maximum(weights, 0.0)
    result: FloatArray = np.einsum("nk,nk->n", weights / weights.sum(axis=1, keepdims=True), values[cells[chosen]])
    return result


def _hull_cells(points: FloatArray) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    try:
        hull = ConvexHull(points)
    except Exception as error:  # Qhull's own errors run over many lines
        raise ValueError("the points span no closed surface") from error
    if hull.equations[:, -1].max() >= 0.0:
        raise ValueError("the points lie on one side of the sphere: nodal values must cover all of it")
    return np.asarray(hull.simplices, dtype=np.int64)


def read_law(case: Case) -> tuple[FloatArray, FloatArray, bool]:
    """Points (n, d) and values (n,) of a case's `initial.file`, and whether they are nodal values of a density.

    Raises:
        CaseError: The file cannot be used.
    """
    path = case.initial.file
    if path is None:
        raise CaseError(["initial.file: missing, required with law = 'file'"])
    try:
        points, columns = read_points(path, case.dimension, ("density", "weight"))
        given = sorted(columns)
        if len(given) > 1 or any(columns[name].min() < 0 or columns[name].max() <= 0 for name in given):
            raise ValueError(f"{path.name}: one column 'density' or 'weight', ≥ 0 and not all zero, is needed")
        if given == ["density"]:
            _hull_cells(points)
    except ValueError as error:
        raise CaseError([f"initial.file: {error}"]) from None
    values = columns[given[0]] / columns[given[0]].max() if given else np.ones(len(points))
    return points, values, given == ["density"]


def _law_of_file(space: Space, case: Case) -> FloatArray:
    """Nodal values (column `density`), or points with weights (column `weight`) smoothed to concentration κ."""
    points, values, nodal = on_root(space.comm, lambda: read_law(case))
    if nodal:
        return interpolated(space.x, points, values)
    return mixture(space, points, np.full(len(points), case.initial.kappa), values)


INITIAL_LAWS: dict[str, Callable[[Space, Case], FloatArray]] = {
    "von_mises_fisher": lambda space, case: von_mises_fisher(space, np.array(case.initial_mean), case.initial.kappa),
    "uniform": lambda space, case: np.ones(len(space.x)),
    "mixture": lambda space, case: mixture(space, *map(np.array, case.mixture)),
    "file": _law_of_file,
}
