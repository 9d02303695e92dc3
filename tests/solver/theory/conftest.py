"""Stationary states shared by the tests of the theory."""

from __future__ import annotations

from collections.abc import Callable

from mpi4py import MPI

import numpy as np
import pytest

from solver.case import Case
from solver.problem import Problem
from solver.theory.equilibrium import Equilibrium, critical_point, equilibrium_near
from solver.theory.stationary import gibbs_density

_KEPT: dict[tuple[str, float, bool], Equilibrium] = {}


@pytest.fixture
def make_equilibrium(make_case: Callable[..., Case]) -> Callable[..., Equilibrium]:
    """The state near e₁ of a small case at this ε, on this rank alone; the same object for equal arguments.

    `saddle=True`: the one near e₂.
    """

    def make(manifold: str, epsilon: float, saddle: bool = False) -> Equilibrium:
        key = (manifold, epsilon, saddle)
        if key not in _KEPT:
            other = _KEPT.get((manifold, epsilon, not saddle))
            overrides = {"noise.epsilon": epsilon, "geometry.allow_coarse": True}
            problem = other.problem if other else Problem(make_case(manifold, overrides), MPI.COMM_SELF)
            axes = np.eye(problem.space.dimension)
            if saddle:
                start = gibbs_density(problem.space, 2.0 / epsilon * problem.space.x[:, [1]].T, 1.0)
                _KEPT[key] = critical_point(problem, problem.attention.moments(start), axes[1])
            else:
                _KEPT[key] = equilibrium_near(problem, axes[0])
        return _KEPT[key]

    return make
