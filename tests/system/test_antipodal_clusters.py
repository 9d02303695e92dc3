"""Two equal clusters at ±e₁ are stable below λ₂/λ₁ = tanh λ₁ and turn towards each other above (circle)."""

from __future__ import annotations

from mpi4py import MPI

import numpy as np
import pytest
from theory_cases import small_case

from solver.particles.create import create_field
from solver.particles.problem import ParticleProblem
from solver.problem import Problem
from solver.theory.closed_forms import antipodal_rate, stability_ratio
from solver.theory.quantities import measure

pytestmark = pytest.mark.serial


def _rate(second: float, epsilon: float) -> float:
    """Of the mode in which both clusters turn to the same side, on a mesh that resolves them."""
    h = 0.12 * np.sqrt(epsilon / np.e)
    return measure(Problem(small_case("circle", h, epsilon, (1.0, second))), 2).values["antipodal_rate_2"]


def test_rates_tend_to_the_closed_form() -> None:
    """Catches another mode, or a wrong spectrum of a saddle: λ₁ sinh λ₁ − λ₂ cosh λ₁ as ε → 0, of both signs."""
    for second in (0.5, 0.9):
        coarse, fine = (_rate(second, epsilon) for epsilon in (2e-3, 1e-3))
        assert 2 * fine - coarse == pytest.approx(antipodal_rate(1.0, second), abs=2e-3)
        assert np.sign(fine) == np.sign(antipodal_rate(1.0, second))


def test_stability_changes_at_tanh() -> None:
    """Catches a stability limit beside tanh λ₁: the rate vanishes there, extrapolated to ε = 0, to 0.5 %."""
    zeros = []
    for epsilon in (2e-3, 1e-3):
        left, right = _rate(0.7, epsilon), _rate(0.8, epsilon)
        assert left > 0.0 > right
        zeros.append(0.7 + 0.1 * left / (left - right))
    assert 2 * zeros[1] - zeros[0] == pytest.approx(stability_ratio(1.0), rel=5e-3)


@pytest.mark.parametrize(("second", "stays"), [(0.70, True), (0.82, False)])
def test_tokens_agree(second: float, stays: bool) -> None:
    """Catches a closed form of our own making: 64 tokens without noise, both halves turned by 0.05 rad to one side."""
    case = small_case("circle", 0.1, 0.0, (1.0, second), depth__T=60.0, particles__steps=20)
    problem = ParticleProblem(case, create_field(case, MPI.COMM_SELF), [0])
    angle = np.where(np.arange(64) % 2 == 0, 0.05, np.pi - 0.05)
    problem.initial = np.column_stack([np.cos(angle), np.sin(angle)])[None]
    for x in problem.states(np.zeros((1, *problem.control_shape))):
        last = x[0]
    turned = np.abs(np.arctan2(last[:, 1], np.abs(last[:, 0])))
    assert (turned.max() < 0.01) if stays else (turned.min() > 1.0)
