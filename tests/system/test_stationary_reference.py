"""E_min and first moment of the stationary state near e₁ against independent quadrature."""

from __future__ import annotations

import numpy as np
import pytest
from system.studies import circle_h, stationary_convergence, stationary_reference, stationary_values

SPHERE_H = (0.2, 0.15, 0.12, 0.1, 0.07, 0.05)


@pytest.mark.parametrize(
    ("manifold", "epsilon", "h"),
    [
        pytest.param("circle", 0.1, circle_h(400), marks=pytest.mark.serial),
        ("circle", 0.01, circle_h(400)),
        ("sphere", 0.1, 0.1),
        pytest.param("sphere", 0.05, 0.1, marks=pytest.mark.serial),
    ],
)
def test_fine_meshes_agree_with_the_reference(manifold: str, epsilon: float, h: float) -> None:
    """Within 1e-3: catches a wrong ½, a wrong entropy, a fixed point of another well, sums over ghosts."""
    value, _ = stationary_values(manifold, epsilon, h)
    np.testing.assert_allclose(value, stationary_reference(manifold, epsilon), rtol=0, atol=1e-3)


@pytest.mark.serial
@pytest.mark.parametrize("epsilon", [0.1, 0.01])
def test_order_two_on_the_circle(epsilon: float) -> None:
    """E_min has order 2; the moment, a ratio of sums over equal arcs, is exact. Catches unequal masses."""
    (energy, moment), _ = stationary_convergence("circle", epsilon, [circle_h(n) for n in (200, 400, 800)])
    assert energy.order == pytest.approx(2.0, abs=0.15)
    assert max(moment.errors) < 1e-10


@pytest.mark.serial
@pytest.mark.parametrize("epsilon", [0.1, 0.05])
def test_extrapolates_to_the_reference_on_the_sphere(epsilon: float) -> None:
    """Within 1e-3 at h → 0 (fit c₀ + c₂h² over six meshes), and E_min with order 2: catches an error that stays."""
    (energy, moment), values = stationary_convergence("sphere", epsilon, SPHERE_H)
    basis = np.column_stack([np.ones(len(SPHERE_H)), np.square(energy.sizes)])
    limit = np.linalg.lstsq(basis, np.array(values), rcond=None)[0][0]
    np.testing.assert_allclose(limit, stationary_reference(epsilon=epsilon, manifold="sphere"), rtol=0, atol=1e-3)
    assert energy.order == pytest.approx(2.0, abs=0.5)  # meshes of six sizes differ in more than h
    assert max(moment.errors) < 1e-3
