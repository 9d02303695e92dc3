"""Stationary states of a case, stable or not, and what is measured around them."""

from __future__ import annotations

import math
from collections.abc import Callable

from mpi4py import MPI

import numpy as np
import pytest
from system.studies import circle_h

from solver.case import Case
from solver.problem import Problem
from solver.theory.equilibrium import (
    Equilibrium,
    TheoryError,
    critical_point,
    equilibrium_from,
    equilibrium_near,
    rayleigh_quotient,
)
from solver.theory.spectrum import slow_modes
from solver.theory.stationary import gibbs_density, newton_state, stationary_state
from solver.types import FloatArray

MakeCase = Callable[..., Case]
MakeEquilibrium = Callable[..., Equilibrium]
MANIFOLDS = ["circle", "sphere"]


def _cluster(problem: Problem, axis: int, kappa: float) -> FloatArray:
    return gibbs_density(problem.space, kappa * problem.space.x[:, [axis]].T, 1.0)


def _rough(state: Equilibrium, seed: int) -> FloatArray:
    """A function that is smooth but no mode."""
    c, b = np.random.default_rng(seed).standard_normal((2, state.problem.space.dimension))
    return np.sin(2 * state.problem.space.x @ c) + state.problem.space.x @ b


@pytest.mark.serial
@pytest.mark.parametrize(
    ("manifold", "epsilon"), [("circle", 0.02), ("circle", 0.1), ("circle", 0.3), ("sphere", 0.1), ("sphere", 0.3)]
)
def test_newton_finds_the_fixed_points_state(manifold: str, epsilon: float, make_equilibrium: MakeEquilibrium) -> None:
    """Catches a wrong Jacobian: the same state as by fixed-point iteration, in a few quadratic steps."""
    state = make_equilibrium(manifold, epsilon)
    problem = state.problem
    nearby = stationary_state(problem.space, problem.attention, np.ones(1), 1.2 * epsilon, state.state.mu).mu
    newton = newton_state(problem.space, problem.attention, epsilon, problem.attention.moments(nearby))
    assert newton.converged
    assert newton.iterations <= 8
    assert np.abs(newton.mu - state.state.mu).max() <= 1e-9 * state.state.mu.max()
    assert newton.energy == pytest.approx(state.state.energy, rel=1e-12)


@pytest.mark.serial
@pytest.mark.parametrize(("manifold", "epsilon"), [("circle", 0.02), ("circle", 0.1), ("sphere", 0.1)])
def test_newton_finds_the_saddle(manifold: str, epsilon: float, make_equilibrium: MakeEquilibrium) -> None:
    """Catches a minimum found in place of the saddle near e₂: self-consistent, one falling direction, higher E."""
    state, minimum = make_equilibrium(manifold, epsilon, saddle=True), make_equilibrium(manifold, epsilon)
    problem = state.problem
    again = gibbs_density(
        problem.space, problem.attention.potential(problem.attention.moments(state.state.mu)), epsilon
    )
    assert np.abs(again - state.state.mu).max() <= 1e-9 * state.state.mu.max()
    assert state.mean[1] > 0.7
    assert abs(state.mean[0]) < 0.05
    assert state.flow.index() == 1
    assert minimum.flow.index() == 0
    assert state.state.energy > minimum.state.energy + 0.1


@pytest.mark.serial
@pytest.mark.parametrize("manifold", MANIFOLDS)
def test_quotient_is_a_rayleigh_quotient(manifold: str, make_equilibrium: MakeEquilibrium) -> None:
    """Catches R_ρ with H for H⁻¹ or without centring: a mode's rate at that mode, no less anywhere, homogeneous."""
    state = make_equilibrium(manifold, 0.1)
    modes = state.slow_modes(4)
    for mode in modes:
        f = mode.u / state.flow.q
        assert rayleigh_quotient(state, f) == pytest.approx(mode.rate, rel=1e-7)
        assert rayleigh_quotient(state, 5.0 - 1e-3 * f) == pytest.approx(mode.rate, rel=1e-7)
    for seed in range(5):
        g = _rough(state, seed)
        R = rayleigh_quotient(state, g)
        assert modes[0].rate < R
        assert rayleigh_quotient(state, -4.0 * g + 2.0) == pytest.approx(R, rel=1e-11)
    mixed = 0.6 * modes[0].u + 0.8 * modes[2].u
    # uᵀSu = 1, uᵀQ⁻¹u = Σ c²/a for S-orthonormal modes
    expected = 1.0 / (0.36 / modes[0].rate + 0.64 / modes[2].rate)
    assert rayleigh_quotient(state, mixed / state.flow.q) == pytest.approx(expected, rel=1e-7)


@pytest.mark.serial
@pytest.mark.parametrize("frozen", [False, True])
def test_modes_of_the_cluster_are_found_behind_many_of_the_hilltop(frozen: bool, make_case: MakeCase) -> None:
    """Catches an empty list where more modes of the hilltop are slower than there is room for (here more than nine)."""
    case = make_case("circle", {"noise.epsilon": 0.1, "attention.eigenvalues": [2.0, 0.2], "geometry.h": 0.03})
    state = equilibrium_near(Problem(case, MPI.COMM_SELF), np.eye(2)[0])
    flow = state.frozen_flow if frozen else state.flow
    expected = next(mode for mode in slow_modes(flow, 60, 0.3, state.pole) if mode.place == "cluster")
    found = state.cluster_modes(1, frozen=frozen)
    assert [mode.rate for mode in found] == pytest.approx([expected.rate], rel=1e-7)


