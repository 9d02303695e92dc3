"""Forward runs against independent spectral solvers: values, and orders in h and Δt."""

from __future__ import annotations

import numpy as np
import pytest
from system.studies import circle_h, depth_convergence, forward_table, mesh_convergence, reference_table

CONTROLS = ("W0", "Wconst")
CIRCLE_NODES = (200, 400, 800)
SPHERE_H = (0.2, 0.15, 0.1, 0.07, 0.05)
SLOW = pytest.mark.slow
FINE = {"circle": (circle_h(1000), 0.0125), "sphere": (0.05, 0.02)}


@pytest.mark.parametrize("control", [pytest.param("W0", marks=pytest.mark.serial), "Wconst"])
@pytest.mark.parametrize(
    ("manifold", "epsilon"), [pytest.param("circle", 0.1, marks=pytest.mark.serial), ("circle", 0.01), ("sphere", 0.1)]
)
def test_fine_runs_agree_with_the_spectral_reference(manifold: str, epsilon: float, control: str) -> None:
    """Energy and mean within 1e-3 at every depth: catches a wrong term of the PDE, sign of G, energy, initial law."""
    h, dt = FINE[manifold]
    _, exact = reference_table(manifold, epsilon, control)
    table, _ = forward_table(manifold, h, epsilon, control, dt)
    np.testing.assert_allclose(table, exact, rtol=0, atol=1e-3)


@pytest.mark.serial
@pytest.mark.parametrize(
    ("epsilon", "control"),
    [(0.1, "W0"), (0.01, "Wconst"), pytest.param(0.1, "Wconst", marks=SLOW), pytest.param(0.01, "W0", marks=SLOW)],
)
def test_order_two_in_h_on_the_circle(epsilon: float, control: str) -> None:
    """Catches drifts evaluated off the edge's middle, upwinding beyond the edge average, a first-order energy."""
    for study in mesh_convergence("circle", epsilon, control, [circle_h(n) for n in CIRCLE_NODES], 0.0125):
        assert abs(study.order - 2) <= 0.15, study


@pytest.mark.serial
@pytest.mark.parametrize("control", [pytest.param("W0", marks=SLOW), "Wconst"])
def test_order_two_in_h_on_the_sphere(control: str) -> None:
    """By regression over five unstructured meshes: catches lumped masses or conductances of the wrong triangle."""
    for study in mesh_convergence("sphere", 0.1, control, SPHERE_H, 0.05):
        assert abs(study.order - 2) <= 0.25, study


@pytest.mark.serial
@pytest.mark.parametrize(("scheme", "expected"), [("mprk2", 2), ("euler", 1)])
@pytest.mark.parametrize("control", [pytest.param("W0", marks=SLOW), "Wconst"])
@pytest.mark.parametrize("epsilon", [pytest.param(0.1, marks=SLOW), 0.01])
def test_order_in_depth_step_on_the_circle(epsilon: float, control: str, scheme: str, expected: int) -> None:
    """Catches a stage that sees the old potential or the wrong Patankar weights: order 1 instead of 2."""
    dts = (0.05, 0.025, 0.0125)
    for study in depth_convergence("circle", epsilon, control, scheme, dts, circle_h(200), 0.00125):
        assert abs(study.order - expected) <= 0.15, study


@pytest.mark.serial
@SLOW
@pytest.mark.parametrize(("scheme", "expected"), [("mprk2", 2), ("euler", 1)])
@pytest.mark.parametrize("control", CONTROLS)
def test_order_in_depth_step_on_the_sphere(control: str, scheme: str, expected: int) -> None:
    """As on the circle, where the stiffness comes from triangles of all shapes."""
    for study in depth_convergence("sphere", 0.1, control, scheme, (0.05, 0.025, 0.0125), 0.15, 0.00125):
        assert abs(study.order - expected) <= 0.15, study
