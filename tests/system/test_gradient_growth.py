"""The gradient at W = 0 grows towards T at the rate of the collective mode (circle, ε = 0.01, target e₂, T = 20)."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from system.studies import circle_h, collective_rate, logarithmic_rate, make_case, reference, untrained_gradient

from solver.phases import terminal_rate
from solver.problem import Problem

pytestmark = pytest.mark.serial

T = 20.0
LAYER = (T - 4.0, T - 1.0)  # where the initial clustering, e^{−0.94 t} away from its end, no longer shows
CONTINUUM = 0.9431292548822896  # R_align of circle_theory.json


@cache
def gradient(nodes: int, dt: float) -> tuple[np.ndarray, np.ndarray]:
    return untrained_gradient(nodes, dt, T)


def test_spectrum_of_the_test_tends_to_the_reference() -> None:
    """Catches a mistake in the witness itself: its collective rate must converge to the spectral reference's."""
    exact = reference("circle_theory")["lam2=0.65 eps=0.01"]["decay_rates"][3]
    errors = [exact - collective_rate(nodes) for nodes in (200, 400, 800)]
    assert np.log2(np.array(errors[:-1]) / errors[1:]) == pytest.approx(2.0, abs=0.15)


@pytest.mark.parametrize("dt", [0.05, 0.025])
def test_gradient_grows_with_the_collective_rate_of_its_mesh(dt: float) -> None:
    """Within 1 %: catches an adjoint that is not the transpose of the linearised flow, nonlocal part included."""
    rate = logarithmic_rate(*gradient(628, dt), *LAYER)
    assert rate == pytest.approx(collective_rate(628), rel=0.01)


@pytest.mark.parametrize("dt", [0.05, 0.025])
def test_terminal_rate_reads_that_growth(dt: float) -> None:
    """Within 1 %: catches a fit whose floor or window bends the line it measures."""
    rate = terminal_rate(*gradient(628, dt))
    assert rate is not None
    assert rate == pytest.approx(collective_rate(628), rel=0.01)


def test_one_step_of_gradient_descent_inherits_that_rate() -> None:
    """Within 1 %: catches a 1-GD that is no longer W = −α g, or a summary that reads its rate off something else."""
    one_step = {"optimizer__method": "gradient", "optimizer__step": 0.1, "optimizer__max_iterations": 1}
    case = make_case("circle", circle_h(628), 0.01, T, round(T / 0.05), objective__target=[0.0, 1.0], **one_step)
    result = Problem(case).solve()
    assert terminal_rate(result.problem.t, result.W) == pytest.approx(collective_rate(628), rel=0.01)
    assert result.summary["phases"]["terminal_rate"] == pytest.approx(collective_rate(628), rel=0.01)


def test_growth_is_exponential_down_to_a_thousandth() -> None:
    """Rates of 3 units of depth each agree to 0.5 %: catches modes mixed in, and a rate read where there is none."""
    t, g = gradient(628, 0.05)
    rates = [logarithmic_rate(t, g, T - end, T - end + 3.0) for end in (3.0, 6.0, 9.0)]
    assert max(rates) / min(rates) < 1.005


def test_refining_mesh_and_depth_together_tends_to_the_continuum() -> None:
    """Order 2 towards R_ρ = 0.943: catches a first-order term in h or Δt that a single grid hides."""
    sizes = [(628, 0.05), (1256, 0.025), (2512, 0.0125)]
    errors = np.array([CONTINUUM - logarithmic_rate(*gradient(*size), *LAYER) for size in sizes])
    assert (errors > 0).all()
    assert np.polyfit(np.log([dt for _, dt in sizes]), np.log(errors), 1)[0] == pytest.approx(2.0, abs=0.15)
    assert errors[-1] < 2e-3
