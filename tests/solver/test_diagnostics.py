"""Diagnostics along depth."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import i0, i1

from solver.attention.expansion import expand
from solver.attention.kernels import ExponentialKernel
from solver.attention.separable import SeparableAttention
from solver.diagnostics import adjoint_norm, diagnose
from solver.initial import von_mises_fisher
from solver.space import Space
from solver.theory.energy import free_energy

MakeSpace = Callable[[str, float], Space]
ONE = np.ones(1)


def _attention(space: Space, rho: np.ndarray) -> SeparableAttention:
    return SeparableAttention(
        space, expand(ExponentialKernel(np.diag([1.0, 0.65, 0.3][: space.dimension])), space.dimension, 1e-10), rho
    )


def _law(space: Space, angle: float, kappa: float) -> np.ndarray:
    mean = np.array([math.cos(angle), math.sin(angle), 0.0])[: space.dimension]
    return von_mises_fisher(space, mean, kappa)[None]


def test_mean_angle_and_resultant_of_von_mises_laws(make_space: MakeSpace) -> None:
    """Catches sums over one rank, a mean without masses, and atan2 with exchanged arguments."""
    space = make_space("circle", 0.1)
    kappa = 4.0
    found = diagnose(space, _attention(space, ONE), ONE, 0.1, [_law(space, a, kappa) for a in (0.3, 1.2)])
    assert found.angle == pytest.approx([0.3, 1.2], abs=1e-9)
    assert found.resultant == pytest.approx([i1(kappa) / i0(kappa)] * 2, rel=1e-9)
    assert found.mean[1] == pytest.approx(found.resultant[1] * np.array([math.cos(1.2), math.sin(1.2)]), rel=1e-9)
    assert np.array_equal(found.conditional_resultant, found.resultant)


def test_angle_is_unwrapped(make_space: MakeSpace) -> None:
    """Catches a jump by 2π where the tokens cross −e₁: displacements would be off by a turn."""
    space = make_space("circle", 0.1)
    angles = np.linspace(2.5, 4.0, 7)
    found = diagnose(space, _attention(space, ONE), ONE, 0.1, [_law(space, a, 4.0) for a in angles])
    assert found.angle == pytest.approx(angles, abs=1e-9)


def test_energies(make_space: MakeSpace) -> None:
    """Catches E and the interaction energy with each other's sign: E = ε ∫μ log μ − interaction."""
    space = make_space("sphere", 0.35)
    attention, mu = _attention(space, ONE), _law(space, 0.5, 3.0)
    found = diagnose(space, attention, ONE, 0.07, [mu])
    assert found.energy[0] == pytest.approx(free_energy(space, attention, ONE, 0.07, mu), rel=1e-13)
    assert found.interaction_energy[0] == pytest.approx(attention.interaction_energy(attention.moments(mu)), rel=1e-13)
    assert found.interaction_energy[0] > 0


def test_dispersion_is_the_root_mean_square_angle(make_space: MakeSpace) -> None:
    """Catches chords in place of angles and a missing root: π/√3 for a nearly uniform circle, √ε-like for a sharp
    one.
    """
    space = make_space("circle", 0.1)
    found = diagnose(space, _attention(space, ONE), ONE, 0.1, [_law(space, 0.4, 1e-6), _law(space, 0.4, 30.0)])
    assert found.dispersion[0] == pytest.approx(math.pi / math.sqrt(3), rel=1e-3)
    theta = np.linspace(-math.pi, math.pi, 20001)
    weights = np.exp(30 * (np.cos(theta) - 1))
    assert found.dispersion[1] == pytest.approx(math.sqrt((weights @ theta**2) / weights.sum()), rel=1e-6)


def test_uniform_law_has_no_direction(make_space: MakeSpace) -> None:
    """Catches a division by |m| = 0: the dispersion of an exactly uniform circle is undefined, everything else
    finite.
    """
    space = make_space("circle", 0.1)
    uniform = _law(space, 0.0, 0.0)
    found = diagnose(space, _attention(space, ONE), ONE, 0.1, [uniform])
    assert found.resultant[0] <= 1e-12
    assert math.isnan(found.dispersion[0])
    assert np.isfinite([found.energy[0], found.mass[0], found.angle[0]]).all()


@pytest.mark.ranks
def test_extremes_and_the_worst_mass(make_space: MakeSpace) -> None:
    """Catches extremes of one rank, or of ghosts, and a mass error hidden by averaging labels that err oppositely."""
    space = make_space("sphere", 0.35)
    rho = np.array([0.5, 0.5])
    mu = np.repeat(_law(space, 0.0, 0.0), 2, axis=0) * np.array([[1 + 1e-6], [1 - 2e-6]])
    lowest = space.comm.allreduce(float(mu.min(initial=1.0)), op=_min())
    mu[0, : space.owned][space.original == 7] = 5.0  # lives on one rank only
    mu[1, : space.owned][space.original == 11] = -0.25
    space.update_ghosts(mu)
    found = diagnose(space, _attention(space, rho), rho, 0.0, [mu])
    assert found.max_density[0] == 5.0
    assert found.min_density[0] == -0.25 < lowest
    masses = space.integrate(mu)
    assert found.mass[0] == masses[np.argmax(np.abs(masses - 1))]


def _min():  # type: ignore[no-untyped-def]
    from mpi4py import MPI

    return MPI.MIN


def test_conditional_resultant_sees_labels_that_the_mean_hides(make_space: MakeSpace) -> None:
    """Catches |m| in its place: two labels clustered at opposite points have |m| ≈ 0 but are both clustered."""
    space = make_space("circle", 0.1)
    rho = np.array([0.5, 0.5])
    mu = np.concatenate([_law(space, 0.3, 20.0), _law(space, 0.3 + math.pi, 20.0)])
    found = diagnose(space, _attention(space, rho), rho, 0.1, [mu])
    assert found.resultant[0] <= 1e-9
    assert found.conditional_resultant[0] == pytest.approx(i1(20.0) / i0(20.0), rel=1e-6)


@pytest.mark.ranks
@pytest.mark.parametrize(("manifold", "h"), [("circle", 0.1), ("sphere", 0.1)])
def test_adjoint_norm_of_a_linear_function(manifold: str, h: float, make_space: MakeSpace) -> None:
    """Catches cells counted twice, or a missing density: ∫|∇(3 x₁)|² dμ = 9 ∫ (1 − x₁²) dμ = 9 (d − 1)/d for uniform
    μ.
    """
    space = make_space(manifold, h)
    uniform = _law(space, 0.0, 0.0)
    d = space.dimension
    assert adjoint_norm(space, ONE, uniform, 3 * space.x[None, :, 0]) == pytest.approx(
        3 * math.sqrt((d - 1) / d), rel=3e-3
    )
    sharp = _law(space, 0.0, 5.0)
    mean_square = float(space.integrate(sharp[0] * (1 - space.x[:, 0] ** 2)))
    assert adjoint_norm(space, ONE, sharp, space.x[None, :, 0]) == pytest.approx(math.sqrt(mean_square), rel=0.01)
    assert adjoint_norm(space, ONE, uniform, np.ones((1, len(space.x)))) <= 1e-10
