"""Which label every token carries."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import kstest

from solver.auxiliary.kernels import create_label_kernel
from solver.auxiliary.labels import label_law, token_labels
from solver.auxiliary.maps import create_map
from solver.case import Case, CaseError

pytestmark = pytest.mark.serial

Labelled = Callable[..., Case]


@pytest.mark.parametrize("count", [3, 5, 12])
def test_grid(count: int, labelled: Labelled) -> None:
    """Catches labels that reach 1, start elsewhere than at 0, or are not one for each token by default."""
    labels, shares = label_law(labelled(2, {"kernel": "rope"}), count)
    assert np.abs(labels - [k / count for k in range(count)]).max() <= 1e-15
    assert np.abs(shares - 1.0 / count).max() <= 1e-15
    case = labelled(2, {"kernel": "rope", "labels": 3})
    assert np.abs(label_law(case, count)[0] - [0.0, 1 / 3, 2 / 3]).max() <= 1e-15
    assert np.abs(token_labels(case, count) - [(i % 3) / 3 for i in range(count)]).max() <= 1e-15


def test_no_labels_unless_asked_for(labelled: Labelled) -> None:
    """Catches tokens that differ in a case of plain attention, and labels that plain attention was given but lost."""
    labels, shares = label_law(labelled(2, {}), 7)
    assert (labels.tolist(), shares.tolist()) == ([0.0], [1.0])
    for table in ({"labels": 4}, {"law": "weights", "weights": [1.0] * 4}):
        assert token_labels(labelled(2, table), 8) == pytest.approx(np.tile([0.0, 0.25, 0.5, 0.75], 2))
    assert token_labels(labelled(2, {"law": "atoms", "atoms": [0.7, 0.2]}), 4) == pytest.approx([0.7, 0.2, 0.7, 0.2])


def test_random_labels_are_uniform(labelled: Labelled) -> None:
    """Catches another law than the uniform one, one that depends on N, and a seed that is ignored."""
    table: dict[str, object] = {"kernel": "rope", "law": "random", "labels": 4000}
    many: dict[str, object] = {"particles.n": 9000}
    one, shares = label_law(labelled(2, {**table, "seed": 5}, many), 9000)
    assert kstest(one, "uniform").pvalue > 0.01
    assert abs(np.corrcoef(one[:-1], one[1:])[0, 1]) <= 3 / np.sqrt(4000)
    assert np.array_equal(shares, np.full(4000, 1 / 4000))
    assert np.array_equal(one, label_law(labelled(2, {**table, "seed": 5}, many), 4000)[0])
    assert not np.isclose(one, label_law(labelled(2, {**table, "seed": 6}, many), 4000)[0]).any()


def test_weights(labelled: Labelled) -> None:
    """Catches weights that are not normalised, and tokens dealt out in equal numbers."""
    case = labelled(2, {"kernel": "rope", "law": "weights", "weights": [2.0, 4.0, 2.0]})
    labels, shares = label_law(case, 8)
    assert labels == pytest.approx([0.0, 1 / 3, 2 / 3])
    assert shares == pytest.approx([0.25, 0.5, 0.25])
    assert token_labels(case, 8) == pytest.approx([0.0] * 2 + [1 / 3] * 4 + [2 / 3] * 2)


def test_atoms(labelled: Labelled) -> None:
    """Catches atoms that are sorted, taken modulo 1, or whose weights go to others."""
    case = labelled(2, {"kernel": "rope", "law": "atoms", "atoms": [1.5, -0.3, 0.2], "weights": [1.0, 0.0, 3.0]})
    assert token_labels(case, 8).tolist() == [1.5] * 2 + [0.2] * 6
    labels, shares = label_law(labelled(2, {"kernel": "rope", "law": "atoms", "atoms": [0.4, 0.1]}), 8)
    assert (labels.tolist(), shares.tolist()) == ([0.4, 0.1], [0.5, 0.5])


@pytest.mark.parametrize("seed", range(8))
def test_largest_remainders(seed: int, labelled: Labelled) -> None:
    """Catches rounding that loses tokens or shares: no other numbers of tokens have a smaller Σ|n_ℓ − Nρ_ℓ|."""
    weights = np.random.default_rng(seed).uniform(0.4, 1.0, 4)
    count = 10 + seed
    case = labelled(2, {"kernel": "rope", "law": "atoms", "atoms": [0.0, 1.0, 2.0, 3.0], "weights": weights.tolist()})
    each = np.bincount(token_labels(case, count).astype(int), minlength=4)
    assert each.sum() == count
    exact = count * weights / weights.sum()
    assert np.abs(each - exact).max() < 1.0
    others = [k for k in itertools.product(range(count + 1), repeat=4) if sum(k) == count]
    best = min(np.abs(np.array(others) - exact).sum(axis=1))
    assert np.abs(each - exact).sum() == pytest.approx(best, abs=1e-12)


def test_shares_that_are_whole_numbers_of_tokens(labelled: Labelled) -> None:
    """Catches round-off in N ρ_ℓ that moves a token: 0.1, 0.2, 0.3, 0.4 of 10 tokens are 1, 2, 3 and 4."""
    case = labelled(2, {"law": "atoms", "atoms": [0.0, 1.0, 2.0, 3.0], "weights": [0.1, 0.2, 0.3, 0.4]})
    for times in (1, 3, 7, 100):
        assert np.bincount(token_labels(case, 10 * times).astype(int)).tolist() == [k * times for k in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("table", "count", "message"),
    [
        ({"law": "weights", "weights": [1.0, 1000.0]}, 10, r"10 tokens leave label number 0, of share 0\.000999, with"),
        ({"law": "atoms", "atoms": [0.1, 0.2, 0.3]}, 2, r"2 tokens leave label number 2, of share 0\.333, without one"),
        ({"law": "grid", "labels": 5}, 4, r"4 tokens leave label number 4, of share 0\.2, without one"),
    ],
)
def test_label_without_a_token_is_named(table: dict[str, object], count: int, message: str, labelled: Labelled) -> None:
    """Catches a law of labels that is silently another one."""
    with pytest.raises(CaseError, match=rf"^particles\.n: {message}"):
        token_labels(labelled(2, {"kernel": "rope", **table}), count)


ORBITS: dict[str, tuple[int, dict[str, object]]] = {
    "whole circle": (2, {"map": "great_circle"}),
    "latitude": (3, {"map": "latitude_circle", "latitude": 1.0, "frequencies": [-1.7]}),
    "one point": (3, {"map": "points", "points": [[0.0, 0.0, 1.0]]}),
    "other plane": (
        3,
        {
            "map": "points",
            "points": [[np.cos(a), 0.75, np.sin(a)] for a in (0.2, 2.0, -1.0, 0.1)],
            "shares": [1.0, 2.0, 1.0, 3.0],
            "planes": [[3, 1]],
            "frequencies": [0.5],
        },
    ),
    "five dimensions": (
        5,
        {
            "map": "points",
            "points": [[0.3, np.cos(a), -0.2, np.sin(a), 0.1] for a in (3.0, -2.0, 0.5)],
            "planes": [[2, 4]],
        },
    ),
}


@pytest.mark.parametrize("name", ORBITS)
def test_orbit_runs_through_the_points_of_the_map(name: str, labelled: Labelled) -> None:
    """Catches labels of the wrong sign, scale or order: R_ξᵀv must be f(k/L), v = f(0)."""
    d, table = ORBITS[name]
    case = labelled(d, {"kernel": "rope", "law": "orbit", "labels": 14, **table})
    labels, shares = label_law(case, 28)
    frames = create_label_kernel(case).frames
    assert frames is not None
    points = create_map(case)(np.arange(14) / 14)
    assert np.abs(np.einsum("nji,j->ni", frames(labels), points[0]) - points).max() <= 1e-14
    assert np.array_equal(shares, np.full(14, 1 / 14))
    assert np.array_equal(token_labels(case, 28), np.tile(labels, 2))
    frequency = table.get("frequencies", [2 * np.pi])
    assert isinstance(frequency, list)
    turns = labels * frequency[0] / (2 * np.pi)
    assert ((turns >= 0.0) & (turns < 1.0)).all()


@pytest.mark.parametrize(
    ("table", "off"),
    [
        ({"map": "great_circle", "planes": [[1, 3]]}, "1"),
        ({"map": "wave", "amplitude": 0.3, "waves": 1}, "0.3"),
        ({"map": "points", "points": [[1.0, 0.0, 0.1], [1.0, 0.0, 0.1 + 1e-6]]}, "9.9e-07"),
    ],
)
def test_points_off_the_orbit_are_refused(table: dict[str, object], off: str, labelled: Labelled) -> None:
    """Catches a marginal that cannot be what the map asks for, although the law says so."""
    case = labelled(3, {"kernel": "rope", "law": "orbit", "labels": 8, **table})
    planes = table.get("planes", [[1, 2]])
    assert isinstance(planes, list)
    with pytest.raises(CaseError) as caught:
        token_labels(case, 8)
    assert caught.value.lines == [
        f"auxiliary.map: its points do not lie on one orbit of the rotations in plane {planes[0]}: {off} off"
    ]
