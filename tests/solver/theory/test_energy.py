"""Energy gap and dissipation from g = log(μ/ρ), μ = ρ(1 + η), against E, the scheme and the linearised flow."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from mpi4py import MPI

import numpy as np
import pytest

from solver.case import Case
from solver.problem import Problem
from solver.schemes.euler import Euler
from solver.theory.energy import dissipation, energy_gap, free_energy
from solver.theory.equilibrium import Equilibrium, equilibrium_near
from solver.theory.spectrum import slow_modes
from solver.types import FloatArray

MakeCase = Callable[..., Case]
MakeEquilibrium = Callable[..., Equilibrium]
MANIFOLDS = ["circle", "sphere"]


def _perturbations(state: Equilibrium, size: float, count: int = 3) -> FloatArray:
    """η of about this size with ∫ρη = 0, that varies over the cluster's width, (count, local nodes)."""
    space = state.problem.space
    rows = []
    for seed in range(count):
        c = np.random.default_rng(seed).standard_normal(space.dimension)
        eta = np.sin(space.x @ c / np.sqrt(state.problem.epsilon) + seed)
        rows.append(eta - float(space.integrate(state.state.mu[0] * eta)))
    return size * np.array(rows)


def _gap(state: Equilibrium, eta: FloatArray) -> FloatArray:
    problem = state.problem
    with np.errstate(divide="ignore"):  # of empty places
        return energy_gap(problem.space, problem.attention, problem.epsilon, state.flow.log_density, np.log1p(eta))


def _dissipation(state: Equilibrium, eta: FloatArray) -> FloatArray:
    problem = state.problem
    log_rho = state.flow.log_density
    return dissipation(problem.space, problem.attention, problem.epsilon, log_rho, np.log1p(eta))


def _energy(state: Equilibrium, mu: FloatArray) -> float:
    problem = state.problem
    energy = free_energy(problem.space, problem.attention, np.ones(1), problem.epsilon, mu)
    assert energy is not None
    return energy


@pytest.mark.serial
@pytest.mark.parametrize("manifold", MANIFOLDS)
@pytest.mark.parametrize("epsilon", [0.02, 0.3])
def test_gap_is_the_difference_of_energies(manifold: str, epsilon: float, make_equilibrium: MakeEquilibrium) -> None:
    """Catches a missing term: Δ against E(ρ(1 + η)) − E(ρ) for large η, down to empty places (η = −1)."""
    state = make_equilibrium(manifold, epsilon)
    rho = state.state.mu
    eta = _perturbations(state, 0.3)
    emptied = np.where(state.problem.space.x[:, 1] > 0.1, 0.0, 1.0)[None]
    emptied = emptied / state.problem.space.integrate(rho * emptied)[:, None] - 1.0
    for row in (*eta, *emptied):
        expected = _energy(state, rho * (1 + row)) - state.state.energy
        assert expected > 1e-7
        assert float(_gap(state, row[None])[0]) == pytest.approx(expected, abs=1e-13)
    np.testing.assert_allclose(_gap(state, eta), [_gap(state, row[None])[0] for row in eta], rtol=1e-12)


@pytest.mark.serial
@pytest.mark.parametrize("manifold", MANIFOLDS)
@pytest.mark.parametrize("epsilon", [0.02, 0.3])
def test_dissipation_is_the_loss_of_energy_of_the_scheme(
    manifold: str, epsilon: float, make_equilibrium: MakeEquilibrium
) -> None:
    """Catches a flux of another discretisation: D against −ΔE/Δt of two tiny Euler steps, extrapolated to Δt → 0."""
    state = make_equilibrium(manifold, epsilon)
    problem = state.problem
    eta = _perturbations(state, 0.3)
    W = np.zeros(problem.control_shape[1:])
    for row, found in zip(eta, _dissipation(state, eta), strict=True):
        mu = state.state.mu * (1 + row)
        before = _energy(state, mu)
        losses = []
        for dt in (4e-5, 2e-5):
            after = Euler().step(problem.dynamics, mu, W, dt).after
            losses.append((before - _energy(state, after)) / dt)
        assert found == pytest.approx(2 * losses[1] - losses[0], rel=1e-5)


