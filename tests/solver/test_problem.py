"""The control problem on one mesh."""

from __future__ import annotations

from collections.abc import Callable

from mpi4py import MPI

import numpy as np
import pytest
from conftest import smooth_control

from solver.case import Case, CaseError
from solver.problem import Problem

MakeCase = Callable[..., Case]
MakeProblem = Callable[..., Problem]
SHORT = {"depth.T": 0.6, "depth.layer": 0.3, "depth.first_step": 0.1}


@pytest.mark.parametrize("scheme", ["euler", pytest.param("mprk2", marks=pytest.mark.ranks)])
@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_results_do_not_depend_on_the_number_of_ranks(
    manifold: str, scheme: str, make_case: MakeCase, comm: MPI.Comm
) -> None:
    """Catches anything summed per rank, and stale ghosts: J, gradient and density equal those of one rank to 1e-10."""
    case = make_case(manifold, {**SHORT, "depth.scheme": scheme, "ffn.bias": True, "ffn.activation": "tanh"})
    many, one = Problem(case, comm), Problem(case, MPI.COMM_SELF)
    W = smooth_control(one, 3.0, 1)
    J, g = many.gradient(W)
    J1, g1 = one.gradient(W)
    assert pytest.approx(J1, rel=1e-10) == J
    assert np.abs(g - g1).max() <= 1e-10 * np.abs(g1).max()
    final, reference = many.forward(W), one.forward(W)
    gathered = many.space.gather(final.density(-1))
    alone = one.space.gather(reference.density(-1))
    assert alone is not None
    if gathered is not None:
        assert np.abs(gathered - alone).max() <= 1e-10 * alone.max()
    assert final.energy == pytest.approx(reference.energy, rel=1e-10)
    assert final.mean == pytest.approx(reference.mean, rel=1e-10, abs=1e-12)


@pytest.mark.ranks
def test_every_rank_gets_the_same_bits(make_problem: MakeProblem) -> None:
    """Catches ranks whose optimisers would part: J and gradient must be identical, not merely close."""
    problem = make_problem("sphere", SHORT)
    J, g = problem.gradient(smooth_control(problem, 1.0, 0))
    for other_J, other_g in problem.comm.allgather((J, g)):
        assert other_J == J
        assert np.array_equal(other_g, g)


@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_evaluation_is_a_pure_function(manifold: str, make_problem: MakeProblem) -> None:
    """Catches a warm start or cache carried from one control to the next: the same W gives the same bits."""
    problem = make_problem(manifold, SHORT)
    W = smooth_control(problem, 1.0, 0)
    before = W.copy()
    first = problem.evaluate(W)
    problem.evaluate(smooth_control(problem, 5.0, 9))
    again = problem.evaluate(W)
    assert first.J == again.J
    assert np.array_equal(first.gradient, again.gradient)
    assert np.array_equal(W, before)


def test_parts_of_the_objective(make_problem: MakeProblem) -> None:
    """Catches a regularisation without Δt or without its ½: J = loss + (λ/2) Σ Δt‖W‖²; both from `gradient` and
    `objective`.
    """
    problem = make_problem("circle", {**SHORT, "objective.regularization": 0.3, "depth.layer": 0.2})
    W = smooth_control(problem, 2.0, 0)
    evaluation = problem.evaluate(W)
    expected = 0.15 * sum(problem.dt[n] * np.linalg.norm(W[n]) ** 2 for n in range(len(problem.dt)))
    assert evaluation.regularization == pytest.approx(expected, rel=1e-13)
    trajectory = problem.forward(W)
    target = np.array(problem.case.target)
    assert evaluation.loss == pytest.approx(1 - trajectory.mean[-1] @ target, abs=1e-13)
    assert evaluation.loss + evaluation.regularization == evaluation.J
    assert problem.gradient(W)[0] == evaluation.J


