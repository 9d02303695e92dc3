"""−HΔ_ρ in symmetrised variables against dense matrices, and against the scheme's right-hand side."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from mpi4py import MPI

import numpy as np
import pytest
from dense_flow import DenseFlow

from solver.case import Case
from solver.problem import Problem
from solver.theory.equilibrium import Equilibrium
from solver.theory.linearization import Linearization
from solver.types import FloatArray

MakeCase = Callable[..., Case]
MakeEquilibrium = Callable[..., Equilibrium]
MANIFOLDS = ["circle", "sphere"]


def _dense(apply: Callable[[FloatArray], FloatArray], nodes: int) -> FloatArray:
    return np.column_stack([apply(column) for column in np.eye(nodes)])


def _right_hand_side(problem: Problem, mu: FloatArray) -> FloatArray:
    """dμ/dt of the scheme at W = 0, in one label."""
    dynamics = problem.dynamics
    d = dynamics.drift(dynamics.attention.moments(mu[None]), np.zeros(problem.control_shape[1:]))
    operator = dynamics.operator
    return -operator.apply(operator.rates(d), mu[None])[0] / problem.space.mass


@pytest.mark.serial
@pytest.mark.parametrize("manifold", MANIFOLDS)
@pytest.mark.parametrize("epsilon", [0.02, 0.3])
def test_matrices_are_those_of_the_formulas(manifold: str, epsilon: float, make_equilibrium: MakeEquilibrium) -> None:
    """Catches a wrong conductance, mass or scaling: S and Q, entry by entry; S symmetric, and mass at rest."""
    state = make_equilibrium(manifold, epsilon)
    flow, dense = state.flow, DenseFlow.create(state.problem, state.state.mu[0])
    nodes = state.problem.space.nodes
    S, Q = _dense(flow.diffuse, nodes), _dense(flow.apply_variation, nodes)
    np.testing.assert_allclose(flow.q, dense.q, rtol=1e-7)
    np.testing.assert_allclose(S, dense.S, rtol=0, atol=1e-8 * np.abs(dense.S).max())
    np.testing.assert_allclose(Q, dense.Q, rtol=0, atol=1e-8)
    np.testing.assert_array_equal(S, S.T)
    np.testing.assert_allclose(flow.conductance_diagonal(), np.diag(S), rtol=1e-15)
    assert np.abs(S @ flow.q).max() <= 1e-13 * np.abs(S).max()
    first, second = np.linalg.eigvalsh(S)[:2]
    assert abs(first) <= 1e-13 * np.abs(S).max()
    assert second == pytest.approx(np.linalg.eigvalsh(dense.S)[1], rel=1e-8)


@pytest.mark.serial
@pytest.mark.parametrize("manifold", MANIFOLDS)
@pytest.mark.parametrize("epsilon", [0.1, 0.3])
def test_product_is_the_jacobian_of_the_scheme(
    manifold: str, epsilon: float, make_equilibrium: MakeEquilibrium
) -> None:
    """Catches a linearisation of another discretisation: −SQz against differences of −L(d(μ))μ at ρ."""
    state = make_equilibrium(manifold, epsilon)
    problem, flow, rho = state.problem, state.flow, state.state.mu[0]
    scale = np.sqrt(problem.space.mass / rho)
    generator = np.random.default_rng(1)
    for _ in range(3):
        # perturbations of the size of ρ everywhere, so that differences lose no digits where it is small
        z = flow.project(flow.q * generator.standard_normal(len(rho)))
        s = 1e-4
        ahead, behind = (_right_hand_side(problem, rho + t * z / scale) for t in (s, -s))
        slope = scale * (ahead - behind) / (2 * s)
        expected = -flow.diffuse(flow.apply_variation(z))
        np.testing.assert_allclose(slope, expected, rtol=0, atol=1e-7 * np.abs(expected).max())


@pytest.mark.serial
def test_frozen_flow_leaves_the_attention_out(make_equilibrium: MakeEquilibrium) -> None:
    """Catches a frozen potential that still moves: Q is ε, S is the same."""
    state = make_equilibrium("circle", 0.1)
    z = state.flow.project(np.random.default_rng(0).standard_normal(len(state.flow.q)))
    np.testing.assert_allclose(state.frozen_flow.apply_variation(z), 0.1 * z, rtol=0, atol=1e-15)
    np.testing.assert_allclose(state.frozen_flow.solve_variation(z), z / 0.1, rtol=1e-14)
    np.testing.assert_array_equal(state.frozen_flow.diffuse(z), state.flow.diffuse(z))
    assert state.frozen_flow.index() == 0


@pytest.mark.serial
@pytest.mark.parametrize("manifold", MANIFOLDS)
def test_curvatures_are_the_eigenvalues_of_the_second_variation(
    manifold: str, make_equilibrium: MakeEquilibrium
) -> None:
    """Catches curvatures that count the direction of mass: eigenvalues of PQP below ε, at a minimum and elsewhere."""
    problem = make_equilibrium(manifold, 0.1).problem
    for potential in (4.0 * problem.space.x[:, 0], 2.0 * problem.space.x[:, 1], 0.0 * problem.space.x[:, 0]):
        flow = Linearization(problem.space, problem.attention, potential, 0.1)
        Q = _dense(flow.apply_variation, problem.space.nodes) + 10.0 * np.outer(flow.q, flow.q)
        values = np.linalg.eigvalsh(Q)
        assert values[:12] == pytest.approx(flow.curvatures[:12], abs=1e-12)
        assert flow.index() == np.count_nonzero(values < -1e-9)
    assert flow.index() == problem.space.dimension  # around the uniform law every ⟨c, x⟩ grows: ε < Λ₁


@pytest.mark.serial
def test_variation_and_its_inverse_with_signs(make_equilibrium: MakeEquilibrium) -> None:
    """Catches Woodbury with σ misplaced: terms of both signs, where H has negative and larger eigenvalues."""
    problem = make_equilibrium("circle", 0.1).problem
    generator = np.random.default_rng(3)
    nodes = problem.space.nodes
    psi = generator.standard_normal((nodes, 5))
    attention = SimpleNamespace(has_energy=True, psi=psi, signs=np.array([1.0, -1.0, 1.0, -1.0, 1.0]))
    flow = Linearization(problem.space, attention, problem.space.x[:, 0], 0.1)
    P = np.eye(nodes) - np.outer(flow.q, flow.q)
    root = P @ (flow.q[:, None] * psi)
    Q = 0.1 * P - root @ np.diag(attention.signs) @ root.T
    np.testing.assert_allclose(_dense(flow.apply_variation, nodes), Q, rtol=0, atol=1e-12)
    values = np.linalg.eigvalsh(Q)
    assert flow.curvatures == pytest.approx(np.concatenate([values[:3], values[-2:]]), abs=1e-12)
    r = P @ generator.standard_normal(nodes)
    z = flow.solve_variation(r)
    np.testing.assert_allclose(Q @ z, r, rtol=0, atol=1e-10)
    assert abs(flow.q @ z) < 1e-12
    np.testing.assert_allclose(flow.solve_variation(r + 7.0 * flow.q), z, rtol=0, atol=1e-10)


@pytest.mark.serial
@pytest.mark.parametrize("manifold", MANIFOLDS)
def test_inverse_of_the_second_variation(manifold: str, make_equilibrium: MakeEquilibrium) -> None:
    """Catches an inverse off the complement of mass, and digits lost where Φ has more columns than it needs."""
    flow = make_equilibrium(manifold, 0.02).flow
    r = flow.project(np.random.default_rng(2).standard_normal(len(flow.q)))
    z = flow.solve_variation(r)
    assert np.linalg.norm(flow.apply_variation(z) - r) <= 1e-11 * np.linalg.norm(r)
    assert np.linalg.norm(flow.solve_variation(flow.apply_variation(r)) - r) <= 1e-11 * np.linalg.norm(r)


@pytest.mark.serial
@pytest.mark.parametrize("manifold", MANIFOLDS)
def test_dirichlet_is_the_quadratic_form_of_diffusion(manifold: str, make_equilibrium: MakeEquilibrium) -> None:
    """Catches a wrong conductance or edges counted twice: ‖∇f‖²_ρ = uᵀSu with u = √(mρ) f, and ∫|∇f|² of ρ = 1."""
    state = make_equilibrium(manifold, 0.1)
    f = np.cos(2.0 * state.problem.space.x[:, 1] + 0.3)
    u = state.flow.q * f
    dense = DenseFlow.create(state.problem, state.state.mu[0])
    assert state.flow.dirichlet(f) == pytest.approx(float(u @ dense.S @ u), rel=1e-7)
    space = state.problem.space
    uniform = Linearization(space, None, np.zeros(len(space.x)), 0.1)
    area = float(space.integrate(np.ones(len(space.x))))
    cells = space.gradient(f)
    exact = float((cells**2).sum(axis=1) @ space.cell_size) / area
    assert uniform.dirichlet(f) == pytest.approx(exact, rel=1e-12)


@pytest.mark.serial
def test_log_densities_far_below_the_smallest_number(make_equilibrium: MakeEquilibrium) -> None:
    """Catches under- and overflow at ε = 0.001 (log ρ to −2300): finite entries, Sq = 0 by ratios, no warning."""
    state = make_equilibrium("circle", 0.001)
    space, log_density = state.problem.space, state.flow.log_density
    assert np.ptp(log_density) > 2000
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        flow = Linearization(space, state.attention, state.potential / 0.001, 0.001)
        S = _dense(flow.diffuse, space.nodes)
        Q = _dense(flow.apply_variation, space.nodes)
        gradient = flow.dirichlet(space.x[:, 1])
    assert np.isfinite(S).all()
    assert np.isfinite(Q).all()
    assert gradient > 0
    i, j = space.edges.T
    assert (S[i, j] < 0).all()  # the smallest are of the order of e^{−50}
    assert (S[i, j] == S[j, i]).all()
    # (S q)_i / q_i = S_ii + Σ_j S_ij q_j/q_i, relative to its positive term
    log_q = 0.5 * (log_density + np.log(space.mass))
    balance = np.diag(S).copy()
    np.add.at(balance, i, S[i, j] * np.exp(log_q[j] - log_q[i]))
    np.add.at(balance, j, S[j, i] * np.exp(log_q[i] - log_q[j]))
    assert (np.abs(balance) <= 1e-11 * np.diag(S)).all()


@pytest.mark.ranks
def test_forms_do_not_depend_on_ranks(make_case: MakeCase) -> None:
    """Catches sums over ghosts, or of one rank only: quadratic forms and curvatures against those of one process."""
    found = []
    for comm in (MPI.COMM_WORLD, MPI.COMM_SELF):
        problem = Problem(make_case("circle", {"noise.epsilon": 0.1}), comm)
        space = problem.space
        flow = Linearization(space, problem.attention, 8.0 * np.exp(space.x[:, 0]), 0.1)
        f = np.sin(3.0 * space.x[:, 0]) + space.x[:, 1]
        u = flow.project(flow.q * f[: space.owned])
        forms = [
            flow.dirichlet(f),
            float(flow.dot(u, flow.diffuse(u))),
            float(flow.dot(u, flow.apply_variation(u))),
            float(flow.dot(u, flow.solve_variation(u))),
        ]
        found.append(np.array([*forms, *flow.curvatures[:6]]))
    assert found[0][0] == pytest.approx(found[0][1], rel=1e-12)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-10)
