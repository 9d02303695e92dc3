"""Heat flow, A = 0 and W = 0: harmonics decay like e^{−k²εt} on the circle, e^{−l(l+1)εt} on the sphere."""

from __future__ import annotations

import pytest
from system.studies import circle_h, heat_convergence, heat_errors

CIRCLE_H = tuple(circle_h(n) for n in (100, 200, 400))
SPHERE_H = (0.15, 0.12, 0.1, 0.07, 0.05)
DEGREES = (1, 2, 3, 4)
SERIAL = pytest.mark.serial


@pytest.mark.parametrize("manifold", ["circle", "sphere"])
@pytest.mark.parametrize(
    "degree", [degree if degree == 2 else pytest.param(degree, marks=SERIAL) for degree in DEGREES]
)
def test_harmonics_decay_at_the_exact_rate(manifold: str, degree: int) -> None:
    """Within h² of 1, relative to a mode's own wave number: catches √ε for ε, a factor 2, arcs where chords belong."""
    h = {"circle": CIRCLE_H[1], "sphere": 0.1}[manifold]
    rate_error, density_error, problem = heat_errors(manifold, h, degree, 20)
    resolved = (degree * problem.space.h) ** 2
    assert rate_error <= 0.1 * resolved
    assert density_error <= 0.2 * resolved


@pytest.mark.serial
def test_first_mode_of_the_circle_has_no_error_in_h() -> None:
    """Chords 2 sin(h/2) make the discrete rate of cos θ exactly ε: catches arc lengths used in their place."""
    assert heat_errors("circle", CIRCLE_H[0], 1, 40)[0] < 1e-8


@pytest.mark.serial
@pytest.mark.parametrize("degree", DEGREES[1:])
def test_order_two_in_h_on_the_circle(degree: int) -> None:
    """Catches a first-order conductance or mass."""
    for study in heat_convergence("circle", degree, CIRCLE_H, 40):
        assert abs(study.order - 2) <= 0.15, study


@pytest.mark.serial
@pytest.mark.parametrize("degree", DEGREES)
def test_order_two_in_h_on_the_sphere(degree: int) -> None:
    """Catches triangles that miss part of the sphere, masses that do not fit the stiffness, a bad mesh family.

    The rate of degree 1 converges faster (coordinates are nearly discrete eigenfunctions: Σ_j w_ij (x_i − x_j) points
    along the normal up to higher order): for it only the density has order 2.
    """
    rate, density = heat_convergence("sphere", degree, SPHERE_H, 20)
    assert abs(density.order - 2) <= 0.25, density
    if degree == 1:
        assert rate.order >= 1.75, rate
        assert max(rate.errors) < 1e-4
    else:
        assert abs(rate.order - 2) <= 0.25, rate
