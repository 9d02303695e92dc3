"""Attention that sees labels, against the kernel over all pairs of nodes and labels, and its transposes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from solver.attention.create import create_attention
from solver.attention.expansion import expand
from solver.attention.kernels import ExponentialKernel, LinearKernel
from solver.attention.labelled import LabelledAttention, SoftmaxLabelledAttention
from solver.attention.separable import SeparableAttention
from solver.auxiliary.coupling import Coupling, create_coupling
from solver.auxiliary.kernels import create_label_kernel
from solver.case import Case
from solver.parallel import allreduce
from solver.space import Space

MakeCase = Callable[..., Case]
MakeSpace = Callable[[str, float], Space]
SIZES = {"circle": 0.3, "sphere": 0.5}
DIAGONALS = {"circle": [1.0, 0.65], "sphere": [1.0, 0.65, 0.3]}
SKEW = [[0.0, -1.0, 0.3], [1.0, 0.0, 0.5], [-0.3, -0.5, 0.0]]
KERNELS: dict[str, dict[str, object]] = {
    "rope": {"kernel": "rope"},
    "rope_general": {"kernel": "rope_general", "generators": [SKEW]},
    "prefix": {"kernel": "prefix", "map": "wave"},
    "toeplitz": {"kernel": "toeplitz"},
    "toeplitz_linear": {"kernel": "toeplitz", "form": "linear"},
    "distance_bias": {"kernel": "distance_bias", "length": 0.5},
    "window": {"kernel": "distance_bias", "decay": "window", "length": 0.4},
}
ON_SPHERE = {"rope_general", "prefix"}
CHOICES = [("sphere", name) for name in KERNELS] + [
    pytest.param("circle", name, marks=pytest.mark.serial) for name in KERNELS if name not in ON_SPHERE
]
ATOMS = {"law": "atoms", "atoms": [0.0, 0.2, 0.35, 0.9], "weights": [0.1, 0.2, 0.3, 0.4]}


def labelled(make_case: MakeCase, manifold: str, name: str) -> Case:
    table = {f"auxiliary.{key}": value for key, value in {**ATOMS, **KERNELS[name]}.items()}
    return make_case(manifold, {"attention.eigenvalues": DIAGONALS[manifold], **table})


def made(space: Space, case: Case, softmax: bool = False) -> tuple[LabelledAttention, Coupling]:
    coupling = create_coupling(case)
    kernel = coupling.content or ExponentialKernel(np.array(case.matrix))
    attention = create_attention(space, expand(kernel, space.dimension, 1e-11), coupling, softmax)
    assert isinstance(attention, LabelledAttention)
    return attention, coupling


def densities(space: Space) -> np.ndarray:
    mu = np.stack([np.exp(2 * space.x[:, 0]), 1.5 + space.x[:, 1], np.exp(-space.x[:, 1]), 2 + space.x[:, 0] ** 3])
    return mu / space.integrate(mu)[:, None]


def dense_field(space: Space, case: Case, mu: np.ndarray) -> np.ndarray:
    """Σ_m ρ_m ∫ b(ξ_ℓ, ξ_m) f(⟨Q_ℓ x, A Q_m y⟩) dμ_m(y), (labels, local nodes), pair by pair. Collective."""
    kernel, xi = create_label_kernel(case), np.array(ATOMS["atoms"])
    rho = np.array(ATOMS["weights"])
    owned = space.owned
    parts = space.comm.allgather((space.x[:owned], space.mass[:owned] * mu[:, :owned]))
    y, weights = np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts], axis=1)
    Q = np.repeat(np.eye(space.dimension)[None], 4, axis=0) if kernel.frames is None else kernel.frames(xi)
    b = np.ones((4, 4)) if kernel.bias is None else kernel.bias(xi, xi)
    linear = isinstance(kernel.content, LinearKernel)
    A = np.eye(space.dimension) if linear else np.array(case.matrix)
    field = np.zeros((4, len(space.x)))
    for k in range(4):
        for m in range(4):
            s = (space.x @ Q[k].T) @ A @ (y @ Q[m].T).T
            field[k] += rho[m] * b[k, m] * ((s if linear else np.exp(s)) @ weights[m])
    return field


@pytest.mark.ranks
@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize(("manifold", "name"), CHOICES)
def test_potential_and_drift_equal_those_of_all_pairs(
    manifold: str, name: str, softmax: bool, make_space: MakeSpace, make_case: MakeCase
) -> None:
    """Catches frames transposed, weights or signs of the bias left out, labels mixed up, a drift from j to i."""
    if softmax and name.startswith("toeplitz"):
        return
    space, case = make_space(manifold, SIZES[manifold]), labelled(make_case, manifold, name)
    attention, _ = made(space, case, softmax)
    mu = densities(space)
    exact = dense_field(space, case, mu)
    exact = np.log(exact) if softmax else exact
    c = attention.moments(mu)
    assert c.shape == (attention.rank,) == attention.signs.shape
    assert all(np.array_equal(c, other) for other in space.comm.allgather(c))
    V, d = attention.potential(c), attention.drift(c)
    i, j = space.edges.T
    assert np.abs(V - exact).max(initial=0.0) <= 1e-9
    assert np.abs(d - (exact[:, j] - exact[:, i])).max(initial=0.0) <= 1e-9
    assert np.ptp(exact, axis=0).max(initial=1.0) > 1e-3  # labels do matter


@pytest.mark.parametrize(("manifold", "name"), CHOICES)
def test_interaction_energy_is_half_the_double_sum(
    manifold: str, name: str, make_space: MakeSpace, make_case: MakeCase
) -> None:
    """Catches a sign of the bias or a label weight that is counted once in place of twice."""
    space, case = make_space(manifold, SIZES[manifold]), labelled(make_case, manifold, name)
    attention, coupling = made(space, case)
    mu = densities(space)
    double = float(coupling.weights @ space.integrate(mu * dense_field(space, case, mu)))
    assert attention.interaction_energy(attention.moments(mu)) == pytest.approx(0.5 * double, rel=1e-9)


@pytest.mark.parametrize(("manifold", "name"), CHOICES)
def test_moments_vjp_is_the_transpose(manifold: str, name: str, make_space: MakeSpace, make_case: MakeCase) -> None:
    """⟨c̄, c[μ]⟩ = ⟨moments_vjp(c̄), μ⟩ to 1e-12: catches a mass, a weight or a factor β left out on one side."""
    space, case = make_space(manifold, SIZES[manifold]), labelled(make_case, manifold, name)
    attention, _ = made(space, case)
    mu = np.random.default_rng([1, space.comm.rank]).standard_normal((4, len(space.x)))
    space.update_ghosts(mu)
    c_bar = np.random.default_rng(2).standard_normal(attention.rank)
    c, mu_bar = attention.moments(mu), attention.moments_vjp(c_bar)
    right = float(allreduce(space.comm, (mu_bar * mu)[:, : space.owned].sum()))
    assert abs(float(c_bar @ c) - right) <= 1e-12 * float(np.abs(c_bar) @ np.abs(c))


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize(("manifold", "name"), CHOICES)
def test_drift_vjp_is_the_transpose(
    manifold: str, name: str, softmax: bool, make_space: MakeSpace, make_case: MakeCase
) -> None:
    """Against central differences of the drift: catches a factor 1/Z, ghosts lost, or labels summed wrongly."""
    if softmax and name.startswith("toeplitz"):
        return
    space, case = make_space(manifold, SIZES[manifold]), labelled(make_case, manifold, name)
    attention, _ = made(space, case, softmax)
    assert isinstance(attention, SoftmaxLabelledAttention) == softmax
    assert attention.has_energy != softmax
    c = attention.moments(densities(space))
    direction = np.random.default_rng(3).standard_normal(attention.rank) * np.abs(c)
    d_bar = np.random.default_rng([4, space.comm.rank]).standard_normal((4, len(space.edges)))
    s = 1e-5
    pushed = (attention.drift(c + s * direction) - attention.drift(c - s * direction)) / (2 * s)
    left = float(allreduce(space.comm, (pushed * d_bar).sum()))
    scale = float(allreduce(space.comm, np.abs(pushed * d_bar).sum()))
    c_bar = attention.drift_vjp(c, d_bar)
    assert abs(left - float(c_bar @ direction)) <= 1e-8 * scale
    assert all(np.array_equal(c_bar, other) for other in space.comm.allgather(c_bar))


def test_labels_that_do_not_matter_cost_nothing(make_space: MakeSpace, make_case: MakeCase) -> None:
    """Catches an expansion for every label where all see the same field."""
    space = make_space("circle", 0.3)
    case = make_case("circle", {f"auxiliary.{key}": value for key, value in ATOMS.items()})
    coupling = create_coupling(case)
    assert not coupling.matters
    expansion = expand(ExponentialKernel(np.array(case.matrix)), 2, 1e-11)
    attention = create_attention(space, expansion, coupling, normalized=False)
    assert isinstance(attention, SeparableAttention)
    c = attention.moments(densities(space))
    assert len(c) == expansion.rank
    assert np.abs(attention.potential(c) - dense_field(space, case, densities(space))).max(initial=0.0) <= 1e-9
