"""Softmax attention: rates of the cluster at small ε, and orders of the forward run (docs/model.md)."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from system.softmax_studies import EIGENVALUES, final
from system.studies import (
    circle_h,
    cluster_rate,
    collective_rate,
    extrapolated,
    logarithmic_rate,
    make_case,
    order,
    untrained_gradient,
)

from solver.attention.softmax import SoftmaxAttention
from solver.problem import Problem
from solver.theory.stationary import stationary_state
from solver.types import FloatArray

pytestmark = pytest.mark.serial


@pytest.mark.parametrize("epsilon", [0.02, 0.01])
def test_gradient_grows_with_the_collective_rate_of_its_mesh(epsilon: float) -> None:
    """Within 1 %: catches the nonlocal term of the symmetric kernel in the adjoint, which has h(y, x)/Z(y) here."""
    t, g = untrained_gradient(400, 0.05, 40.0, epsilon, attention__normalized=True)
    rate = logarithmic_rate(t, g, 25.0, 38.0)
    assert rate == pytest.approx(collective_rate(400, epsilon, normalized=True), rel=0.01)


@pytest.mark.parametrize(("response", "limit"), [(1.0, 0.35), (0.0, 1.0)], ids=["collective", "token"])
def test_rates_tend_to_those_of_a_cluster(response: float, limit: float) -> None:
    """Catches softmax rates scaled like e^{λ₁}: as ε → 0 they are λ₁ − λ₂ (collective) and λ₁ (one token)."""
    rates = [cluster_rate(400, epsilon, EIGENVALUES, True, response) for epsilon in (0.02, 0.01)]
    assert abs(rates[1] - limit) < abs(rates[0] - limit)
    assert extrapolated(*np.array(rates), power=1) == pytest.approx(limit, rel=0.01)


class Frozen(SoftmaxAttention):
    """Attention to a given state, whatever the density."""

    c: FloatArray

    def moments(self, mu: FloatArray) -> FloatArray:
        """Those of the given state."""
        return self.c


def test_one_token_relaxes_at_its_own_rate() -> None:
    """Within 1 % of the same-mesh rate: catches a solver whose softmax drift has another slope at the cluster."""
    epsilon, nodes, dt = 0.02, 400, 0.025
    case = make_case("circle", circle_h(nodes), epsilon, 8.0, round(8.0 / dt), attention__normalized=True)
    problem = Problem(case)
    space = problem.space
    start = np.exp(5 * (space.x[:, :1].T - 1))
    state = stationary_state(space, problem.attention, np.ones(1), epsilon, start / space.integrate(start)[:, None])
    frozen = Frozen(space, problem.expansion, np.ones(1))
    frozen.c = problem.attention.moments(state.mu)
    problem.dynamics = dataclasses.replace(problem.dynamics, attention=frozen)
    problem.initial = state.mu * (1 + 0.01 * space.x[:, 1] / np.sqrt(epsilon))
    problem.initial /= space.integrate(problem.initial)[:, None]
    sideways = np.array([float(space.integrate(mu * space.x[:, 1])[0]) for mu in problem.forward(None).densities])
    late = problem.t >= 3.0
    rate = -np.polyfit(problem.t[late], np.log(sideways[late]), 1)[0]
    assert rate == pytest.approx(cluster_rate(nodes, epsilon, EIGENVALUES, True, 0.0), rel=0.01)


@pytest.mark.parametrize(
    ("manifold", "hs", "finest"),
    [("circle", tuple(circle_h(n) for n in (40, 80, 160)), circle_h(1280)), ("sphere", (0.3, 0.2, 0.13), 0.045)],
    ids=["circle", "sphere"],
)
def test_forward_run_is_of_order_two_in_h(manifold: str, hs: tuple[float, ...], finest: float) -> None:
    """Against itself, refined: catches a first-order error in log Z along the edges."""
    exact, _ = final(manifold, finest, 0.05)
    runs = [final(manifold, h, 0.05) for h in hs]
    found = order([size for _, size in runs], [float(np.abs(values - exact).max()) for values, _ in runs])
    assert found == pytest.approx(2.0, abs=0.2)


@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_forward_run_is_of_order_two_in_depth(manifold: str) -> None:
    """Against itself, refined: catches log Z taken from the wrong stage."""
    h = {"circle": 0.1, "sphere": 0.3}[manifold]
    exact, _ = final(manifold, h, 1 / 640)
    dts = [1 / 10, 1 / 20, 1 / 40]
    found = order(dts, [float(np.abs(final(manifold, h, dt)[0] - exact).max()) for dt in dts])
    assert found == pytest.approx(2.0, abs=0.15)
