"""Separable attention on a mesh, against the dense kernel, and its transposes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from solver.attention.expansion import expand
from solver.attention.kernels import ExponentialKernel
from solver.attention.separable import SeparableAttention
from solver.parallel import allreduce
from solver.space import Space

MakeSpace = Callable[[str, float], Space]
MATRICES = {
    "circle": np.array([[1.0, 0.2], [0.2, 0.65]]),
    "sphere": np.array([[0.9, 0.25, -0.1], [0.25, 0.6, 0.15], [-0.1, 0.15, 0.4]]),
}
SIZES = {"circle": 0.1, "sphere": 0.35}
RHO = np.array([0.3, 0.7])


def _attention(space: Space, manifold: str) -> SeparableAttention:
    return SeparableAttention(space, expand(ExponentialKernel(MATRICES[manifold]), space.dimension, 1e-10), RHO)


def _densities(space: Space) -> np.ndarray:
    mu = np.stack([np.exp(2 * space.x[:, 0]), 1.5 + space.x[:, 1]])
    return mu / space.integrate(mu)[:, None]


def _potential_of(space: Space, manifold: str, mu: np.ndarray) -> np.ndarray:
    """∫ e^{⟨x,Ay⟩} dμ̄(y) at the local nodes from the dense kernel. Collective."""
    owned = space.owned
    parts = space.comm.allgather((space.x[:owned], space.mass[:owned] * (RHO @ mu[:, :owned])))
    y, weights = (np.concatenate([part[k] for part in parts]) for k in range(2))
    return ExponentialKernel(MATRICES[manifold])(space.x, y) @ weights


@pytest.mark.ranks
@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_potential_and_drift_equal_the_dense_kernels(manifold: str, make_space: MakeSpace) -> None:
    """Catches label weights or masses left out, ghosts counted twice, and a drift from j to i."""
    space = make_space(manifold, SIZES[manifold])
    attention, mu = _attention(space, manifold), _densities(space)
    c = attention.moments(mu)
    exact = _potential_of(space, manifold, mu)
    V, d = attention.potential(c), attention.drift(c)
    i, j = space.edges.T
    assert V.shape == mu.shape
    assert d.shape == (2, len(space.edges))
    assert np.abs(V - exact).max(initial=0.0) <= 1e-9
    assert np.abs(d - (exact[j] - exact[i])).max(initial=0.0) <= 1e-9
    assert np.abs(d).max(initial=1.0) > 1e-3


@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_interaction_energy_is_half_the_double_sum(manifold: str, make_space: MakeSpace) -> None:
    """Catches a wrong sign or a missing ½ in the interaction energy."""
    space = make_space(manifold, SIZES[manifold])
    attention, mu = _attention(space, manifold), _densities(space)
    double = float(space.integrate((RHO @ mu) * _potential_of(space, manifold, mu)))
    assert attention.interaction_energy(attention.moments(mu)) == pytest.approx(0.5 * double, rel=1e-9)


@pytest.mark.ranks
def test_moments_are_the_same_on_every_rank(make_space: MakeSpace) -> None:
    """Catches moments summed over one rank only: the ranks' potentials would not fit together."""
    space = make_space("sphere", 0.35)
    attention = _attention(space, "sphere")
    c = attention.moments(_densities(space))
    assert c.shape == (attention.rank,)
    assert all(np.array_equal(c, other) for other in space.comm.allgather(c))


@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_moments_vjp_is_the_transpose(manifold: str, make_space: MakeSpace) -> None:
    """Catches a missing mass or label weight: ⟨c̄, c[μ]⟩ = ⟨moments_vjp(c̄), μ⟩ to 1e-12."""
    space = make_space(manifold, SIZES[manifold])
    attention = _attention(space, manifold)
    mu = np.random.default_rng([1, space.comm.rank]).standard_normal((2, len(space.x)))
    space.update_ghosts(mu)
    c_bar = np.random.default_rng(2).standard_normal(attention.rank)
    c, mu_bar = attention.moments(mu), attention.moments_vjp(c_bar)
    left = float(c_bar @ c)
    right = float(allreduce(space.comm, (mu_bar * mu)[:, : space.owned].sum()))
    assert abs(left - right) <= 1e-12 * float(np.abs(c_bar) @ np.abs(c))


@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_drift_vjp_is_the_transpose(manifold: str, make_space: MakeSpace) -> None:
    """Catches a sign of the edge's ends, labels summed wrongly, or contributions of ghosts lost."""
    space = make_space(manifold, SIZES[manifold])
    attention = _attention(space, manifold)
    c = attention.moments(_densities(space))
    direction = np.random.default_rng(3).standard_normal(attention.rank)
    d_bar = np.random.default_rng([4, space.comm.rank]).standard_normal((2, len(space.edges)))
    pushed = attention.drift(c + direction) - attention.drift(c)
    left = float(allreduce(space.comm, (pushed * d_bar).sum()))
    scale = float(allreduce(space.comm, np.abs(pushed * d_bar).sum()))
    c_bar = attention.drift_vjp(c, d_bar)
    assert abs(left - float(c_bar @ direction)) <= 1e-12 * scale
    assert all(np.array_equal(c_bar, other) for other in space.comm.allgather(c_bar))


@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_dirac_interaction_energy_is_the_best_vertex(manifold: str, make_space: MakeSpace) -> None:
    """Catches a minimum taken over one rank's vertices, and a wrong factor: −½ max_i e^{⟨x_i,Ax_i⟩}."""
    space = make_space(manifold, SIZES[manifold])
    attention = _attention(space, manifold)
    best = np.exp(np.einsum("ni,ij,nj->n", space.x, MATRICES[manifold], space.x)).max(initial=0.0)
    best = max(space.comm.allgather(float(best)))
    assert attention.dirac_interaction_energy() == pytest.approx(0.5 * best, rel=1e-9)


def test_uniform_density_of_an_isotropic_kernel_has_no_drift(make_space: MakeSpace) -> None:
    """Catches a potential that is not constant by symmetry on the equally spaced circle."""
    space = make_space("circle", 0.1)
    attention = SeparableAttention(space, expand(ExponentialKernel(1.3 * np.eye(2)), 2, 1e-10), np.ones(1))
    mu = np.ones((1, len(space.x)))
    assert np.abs(attention.drift(attention.moments(mu))).max(initial=0.0) <= 1e-8