def test_regularisation_enters_the_gradient_as_its_representative(make_case: MakeCase, comm: MPI.Comm) -> None:
    """Catches λ W Δt in place of λ W: with the wrong inner product L-BFGS needs more iterations on finer grids."""
    low = Problem(make_case("circle", {**SHORT, "objective.regularization": 0.0}), comm)
    high = Problem(make_case("circle", {**SHORT, "objective.regularization": 0.7}), comm)
    W = smooth_control(low, 1.0, 0)
    difference = high.gradient(W)[1] - low.gradient(W)[1]
    assert np.abs(difference - 0.7 * W).max() <= 1e-13


def test_gradient_is_independent_of_the_step_size(make_case: MakeCase, comm: MPI.Comm) -> None:
    """Catches a gradient per step in place of the L² representative: halving Δt must not halve it."""
    norms = []
    for step in (0.05, 0.025):
        problem = Problem(make_case("circle", {**SHORT, "depth.first_step": step}), comm)
        g = problem.gradient(None)[1]
        norms.append(np.sqrt(problem.squared_norm(g)))
    assert norms[0] == pytest.approx(norms[1], rel=0.02)


def test_last_gradient_at_small_steps_is_the_direct_value(make_case: MakeCase, comm: MPI.Comm) -> None:
    """Catches a sign or a factor common to adjoint and check: g(T) → ∫ P_x∇(δloss/δμ) σᵀ dμ_T = −∫ (P_x target) xᵀ
    dμ_T.
    """
    changes = {"depth.T": 0.02, "depth.layer": 0.01, "depth.first_step": 0.001, "geometry.h": 0.02}
    problem = Problem(make_case("circle", {**changes, "noise.epsilon": 0.1, "objective.regularization": 0.0}), comm)
    steps = problem.steps(None)
    g, _ = problem.adjoint(steps, problem.zero_control())
    x, target, mu = problem.space.x, np.array(problem.case.target), steps[-1].after[0]
    tangent = target - (x @ target)[:, None] * x
    direct = -problem.space.integrate(np.einsum("na,nb,n->abn", tangent, x, mu))
    assert np.abs(g[-1] - direct).max() <= 0.01 * np.abs(direct).max()


def test_shapes_and_untrained_control(make_problem: MakeProblem) -> None:
    """Catches shapes that differ from the documented ones, and None meaning something else than W = 0."""
    problem = make_problem("sphere", {**SHORT, "ffn.width": 4, "ffn.bias": True})
    steps = len(problem.t) - 1
    assert problem.control_shape == (steps, 3, 5)
    untrained, zero = problem.forward(None), problem.forward(np.zeros(problem.control_shape))
    assert untrained.t is problem.t
    assert untrained.energy.shape == (steps + 1,)
    assert untrained.mean.shape == (steps + 1, 3)
    assert untrained.density(0).shape == (1, problem.space.owned)
    assert np.array_equal(untrained.mean, zero.mean)
    assert np.array_equal(untrained.density(steps), zero.density(steps))
    assert problem.gradient(None)[1].shape == problem.control_shape


@pytest.mark.parametrize("bad", ["short", "flat", "nan", "inf"])
def test_bad_controls_are_refused(bad: str, make_problem: MakeProblem) -> None:
    """Catches a control of another depth grid broadcast silently, and nan carried through a whole sweep."""
    problem = make_problem("circle", SHORT)
    W = problem.zero_control()
    W = {"short": W[:-1], "flat": W.reshape(len(W), -1)}.get(bad, W)
    if bad in {"nan", "inf"}:
        W[0, 0, 0] = float(bad)
    with pytest.raises(ValueError, match="control"):
        problem.gradient(W)


def test_untrained_flow_keeps_mass_and_sign_and_loses_energy(make_problem: MakeProblem) -> None:
    """Catches a broken invariant over a whole run: mass 1e-11, density ≥ −1e-13 max, E falling with euler."""
    problem = make_problem("sphere", {"depth.T": 10.0, "depth.scheme": "euler"})
    diagnostics = problem.forward(None).diagnostics
    assert np.abs(diagnostics.mass - 1).max() <= 1e-11
    assert (diagnostics.min_density >= -1e-13 * diagnostics.max_density).all()
    assert (np.diff(diagnostics.energy) <= 1e-11 * np.abs(diagnostics.energy[0])).all()
    assert diagnostics.energy[-1] < diagnostics.energy[0] - 0.1


