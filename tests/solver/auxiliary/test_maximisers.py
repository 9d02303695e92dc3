"""Maximisers of the interaction energy: against double sums, random states and optimisation from random starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from casefiles import GOOD
from scipy.optimize import minimize
from scipy.special import i1

from solver.auxiliary import maximisers as module
from solver.auxiliary.kernels import create_label_kernel
from solver.auxiliary.labels import token_labels
from solver.auxiliary.maps import create_map
from solver.auxiliary.maximisers import Maximisers, create_maximisers
from solver.case import Case, load_case
from solver.types import FloatArray

pytestmark = pytest.mark.serial

Labelled = Callable[..., Case]
N = 12
TILTED = [[1.5, 0.3, 0.0], [0.3, 0.9, -0.2], [0.0, -0.2, 0.4]]
UNEQUAL: dict[str, object] = {"law": "atoms", "atoms": [0.0, 0.13, 0.7], "weights": [1.0, 3.0, 2.0]}
WIDE: dict[str, object] = {"kernel": "distance_bias", "length": 1.5}

# d, keys of [auxiliary], others
CASES: dict[str, tuple[int, dict[str, object], dict[str, object]]] = {
    "plain": (3, {}, {}),
    "plain, A": (3, {"labels": 3}, {"attention.matrix": TILTED, "attention.eigenvalues": None}),
    "plain, λ₁ = λ₂": (3, {}, {"attention.eigenvalues": [2.0, 0.5, 2.0]}),
    "rope": (2, {"kernel": "rope"}, {"attention.eigenvalues": [1.5, 1.5]}),
    "rope, A": (
        3,
        {"kernel": "rope", "planes": [[1, 2], [2, 3]], "frequencies": [4.0, 1.0]},
        {"attention.matrix": TILTED, "attention.eigenvalues": None},
    ),
    "rope, unequal shares": (3, {"kernel": "rope", **UNEQUAL}, {"attention.eigenvalues": [1.0, 0.4, 0.2]}),
    "rope_general": (
        3,
        {"kernel": "rope_general", "generators": [[[0.0, -1.0, 0.3], [1.0, 0.0, -0.5], [-0.3, 0.5, 0.0]]]},
        {},
    ),
    "prefix": (3, {"kernel": "prefix", "map": "spiral", "u": [1.0, 1.0, 0.0]}, {}),
    "prefix, d = 5": (5, {"kernel": "prefix", "map": "uniform"}, {"attention.eigenvalues": [1.0, 1.0, 0.5, 0.2, 0.0]}),
    "exponential": (3, {**WIDE, "decay": "exponential"}, {}),
    "gaussian": (2, {**WIDE, "decay": "gaussian"}, {"attention.eigenvalues": [1.0, 0.6]}),
    "cauchy": (3, {**WIDE, "decay": "cauchy", **UNEQUAL}, {}),
    "triangle": (3, {**WIDE, "decay": "triangle"}, {"attention.matrix": TILTED, "attention.eigenvalues": None}),
    "window": (3, {**WIDE, "decay": "window", "length": 0.3, "periodic": True}, {}),
    "cosine": (3, {**WIDE, "decay": "cosine", "length": 0.2}, {}),
    "two groups": (3, {"kernel": "distance_bias", "decay": "window", **UNEQUAL}, {}),
    "toeplitz": (2, {"kernel": "toeplitz", "form": "linear"}, {}),
    "toeplitz, sphere": (3, {"kernel": "toeplitz", "form": "linear", "labels": 3}, {}),
    "toeplitz, unequal": (3, {"kernel": "toeplitz", "form": "linear", **UNEQUAL}, {}),
    "toeplitz, two lines": (3, {"kernel": "toeplitz", "form": "linear", "labels": 4}, {}),
    "toeplitz, one line": (2, {"kernel": "toeplitz", "form": "linear", "labels": 2}, {}),
    "toeplitz, d = 5": (5, {"kernel": "toeplitz", "form": "linear", "frequency": 3.0}, {}),
}


def unit_vectors(n: int, d: int, seed: int) -> FloatArray:
    x = np.random.default_rng(seed).standard_normal((n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def energy_of(case: Case, labels: FloatArray) -> Callable[[FloatArray], float]:
    """x to ½ (1/N²) Σ_ij b_ij f(⟨Q_i x_i, A Q_j x_j⟩), as it stands."""
    kernel, A, count = create_label_kernel(case), np.array(case.matrix), len(labels)
    Q = kernel.frames(labels) if kernel.frames is not None else np.tile(np.eye(case.dimension), (count, 1, 1))
    b = kernel.bias(labels, labels) if kernel.bias is not None else np.ones((count, count))
    linear = case.auxiliary.kernel == "toeplitz" and case.auxiliary.form == "linear"

    def energy(x: FloatArray) -> float:
        u = np.einsum("nij,nj->ni", Q, x)
        f = u @ u.T if linear else np.exp(u @ A @ u.T)
        return 0.5 * float((b * f).sum()) / count**2

    return energy


def known(name: str, labelled: Labelled) -> tuple[Case, FloatArray, Maximisers]:
    d, table, others = CASES[name]
    case = labelled(d, table, {"particles.n": N, **others})
    labels = token_labels(case, N)
    maximisers = create_maximisers(case, labels)
    assert maximisers is not None
    return case, labels, maximisers


@pytest.mark.parametrize("name", CASES)
def test_energy_is_that_of_the_members(name: str, labelled: Labelled) -> None:
    """Catches a factor ½, a λ₁ or a mean of b that is not that of the tokens: members have the energy named."""
    case, labels, maximisers = known(name, labelled)
    assert maximisers.exact
    for seed in range(3):
        member = maximisers.nearest(unit_vectors(N, case.dimension, seed))
        assert np.abs(np.linalg.norm(member, axis=1) - 1.0).max() <= 1e-13
        assert energy_of(case, labels)(member) == pytest.approx(maximisers.energy, rel=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_weights_count_like_repeated_labels(name: str, labelled: Labelled) -> None:
    """Catches equal weights assumed anywhere: label ℓ with weight ρ_ℓ, or as often as that."""
    case, labels, _ = known(name, labelled)
    often = 1 + np.arange(N) % 3
    weighted = create_maximisers(case, labels, often / often.sum())
    repeated = create_maximisers(case, np.repeat(labels, often))
    assert weighted is not None
    assert repeated is not None
    assert weighted.energy == pytest.approx(repeated.energy, rel=1e-9)
    x = unit_vectors(N, case.dimension, 7)
    found, expected = weighted.nearest(x), repeated.nearest(np.repeat(x, often, axis=0))
    assert np.abs(np.repeat(found, often, axis=0) - expected).max() <= 1e-6


@pytest.mark.parametrize("name", CASES)
def test_nothing_has_more_energy(name: str, labelled: Labelled) -> None:
    """Catches stationary states that are no maxima: random states, and members that are perturbed, all have less."""
    case, labels, maximisers = known(name, labelled)
    generator, energy = np.random.default_rng(5), energy_of(case, labels)
    member = maximisers.nearest(unit_vectors(N, case.dimension, 0))
    for k in range(200):
        start, size = (unit_vectors(N, case.dimension, 100 + k), 1.0) if k < 50 else (member, 10.0 ** -(k % 5))
        x = start + size * generator.standard_normal(member.shape)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        assert energy(x) <= maximisers.energy * (1 + 1e-14)


@pytest.mark.parametrize("name", CASES)
def test_nearest_is_a_projection(name: str, labelled: Labelled) -> None:
    """Catches members that are moved, and a member that is nearer than the one returned."""
    case, _, maximisers = known(name, labelled)
    members = [maximisers.nearest(unit_vectors(N, case.dimension, seed)) for seed in range(40)]
    assert max(float(np.abs(maximisers.nearest(member) - member).max()) for member in members) <= 1e-13
    x = unit_vectors(N, case.dimension, 77)
    least = np.square(maximisers.nearest(x) - x).sum()
    assert all(np.square(member - x).sum() >= least - 1e-12 for member in members)
    assert len({round(float(member[0, 0]), 10) for member in members}) > 1


@pytest.mark.parametrize(
    ("name", "turned"),
    [
        ("plain", False),
        ("rope", True),
        ("rope_general", True),
        ("prefix", True),
        ("exponential", False),
        ("toeplitz", False),
        ("toeplitz, sphere", False),
        ("toeplitz, unequal", False),
        ("toeplitz, d = 5", False),
    ],
)
def test_symmetry(name: str, turned: bool, labelled: Labelled) -> None:
    """Catches distances that see what the energy does not: an orthogonal matrix, in the frames where there are any."""
    case, labels, maximisers = known(name, labelled)
    frames = create_label_kernel(case).frames
    assert (frames is not None) is turned
    for seed in range(10):
        member = maximisers.nearest(unit_vectors(N, case.dimension, seed))
        R, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((case.dimension, case.dimension)))
        Q = frames(labels) if frames is not None else np.tile(np.eye(case.dimension), (N, 1, 1))
        moved = np.einsum("nji,jk,nkl,nl->ni", Q, R, Q, member)
        assert np.abs(maximisers.nearest(moved) - moved).max() <= 1e-13
        assert np.abs(moved - member).max() >= 1e-3


def test_target_of_prefix(labelled: Labelled) -> None:
    """Catches Q_ξ in place of Q_ξᵀ: tokens near f(ξ) are nearest to f(ξ) itself if v = u."""
    case, labels, maximisers = known("prefix", labelled)
    target = create_map(case)(labels)
    assert np.abs(maximisers.nearest(target) - target).max() <= 1e-14
    u = np.array([1.0, 1.0, 0.0]) / np.sqrt(2)
    alone = labelled(3, {**CASES["prefix"][1]}, {"particles.n": N, "attention.matrix": (3 * np.outer(u, u)).tolist(),
                     "attention.eigenvalues": None})  # fmt: skip
    one = create_maximisers(alone, labels)
    assert one is not None
    assert one.symmetry == "±v₁"
    assert np.abs(one.nearest(target + 0.3 * unit_vectors(N, 3, 1)) - target).max() <= 1e-14


def test_energies_in_closed_form(labelled: Labelled) -> None:
    """Catches double sums and formula wrong alike: ½e^{λ₁}, ½e^{λ₁}∬b, and ¼ on a grid."""
    assert known("plain, λ₁ = λ₂", labelled)[2].energy == pytest.approx(0.5 * np.exp(2.0), rel=1e-14)
    assert known("rope", labelled)[2].energy == pytest.approx(0.5 * np.exp(1.5), rel=1e-14)
    assert known("window", labelled)[2].energy == pytest.approx(0.5 * np.exp(1.0) * 7 / 12, rel=1e-14)
    # Shares 1/6, 1/2, 1/3 of labels of which the first two are connected.
    assert known("two groups", labelled)[2].energy == pytest.approx(0.5 * np.exp(1.0) * (4 / 9 + 1 / 9), rel=1e-14)
    for count in (3, 4, 5, 6, 64):
        case = labelled(3, {"kernel": "toeplitz", "form": "linear"})
        found = create_maximisers(case, np.arange(count) / count)
        assert found is not None
        assert found.energy == pytest.approx(0.25, rel=1e-14)


def test_groups_of_labels(labelled: Labelled) -> None:
    """Catches one direction for labels that do not see each other, and groups that hang on round-off."""
    _, labels, maximisers = known("two groups", labelled)
    assert maximisers.symmetry == "any v of the unit sphere in 3 dimensions, for each of 2 groups of labels"
    x = np.where(labels[:, None] < 0.5, [0.0, 1.0, 0.0], [0.6, 0.0, 0.8])
    assert np.abs(maximisers.nearest(x) - x).max() <= 1e-15
    for decay, length, groups in (("triangle", 0.2, 5), ("triangle", 0.21, 1), ("cosine", 0.2, 5), ("window", 0.2, 1)):
        case = labelled(3, {"kernel": "distance_bias", "decay": decay, "length": length})
        found = create_maximisers(case, np.arange(5) / 5)
        assert found is not None
        assert found.symmetry.endswith(f"{groups} groups of labels" if groups > 1 else "3 dimensions")


def test_toeplitz_on_two_lines(labelled: Labelled) -> None:
    """Catches maximisers left out: labels a quarter turn apart do not interact, so their tokens need no right angle."""
    case, labels, maximisers = known("toeplitz, two lines", labelled)
    p, q = np.array([1.0, 0.0, 0.0]), np.array([0.6, 0.0, 0.8])
    x = np.tile([p, q, -p, -q], (3, 1))
    assert energy_of(case, labels)(x) == pytest.approx(0.25, rel=1e-14)
    assert np.abs(maximisers.nearest(x) - x).max() <= 1e-14
    # And at unequal shares, where the energy is ½(s² + (1 − s)²).
    table = {"kernel": "toeplitz", "form": "linear", "law": "atoms", "atoms": [0.1, 0.6, 0.35]}
    case = labelled(3, {**table, "weights": [1.0, 1.0, 1.0]})
    found = create_maximisers(case, np.array([0.1, 0.6, 0.35]))
    assert found is not None
    assert found.energy == pytest.approx(0.5 * (4 / 9 + 1 / 9), rel=1e-14)
    x = np.array([p, -p, q])
    assert np.abs(found.nearest(x) - x).max() <= 1e-14


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_toeplitz_of_any_labels(d: int, seed: int, labelled: Labelled) -> None:
    """Catches a local maximum: against optimisation over all tokens from random starts."""
    generator = np.random.default_rng(seed)
    labels = generator.random(6) * (0.15 if seed < 3 else 1.0)  # close together: one cluster is best
    found = create_maximisers(labelled(d, {"kernel": "toeplitz", "form": "linear", "frequency": 5.0}), labels)
    assert found is not None
    assert found.exact
    b = np.cos(5.0 * np.subtract.outer(labels, labels))

    def less(flat: FloatArray) -> tuple[float, FloatArray]:
        y = flat.reshape(6, d)
        norms = np.linalg.norm(y, axis=1, keepdims=True)
        x = y / norms
        slope = -(b @ x) / 36
        slope -= (slope * x).sum(axis=1, keepdims=True) * x
        return -0.5 * float((x * (b @ x)).sum()) / 36, (slope / norms).ravel()

    results = [minimize(less, generator.standard_normal(6 * d), jac=True, options={"gtol": 1e-10}) for _ in range(6)]
    best = min(results, key=lambda result: float(result.fun))
    assert found.energy == pytest.approx(-best.fun, rel=1e-12)
    x = best.x.reshape(6, d)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    assert np.abs(found.nearest(x) - x).max() <= 1e-6


def test_linear_toeplitz_ignores_attention(labelled: Labelled) -> None:
    """Catches a maximum that is forgotten where A = 0 or the attention kernel is the user's."""
    for others in ({"attention.eigenvalues": [0.0, 0.0]}, {"attention.eigenvalues": [2.0, 1.0]}):
        found = create_maximisers(labelled(2, {"kernel": "toeplitz", "form": "linear"}, others), np.arange(6) / 6)
        assert found is not None
        assert found.energy == pytest.approx(0.25, rel=1e-12)


