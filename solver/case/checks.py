"""Checks across keys: lengths against the manifold, files that must exist, sizes the mesh must carry."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path

from solver.case.schema import DIMENSIONS, METHOD_OF, Case

__all__ = ["check_case", "largest_kappa"]

_MAX_STEPS = 1_000_000
_MIN_H = {"circle": 1e-5, "sphere": 2e-3}


def check_case(case: Case) -> list[tuple[str, str]]:
    """(key, message) for every mistake that one key alone does not show."""
    return [*_geometry(case), *_lengths(case), *_kappa(case), *_depth(case), *_optimizer(case), *_files(case)]


def largest_kappa(h: float) -> float:
    """The sharpest concentration a mesh of edge length h carries: the width 1/√κ must not be below h."""
    return 1.0 / h**2


def _edge_lengths(case: Case) -> list[tuple[str, float]]:
    geometry = case.geometry
    finest = geometry.h or 0.0
    lengths = [("geometry.continuation", h) for h in geometry.continuation if h > finest]
    if geometry.file is None:
        lengths.append(("geometry.h", geometry.h or (0.1 if geometry.manifold == "sphere" else 0.02)))
    return lengths


def _geometry(case: Case) -> Iterator[tuple[str, str]]:
    geometry = case.geometry
    if geometry.file is not None and geometry.h is not None:
        yield "geometry.h", "give either h or file, not both"
    smallest = _MIN_H[geometry.manifold]
    for name, h in _edge_lengths(case):
        if not smallest <= h <= 1:
            yield name, f"{h:g} is not allowed: edge lengths on the {geometry.manifold} between {smallest:g} and 1"
    if any(fine >= coarse for coarse, fine in itertools.pairwise(geometry.continuation)):
        yield "geometry.continuation", f"{list(geometry.continuation)} must fall: coarse meshes first"


def _lengths(case: Case) -> Iterator[tuple[str, str]]:
    attention, d = case.attention, DIMENSIONS[case.geometry.manifold]
    if (attention.eigenvalues is None) == (attention.matrix is None):
        yield "attention.eigenvalues", f"give either eigenvalues ({d} numbers) or matrix ({d} × {d})"
    vectors = {
        "attention.eigenvalues": attention.eigenvalues,
        "attention.matrix": attention.matrix,
        "initial.mean": case.initial.mean,
        "objective.target": case.objective.target,
    }
    for name, value in vectors.items():
        if value is not None and len(value) != d:
            what = "rows" if name.endswith("matrix") else "numbers"
            yield name, f"has {len(value)} {what}: {d} on the {case.geometry.manifold}"


def _kappa(case: Case) -> Iterator[tuple[str, str]]:
    for name, h in _edge_lengths(case):
        limit = largest_kappa(h)
        if case.initial.kappa > limit:
            yield "initial.kappa", f"{case.initial.kappa:g} is too sharp for {name} = {h:g}: at most {limit:.4g}"
            return


def _depth(case: Case) -> Iterator[tuple[str, str]]:
    depth = case.depth
    if depth.grid == "uniform":
        for key in sorted({"first_step", "layer", "growth"} & depth.model_fields_set):
            yield f"depth.{key}", "belongs to grid = 'graded'; a uniform grid has steps"
        if depth.steps is None:
            yield "depth.steps", "missing, required with grid = 'uniform': an integer ≥ 1"
        elif depth.steps > _MAX_STEPS:
            yield "depth.steps", f"{depth.steps} is not allowed: at most {_MAX_STEPS}"
        return
    if depth.steps is not None:
        yield "depth.steps", "belongs to grid = 'uniform'; a graded grid has first_step, layer and growth"
    fine = 2 * min(depth.layer, 0.5 * depth.T) / depth.first_step
    rest = max(depth.T - 2 * depth.layer, 0.0) / depth.first_step
    grown = rest if depth.growth == 1 else 2 * math.log1p(0.5 * rest * (depth.growth - 1)) / math.log(depth.growth)
    if fine + grown > _MAX_STEPS:
        yield "depth.first_step", f"{depth.first_step:g} gives {fine + grown:.1e} steps: at most {_MAX_STEPS}"


def _optimizer(case: Case) -> Iterator[tuple[str, str]]:
    optimizer = case.optimizer
    for key, method in METHOD_OF.items():
        if key in optimizer.model_fields_set and optimizer.method != method:
            yield f"optimizer.{key}", f"belongs to method = {method!r}; the method is {optimizer.method!r}"
    if optimizer.method == "sweep" and case.objective.regularization == 0.0:
        yield (
            "optimizer.method",
            "'sweep' needs objective.regularization above 0: it iterates W = −(1/λ_reg) Σρ∫∇φσᵀdμ; allowed at 0 are "
            "'lbfgs', 'gradient' and 'none'",
        )


def _files(case: Case) -> Iterator[tuple[str, str]]:
    if case.geometry.file is not None and not case.geometry.file.is_file():
        yield "geometry.file", f"there is no file {case.geometry.file}"
    if case.optimizer.start != "zero" and not Path(case.optimizer.start).is_file():
        yield "optimizer.start", f"there is no file {case.optimizer.start}: 'zero' or the path of a control.npz"
