"""Stationary states, entropy and free energy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import i0, i1

from solver.attention.expansion import expand
from solver.attention.kernels import ExponentialKernel
from solver.attention.separable import SeparableAttention
from solver.initial import von_mises_fisher
from solver.space import Space
from solver.theory.energy import entropy, free_energy
from solver.theory.stationary import gibbs_density, stationary_state

MakeSpace = Callable[[str, float], Space]
ONE = np.ones(1)
MATRICES = {"circle": np.diag([1.0, 0.65]), "sphere": np.diag([1.0, 0.65, 0.3])}
SIZES = {"circle": 0.1, "sphere": 0.35}


def _setup(make_space: MakeSpace, manifold: str, side: float = 1.0) -> tuple[Space, SeparableAttention, np.ndarray]:
    space = make_space(manifold, SIZES[manifold])
    start = np.exp(3 * (side * space.x[:, 0] + 0.4 * space.x[:, 1]))[None]
    return (
        space,
        SeparableAttention(space, expand(ExponentialKernel(MATRICES[manifold]), space.dimension, 1e-10), ONE),
        start / space.integrate(start)[0],
    )


def test_state_that_turns_freely_is_given_up_soon(make_space: MakeSpace) -> None:
    """Catches 20 000 iterations along the neutral mode of isotropic attention: its energy is there after 1000."""
    space = make_space("sphere", 0.15)
    attention = SeparableAttention(space, expand(ExponentialKernel(np.eye(3)), 3, 1e-10), ONE)
    first, second = (
        stationary_state(space, attention, ONE, 0.05, von_mises_fisher(space, axis, 20.0)[None])
        for axis in (np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.6, 0.8]))
    )
    assert first.creeping
    assert not first.converged
    assert first.iterations <= 3000
    assert first.residual < 1e-3
    assert first.energy == pytest.approx(second.energy, rel=1e-3)


@pytest.mark.parametrize("manifold", ["circle", "sphere"])
@pytest.mark.parametrize("side", [1.0, pytest.param(-1.0, marks=pytest.mark.serial)])
@pytest.mark.parametrize("epsilon", [0.02, 0.1])
def test_state_is_a_self_consistent_gibbs_density(
    manifold: str, side: float, epsilon: float, make_space: MakeSpace
) -> None:
    """Catches an iteration that stops before it has converged: μ must equal e^{V[μ]/ε}/Z, in the well of its start."""
    space, attention, start = _setup(make_space, manifold, side)
    state = stationary_state(space, attention, ONE, epsilon, start)
    again = gibbs_density(space, attention.potential(attention.moments(state.mu)), epsilon)
    assert np.abs(again - state.mu).max(initial=0.0) <= 1e-10 * np.abs(state.mu).max(initial=1.0)
    assert state.residual <= 1e-13
    assert 0 < state.iterations < 20_000
    assert float(space.integrate(state.mu)[0]) == pytest.approx(1.0, abs=1e-13)
    assert side * float(space.integrate(state.mu[0] * space.x[:, 0])) > 0.5


@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_energy_is_below_that_of_the_start_and_of_neighbours(manifold: str, make_space: MakeSpace) -> None:
    """Catches a fixed point that is no minimum: random small changes of the state must cost energy."""
    space, attention, start = _setup(make_space, manifold)
    state = stationary_state(space, attention, ONE, 0.05, start)
    before = free_energy(space, attention, ONE, 0.05, start)
    assert before is not None
    assert state.energy < before
    assert state.energy == free_energy(space, attention, ONE, 0.05, state.mu)
    generator = np.random.default_rng(0)
    for _ in range(5):
        c = generator.standard_normal(space.dimension)
        other = state.mu * (1 + 0.1 * np.sin(3 * space.x @ c))
        energy = free_energy(space, attention, ONE, 0.05, other / space.integrate(other)[:, None])
        assert energy is not None
        assert energy > state.energy


@pytest.mark.serial
def test_both_wells_are_mirror_images(make_space: MakeSpace) -> None:
    """Catches a state that depends on more than its well: E at +e₁ equals E at −e₁ on the symmetric circle mesh."""
    space, attention, start = _setup(make_space, "circle")
    start = np.exp(3 * space.x[:, 0])[None]
    mirrored = np.exp(-3 * space.x[:, 0])[None]
    energies = [
        stationary_state(space, attention, ONE, 0.05, mu / space.integrate(mu)[:, None]).energy
        for mu in (start, mirrored)
    ]
    # 63 nodes: the two wells are sampled half a cell apart
    assert energies[0] == pytest.approx(energies[1], rel=1e-4)


@pytest.mark.serial
def test_small_noise_energy_tends_to_the_diracs(make_space: MakeSpace) -> None:
    """Catches E_min with a wrong factor: at small ε, E ≈ −½e^{λ₁} + ε [½ − ½ log(2πe v)] with v = ε/(λ₁e^{λ₁})."""
    space = make_space("circle", 0.02)
    attention = SeparableAttention(
        space, expand(ExponentialKernel(MATRICES["circle"]), len(MATRICES["circle"]), 1e-10), ONE
    )
    start = np.exp(20 * (space.x[:, 0] - 1))[None]
    epsilon = 0.01
    state = stationary_state(space, attention, ONE, epsilon, start / space.integrate(start)[:, None])
    variance = epsilon / math.e
    # Gaussian of that variance: entropy −½ log(2πe v); attention loses ½ e^{λ₁} (1 − 2·½λ₁ v) to first order
    expected = -0.5 * math.e * (1 - variance) - 0.5 * epsilon * math.log(2 * math.pi * math.e * variance)
    assert state.energy == pytest.approx(expected, abs=3e-4)
    theta2 = float(space.integrate(state.mu[0] * np.arctan2(space.x[:, 1], space.x[:, 0]) ** 2))
    assert theta2 == pytest.approx(variance, rel=0.03)


def test_no_attention_gives_the_uniform_law(make_space: MakeSpace) -> None:
    """Catches A = 0 ending in 0/0: the Gibbs density of a constant potential is uniform, E = −ε log area."""
    space = make_space("sphere", 0.35)
    attention = SeparableAttention(space, expand(ExponentialKernel(np.zeros((3, 3))), 3, 1e-10), ONE)
    start = np.exp(2 * space.x[:, 0])[None]
    state = stationary_state(space, attention, ONE, 0.3, start / space.integrate(start)[:, None])
    area = float(space.integrate(np.ones(len(space.x))))
    assert np.abs(state.mu * area - 1).max(initial=0.0) <= 1e-13
    assert state.energy == pytest.approx(-0.3 * math.log(area) - 0.5, rel=1e-12)


def test_zero_noise_is_refused(make_space: MakeSpace) -> None:
    """Catches a division by ε = 0 in place of a sentence."""
    space, attention, start = _setup(make_space, "circle")
    with pytest.raises(ValueError, match="ε > 0"):
        stationary_state(space, attention, ONE, 0.0, start)


@pytest.mark.ranks
def test_gibbs_density_neither_overflows_nor_depends_on_a_constant(make_space: MakeSpace) -> None:
    """Catches e^{V/ε} computed as it stands (V/ε = 2700 overflows), and a maximum taken over one rank only."""
    space = make_space("sphere", 0.35)
    V = np.stack([np.exp(space.x[:, 0]), np.exp(space.x[:, 0]) + 1000.0])
    mu = gibbs_density(space, V, 1e-3)
    assert np.isfinite(mu).all()
    assert space.integrate(mu) == pytest.approx([1.0, 1.0], abs=1e-13)
    assert np.abs(mu[0] - mu[1]).max(initial=0.0) <= 1e-9 * np.abs(mu).max(initial=1.0)


@pytest.mark.ranks
def test_entropy_of_a_von_mises_law(make_space: MakeSpace) -> None:
    """Catches a wrong sign, and values of single ranks: ∫μ log μ = κ I₁/I₀ − log(2π I₀), to O(h²)."""
    space = make_space("circle", 0.02)
    kappa = 4.0
    mu = np.exp(kappa * space.x[:, 1])[None] / (2 * math.pi * i0(kappa))
    exact = kappa * i1(kappa) / i0(kappa) - math.log(2 * math.pi * i0(kappa))
    assert entropy(space, mu)[0] == pytest.approx(exact, abs=1e-4)


@pytest.mark.parametrize("value", [0.0, -1e-14, 5e-324])
def test_entropy_where_the_density_vanishes(value: float, make_space: MakeSpace) -> None:
    """Catches 0·log 0 = nan, and nan from round-off below zero."""
    space = make_space("sphere", 0.35)
    half = space.x[:, 0] > 0
    mu = np.where(half, 2.0, value)[None]
    expected = float(space.integrate(np.where(half, 2.0 * math.log(2.0), 0.0)))
    assert entropy(space, mu)[0] == pytest.approx(expected, rel=1e-13)


def test_free_energy_weighs_labels(make_space: MakeSpace) -> None:
    """Catches label weights missing in the entropy: E of two labels with equal densities is that of one."""
    space, _, start = _setup(make_space, "sphere")
    expansion = expand(ExponentialKernel(MATRICES["sphere"]), len(MATRICES["sphere"]), 1e-10)
    rho = np.array([0.2, 0.8])
    one = free_energy(space, SeparableAttention(space, expansion, ONE), ONE, 0.1, start)
    two = free_energy(space, SeparableAttention(space, expansion, rho), rho, 0.1, np.repeat(start, 2, axis=0))
    assert one is not None
    assert two == pytest.approx(one, rel=1e-12)