@pytest.mark.serial
def test_quotient_is_refused_at_a_saddle(make_equilibrium: MakeEquilibrium) -> None:
    """Catches a number where ‖·‖_{H⁻¹} is no norm."""
    state = make_equilibrium("circle", 0.1, saddle=True)
    with pytest.raises(TheoryError, match="not positive"):
        rayleigh_quotient(state, state.problem.space.x[:, 0])


@pytest.mark.serial
def test_states_that_are_not_reached_are_named(
    make_equilibrium: MakeEquilibrium, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches an unconverged density handed on as stationary, by either method."""
    problem = make_equilibrium("circle", 0.1).problem
    start = _cluster(problem, 1, 20.0)
    monkeypatch.setattr("solver.theory.stationary._MAX_ITERATIONS", 2)
    monkeypatch.setattr("solver.theory.stationary._MAX_NEWTON_ITERATIONS", 2)
    with pytest.raises(TheoryError, match="2 iterations"):
        equilibrium_from(problem, start)
    with pytest.raises(TheoryError, match="Newton"):
        critical_point(problem, problem.attention.moments(start))


@pytest.mark.serial
def test_pole_is_the_direction_of_the_mean(make_equilibrium: MakeEquilibrium) -> None:
    """Catches a pole left at e₁ for clusters elsewhere, and 0/0 where the mean vanishes."""
    problem = make_equilibrium("sphere", 0.1).problem
    mirrored = equilibrium_from(problem, _cluster(problem, 0, -8.0))
    np.testing.assert_allclose(mirrored.pole, mirrored.mean / np.linalg.norm(mirrored.mean), atol=1e-14)
    assert mirrored.pole[0] < -0.99
    circle = make_equilibrium("circle", 0.3).problem
    even = gibbs_density(circle.space, np.zeros((1, len(circle.space.x))), 1.0)
    pair = _cluster(circle, 0, 3.0) + _cluster(circle, 0, -3.0)
    for density in (even, pair):
        state = critical_point(circle, circle.attention.moments(density))
        assert np.linalg.norm(state.pole) == pytest.approx(1.0, abs=1e-14)


@pytest.mark.serial
def test_thermal_variance_of_a_narrow_cluster(make_case: MakeCase) -> None:
    """Catches chords for angles: ∫θ² − ∫sin²θ = ⟨θ⁴⟩/3 ≈ v² for a Gaussian, and v ≈ ε/e."""
    case = make_case("circle", {"noise.epsilon": 0.01, "geometry.h": circle_h(400)})
    state = equilibrium_near(Problem(case, MPI.COMM_SELF), np.eye(2)[0])
    variance, square = state.thermal_variance(np.eye(2)[1]), state.second_moment(np.eye(2)[1])
    assert (variance - square) / square**2 == pytest.approx(1.0, abs=0.05)
    assert variance == pytest.approx(0.01 / math.e, rel=0.02)
    # the narrow cluster in exact arithmetic: θ² weighed by ρ
    space = state.problem.space
    angle = np.arctan2(space.x[:, 1], space.x[:, 0])
    assert variance == pytest.approx(float(space.integrate(state.state.mu[0] * angle**2)), rel=1e-12)


@pytest.mark.serial
def test_thermal_variances_of_all_directions_add_up(make_equilibrium: MakeEquilibrium) -> None:
    """Catches shares of a direction that do not add up: over both axes across the pole, the mean square angle."""
    state = make_equilibrium("sphere", 0.1)
    space = state.problem.space
    along, across = (state.thermal_variance(axis) for axis in np.eye(3)[1:])
    total = float(space.integrate(state.state.mu[0] * np.arccos(np.clip(space.x[:, 0], -1, 1)) ** 2))
    assert along + across == pytest.approx(total, rel=1e-10)
    assert along > across  # λ₂ > λ₃ pulls less back
    assert along > state.second_moment(np.eye(3)[1])
    squares = sum(state.second_moment(axis) for axis in np.eye(3))
    assert squares == pytest.approx(1.0, abs=1e-13)


@pytest.mark.ranks
def test_measures_do_not_depend_on_ranks(make_case: MakeCase) -> None:
    """Catches moments, covariances or norms of one rank only, in both methods and in R_ρ."""
    found = []
    for comm in (MPI.COMM_WORLD, MPI.COMM_SELF):
        problem = Problem(make_case("circle", {"noise.epsilon": 0.1}), comm)
        axis = np.eye(2)[1]
        state = equilibrium_near(problem, np.eye(2)[0])
        saddle = critical_point(problem, problem.attention.moments(_cluster(problem, 1, 20.0)))
        found.append(
            [
                *(state.state.energy, *state.mean, state.second_moment(axis), state.thermal_variance(axis)),
                rayleigh_quotient(state, -problem.space.x[:, 1]),
                *(saddle.state.energy, saddle.mean[1], *saddle.pole, saddle.flow.curvatures[0]),
            ]
        )
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-10)