@pytest.mark.serial
@pytest.mark.parametrize("manifold", MANIFOLDS)
def test_small_perturbations_keep_all_digits(manifold: str, make_equilibrium: MakeEquilibrium) -> None:
    """Catches cancellation: Δ = ½ zᵀQz + O(η³) and D = zᵀQSQz + O(η³), z = qη, down to Δ of the order of 1e-16."""
    state = make_equilibrium(manifold, 0.1)
    flow = state.flow
    one = _perturbations(state, 1.0)
    gaps, losses = [], []
    for row in one:
        z = flow.q * row
        slope = flow.apply_variation(z)
        gaps.append(0.5 * float(z @ slope))
        losses.append(float(slope @ flow.diffuse(slope)))
    for size in (1e-3, 1e-5, 1e-6, 1e-8):
        # 1e-10: that of the expansion and of ρ, a fixed point
        np.testing.assert_allclose(_gap(state, size * one) / size**2, gaps, rtol=10 * size + 1e-9)
        np.testing.assert_allclose(_dissipation(state, size * one) / size**2, losses, rtol=100 * size + 1e-6)
    assert _gap(state, 0.0 * one) == pytest.approx([0.0] * 3, abs=0.0)
    assert _dissipation(state, 0.0 * one) == pytest.approx([0.0] * 3, abs=0.0)


@pytest.mark.serial
@pytest.mark.parametrize("size", [0.5, 2e-2, 1.001e-3, 0.999e-3, 3e-5, 1e-6, 1e-9])
def test_entropy_of_small_perturbations_in_longer_numbers(size: float, make_equilibrium: MakeEquilibrium) -> None:
    """Catches a wrong coefficient of the series or a jump where it takes over: digits of ∫ρ[g e^g − (e^g − 1)]."""
    state = make_equilibrium("circle", 0.1)
    problem, log_rho = state.problem, state.flow.log_density
    g = size * np.sin(5.0 * problem.space.x[:, 1] + 1.0)
    # without attention only the entropy is left
    attention = SimpleNamespace(psi=np.zeros((len(g), 1)), signs=np.ones(1))
    found = energy_gap(problem.space, attention, 0.1, log_rho, g[None])[0]
    wide, rho = g.astype(np.longdouble), np.exp(log_rho.astype(np.longdouble))
    terms = wide * np.exp(wide) - np.expm1(wide)
    exact = 0.1 * float(np.sum(problem.space.mass.astype(np.longdouble) * rho * terms))
    assert found == pytest.approx(exact, rel=1e-11 if size > 1e-7 else 1e-9, abs=0.0)


@pytest.mark.serial
@pytest.mark.parametrize("manifold", MANIFOLDS)
def test_ratio_along_a_mode_is_twice_its_rate(manifold: str, make_equilibrium: MakeEquilibrium) -> None:
    """Catches factors of two in D, Δ or the rate: D/Δ → 2a along δμ/ρ = z/q, for a decaying and a growing mode."""
    for state in (make_equilibrium(manifold, 0.1), make_equilibrium(manifold, 0.1, saddle=True)):
        shift = 0.02 if state.flow.index() == 0 else 2.0
        for mode in slow_modes(state.flow, 3, shift, state.pole):
            eta = mode.z / state.flow.q
            eta = 1e-6 / np.abs(eta).max() * eta[None]
            ratio = float(_dissipation(state, eta)[0] / _gap(state, eta)[0])
            assert ratio == pytest.approx(2 * mode.rate, rel=1e-4)


@pytest.mark.ranks
def test_gap_and_dissipation_do_not_depend_on_ranks(make_case: MakeCase) -> None:
    """Catches edges or nodes counted on two ranks: several samples at once against one process."""
    found = []
    for comm in (MPI.COMM_WORLD, MPI.COMM_SELF):
        state = equilibrium_near(Problem(make_case("circle", {"noise.epsilon": 0.1}), comm), np.eye(2)[0])
        eta = _perturbations(state, 0.3)
        found.append(np.concatenate([_gap(state, eta), _dissipation(state, eta)]))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-10)
