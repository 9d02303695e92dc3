"""The sharpest law a mesh carries."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from solver.case.checks import largest_kappa
from solver.initial import von_mises_fisher
from solver.space import Space


def test_limit_is_the_inverse_square() -> None:
    """Catches a limit in the wrong power of h."""
    assert largest_kappa(0.1) == pytest.approx(100.0)
    assert largest_kappa(0.02) == pytest.approx(2500.0)


@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_mesh_resolves_a_law_at_the_limit(manifold: str, make_space: Callable[[str, float], Space]) -> None:
    """Catches a limit so loose that the law's mean depends on where the nodes happen to lie: within 1 % anywhere."""
    h = 0.2
    space = make_space(manifold, h)
    lengths = []
    for angle in np.linspace(0, 1, 7):
        mean = np.array([np.cos(angle), np.sin(angle), 0.0])[: space.dimension]
        mu = von_mises_fisher(space, mean, largest_kappa(space.h))
        lengths.append(float(space.integrate(mu * (space.x @ mean))))
    assert max(lengths) - min(lengths) <= 0.01
