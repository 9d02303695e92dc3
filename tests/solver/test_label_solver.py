"""Solves by labels: each rank whole systems, against the solver that spreads every system over all ranks."""

from __future__ import annotations

from collections.abc import Callable

from mpi4py import MPI

import numpy as np
import pytest

from solver.label_solver import LabelParallelSolver, create_solver
from solver.linear import ImplicitSolver, LinearSolveError
from solver.operator import EdgeAveragedOperator, Rates
from solver.space import Space

MakeSpace = Callable[[str, float], Space]
LABELS = 11


def systems(space: Space) -> tuple[Rates, np.ndarray]:
    slope = np.linspace(-2.0, 3.0, LABELS)[:, None]
    V = slope * space.x[:, 0] + np.cos(np.arange(LABELS))[:, None] * space.x[:, 1] ** 2
    mu = np.exp(V)
    return EdgeAveragedOperator(space, 0.1).rates(space.differences(V)), mu / space.integrate(mu)[:, None]


@pytest.mark.ranks
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(("manifold", "h"), [("circle", 0.1), ("sphere", 0.35)])
def test_solutions_do_not_depend_on_who_solves(manifold: str, h: float, transpose: bool, make_space: MakeSpace) -> None:
    """Catches labels or nodes in another order after the exchange, and ghosts that are not the owners' values."""
    space = make_space(manifold, h)
    rates, mu = systems(space)
    rhs = mu if transpose else space.mass * mu
    solver = LabelParallelSolver(space, {}, LABELS)
    x = solver.solve(rates, 0.1, rhs, mu, transpose)
    expected = ImplicitSolver(space, {}).solve(rates, 0.1, rhs, mu, transpose)
    assert x.shape == mu.shape
    assert np.abs(x - expected).max(initial=0.0) <= 1e-12 * np.abs(expected).max(initial=1.0)
    again = x.copy()
    space.update_ghosts(again)
    assert np.array_equal(x, again)
    assert np.array_equal(x, solver.solve(rates, 0.1, rhs, mu, transpose))


@pytest.mark.ranks
def test_mass_of_every_label(make_space: MakeSpace) -> None:
    """Catches edges counted twice or lost between ranks: columns must add up to zero."""
    space = make_space("sphere", 0.35)
    rates, mu = systems(space)
    x = LabelParallelSolver(space, {}, LABELS).solve(rates, 10.0, space.mass * mu, mu)
    assert np.abs(space.integrate(x) - 1.0).max() <= 1e-12


@pytest.mark.ranks
def test_failure_on_one_rank_ends_all(make_space: MakeSpace) -> None:
    """Catches a hang: only the rank with the last label meets a right-hand side that is not finite."""
    space = make_space("sphere", 0.35)
    rates, mu = systems(space)
    rhs = space.mass * mu
    rhs[-1] = np.nan
    with pytest.raises(LinearSolveError, match="not finite"):
        LabelParallelSolver(space, {}, LABELS).solve(rates, 0.1, rhs, mu)


@pytest.mark.ranks
def test_who_solves_what(make_space: MakeSpace) -> None:
    """Catches ranks without a label, and one label handed to many ranks."""
    space = make_space("circle", 0.1)
    by_labels = isinstance(create_solver(space, {}, LABELS), LabelParallelSolver)
    assert by_labels == (1 < space.comm.size <= LABELS)
    assert isinstance(create_solver(space, {}, 1), ImplicitSolver)
    solver = LabelParallelSolver(space, {"ksp_max_it": 1}, LABELS)
    rates, mu = systems(space)
    solver.solve(rates, 0.1, space.mass * mu, mu)
    assert space.comm.allreduce(solver.fallbacks, MPI.SUM) == LABELS
