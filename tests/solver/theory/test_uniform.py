"""Linear stability of the uniform law for isotropic attention."""

from __future__ import annotations

import numpy as np
import pytest
from theory_cases import small_case

from solver.problem import Problem
from solver.theory.closed_forms import funk_hecke
from solver.theory.equilibrium import TheoryError
from solver.theory.uniform import UniformStability, uniform_stability


def _stability(manifold: str, h: float, epsilon: float, beta: float) -> UniformStability:
    return uniform_stability(Problem(small_case(manifold, h, epsilon, [beta] * (2 if manifold == "circle" else 3))))


@pytest.mark.serial
@pytest.mark.parametrize("beta", [1.0, 4.0])
@pytest.mark.parametrize("share", [0.2, 1.3])
def test_growth_rates_on_the_circle(beta: float, share: float) -> None:
    """Catches a wrong linearisation, stable or unstable: degrees 1 to 3 against Funk and Hecke to 1e-3."""
    found = _stability("circle", 2 * np.pi / 400, share * funk_hecke(beta, 1, 2), beta)
    np.testing.assert_allclose(found.growth, found.closed_form, rtol=1e-3)
    assert max(found.spread) < 1e-8  # every harmonic was found, twice


@pytest.mark.serial
@pytest.mark.parametrize("beta", [1.0, 4.0])
def test_growth_changes_sign_at_the_threshold(beta: float) -> None:
    """Catches a threshold beside Λ₁: the growth of degree 1 has opposite signs half a per cent on either side."""
    threshold = funk_hecke(beta, 1, 2)
    below, above = (_stability("circle", 2 * np.pi / 200, share * threshold, beta) for share in (0.995, 1.005))
    assert below.growth[0] > 0.0 > above.growth[0]
    assert below.threshold == pytest.approx(threshold, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("beta", [1.0, 4.0])
def test_growth_rates_on_the_sphere(beta: float) -> None:
    """Catches an error that does not fall with h: degrees 1 to 3 to 2 %, and order 2."""
    epsilon = 0.2 * funk_hecke(beta, 1, 3)
    coarse, fine = (_stability("sphere", h, epsilon, beta) for h in (0.2, 0.1))
    np.testing.assert_allclose(fine.growth, fine.closed_form, rtol=2e-2)
    errors = [np.abs(np.array(s.growth) / np.array(s.closed_form) - 1.0)[1:] for s in (coarse, fine)]
    orders = np.log(errors[0] / errors[1]) / np.log(2.0)
    assert np.all((orders > 1.8) & (orders < 2.2))


@pytest.mark.serial
def test_degree_one_on_a_coarse_sphere() -> None:
    """Catches harmonics of the sphere counted wrongly: degree 1, three times, to 2 %."""
    found = _stability("sphere", 0.35, 0.1, 1.0)
    assert found.growth[0] == pytest.approx(found.closed_form[0], rel=2e-2)
    assert found.threshold == pytest.approx(funk_hecke(1.0, 1, 3), rel=2e-2)


@pytest.mark.serial
def test_anisotropic_attention_is_refused() -> None:
    """Catches growth rates around a law that is not stationary."""
    with pytest.raises(TheoryError, match="not stationary"):
        uniform_stability(Problem(small_case("circle", 0.2, 0.1, (1.0, 0.65))))
