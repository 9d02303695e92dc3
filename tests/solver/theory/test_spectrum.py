"""The slow modes of −HΔ_ρ against a dense eigenvalue computation."""

from __future__ import annotations

from collections.abc import Callable

from mpi4py import MPI

import numpy as np
import pytest
from dense_flow import DenseFlow
from system.studies import circle_h

from solver.case import Case
from solver.problem import Problem
from solver.theory import spectrum
from solver.theory.equilibrium import Equilibrium, equilibrium_near
from solver.theory.spectrum import SpectrumError, slow_modes

MakeCase = Callable[..., Case]
MakeEquilibrium = Callable[..., Equilibrium]
MANIFOLDS = ["circle", "sphere"]


@pytest.mark.serial
@pytest.mark.parametrize("manifold", MANIFOLDS)
@pytest.mark.parametrize("epsilon", [0.1, 0.3])
def test_rates_are_those_of_dense_matrices(manifold: str, epsilon: float, make_equilibrium: MakeEquilibrium) -> None:
    """Catches wrong rates, missed or doubled modes, and mass counted as one: the eight slowest of all."""
    state = make_equilibrium(manifold, epsilon)
    dense = DenseFlow.create(state.problem, state.state.mu[0])
    rates = [mode.rate for mode in state.slow_modes(8)]
    assert rates == pytest.approx(dense.rates()[:8].tolist(), rel=1e-7)
    frozen = [mode.rate for mode in slow_modes(state.frozen_flow, 8, 0.02, state.pole)]
    assert frozen == pytest.approx(dense.rates(response=0.0)[:8].tolist(), rel=1e-7)


@pytest.mark.serial
@pytest.mark.parametrize("manifold", MANIFOLDS)
def test_modes_solve_the_eigenproblem(manifold: str, make_equilibrium: MakeEquilibrium) -> None:
    """Catches modes of another scaling or in the wrong order: QSu = au, z = Su, no mass, S-orthonormal."""
    state = make_equilibrium(manifold, 0.1)
    flow, modes = state.flow, state.slow_modes(6)
    u, z = (np.column_stack([getattr(mode, name) for mode in modes]) for name in "uz")
    rates = np.array([mode.rate for mode in modes])
    assert (np.diff(rates) > 0).all()
    np.testing.assert_allclose(u.T @ z, np.eye(6), atol=1e-9)
    assert np.abs(flow.q @ u).max() < 1e-10
    assert np.abs(flow.q @ z).max() < 1e-8
    for a, column, density, mode in zip(rates, u.T, z.T, modes, strict=True):
        scale = a * np.linalg.norm(column)
        np.testing.assert_allclose(density, flow.diffuse(column), rtol=0, atol=1e-9 * np.abs(density).max())
        residual = np.linalg.norm(flow.apply_variation(flow.diffuse(column)) - a * column) / scale
        assert residual < 1e-8
        assert mode.residual < 1e-8


@pytest.mark.serial
def test_modes_are_labelled_by_where_they_live(make_equilibrium: MakeEquilibrium) -> None:
    """Catches exchanged labels: on the circle at ε = 0.02 one collective mode at e₁ and hilltop modes at −e₁."""
    state = make_equilibrium("circle", 0.02)
    modes = state.slow_modes(4)
    assert [mode.place for mode in modes].count("cluster") == 1
    for mode in modes:
        squares = mode.z**2
        far = abs(float(squares @ state.problem.space.x[:, 0])) / float(squares.sum())
        share = float(squares[state.problem.space.x[:, 0] > 0].sum() / squares.sum())
        assert mode.weight == pytest.approx(share, rel=1e-12)
        assert far > 0.8  # all of them are near ±e₁
        assert mode.place == ("cluster" if share > 0.5 else "hilltop")
    opposite = slow_modes(state.flow, 4, 0.05, -state.pole)
    assert [mode.place for mode in opposite].count("hilltop") == 1


@pytest.mark.serial
@pytest.mark.parametrize("manifold", MANIFOLDS)
def test_growing_modes_of_a_saddle_are_found(manifold: str, make_equilibrium: MakeEquilibrium) -> None:
    """Catches a solver that sees decay only: near e₂ one mode grows, towards ±e₁, at the dense matrices' rate."""
    state = make_equilibrium(manifold, 0.1, saddle=True)
    exact = DenseFlow.create(state.problem, state.state.mu[0]).rates()
    modes = slow_modes(state.flow, 5, 2.0, state.pole)
    assert [mode.rate for mode in modes] == pytest.approx(exact[:5].tolist(), rel=1e-7)
    growing = [mode for mode in modes if mode.rate < 0]
    assert len(growing) == np.count_nonzero(exact < 0) == state.flow.index() == 1
    assert growing[0].place == "cluster"
    # δμ of the mode moves the mean along e₁
    x, root = state.problem.space.x, np.sqrt(state.problem.space.mass / state.state.mu[0])
    moved = (state.problem.space.mass * growing[0].z / root) @ x
    assert abs(moved[0]) > 10 * np.abs(moved[1:]).max()


@pytest.mark.serial
@pytest.mark.parametrize(("epsilon", "nodes"), [(0.02, 200), (0.01, 400)])
def test_leaving_the_far_side_out_keeps_the_rates_of_the_cluster(
    epsilon: float, nodes: int, make_case: MakeCase
) -> None:
    """Catches walls that touch the cluster, or that do nothing: its rate, with and without the rest of the circle."""
    case = make_case("circle", {"noise.epsilon": epsilon, "geometry.h": circle_h(nodes)})
    state = equilibrium_near(Problem(case, MPI.COMM_SELF), np.eye(2)[0])
    full = next(mode for mode in state.slow_modes(6) if mode.place == "cluster")
    core = slow_modes(state.flow, 3, 0.05, state.pole, core=True)
    assert core[0].place == "cluster"  # slower hilltop modes are gone
    assert core[0].rate > 1.5 * state.slow_modes(6)[0].rate
    assert core[0].rate == pytest.approx(full.rate, rel=1e-8)
    assert state.cluster_modes(1)[0].rate == pytest.approx(full.rate, rel=1e-8)
    overlap = float(core[0].u @ full.z)
    assert abs(overlap) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.serial
def test_inaccurate_modes_are_refused(make_equilibrium: MakeEquilibrium, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches modes handed on unchecked: a residual above what is accepted."""
    state = make_equilibrium("circle", 0.1)
    monkeypatch.setattr(spectrum, "_ACCEPTED", 1e-20)
    with pytest.raises(SpectrumError, match="residual"):
        state.slow_modes(3)


@pytest.mark.ranks
def test_modes_do_not_depend_on_ranks(make_case: MakeCase) -> None:
    """Catches a pin, a start or a wall on every rank instead of one: rates and shares against one process."""
    found = []
    for comm in (MPI.COMM_WORLD, MPI.COMM_SELF):
        overrides = {"noise.epsilon": 0.02, "attention.tolerance": 1e-6}  # few terms: fewer solves
        state = equilibrium_near(Problem(make_case("circle", overrides), comm), np.eye(2)[0])
        modes = slow_modes(state.flow, 2, 0.05, state.pole, core=True)
        found.append(np.array([[mode.rate, mode.weight] for mode in modes]))
    np.testing.assert_allclose(found[0][:, 0], found[1][:, 0], rtol=1e-8)
    np.testing.assert_allclose(found[0][:, 1], found[1][:, 1], rtol=0, atol=1e-8)
