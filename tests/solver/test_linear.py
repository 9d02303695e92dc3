"""The implicit solves (M + Δt L) x = b."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.linear import ImplicitSolver, LinearSolveError
from solver.operator import EdgeAveragedOperator, Rates
from solver.parallel import allreduce
from solver.space import Space

MakeSpace = Callable[[str, float], Space]
EPSILON = 0.02


def _lu(space: Space) -> dict[str, Any]:
    options: dict[str, Any] = {"ksp_type": "preonly", "pc_type": "lu"}
    return options if space.comm.size == 1 else {**options, "pc_factor_mat_solver_type": "mumps"}


def _rates(space: Space, size: float, seed: int) -> Rates:
    """Of a drift with a rough and a smooth part."""
    V = size * np.sin(3 * space.x[:, 0] + seed) * space.x[:, 1]
    i, j = space.edges.T
    rough = np.random.default_rng([seed, space.comm.rank]).standard_normal(len(space.edges))
    d = np.stack([V[j] - V[i] + 0.1 * size * space.h * rough, V[i] - V[j]])
    return EdgeAveragedOperator(space, EPSILON).rates(d)


def _density(space: Space) -> np.ndarray:
    mu = np.stack([np.exp(3 * space.x[:, 0]), np.exp(30 * (space.x[:, 1] - 1))])
    return mu / space.integrate(mu)[:, None]


def _residual(space: Space, rates: Rates, dt: float, x: np.ndarray, b: np.ndarray, transpose: bool) -> np.ndarray:
    operator = EdgeAveragedOperator(space, EPSILON)
    Lx = operator.apply_transpose(rates, x) if transpose else operator.apply(rates, x)
    return (space.mass * x + dt * Lx - b)[:, : space.owned]


def _stiffness(space: Space, rates: Rates, dt: float) -> float:
    """max(1, Δt ‖M⁻¹L‖_∞), by which round-off grows."""
    out = space.sum_to_nodes(rates.forward, rates.backward) / space.mass
    local = out[:, : space.owned].max(initial=0.0)
    return max(1.0, 2 * dt * max(space.comm.allgather(float(local))))


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("dt", [1e-3, 0.1, 10.0, 100.0])
@pytest.mark.parametrize(("manifold", "h"), [("circle", 0.1), ("circle", 1.0), ("sphere", 0.35)])
def test_solves_the_system(manifold: str, h: float, dt: float, transpose: bool, make_space: MakeSpace) -> None:
    """Catches a matrix with rows and columns exchanged or labels mixed, and a solver that stops early."""
    space = make_space(manifold, h)
    solver, rates, mu = ImplicitSolver(space, {}), _rates(space, 1.0, 0), _density(space)
    b = space.mass * mu
    x = solver.solve(rates, dt, b, guess=mu, transpose=transpose)
    residual = _residual(space, rates, dt, x, b, transpose)
    norm = float(np.sqrt(allreduce(space.comm, (residual**2).sum())))
    scale = float(np.sqrt(allreduce(space.comm, (b[:, : space.owned] ** 2).sum())))
    assert norm <= 1e-13 * scale * _stiffness(space, rates, dt)
    ghosts = x.copy()
    space.update_ghosts(ghosts)
    assert np.array_equal(ghosts, x)


@given(seed=st.integers(0, 1000), size=st.sampled_from([0.1, 1.0, 10.0]), dt=st.sampled_from([1e-3, 0.03, 1.0, 100.0]))
def test_mass_and_positivity_with_krylov(seed: int, size: float, dt: float) -> None:
    """Catches mass lost in the Krylov residual, and dips below zero: 1e-14 of mass a step, −1e-13 of the maximum."""
    space, solver = _shared()
    rates, mu = _rates(space, size, seed), _density(space)
    x = solver.solve(rates, dt, space.mass * mu, guess=mu)
    assert np.abs(space.integrate(x) - space.integrate(mu)).max() <= 2e-14 * _stiffness(space, rates, dt)
    lowest = min(space.comm.allgather(float((x / x.max(initial=1.0)).min(initial=0.0))))
    assert lowest >= -1e-13


_CACHE: list[tuple[Space, ImplicitSolver]] = []


def _shared() -> tuple[Space, ImplicitSolver]:
    from mpi4py import MPI

    from meshes.sphere import sphere
    from solver.parallel import on_root
    from solver.space import create_space

    if not _CACHE:
        comm = MPI.COMM_WORLD
        space = create_space(comm, on_root(comm, lambda: sphere(0.35), share=False), 3)
        _CACHE.append((space, ImplicitSolver(space, {})))
    return _CACHE[0]


@pytest.mark.parametrize("dt", [1e-3, 0.1, 100.0])
@pytest.mark.parametrize(("manifold", "h"), [("circle", 0.1), ("sphere", 0.35)])
def test_lu_option_is_positive_without_tolerance(manifold: str, h: float, dt: float, make_space: MakeSpace) -> None:
    """Catches pivoting or an ordering that breaks the signs, and [petsc] options for LU that PETSc refuses."""
    space = make_space(manifold, h)
    solver, rates, mu = ImplicitSolver(space, _lu(space)), _rates(space, 5.0, 1), _density(space)
    x = solver.solve(rates, dt, space.mass * mu, guess=mu)
    assert min(space.comm.allgather(float(x.min(initial=0.0)))) >= 0.0
    assert np.abs(space.integrate(x) - 1).max() <= 1e-14 * _stiffness(space, rates, dt)
    assert solver.fallbacks == 0


@pytest.mark.ranks
@pytest.mark.parametrize("transpose", [False, True])
def test_fallback_on_lu_is_reached_and_right(transpose: bool, make_space: MakeSpace) -> None:
    """Catches a failed Krylov solve whose unconverged answer is used, and a fallback that solves another system."""
    space = make_space("sphere", 0.35)
    rates, mu = _rates(space, 1.0, 2), _density(space)
    b = space.mass * mu
    hobbled, plain = ImplicitSolver(space, {"ksp_max_it": 1}), ImplicitSolver(space, {})
    x = hobbled.solve(rates, 10.0, b, guess=np.ones_like(mu), transpose=transpose)
    assert hobbled.fallbacks == 2  # one for each label
    assert plain.fallbacks == 0
    y = plain.solve(rates, 10.0, b, guess=mu, transpose=transpose)
    assert plain.fallbacks == 0
    assert np.abs(x - y).max(initial=0.0) <= 1e-11 * np.abs(y).max(initial=1.0)
    if not transpose:
        assert np.abs(space.integrate(x) - 1).max() <= 1e-14 * _stiffness(space, rates, 10.0)
    z = hobbled.solve(_rates(space, 1.0, 3), 0.1, b, guess=np.ones_like(mu), transpose=transpose)
    assert hobbled.fallbacks == 4
    residual = _residual(space, _rates(space, 1.0, 3), 0.1, z, b, transpose)
    assert np.abs(residual).max(initial=0.0) <= 1e-13  # the second factorisation is of the second matrix


@pytest.mark.ranks
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("transpose", [False, True])
def test_non_finite_right_hand_side_raises_on_all_ranks(bad: float, transpose: bool, make_space: MakeSpace) -> None:
    """Catches nan passed on as a density, or an error on the one rank that sees it while the others wait."""
    space = make_space("sphere", 0.35)
    solver, rates, mu = ImplicitSolver(space, {}), _rates(space, 1.0, 0), _density(space)
    b = space.mass * mu
    if space.comm.rank == space.comm.size - 1:
        b[1, 0] = bad
    with pytest.raises(LinearSolveError, match="linear solve failed"):
        solver.solve(rates, 0.1, b, guess=mu, transpose=transpose)
    again = solver.solve(rates, 0.1, space.mass * mu, guess=mu, transpose=transpose)  # nothing is poisoned
    fresh = ImplicitSolver(space, {}).solve(rates, 0.1, space.mass * mu, guess=mu, transpose=transpose)
    assert np.array_equal(again, fresh)


@pytest.mark.ranks
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_non_finite_matrix_raises_on_all_ranks(make_space: MakeSpace) -> None:
    """Catches a control that overflowed: the drift is nan on one rank and every rank must stop."""
    space = make_space("sphere", 0.35)
    solver, rates, mu = ImplicitSolver(space, {}), _rates(space, 1.0, 0), _density(space)
    if space.comm.rank == 0:
        rates.forward[0, 0] = np.nan
    with pytest.raises(LinearSolveError, match=r"not finite|linear solve failed"):
        solver.solve(rates, 0.1, space.mass * mu, guess=mu)


def test_message_says_what_petsc_meant(make_space: MakeSpace) -> None:
    """Catches a bare 'reason −9': the message must say that the system was not finite."""
    space = make_space("circle", 0.1)
    mu = _density(space)
    with pytest.raises(LinearSolveError, match="not finite"):
        ImplicitSolver(space, {}).solve(_rates(space, 1.0, 0), 0.1, np.full_like(mu, np.nan), guess=mu)


def test_no_memory_between_solves(make_space: MakeSpace) -> None:
    """Catches a warm start or a stale preconditioner: an evaluation must be a pure function of its arguments."""
    space = make_space("sphere", 0.35)
    solver, mu = ImplicitSolver(space, {}), _density(space)
    first = solver.solve(_rates(space, 1.0, 0), 0.1, space.mass * mu, guess=mu)
    solver.solve(_rates(space, 8.0, 5), 3.0, space.mass * mu, guess=mu, transpose=True)
    assert np.array_equal(solver.solve(_rates(space, 1.0, 0), 0.1, space.mass * mu, guess=mu), first)


def test_zero_right_hand_side(make_space: MakeSpace) -> None:
    """Catches a relative tolerance that can never be met: the adjoint of a constant loss is exactly zero."""
    space = make_space("sphere", 0.35)
    solver, mu = ImplicitSolver(space, {}), _density(space)
    for guess in (np.zeros_like(mu), mu):
        x = solver.solve(_rates(space, 1.0, 0), 0.1, np.zeros_like(mu), guess=guess, transpose=True)
        assert np.abs(x).max(initial=0.0) <= 1e-13


def test_arguments_are_not_changed(make_space: MakeSpace) -> None:
    """Catches a solve that overwrites the density it starts from."""
    space = make_space("circle", 0.1)
    mu = _density(space)
    b, guess = space.mass * mu, mu.copy()
    before = b.copy()
    ImplicitSolver(space, {}).solve(_rates(space, 1.0, 0), 0.1, b, guess=guess)
    assert np.array_equal(b, before)
    assert np.array_equal(guess, mu)


def test_options_reach_petsc_but_cannot_loosen_the_answer(make_space: MakeSpace) -> None:
    """Catches [petsc] options that are ignored, stay in PETSc's database, or make the program give a wrong answer."""
    from petsc4py import PETSc

    space = make_space("sphere", 0.35)  # (on the circle ILU(0) is exact)
    solver, mu = ImplicitSolver(space, {"ksp_type": "gmres", "ksp_rtol": 1e-3}), _density(space)
    assert not PETSc.Options().getAll()
    sloppy = solver.solve(_rates(space, 1.0, 0), 1.0, space.mass * mu, guess=mu, transpose=True)
    exact = ImplicitSolver(space, {}).solve(_rates(space, 1.0, 0), 1.0, space.mass * mu, guess=mu, transpose=True)
    difference = max(space.comm.allgather(float(np.abs(sloppy - exact).max(initial=0.0))))
    assert difference < 1e-12, "an answer looser than round-off must not pass, whatever the options say"
    assert solver.fallbacks >= 1