def test_exponential_toeplitz_is_a_lower_bound(labelled: Labelled) -> None:
    """Catches a bound called a maximum, or another circle: ½ I₁(β) on a grid, reached by its members."""
    for beta, n in ((1.0, 24), (2.5, 24)):
        case = labelled(3, {"kernel": "toeplitz"}, {"attention.eigenvalues": [beta] * 3})
        labels = np.arange(n) / n
        found = create_maximisers(case, labels)
        assert found is not None
        assert not found.exact
        assert found.energy == pytest.approx(0.5 * i1(beta), rel=1e-12)
        circle = found.nearest(unit_vectors(n, 3, 0))
        assert energy_of(case, labels)(circle) == pytest.approx(found.energy, rel=1e-13)
        assert np.linalg.matrix_rank(circle, tol=1e-10) == 2


def test_many_tokens_of_the_exponential_toeplitz(labelled: Labelled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a sample of tokens that is none of the labels' law."""
    monkeypatch.setattr(module, "_ALL_PAIRS", 500)
    found = create_maximisers(labelled(2, {"kernel": "toeplitz"}), np.arange(1200) / 1200)
    assert found is not None
    assert found.energy == pytest.approx(0.5 * i1(1.0), rel=1e-12)


@pytest.mark.parametrize(
    ("table", "others"),
    [
        ({}, {"attention.eigenvalues": [0.0, 0.0]}),
        ({}, {"attention.kernel": "operator:itemgetter"}),
        ({"kernel": "toeplitz"}, {"attention.eigenvalues": [1.0, 0.5]}),
    ],
)
def test_unknown_ones_are_not_reported(table: dict[str, object], others: dict[str, object], labelled: Labelled) -> None:
    """Catches a maximum claimed of a kernel whose maximisers are not known."""
    assert create_maximisers(labelled(2, table, others), np.arange(6) / 6) is None


def test_many_labels(labelled: Labelled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a kinked bias, which no expansion carries, that ends a run; and b < 0 overlooked among many labels."""
    monkeypatch.setattr(module, "_ALL_PAIRS", 1100)
    count = 1300
    labels = np.arange(count) / count
    for decay in ("exponential", "gaussian"):
        found = create_maximisers(labelled(2, {"kernel": "distance_bias", "decay": decay}), labels)
        assert found is not None
        r = np.arange(1, count) / count / 0.2
        b = np.exp(-r) if decay == "exponential" else np.exp(-0.5 * r**2)
        mean = (count + 2 * float((np.arange(count - 1, 0, -1) * b).sum())) / count**2
        assert found.energy == pytest.approx(0.5 * np.exp(1.0) * mean, rel=1e-10)
        assert found.symmetry == "any v of the unit sphere in 2 dimensions"
    (tmp_path / "case.toml").write_text(GOOD)
    (tmp_path / "mine.py").write_text(
        """
import numpy as np


class Wave:
    def bias(self, labels, others):
        return np.cos(2 * np.pi * (labels[:, None] - others))


def wave(case):
    return Wave()
"""
    )
    own = load_case(tmp_path / "case.toml", {"auxiliary.kernel": "mine:wave"})
    for few_or_many in (labels[::100], labels):
        assert create_maximisers(own, few_or_many) is None
