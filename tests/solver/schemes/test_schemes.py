"""Both depth steps: mass, positivity, order, equilibria, and their exact transposes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

from mpi4py import MPI

import numpy as np
import pytest
from conftest import smooth_control
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from solver.ffn import ACTIVATIONS
from solver.parallel import allreduce
from solver.problem import Problem
from solver.schemes import SCHEMES
from solver.theory.stationary import stationary_state

MakeProblem = Callable[..., Problem]
MANIFOLDS = ["circle", "sphere"]
# Each solve is a dozen reductions, slow where ranks outnumber cores: one configuration goes to 2 and 8 ranks.
ON_RANKS = [("circle", "euler"), ("circle", "mprk2"), ("sphere", "euler")]
WORDS = {"objective.loss": "bag_of_words", "objective.kappa": 2.0, "objective.temperature": 0.3}
LOSS_SETTINGS: dict[str, dict[str, object]] = {
    "align": {},
    "token": {**WORDS, "objective.readout": "token"},
    "pooled": {**WORDS, "objective.readout": "pooled"},
}
SERIAL = pytest.mark.serial


def _where(manifold: str, scheme: str, activation: str, loss: str) -> tuple[pytest.MarkDecorator, ...]:
    """An activation is a function of a node: one of them on 3 ranks, with every manifold, scheme and loss."""
    if activation != "tanh":
        return (SERIAL,)
    return (pytest.mark.ranks,) if (manifold, scheme, loss) == ("sphere", "mprk2", "token") else ()


TAYLOR = [
    pytest.param(*combination, marks=_where(*combination))
    for combination in itertools.product(MANIFOLDS, sorted(SCHEMES), sorted(ACTIVATIONS), LOSS_SETTINGS)
]
ON_RANKS = [*ON_RANKS, pytest.param("sphere", "mprk2", marks=pytest.mark.ranks)]
SHORT = {"depth.T": 0.6, "depth.layer": 0.2, "depth.first_step": 0.1}
LABELS = np.ones(1)


def _control(problem: Problem, size: float, seed: int) -> np.ndarray:
    return smooth_control(problem, size, seed)


def _taylor_orders(problem: Problem, W: np.ndarray, direction: np.ndarray, steps: tuple[float, ...]) -> np.ndarray:
    """Orders of |J(W + sδ) − J(W) − s⟨g, δ⟩| between successive s."""
    J, g = problem.gradient(W)
    slope = float(problem.dt @ (g * direction).sum(axis=(1, 2)))

    def value(s: float) -> float:
        control = W + s * direction
        return sum(problem.objective(problem.steps(control)[-1].after, control))

    remainders = [abs(value(s) - J - s * slope) for s in steps]
    assert remainders[-1] > 1e-12  # above round-off, else the order means nothing
    return np.log(np.divide(remainders[:-1], remainders[1:])) / np.log(np.divide(steps[:-1], steps[1:]))


@pytest.mark.parametrize(("manifold", "scheme", "activation", "loss"), TAYLOR)
def test_gradient_has_taylor_order_two(
    manifold: str, scheme: str, activation: str, loss: str, make_problem: MakeProblem
) -> None:
    """Catches any error in the adjoint, at a control other than the one evaluated before: at a stored one it could
    not fail.
    """
    settings = {"depth.scheme": scheme, "ffn.activation": activation, "ffn.bias": True, **LOSS_SETTINGS[loss]}
    problem = make_problem(manifold, {**SHORT, **settings})
    problem.gradient(_control(problem, 2.0, 1))  # leave something behind that a new control must not reuse
    orders = _taylor_orders(problem, _control(problem, 1.0, 2), _control(problem, 1.0, 3), (0.002, 0.001, 0.0005))
    assert ((orders >= 1.95) & (orders <= 2.05)).all(), orders


@pytest.mark.parametrize(("manifold", "scheme"), ON_RANKS)
def test_gradient_of_softmax_attention(manifold: str, scheme: str, make_problem: MakeProblem) -> None:
    """Catches the adjoint of the unnormalised kernel used for log Z, whose nonlocal term has h(y, x)/Z(y)."""
    settings = {"depth.scheme": scheme, "attention.normalized": True, "depth.T": 1.5}
    problem = make_problem(manifold, {**SHORT, **settings})
    orders = _taylor_orders(problem, _control(problem, 1.0, 2), _control(problem, 1.0, 3), (0.02, 0.01, 0.005))
    assert ((orders >= 1.95) & (orders <= 2.05)).all(), orders


@SERIAL
@pytest.mark.parametrize("scheme", sorted(SCHEMES))
@pytest.mark.parametrize("epsilon", [0.005, 1.0])
@pytest.mark.parametrize("size", [0.0, 10.0])
def test_gradient_at_extreme_settings(scheme: str, epsilon: float, size: float, make_problem: MakeProblem) -> None:
    """Catches an adjoint that is exact only near W = 0 or only at moderate ε."""
    problem = make_problem("circle", {**SHORT, "depth.scheme": scheme, "noise.epsilon": epsilon})
    steps = (4e-3, 2e-3, 1e-3) if size else (0.02, 0.01, 0.005)
    orders = _taylor_orders(problem, _control(problem, size, 4), _control(problem, 3.0, 5), steps)
    assert ((orders >= 1.95) & (orders <= 2.05)).all(), orders


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_gradient_with_random_features_and_a_full_matrix(scheme: str, make_problem: MakeProblem) -> None:
    """Catches a transpose that assumes m = d features or a diagonal A."""
    matrix = [[0.9, 0.25, -0.1], [0.25, 0.6, 0.15], [-0.1, 0.15, 0.4]]
    overrides = {**SHORT, "ffn.width": 5, "ffn.activation": "tanh", "depth.scheme": scheme}
    problem = make_problem("sphere", {**overrides, "attention.matrix": matrix, "attention.eigenvalues": None})
    assert problem.control_shape[1:] == (3, 5)
    orders = _taylor_orders(problem, _control(problem, 1.0, 6), _control(problem, 1.0, 7), (0.08, 0.04, 0.02))
    assert ((orders >= 1.95) & (orders <= 2.05)).all(), orders


@pytest.mark.parametrize(("manifold", "scheme"), ON_RANKS)
def test_adjoint_at_zero_depth_is_the_sensitivity_to_the_start(
    manifold: str, scheme: str, make_problem: MakeProblem
) -> None:
    """Catches φ(0) scaled by masses or off by one step: J(μ₀ + sδ) must change by s ∫ φ(0) δ."""
    problem = make_problem(manifold, {**SHORT, "depth.scheme": scheme})
    space, start = problem.space, problem.initial
    W = _control(problem, 1.0, 8)
    _, phi = problem.adjoint(problem.steps(W), W, keep=True)
    assert len(phi) == len(problem.t)
    delta = start * (np.sin(2 * space.x[:, 0]) + space.x[:, 1])
    exact = float(space.integrate(phi[0] * delta)[0])

    def value(s: float) -> float:
        problem.initial = start + s * delta
        return problem.objective(problem.steps(W)[-1].after, W)[0]

    s = 1e-2
    difference = (value(-2 * s) - 8 * value(-s) + 8 * value(s) - value(2 * s)) / (12 * s)
    problem.initial = start
    assert abs(exact) > 1e-3
    assert difference == pytest.approx(exact, rel=1e-7)


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
@pytest.mark.parametrize("manifold", MANIFOLDS)
def test_pullback_is_the_transpose_of_one_step(manifold: str, scheme: str, make_problem: MakeProblem) -> None:
    """Catches errors that cancel over a whole sweep: ⟨μ̄, dμⁿ⁺¹⟩ = ⟨pullback, (dμ, dW)⟩ for a single step and random
    data.
    """
    problem = make_problem(manifold, SHORT)
    space, step = problem.space, SCHEMES[scheme]
    generator = np.random.default_rng(9)
    W, dW = generator.standard_normal((2, *problem.control_shape[1:]))
    mu = problem.initial
    dmu = mu * np.cos(3 * space.x[:, 0] + 1)
    taken = step.step(problem.dynamics, mu, W, 0.3)
    mu_bar = space.mass * np.sin(4 * space.x[:, 1])[None]
    cotangents = step.pullback(problem.dynamics, taken, mu_bar)
    owned = slice(0, space.owned)
    exact = float(allreduce(space.comm, (cotangents.mu * dmu)[:, owned].sum() + (cotangents.W * dW).sum()))

    def value(s: float) -> float:
        after = step.step(problem.dynamics, mu + s * dmu, W + s * dW, 0.3).after
        return float(allreduce(space.comm, (mu_bar * after)[:, owned].sum()))

    s = 1e-3
    difference = (value(-2 * s) - 8 * value(-s) + 8 * value(s) - value(2 * s)) / (12 * s)
    assert difference == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize(("manifold", "scheme"), ON_RANKS)
@given(data=st.data())
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=25 if MPI.COMM_WORLD.size == 1 else 10,
)
def test_one_step_keeps_mass_and_sign(manifold: str, scheme: str, data: st.DataObject, shared_problems) -> None:  # type: ignore[no-untyped-def]
    """Catches negative densities and lost mass for random drift and density, ε including 0, at Δt from 1e-3 to 1e2."""
    epsilon = data.draw(st.sampled_from([0.0, 1e-3, 0.02, 1.0]))
    dt = 10.0 ** data.draw(st.floats(-3, 2))
    size = data.draw(st.sampled_from([0.0, 1.0, 10.0]))
    sharpness = data.draw(st.sampled_from([0.0, 3.0, 40.0]))
    generator = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    problem = shared_problems(manifold, epsilon)
    space = problem.space
    centre = generator.standard_normal(space.dimension)
    mu = np.exp(sharpness * (space.x @ centre / np.linalg.norm(centre) - 1))[None]
    mu = mu / space.integrate(mu)[:, None]
    W = size * generator.standard_normal(problem.control_shape[1:])
    taken = SCHEMES[scheme].step(problem.dynamics, mu, W, dt)
    for stage in taken.stages:
        lowest = min(space.comm.allgather(float(stage.min(initial=0.0))))
        highest = max(space.comm.allgather(float(stage.max(initial=0.0))))
        assert lowest >= -1e-13 * highest
        rates = problem.dynamics.operator.rates(problem.dynamics.drift(taken.moments[0], W))
        out = space.sum_to_nodes(rates.forward, rates.backward) / space.mass
        stiffness = max(space.comm.allgather(float(out[:, : space.owned].max(initial=0.0))))
        assert abs(float(space.integrate(stage)[0]) - 1) <= 3e-14 * max(1.0, 2 * dt * stiffness)


@pytest.fixture(scope="module")
def shared_problems():  # type: ignore[no-untyped-def]
    """Problems by manifold and ε, made once: hypothesis draws the same order on every rank."""
    from pathlib import Path

    from solver.case import load_case

    root = Path(__file__).resolve().parents[3]
    made: dict[tuple[str, float], Problem] = {}

    def get(manifold: str, epsilon: float) -> Problem:
        if (manifold, epsilon) not in made:
            file = {"circle": "turnpike_circle.toml", "sphere": "turnpike.toml"}[manifold]
            h = {"circle": 0.1, "sphere": 0.35}[manifold]
            changes = {"geometry.h": h, "geometry.continuation": [], "noise.epsilon": epsilon}
            made[manifold, epsilon] = Problem(load_case(root / "cases" / file, changes), MPI.COMM_WORLD)
        return made[manifold, epsilon]

    return get


@SERIAL
@pytest.mark.parametrize(("scheme", "order"), [("euler", 1.0), ("mprk2", 2.0)])
@pytest.mark.parametrize("manifold", MANIFOLDS)
def test_order_in_depth_step(manifold: str, scheme: str, order: float, make_problem: MakeProblem) -> None:
    """Catches a scheme that lost its order: differences of successive halvings must fall by 2^order, with W ≠ 0."""
    W = np.random.default_rng(10).standard_normal((2, 2) if manifold == "circle" else (3, 3))
    finals = []
    overrides = {"depth.T": 1.0, "depth.layer": 0.5, "depth.scheme": scheme, "noise.epsilon": 0.1}
    for steps in (20, 40, 80):
        problem = make_problem(manifold, {**overrides, "depth.first_step": 1 / steps})
        assert problem.dt == pytest.approx(1 / steps)
        trajectory = problem.forward(np.tile(W, (steps, 1, 1)))
        finals.append(np.append(trajectory.mean[-1], trajectory.energy[-1]))
    coarse, fine = (np.linalg.norm(b - a) for a, b in itertools.pairwise(finals))
    assert math.log2(coarse / fine) == pytest.approx(order, abs=0.15)


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
@pytest.mark.parametrize("manifold", MANIFOLDS)
@pytest.mark.parametrize("side", [1.0, pytest.param(-1.0, marks=SERIAL)])
@pytest.mark.parametrize("steps", [30, pytest.param(1000, marks=SERIAL)])  # solves on busy ranks are slow
def test_gibbs_state_stays_fixed(
    manifold: str, scheme: str, side: float, steps: int, make_problem: MakeProblem
) -> None:
    """Catches a scheme that is not well balanced: the self-consistent state near ±e₁ must not move by 1e-9 in 1000
    steps.
    """
    problem = make_problem(manifold, {"noise.epsilon": 0.05, "attention.tolerance": 1e-6})
    space = problem.space
    near = np.exp(5 * (side * space.x[:, 0] - 1))[None]
    near = near / space.integrate(near)[:, None]
    state = stationary_state(space, problem.attention, LABELS, 0.05, near).mu
    assert side * float(space.integrate(state * space.x[:, 0])[0]) > 0.5
    W = np.zeros(problem.control_shape[1:])
    # At the state itself Krylov has nothing to do; from 1e-7 beside it, its solves must lead back and stay.
    beside = state * (1 + 1e-7 * np.sin(3 * space.x[:, 1] + 1))
    for start in (state, beside / space.integrate(beside)[:, None]):
        mu = start
        for _ in range(steps):
            mu = SCHEMES[scheme].step(problem.dynamics, mu, W, 100 / steps).after
        moved = max(space.comm.allgather(float(np.abs(mu - state).max(initial=0.0))))
        assert moved <= 1e-9


@pytest.mark.parametrize("manifold", MANIFOLDS)
@pytest.mark.parametrize("epsilon", [0.0, 0.02, 0.5])
@pytest.mark.parametrize("dt", [pytest.param(1e-3, marks=SERIAL), 0.1, pytest.param(100.0, marks=SERIAL)])
def test_euler_energy_never_increases(manifold: str, epsilon: float, dt: float, shared_problems) -> None:  # type: ignore[no-untyped-def]
    """Catches a drift on the wrong side of the splitting: with W = 0 the free energy falls at any Δt, ε = 0
    included.
    """
    from solver.theory.energy import free_energy

    problem = shared_problems(manifold, epsilon)
    W = np.zeros(problem.control_shape[1:])
    mu = problem.initial
    energies = [free_energy(problem.space, problem.attention, LABELS, epsilon, mu)]
    for _ in range(8):
        mu = SCHEMES["euler"].step(problem.dynamics, mu, W, dt).after
        energies.append(free_energy(problem.space, problem.attention, LABELS, epsilon, mu))
    drop = np.diff(np.array(energies, dtype=float))
    assert (drop <= 1e-11 * np.abs(energies[0])).all()
    assert energies[-1] < energies[0]


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_step_does_not_change_its_arguments(scheme: str, make_problem: MakeProblem) -> None:
    """Catches a scheme that works in place: the trajectory would hold the last density everywhere."""
    problem = make_problem("circle", SHORT)
    mu = problem.initial.copy()
    W = np.random.default_rng(0).standard_normal(problem.control_shape[1:])
    taken = SCHEMES[scheme].step(problem.dynamics, mu, W, 0.1)
    assert np.array_equal(mu, problem.initial)
    assert taken.before is mu
    assert np.abs(taken.after - mu).max(initial=0.0) > 0 or problem.space.owned == 0
    bar = problem.space.mass * problem.initial
    before = bar.copy()
    SCHEMES[scheme].pullback(problem.dynamics, taken, bar)
    assert np.array_equal(bar, before)


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_vanishing_density_gives_no_nan(scheme: str, make_problem: MakeProblem) -> None:
    """Catches 0/0 in the Patankar ratio: a density that is zero on most nodes must step and pull back finitely, ε = 0
    too.
    """
    problem = make_problem("circle", {**SHORT, "noise.epsilon": 0.0})
    space = problem.space
    mu = np.where(space.x[:, 0] > 0.8, 1.0, 0.0)[None]
    mu = mu / space.integrate(mu)[:, None]
    W = np.zeros(problem.control_shape[1:])
    taken = SCHEMES[scheme].step(problem.dynamics, mu, W, 0.5)
    cotangents = SCHEMES[scheme].pullback(problem.dynamics, taken, space.mass * np.sin(space.x[:, 1])[None])
    assert np.isfinite(taken.after).all()
    assert np.isfinite(cotangents.mu[:, : space.owned]).all()
    assert np.isfinite(cotangents.W).all()
    assert float(space.integrate(taken.after)[0]) == pytest.approx(1.0, abs=1e-13)


def test_labels_step_independently_but_share_the_mean_field(make_problem: MakeProblem) -> None:
    """Catches labels coupled by more than the moments: two equal labels must step like one, two different ones must
    not.
    """
    from solver.attention.separable import SeparableAttention

    problem = make_problem("circle", SHORT)
    attention = SeparableAttention(problem.space, problem.expansion, np.array([0.25, 0.75]))
    dynamics = replace(problem.dynamics, attention=attention)
    W = np.random.default_rng(0).standard_normal(problem.control_shape[1:])
    single = SCHEMES["mprk2"].step(problem.dynamics, problem.initial, W, 0.1).after
    double = SCHEMES["mprk2"].step(dynamics, np.repeat(problem.initial, 2, axis=0), W, 0.1).after
    assert np.abs(double - single).max(initial=0.0) <= 1e-12 * np.abs(single).max(initial=1.0)
    other = np.ones_like(problem.initial) / problem.space.integrate(np.ones_like(problem.initial))[:, None]
    mixed = SCHEMES["mprk2"].step(dynamics, np.concatenate([problem.initial, other]), W, 0.1).after
    assert np.abs(problem.space.integrate(mixed) - 1).max() <= 1e-13
    assert max(problem.comm.allgather(float(np.abs(mixed[0] - single[0]).max(initial=0.0)))) > 1e-3


def test_vanishing_step_changes_nothing(make_problem: MakeProblem) -> None:
    """Catches a step not proportional to Δt: at Δt = 1e-12 the density stays put to 1e-9."""
    problem = make_problem("sphere", SHORT)
    W = np.ones(problem.control_shape[1:])
    for scheme in SCHEMES.values():
        after = scheme.step(problem.dynamics, problem.initial, W, 1e-12).after
        assert np.abs(after - problem.initial).max(initial=0.0) <= 1e-9
