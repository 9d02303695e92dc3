"""Initial laws."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import i0, i1

from solver.initial import von_mises_fisher
from solver.space import Space

MakeSpace = Callable[[str, float], Space]
E1 = {"circle": np.array([0.6, 0.8]), "sphere": np.array([0.48, 0.6, 0.64])}


@pytest.mark.parametrize("manifold", ["circle", "sphere"])
@pytest.mark.parametrize("kappa", [0.0, 3.0, 60.0])
def test_mass_one_and_mean_direction(manifold: str, kappa: float, make_space: MakeSpace) -> None:
    """Catches a wrong normalisation (mass of one rank only) and a wrong spread, against I₁/I₀ or coth κ − 1/κ."""
    space = make_space(manifold, 0.1)
    mu = von_mises_fisher(space, E1[manifold], kappa)
    assert float(space.integrate(mu)) == pytest.approx(1.0, abs=1e-14)
    assert mu.min(initial=np.inf) > 0
    length = i1(kappa) / i0(kappa)
    if manifold == "sphere":
        length = 1 / np.tanh(kappa) - 1 / kappa if kappa > 0 else 0.0
    mean = np.array([float(space.integrate(mu * space.x[:, k])) for k in range(space.dimension)])
    assert np.abs(mean - length * E1[manifold]).max() <= 2e-3


def test_uniform_is_constant(make_space: MakeSpace) -> None:
    """Catches κ = 0 handled as a special case gone wrong: every node has the same density, 1/area."""
    space = make_space("sphere", 0.35)
    mu = von_mises_fisher(space, E1["sphere"], 0.0)
    area = float(space.integrate(np.ones(len(space.x))))
    assert np.abs(mu * area - 1).max(initial=0.0) <= 1e-14


def test_sharp_law_does_not_overflow(make_space: MakeSpace) -> None:
    """Catches e^{κ} computed as it stands: κ = 1000 overflows."""
    space = make_space("circle", 0.02)
    mu = von_mises_fisher(space, np.array([0.0, -1.0]), 1000.0)
    assert np.isfinite(mu).all()
    assert float(space.integrate(mu)) == pytest.approx(1.0, abs=1e-14)
    assert float(space.integrate(mu * space.x[:, 1])) == pytest.approx(-i1(700.0) / i0(700.0), abs=1e-3)


@pytest.mark.ranks
def test_ghosts_hold_their_owners_values(make_space: MakeSpace) -> None:
    """Catches ghosts left unset: the first step on several ranks would start from another density."""
    space = make_space("sphere", 0.35)
    mu = von_mises_fisher(space, E1["sphere"], 5.0)
    copy = mu.copy()
    space.update_ghosts(copy)
    assert np.abs(copy - mu).max(initial=0.0) <= 1e-15 * 10
