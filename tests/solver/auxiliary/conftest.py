"""Cases whose tokens carry labels."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from solver.case import Case

MANIFOLDS = {2: "circle", 3: "sphere"}


@pytest.fixture
def labelled(make_case: Callable[..., Case]) -> Callable[..., Case]:
    """A small case in R^d with keys of [auxiliary], and others such as ``{"particles.n": 8}``; A = 1 by default."""

    def make(d: int, table: dict[str, object], others: dict[str, object] | None = None) -> Case:
        axes: dict[str, object] = {"attention.eigenvalues": [1.0] * d}
        if d not in MANIFOLDS:
            axes["geometry.manifold"], axes["geometry.dimension"], axes["geometry.h"] = "hypersphere", d, None
            axes["initial.mean"] = axes["objective.target"] = [1.0] * d
        keys = {f"auxiliary.{key}": value for key, value in table.items()}
        return make_case(MANIFOLDS.get(d, "sphere"), {**axes, **keys, **(others or {})})

    return make
