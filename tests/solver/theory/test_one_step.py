"""P1's one step of gradient descent and the constants of its lower bound."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from solver.problem import Problem
from solver.theory.equilibrium import TheoryError, equilibrium_near
from solver.theory.one_step import OneStep, default_alphas, one_step, read_off

MakeProblem = Callable[..., Problem]
serial = pytest.mark.serial
EAST = np.array([1.0, 0.0])

# At rest already but for its width: nothing of the start is left to hide the response.
AT_REST = {"noise.epsilon": 0.05, "initial.mean": [1.0, 0.0], "initial.kappa": 40.0}
ALPHAS = np.array([0.08, 0.04, 0.02])


@serial
def test_exponent_power_and_bound(make_problem: MakeProblem) -> None:
    """Catches R_ρ without its 2, a control of the wrong size, gaps lost in round-off, Ω at the wrong end."""
    problem = make_problem(
        "circle", {**AT_REST, "geometry.h": 0.05, "depth.T": 5.0, "depth.first_step": 0.05, "depth.layer": 4.0}
    )
    equilibrium = equilibrium_near(problem, EAST)
    found = one_step(problem, equilibrium)
    window = found.window
    assert window is not None
    # φ begins at R_ρ and relaxes to the slowest mode it holds; the scheme at aΔt = 0.045 loses 1 %.
    slowest = equilibrium.cluster_modes(1)[0].rate
    assert 0.985 * 2 * slowest < window.exponent < 2 * found.rayleigh
    assert window.exponent == pytest.approx(2 * found.rayleigh, rel=0.025)
    assert window.powers == pytest.approx((2.0, 2.0), abs=0.01)
    assert found.untrained[-1] < 1e-18  # a difference of energies is 1e-15 at best
    assert window.end == 5.0
    assert window.start < 3.0
    assert window.Omegas == pytest.approx([window.Omega] * 4, rel=0.01)
    # Ω at T: twice the gap of the turn α g_T/(2a), whose stiffness is that of the mode
    angle = problem.gradient(None)[1][-1, 1, 0] / (2 * slowest)
    stiffness = (1.0 - 0.65) * float(equilibrium.mean[0]) ** 2 * np.exp(1.0)
    assert window.Omega == pytest.approx(0.5 * stiffness * angle**2, rel=0.2)
    # halving the largest α leaves Δ₂: the limit α → 0 was reached
    again = one_step(problem, equilibrium, found.alphas / 2)
    inside = found.t >= window.start
    assert again.quadratic[inside] == pytest.approx(found.quadratic[inside], rel=1e-3)
    json.dumps(found.values(), allow_nan=False)


def test_ranks_agree(make_problem: MakeProblem) -> None:
    """Catches a sum over one rank only, a deadlock, a step uphill: towards the target this gap grows."""
    problem = make_problem("circle", {**AT_REST, "initial.mean": [1.0, 0.1], "depth.T": 3.0})
    found = one_step(problem, equilibrium_near(problem, EAST), [0.02, 0.08, 0.04])
    assert found.alphas.tolist() == [0.08, 0.04, 0.02]
    assert found.linear[-1] > 0.0
    assert found.gap[:, -1] == pytest.approx(
        found.untrained[-1] + found.alphas * found.linear[-1] + found.alphas**2 * found.quadratic[-1], rel=0.01
    )
    root = problem.comm.bcast(found.gap, root=0)
    assert np.array_equal(root, found.gap)


@serial
def test_gap_is_a_difference_of_energies(make_problem: MakeProblem) -> None:
    """Catches Δ from another minimum, or spoilt where ρ underflows (ε = 0.002): against E(μ_T) − E(ρ) to round-off."""
    problem = make_problem("circle", {**AT_REST, "depth.T": 1.0, "noise.epsilon": 0.002, "geometry.h": 0.02})
    equilibrium = equilibrium_near(problem, EAST)
    found = one_step(problem, equilibrium, ALPHAS)
    _, gradient = problem.gradient(None)
    final = problem.forward(-found.alphas[0] * gradient).energy[-1]
    assert found.gap[0, -1] == pytest.approx(final - equilibrium.state.energy, abs=1e-12)
    assert found.gap[0, -1] > 1e-9


def _synthetic(
    untrained: float = 0.0, linear: float = 0.0, cubic: float = 0.0, fast: float = 0.0, rate: float = 1.8
) -> OneStep:
    """Δ = untrained + linear·α + α² (e^{−1.8 s} + fast e^{−6 s}) 0.06 + cubic·α³, s = T − t; R_ρ = 0.95."""
    t = np.linspace(0.0, 10.0, 201)
    s = 10.0 - t
    quadratic = 0.06 * (np.exp(-rate * s) + fast * np.exp(-6.0 * s))
    alphas = ALPHAS[:, None]
    gap = untrained + linear * alphas + quadratic * alphas**2 + cubic * alphas**3
    return read_off(t, ALPHAS, np.full(201, untrained), gap, 0.95, 1.0, 1e-14)


@serial
def test_constants_of_a_known_expansion() -> None:
    """Catches Δ₁ mixed into Δ₂, C_R per α² or α⁴, Ω not the minimum, limits of α that are no zeros of the bound."""
    found = _synthetic(cubic=1e-3)
    window = found.window
    assert window is not None
    assert window.exponent == pytest.approx(1.8, rel=1e-9)
    assert window.end == 10.0
    assert pytest.approx(1e-3, rel=1e-6) == window.C_R
    assert window.Omega == pytest.approx(0.06, rel=1e-9)  # e^{(2R_ρ − 1.8)s} is smallest at s = 0
    assert window.alpha_somewhere == pytest.approx(60.0, rel=1e-6)
    start = 10.0 - window.start
    assert window.alpha_everywhere == pytest.approx(60.0 * np.exp(-1.9 * start), rel=1e-6)
    depth_of_zero = [10.0 - np.log(60.0 / alpha) / 1.9 for alpha in ALPHAS]  # Ω e^{−2(T−t)R_ρ} = C_R α
    assert window.positive_from == pytest.approx(depth_of_zero, abs=0.05)


@serial
def test_response_steeper_than_the_bound() -> None:
    """Catches Ω taken at T: where the exponent 2.2 exceeds 2R_ρ = 1.9, Ω(t) is smallest at the start of the window."""
    window = _synthetic(rate=2.2).window
    assert window is not None
    assert window.Omega == pytest.approx(0.06 * np.exp(-0.3 * (10.0 - window.start)), rel=1e-6)
    assert window.Omega_end == pytest.approx(0.06, rel=1e-6)
    assert window.Omegas == pytest.approx([window.Omega] * 3, rel=1e-6)


@serial
def test_window_starts_where_the_untrained_gap_is_a_tenth() -> None:
    """Catches a window of the largest α, and one that takes the untrained flow for the response."""
    window = _synthetic(untrained=1e-8).window
    assert window is not None
    # 0.06 α² e^{−1.8 s} + 1e-8 = 1e-7 at α = 0.02
    assert 10.0 - window.start == pytest.approx(np.log(0.06 * 0.02**2 / 9e-8) / 1.8, abs=0.05)
    assert window.exponent == pytest.approx(1.8, rel=1e-6)
    assert window.exponents[-1] < 1.79 < window.exponents[0]


@serial
def test_window_starts_where_the_linear_term_is_small() -> None:
    """Catches a cluster that is still turning: α Δ₁ outweighs α² Δ₂ where Δ_t(0) alone would let the window begin."""
    window = _synthetic(linear=1e-6).window
    assert window is not None
    assert 10.0 - window.start == pytest.approx(np.log(0.06 * 0.02 * 0.1 / 1e-6) / 1.8, abs=0.05)
    assert window.linear == pytest.approx(0.1, rel=0.1)


@serial
def test_window_ends_where_faster_modes_show() -> None:
    """Catches an exponent fitted through the layer at T: with a mode e^{−6s} the slope there is not 1.8."""
    window = _synthetic(fast=1.0).window
    assert window is not None
    # slope (1.8 + 6x)/(1 + x), x = e^{−4.2 s}, within 5 % of 1.8
    assert 10.0 - window.end == pytest.approx(np.log((6 - 1.89) / 0.09) / 4.2, abs=0.1)
    assert window.exponent == pytest.approx(1.8, rel=0.01)


@serial
def test_no_window_says_why() -> None:
    """Catches a fit to nothing: an untrained gap above every response."""
    found = _synthetic(untrained=1.0)
    assert found.window is None
    assert found.reason is not None
    assert "nowhere close enough" in found.reason
    json.dumps(found.values(), allow_nan=False)


@serial
def test_default_steps_are_small_against_the_gradient(make_problem: MakeProblem) -> None:
    """Catches α that do not scale: ∫‖αg‖ dt is at most 0.1 whatever the gradient's size, and g = 0 is refused."""
    problem = make_problem("circle")
    gradient = np.random.default_rng(0).standard_normal(problem.control_shape)
    for factor in (1.0, 1e3):
        alphas = default_alphas(problem, factor * gradient)
        carried = alphas * factor * (problem.dt @ np.linalg.norm(gradient, axis=(1, 2)))
        assert carried == pytest.approx([0.1, 0.05, 0.025, 0.0125])
    with pytest.raises(TheoryError, match="gradient at W = 0 is zero"):
        default_alphas(problem, 0.0 * gradient)


@serial
def test_step_sizes_that_serve_no_fit(make_problem: MakeProblem) -> None:
    """Catches a polynomial through too few α, or through α = 0 twice."""
    problem = make_problem("circle", {**AT_REST, "depth.T": 1.0})
    equilibrium = equilibrium_near(problem, EAST)
    for alphas in ([0.1, 0.2], [0.1, 0.1, 0.2], [0.1, 0.2, 0.0]):
        with pytest.raises(ValueError, match="three different step sizes"):
            one_step(problem, equilibrium, alphas)