def test_minimum_energy_lies_below_the_run(make_problem: MakeProblem) -> None:
    """Catches E_min of another well or functional: the gap along an untrained run must stay positive and close."""
    problem = make_problem("circle", {"noise.epsilon": 0.05, "depth.T": 20.0})
    trajectory = problem.forward(None)
    minimum = problem.minimum_energy(trajectory.densities[-1])
    assert (trajectory.energy >= minimum - 1e-12).all()
    assert trajectory.energy[-1] - minimum <= 1e-3
    at_rest = make_problem("circle", {"noise.epsilon": 0.0, "depth.T": 1.0})
    assert at_rest.minimum_energy(at_rest.initial) == pytest.approx(-0.5 * np.e, rel=1e-3)


def test_sweeps_are_counted(make_problem: MakeProblem) -> None:
    """Catches counts of linear solves in place of sweeps, or none at all: an evaluation is one forward and one
    adjoint.
    """
    problem = make_problem("circle", SHORT)
    seen: list[int] = []
    problem.gradient(None)
    problem.steps(None, progress=seen.append)
    assert (problem.counts.forward, problem.counts.adjoint) == (2, 1)
    assert problem.counts.forward_seconds > 0
    assert problem.counts.adjoint_seconds > 0
    assert seen == list(range(1, len(problem.dt) + 1))


def test_too_many_labels_are_refused(make_problem: MakeProblem) -> None:
    """Catches memory exhausted where a case of particles, with a label for each, is given to the PDE."""
    with pytest.raises(CaseError, match=r"^auxiliary\.labels: 20000 labels .* at most 10000 for the PDE"):
        make_problem("circle", {"auxiliary.kernel": "rope", "particles.n": 20_000})


@pytest.mark.ranks
def test_more_ranks_than_cells(make_problem: MakeProblem) -> None:
    """Catches ranks without nodes or edges breaking a sweep: six cells of the coarsest circle on up to 8 ranks."""
    problem = make_problem("circle", {**SHORT, "geometry.h": 1.0, "initial.kappa": 1.0, "noise.epsilon": 0.5})
    assert problem.space.nodes == 6
    J, g = problem.gradient(smooth_control(problem, 1.0, 0))
    assert 0 < J < 3
    assert np.isfinite(g).all()
    assert np.abs(problem.forward(None).diagnostics.mass - 1).max() <= 1e-11


@pytest.mark.ranks
def test_unreachable_attention_tolerance_is_a_case_error(make_case: MakeCase, comm: MPI.Comm) -> None:
    """Catches a traceback from the expansion: a tolerance beyond round-off is bad input, said on every rank."""
    case = make_case("sphere", SHORT)
    attention = case.attention.model_copy(update={"tolerance": 1e-17})
    with pytest.raises(CaseError, match=r"attention\.tolerance"):
        Problem(case.model_copy(update={"attention": attention}), comm)


def test_petsc_options_of_the_case_are_used(make_problem: MakeProblem) -> None:
    """Catches a [petsc] section that is read and dropped: with one Krylov iteration every solve must fall back on
    LU.
    """
    problem = make_problem("sphere", {**SHORT, "petsc.ksp_max_it": 1})
    plain = make_problem("sphere", SHORT)
    W = smooth_control(problem, 1.0, 0)
    J, g = problem.gradient(W)
    assert problem.dynamics.solver.fallbacks > 0
    assert plain.dynamics.solver.fallbacks == 0
    assert plain.gradient(W)[0] == pytest.approx(J, rel=1e-11)
    assert np.abs(plain.gradient(W)[1] - g).max() <= 1e-10 * np.abs(g).max()
