"""Checks across keys: lengths against the manifold, files that must exist, sizes the mesh must carry."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from solver.case.auxiliary import OF_LAW, OF_MAP, auxiliary_mistakes, unused_labels
from solver.case.factories import FACTORY_KEYS, is_factory, missing_factory
from solver.case.fields import Unused, unused
from solver.case.schema import SELECTORS, Case, alternatives

__all__ = ["check_case", "largest_kappa", "unused_keys", "without_unused"]

_MAX_STEPS = 1_000_000
_EQUAL = 1e-9  # eigenvalues closer than this, relative to λ₁, count as equal
_MIN_H = {"circle": 1e-5, "sphere": 2e-3}
_NEED_MANIFOLD = {
    "geometry.h",
    "geometry.continuation",
    "attention.eigenvalues",
    "attention.matrix",
    "initial.mean",
    "initial.means",
    "initial.kappa",
    "initial.kappas",
    "objective.target",
    "objective.mean",
    "auxiliary.planes",
    "auxiliary.generators",
    "auxiliary.u",
    "auxiliary.map",
    "auxiliary.points",
    "auxiliary.means",
}
_FURTHER = {  # bad key → keys of which a check may then say what is false
    "geometry": _NEED_MANIFOLD,
    "geometry.manifold": _NEED_MANIFOLD,
    "attention.kernel": {"attention.eigenvalues", "optimizer.start"},
    "attention.matrix": {"attention.eigenvalues"},
    "auxiliary.kernel": {"auxiliary.law"},
    "auxiliary.planes": {"auxiliary.frequencies"},
    "auxiliary.means": {"auxiliary.shares", "auxiliary.kappas"},
    "auxiliary.file": {"auxiliary.points"},
}


def check_case(case: Case, bad: frozenset[str] = frozenset()) -> list[tuple[str, str]]:
    """(key, message) for every mistake that one key alone does not show; unused keys are at most misplaced.

    Args:
        case: The case.
        bad: Keys and sections with mistakes of their own. They have their defaults here, so nothing is said of them,
            nor what would be false with the values that were meant.
    """
    misplaced = [(name, text) for name, text, chosen in unused_keys(case) if not chosen]
    meant = {name for item in bad for name in _of_selector(item)}
    checks = (_geometry, _lengths, _mixture, _kappa, _depth, _optimizer, _auxiliary, _files)
    rest = without_unused(case)
    found = [(name, text) for name, text in misplaced if name not in meant]
    found += [mistake for check in checks for mistake in check(rest)]
    moot = bad.union(*(_FURTHER.get(name, set()) for name in bad))
    return [(name, text) for name, text in found if not moot & {name, name.partition(".")[0]}]


def _of_selector(name: str) -> set[str]:
    """Keys that belong to alternatives of a selector, ``section.key``; none if the key is no selector."""
    section, _, key = name.partition(".")
    keys: set[str] = set(alternatives(section)) if SELECTORS.get(section) == key else set()
    if section == "auxiliary":
        keys |= {"law": set(OF_LAW), "map": set(OF_MAP)}.get(key, set())
    return {f"{section}.{item}" for item in keys}


def unused_keys(case: Case) -> list[Unused]:
    """Keys that were set but mean nothing with the alternative chosen in their section.

    Returns:
        Key, message, and whether the alternative was chosen in so many words; if not, the key is a mistake.
    """
    found: dict[str, Unused] = {}
    for section, selector in SELECTORS.items():
        table = getattr(case, section)
        of_labels = unused_labels(table) if section == "auxiliary" else ()
        for name, text, chosen in (*unused(table, selector, alternatives(section)), *of_labels):
            found.setdefault(f"{section}.{name}", (f"{section}.{name}", text, chosen))
    return list(found.values())


def without_unused(case: Case) -> Case:
    """The case with every unused key at its default."""
    for name, _, _ in unused_keys(case):
        section, _, key = name.partition(".")
        table = getattr(case, section)
        default = type(table).model_fields[key].default
        case = case.model_copy(update={section: table.model_copy(update={key: default})})
    return case


def largest_kappa(h: float) -> float:
    """The sharpest concentration a mesh of edge length h carries: the width 1/√κ must not be below h."""
    return 1.0 / h**2


def _edge_lengths(case: Case) -> list[tuple[str, float]]:
    geometry = case.geometry
    finest = geometry.h or 0.0
    lengths = [("geometry.continuation", h) for h in geometry.continuation if h > finest]
    if geometry.file is None and geometry.manifold in _MIN_H:
        lengths.append(("geometry.h", geometry.h or (0.1 if geometry.manifold == "sphere" else 0.02)))
    return lengths


def _geometry(case: Case) -> Iterator[tuple[str, str]]:
    geometry = case.geometry
    if geometry.file is not None and geometry.h is not None:
        yield "geometry.h", "give either h or file, not both"
    if geometry.manifold == "hypersphere":
        if geometry.dimension is None:
            yield "geometry.dimension", "missing, required with manifold = 'hypersphere': an integer between 2 and 1000"
        for key in ("h", "file", "continuation"):
            if getattr(geometry, key):
                yield f"geometry.{key}", "belongs to a mesh; 'hypersphere' has none"
        return
    smallest = _MIN_H[geometry.manifold]
    for name, h in _edge_lengths(case):
        if not smallest <= h <= 1:
            yield name, f"{h:g} is not allowed: edge lengths on the {geometry.manifold} between {smallest:g} and 1"
    if any(fine >= coarse for coarse, fine in itertools.pairwise(geometry.continuation)):
        yield "geometry.continuation", f"{list(geometry.continuation)} must fall: coarse meshes first"


def _lengths(case: Case) -> Iterator[tuple[str, str]]:
    attention, d = case.attention, case.dimension
    given = (attention.eigenvalues is not None) + (attention.matrix is not None)
    if given > 1 or (given == 0 and not is_factory(attention.kernel)):
        yield "attention.eigenvalues", f"give either eigenvalues ({d} numbers) or matrix ({d} × {d})"
    vectors = {
        "attention.eigenvalues": attention.eigenvalues,
        "attention.matrix": attention.matrix,
        "initial.mean": case.initial.mean,
        "objective.target": case.objective.target,
        "objective.mean": case.objective.mean,
    }
    for name, value in vectors.items():
        if value is not None and len(value) != d:
            what = "rows" if name.endswith("matrix") else "numbers"
            yield name, f"has {len(value)} {what}: {d} on the {case.geometry.manifold}"
    wrong = next((len(mean) for mean in case.initial.means or () if len(mean) != d), None)
    if wrong is not None:
        yield "initial.means", f"has a mean of {wrong} numbers: {d} each on the {case.geometry.manifold}"


def _mixture(case: Case) -> Iterator[tuple[str, str]]:
    initial = case.initial
    if initial.law == "file" and initial.file is None:
        yield "initial.file", "missing, required with law = 'file': path of a .npz or .csv file"
    if initial.law != "mixture":
        return
    count = len(initial.means or ())
    if count == 0:
        yield "initial.means", "missing, required with law = 'mixture': a list of directions"
        return
    if initial.kappas is None:
        yield (
            "initial.kappas",
            f"missing, required with law = 'mixture': {count} numbers ≥ 0, one for each of the means",
        )
    for key in ("kappas", "weights"):
        values = getattr(initial, key)
        if values is not None and len(values) != count:
            yield f"initial.{key}", f"has {len(values)} numbers: {count}, one for each of the means"
    if min(initial.kappas or (0.0,)) < 0:
        yield "initial.kappas", f"{list(initial.kappas or ())} is not allowed: numbers ≥ 0"


def _kappa(case: Case) -> Iterator[tuple[str, str]]:
    key, kappa = case.sharpest_kappa
    for name, h in _edge_lengths(case):
        limit = largest_kappa(h)
        if kappa > limit * (1 + 1e-9):
            yield key, f"{kappa:g} is too sharp for {name} = {h:g}: at most {limit:.4g}"
            return


def _depth(case: Case) -> Iterator[tuple[str, str]]:
    depth = case.depth
    if depth.grid == "uniform":
        if depth.steps is None:
            yield "depth.steps", "missing, required with grid = 'uniform': an integer ≥ 1"
        elif depth.steps > _MAX_STEPS:
            yield "depth.steps", f"{depth.steps} is not allowed: at most {_MAX_STEPS}"
        return
    fine = 2 * min(depth.layer, 0.5 * depth.T) / depth.first_step
    rest = max(depth.T - 2 * depth.layer, 0.0) / depth.first_step
    grown = rest if depth.growth == 1 else 2 * math.log1p(0.5 * rest * (depth.growth - 1)) / math.log(depth.growth)
    if fine + grown > _MAX_STEPS:
        yield "depth.first_step", f"{depth.first_step:g} gives {fine + grown:.1e} steps: at most {_MAX_STEPS}"


def _optimizer(case: Case) -> Iterator[tuple[str, str]]:
    if case.optimizer.method == "sweep" and case.objective.regularization == 0.0:
        yield (
            "optimizer.method",
            "'sweep' needs objective.regularization above 0: it iterates W = −(1/λ_reg) Σρ∫∇φσᵀdμ; allowed at 0 are "
            "'lbfgs', 'gradient' and 'none'",
        )
    if case.optimizer.start == "steer":
        yield from _saddle(case)


def _auxiliary(case: Case) -> Iterator[tuple[str, str]]:
    table = case.auxiliary
    yield from auxiliary_mistakes(table, case.dimension)
    if table.kernel == "toeplitz" and case.attention.normalized:
        yield "attention.normalized", "true is not allowed with kernel = 'toeplitz', which has negative values"


def _saddle(case: Case) -> Iterator[tuple[str, str]]:
    """'steer' waits at ±v₂: a saddle only if λ₁ > λ₂, and a place that holds a cluster together only if λ₂ > 0."""
    if is_factory(case.attention.kernel):
        yield "optimizer.start", "'steer' knows the saddles of kernel = 'exponential' only; use 'zero'"
        return
    if case.auxiliary.kernel != "usa":
        yield (
            "optimizer.start",
            f"'steer' knows no labels, auxiliary.kernel = '{case.auxiliary.kernel}' has; use 'zero'",
        )
        return
    if len(case.matrix) != case.dimension:
        return
    *_, second, first = np.linalg.eigvalsh(np.array(case.matrix))
    if min(second, first - second) <= _EQUAL * first:
        yield (
            "optimizer.start",
            f"'steer' waits at the saddle of attention, which needs eigenvalues λ₁ > λ₂ > 0: here λ₁ = {first:.4g}, "
            f"λ₂ = {max(second, 0.0):.4g}; use 'zero'",
        )


def _files(case: Case) -> Iterator[tuple[str, str]]:
    files = {
        "geometry.file": case.geometry.file,
        "initial.file": case.initial.file,
        "objective.file": case.objective.file,
        "auxiliary.file": case.auxiliary.file,
    }
    for name, path in files.items():
        if path is not None and not _is_file(path):
            yield name, f"there is no file {path}"
    start = case.optimizer.start
    if start not in {"zero", "steer"} and not _is_file(Path(start)):
        yield "optimizer.start", f"there is no file {start}: 'zero', 'steer' or the path of a control.npz"
    for section, key in FACTORY_KEYS:
        value = getattr(getattr(case, section), key)
        wrong = missing_factory(value) if is_factory(value) else None
        if wrong is not None:
            yield f"{section}.{key}", wrong


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that the system does not allow
        return False
