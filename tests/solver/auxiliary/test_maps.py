"""Target maps from labels to the sphere: rotations, laws, geometry, points and maps of the user's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from casefiles import GOOD
from scipy.integrate import quad
from scipy.special import i0, i1
from scipy.stats import beta

from solver.auxiliary.kernels import create_label_kernel
from solver.auxiliary.maps import create_map, rotations_between
from solver.case import Case, CaseError, load_case
from solver.types import FloatArray

pytestmark = pytest.mark.serial

Labelled = Callable[..., Case]


def unit_vectors(n: int, d: int, seed: int) -> FloatArray:
    x = np.random.default_rng(seed).standard_normal((n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def points_of(case: Case, count: int) -> FloatArray:
    """f at the labels k/count, whose norms are checked."""
    x = create_map(case)(np.arange(count) / count)
    assert x.shape == (count, case.dimension)
    assert np.abs(np.linalg.norm(x, axis=1) - 1.0).max() <= 1e-14
    return x


@pytest.mark.parametrize("d", [2, 3, 5, 9])
def test_rotations_between(d: int) -> None:
    """Catches a reflection, a rotation of the wrong sense, and one that turns more than the plane of s and e."""
    s, e = unit_vectors(40, d, 0), unit_vectors(40, d, 1)
    s[0] = e[0]
    Q = rotations_between(s, e)
    assert np.abs(Q @ Q.transpose(0, 2, 1) - np.eye(d)).max() <= 1e-14
    assert np.abs(np.linalg.det(Q) - 1.0).max() <= 1e-13
    assert np.abs(np.einsum("nij,nj->ni", Q, s) - e).max() <= 1e-13
    assert np.abs(Q[0] - np.eye(d)).max() <= 1e-14
    cosines = (s * e).sum(axis=1)
    assert np.abs(np.trace(Q, axis1=1, axis2=2) - (d - 2 + 2 * cosines)).max() <= 1e-13
    to_first = rotations_between(s, np.eye(d)[0])
    assert np.abs(np.einsum("nij,nj->ni", to_first, s) - np.eye(d)[0]).max() <= 1e-13


@pytest.mark.parametrize("d", [2, 3, 5])
def test_rotations_between_opposite_vectors(d: int) -> None:
    """Catches a division by zero, and frames that are not orthogonal where f(ξ) comes near −u."""
    s = np.concatenate([np.eye(d), -np.eye(d), unit_vectors(20, d, 0)])
    Q = rotations_between(s, -s)
    assert np.abs(np.einsum("nij,nj->ni", Q, s) + s).max() <= 1e-14
    assert np.abs(Q @ Q.transpose(0, 2, 1) - np.eye(d)).max() <= 1e-14
    assert np.abs(np.linalg.det(Q) - 1.0).max() <= 1e-13
    tangent = unit_vectors(len(s), d, 1)
    tangent -= (tangent * s).sum(axis=1, keepdims=True) * s
    tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    for angle in 10.0 ** -np.arange(1.0, 13.0):
        e = -np.cos(angle) * s + np.sin(angle) * tangent
        Q = rotations_between(s, e)
        assert np.abs(Q @ Q.transpose(0, 2, 1) - np.eye(d)).max() <= 1e-14
        assert np.abs(np.linalg.det(Q) - 1.0).max() <= 1e-13
        assert np.abs(np.einsum("nij,nj->ni", Q, s) - e).max() <= min(1e-14 / angle, 2e-7)


def test_uniform_on_the_circle(labelled: Labelled) -> None:
    """Catches half a circle, or arcs covered twice: the points k/L lie one in each of L equal arcs."""
    x = points_of(labelled(2, {"kernel": "prefix", "map": "uniform"}), 512)
    azimuth = np.mod(np.arctan2(x[:, 1], x[:, 0]), 2 * np.pi)
    assert (np.histogram(azimuth, 512, (0.0, 2 * np.pi))[0] == 1).all()
    assert np.abs(x.T @ x / 512 - np.eye(2) / 2).max() <= 1e-6


def test_uniform_on_the_sphere(labelled: Labelled) -> None:
    """Catches points crowded at the poles: one in each of 64 × 64 cells of equal area, so that they cover it."""
    x = points_of(labelled(3, {"kernel": "prefix", "map": "uniform"}), 64**2)
    azimuth = np.mod(np.arctan2(x[:, 2], x[:, 1]), 2 * np.pi)
    ranges = ((-1.0, 1.0), (0.0, 2 * np.pi))
    assert (np.histogram2d(x[:, 0], azimuth, 64, ranges)[0] == 1).all()
    # The widest cells are the caps cos θ ≥ 1 − 2/64: 0.25 from the pole.
    assert np.arccos((unit_vectors(2000, 3, 2) @ x.T).max(axis=1)).max() <= np.arccos(1 - 2 / 64)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_uniform_moments(d: int, labelled: Labelled) -> None:
    """Catches a law that is uniform in the angles: ∫xxᵀ = 1/d, and ½(1 + x_k) of law Beta((d − 1)/2, (d − 1)/2)."""
    f = create_map(labelled(d, {"kernel": "prefix", "map": "uniform"}))
    x = f(np.random.default_rng(0).random(40_000))
    error = 4 / np.sqrt(40_000)
    assert np.abs(x.mean(axis=0)).max() <= error * np.sqrt(1 / d)
    assert np.abs(x.T @ x / len(x) - np.eye(d) / d).max() <= error * np.sqrt(3 / (d * (d + 2)))
    for column in np.sort(x, axis=0).T:
        exact = beta((d - 1) / 2, (d - 1) / 2).cdf(0.5 + 0.5 * column)
        assert np.abs(exact - (np.arange(len(x)) + 0.5) / len(x)).max() <= 1.95 / np.sqrt(len(x))  # Kolmogorov, 0.1 %


def resultant(d: int, kappa: float) -> float:
    """A_d(κ) = ∫ cos θ sin^{d−2}θ e^{κ cos θ} / ∫ sin^{d−2}θ e^{κ cos θ}."""
    if d == 2:
        return float(i1(kappa) / i0(kappa))
    if d == 3:
        return float(1 / np.tanh(kappa) - 1 / kappa)
    up, down = (quad(lambda a, k=k: np.cos(a) ** k * np.sin(a) ** (d - 2) * np.exp(kappa * np.cos(a)), 0, np.pi)[0]
                for k in (1, 0))  # fmt: skip
    return float(up / down)


@pytest.mark.parametrize(("d", "kappa"), [(2, 0.7), (2, 40.0), (3, 0.7), (3, 60.0), (5, 8.0)])
def test_von_mises_fisher_has_its_resultant(d: int, kappa: float, labelled: Labelled) -> None:
    """Catches another concentration or mean: the mean of L points is A_d(κ) e, to the variation over the cells."""
    mean = [3.0, -4.0, *([0.0] * (d - 2))]
    x = points_of(
        labelled(d, {"kernel": "prefix", "map": "von_mises_fisher", "means": [mean], "kappas": [kappa]}), 2**16
    )
    cells = 2 ** (
        16 // (d - 1)
    )  # of the angle; cos of it falls from 1 to −1 over them (on the circle: and rises again)
    axis = np.array(mean) / 5.0
    assert float((x @ axis).mean()) == pytest.approx(resultant(d, kappa), abs=2 * min(d - 1, 2) / cells)
    across = x - np.outer(x @ axis, axis)
    assert np.abs(across.mean(axis=0)).max() <= 2 / cells
    drawn = create_map(labelled(d, {"kernel": "prefix", "map": "von_mises_fisher", "means": [mean], "kappas": [kappa]}))
    sample = drawn(np.random.default_rng(1).random(40_000)) @ axis
    assert float(sample.mean()) == pytest.approx(resultant(d, kappa), abs=4 * float(sample.std()) / 200)


def test_von_mises_fisher_quantiles_on_the_sphere(labelled: Labelled) -> None:
    """Catches an angle of another law: cos θ of 256 cells lies between the quantiles 1 + log(1 − u(1 − e^{−2κ}))/κ."""
    kappa = 5.0
    x = points_of(labelled(3, {"kernel": "prefix", "map": "von_mises_fisher", "kappas": [kappa]}), 2**16)
    cosines = np.sort(x[:, 0])[::-1].reshape(256, 256)
    edges = 1.0 + np.log1p(-np.arange(257) / 256 * (1.0 - np.exp(-2 * kappa))) / kappa
    assert (cosines <= edges[:-1, None] + 1e-7).all()
    assert (cosines >= edges[1:, None] - 1e-7).all()


def test_von_mises_fisher_mixture(labelled: Labelled) -> None:
    """Catches shares, concentrations or means of the wrong component, and the defaults: mean e₁, κ = 10."""
    table: dict[str, object] = {
        "means": [[0.0, 0.0, 2.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]],
        "kappas": [80.0, 20.0, 500.0],
        "shares": [2.0, 1.0, 5.0],
    }
    labels = np.random.default_rng(0).random(80_000)
    x = create_map(labelled(3, {"kernel": "prefix", "map": "von_mises_fisher", **table}))(labels)
    number = np.digitize(labels, [0.25, 0.375])  # labels run through the components in turn
    for k, (axis, kappa) in enumerate([([0, 0, 1], 80.0), ([0, -1, 0], 20.0), ([0, 0, -1], 500.0)]):
        part = x[number == k]
        error = 4 * part.std(axis=0) / np.sqrt(len(part))
        assert (np.abs(part.mean(axis=0) - resultant(3, kappa) * np.array(axis)) <= error).all()
    plain = points_of(labelled(3, {"kernel": "prefix", "map": "von_mises_fisher"}), 2**14)
    assert plain.mean(axis=0) == pytest.approx([resultant(3, 10.0), 0.0, 0.0], abs=2 / 2**7)


def test_points_of_a_list(labelled: Labelled) -> None:
    """Catches steps at the wrong labels, points that are not normalised, and labels outside of [0, 1)."""
    points = [[2.0, 0.0, 0.0], [0.0, 3.0, 4.0], [0.0, 0.0, -1.0]]
    unit = np.array([[1.0, 0.0, 0.0], [0.0, 0.6, 0.8], [0.0, 0.0, -1.0]])
    f = create_map(labelled(3, {"kernel": "prefix", "map": "points", "points": points, "shares": [1.0, 2.0, 1.0]}))
    labels = np.array([0.0, 0.2499, 0.25, 0.5, 0.7499, 0.75, 0.9999, 1.3, -0.1])
    assert np.abs(f(labels) - unit[[0, 0, 1, 1, 1, 2, 2, 1, 2]]).max() <= 1e-15
    f = create_map(labelled(3, {"kernel": "prefix", "map": "points", "points": points, "shares": [0.0, 1.0, 0.0]}))
    assert np.abs(f(np.linspace(0.0, 1.0, 11)) - unit[1]).max() <= 1e-15


def test_as_many_labels_as_points(labelled: Labelled) -> None:
    """Catches round-off at the steps that gives one point twice and leaves another out: label k/L has point k."""
    for count in (3, 10, 49, 107, 1000, 3001):
        angles = 2 * np.pi * np.arange(count) / count
        points = np.column_stack([np.cos(angles), np.sin(angles)])
        table: dict[str, object] = {"kernel": "prefix", "map": "points", "points": points.tolist()}
        for shares in (None, [0.1] * count):
            f = create_map(labelled(2, {**table, "shares": shares}))
            assert np.abs(f(np.arange(count) / count) - points).max() <= 1e-15


@pytest.mark.parametrize("suffix", ["csv", "npz"])
def test_points_of_a_file(suffix: str, labelled: Labelled, tmp_path: Path) -> None:
    """Catches weights of a file that are not read."""
    path = tmp_path / f"points.{suffix}"
    if suffix == "csv":
        path.write_text("x,y,weight\n0,2,1\n-3,0,3\n")
    else:
        np.savez(path, points=np.array([[0.0, 2.0], [-3.0, 0.0]]), weight=np.array([1.0, 3.0]))
    x = points_of(labelled(2, {"kernel": "prefix", "map": "points", "file": str(path)}), 8)
    assert np.abs(x - np.array([[0.0, 1.0]] * 2 + [[-1.0, 0.0]] * 6)).max() <= 1e-15
    path = tmp_path / "plain.csv"
    path.write_text("x,y\n0,2\n-3,0\n")
    x = points_of(labelled(2, {"kernel": "prefix", "map": "points", "file": str(path)}), 4)
    assert np.abs(x - np.array([[0.0, 1.0]] * 2 + [[-1.0, 0.0]] * 2)).max() <= 1e-15


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,y,weight\n1,0,1\n0,1,-1\n", r"auxiliary\.file: p\.csv: weights must be ≥ 0, not all zero, and have a fi"),
        ("x,y,weight\n1,0,0\n0,1,0\n", r"auxiliary\.file: p\.csv: weights must be ≥ 0, not all zero, and have a fi"),
        ("x,y,weight\n1,0,1e308\n0,1,1e308\n", r"auxiliary\.file: p\.csv: weights must .* and have a finite sum"),
        (
            "x,y,mass\n1,0,0\n",
            r"auxiliary\.file: p\.csv: unknown column 'mass': 2 coordinates and 'weight' are allowed",
        ),
        ("x\n1\n", r"auxiliary\.file: p\.csv: points \(1, 1\), \(n, 2\) is needed"),
    ],
)
def test_bad_file_is_named(text: str, message: str, labelled: Labelled, tmp_path: Path) -> None:
    """Catches a law with negative shares, and a traceback."""
    (tmp_path / "p.csv").write_text(text)
    case = labelled(2, {"kernel": "prefix", "map": "points", "file": str(tmp_path / "p.csv")})
    with pytest.raises(CaseError, match=f"^{message}"):
        create_map(case)


XI = np.array([0.0, 0.1, 0.35, 0.5, 0.93])


@pytest.mark.parametrize("d", [3, 5])
def test_curves(d: int, labelled: Labelled) -> None:
    """Catches latitudes measured from the pole, coordinates in other axes, and curves run through too fast."""
    a = 2 * np.pi * XI
    none = np.zeros((len(XI), d - 3))
    cases: dict[str, tuple[dict[str, object], list[FloatArray]]] = {
        "great_circle": ({}, [np.cos(a), np.sin(a), 0 * a]),
        "latitude_circle": (
            {"latitude": -0.4},
            [np.cos(0.4) * np.cos(a), np.cos(0.4) * np.sin(a), np.full(5, -np.sin(0.4))],
        ),
        "wave": (
            {"amplitude": 0.7, "waves": 2},
            [
                np.cos(0.7 * np.sin(2 * a)) * np.cos(a),
                np.cos(0.7 * np.sin(2 * a)) * np.sin(a),
                np.sin(0.7 * np.sin(2 * a)),
            ],
        ),
        "spiral": (
            {"turns": 2.5},
            [
                np.sqrt(1 - (1 - 2 * XI) ** 2) * np.cos(2.5 * a),
                np.sqrt(1 - (1 - 2 * XI) ** 2) * np.sin(2.5 * a),
                1 - 2 * XI,
            ],
        ),
    }
    for name, (table, columns) in cases.items():
        f = create_map(labelled(d, {"kernel": "prefix", "map": name, **table}))
        expected = np.column_stack([*columns, none])
        assert np.abs(f(XI) - expected).max() <= 1e-14, name
        assert np.abs(f(XI + 2.0) - expected).max() <= 1e-13, name


def test_great_circle_on_the_circle(labelled: Labelled) -> None:
    """Catches a map that needs a third axis."""
    x = points_of(labelled(2, {"kernel": "prefix"}), 8)
    assert (
        np.abs(x - np.column_stack([np.cos(np.arange(8) * np.pi / 4), np.sin(np.arange(8) * np.pi / 4)])).max() < 1e-15
    )


NAMES: dict[str, dict[str, object]] = {
    "points": {"points": [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]},
    "latitude_circle": {},
    "great_circle": {},
    "wave": {},
    "spiral": {},
    "uniform": {},
    "von_mises_fisher": {"means": [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]], "kappas": [3.0, 300.0]},
}


@pytest.mark.parametrize("name", NAMES)
def test_a_label_is_mapped_by_itself(name: str, labelled: Labelled) -> None:
    """Catches a point that depends on the other labels of the call: tokens and labels come in any number and order."""
    f = create_map(labelled(3, {"kernel": "prefix", "map": name, **NAMES[name]}))
    labels = np.random.default_rng(3).random(17)
    together = f(labels)
    assert np.abs(np.concatenate([f(labels[k : k + 1]) for k in range(17)]) - together).max() <= 1e-15
    order = np.random.default_rng(4).permutation(17)
    assert np.abs(f(labels[order]) - together[order]).max() <= 1e-15


PARTS = """
import numpy as np


def arc(case, stretch=1.0):
    return lambda labels: np.column_stack([np.cos(stretch * labels), np.sin(stretch * labels), 0 * labels])


def nearly(case):
    return lambda labels: (1 + 5e-7) * arc(case)(labels)


def longer(case):
    return lambda labels: 1.001 * arc(case)(labels)


def flat(case):
    return lambda labels: arc(case)(labels)[:, :2]


def one(case):
    return lambda labels: np.array([1.0, 0.0, 0.0])


def undefined(case):
    return lambda labels: np.nan * arc(case)(labels)


def fails(case):
    return lambda labels: 1 / 0


def number(case):
    return 3


def centred(case):
    return lambda labels: arc(case)(labels - labels.mean())


def ranked(case):
    return lambda labels: arc(case)(labels / labels.max())


def drawn(case):
    return lambda labels: arc(case)(np.random.default_rng().random(len(labels)))
"""


def own_map(tmp_path: Path, name: str, parameters: dict[str, object] | None = None) -> Case:
    (tmp_path / "case.toml").write_text(GOOD)
    (tmp_path / "my_maps.py").write_text(PARTS)
    table = {"auxiliary.kernel": "prefix", "auxiliary.map": f"my_maps:{name}", "auxiliary.map_parameters": parameters}
    return load_case(tmp_path / "case.toml", table)


def test_map_of_the_user(tmp_path: Path) -> None:
    """Catches parameters that do not arrive, labels beyond [0, 1) handed on, and points left with their round-off."""
    case = own_map(tmp_path, "arc", {"stretch": 2.0})
    expected = np.column_stack([np.cos(2 * XI), np.sin(2 * XI), 0 * XI])
    assert np.abs(create_map(case)(XI) - expected).max() <= 1e-15
    assert np.abs(create_map(case)(XI - 3.0) - expected).max() <= 2e-15
    frames = create_label_kernel(case).frames
    assert frames is not None
    assert np.abs(np.einsum("nij,nj->ni", frames(XI), expected) - [1.0, 0.0, 0.0]).max() <= 1e-14
    norms = np.linalg.norm(create_map(own_map(tmp_path, "nearly"))(XI), axis=1)
    assert np.abs(norms - 1.0).max() <= 1e-15


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("number", r"returned int: a function f\(labels\) is needed"),
        ("longer", r"of 5 labels: unit vectors \(5, 3\) are needed, got norms from [\d.]+ to [\d.]+$"),
        ("flat", r"of 5 labels: unit vectors \(5, 3\) are needed, got \(5, 2\)"),
        ("one", r"of 5 labels: unit vectors \(5, 3\) are needed, got \(3,\)"),
        ("undefined", r"of 5 labels: unit vectors \(5, 3\) are needed, got norms from nan to nan$"),
        ("fails", r"failed: ZeroDivisionError: division by zero \(my_maps\.py, line \d+\)"),
        ("centred", "the value at a label changes with the other labels or from call to call"),
        ("ranked", "the value at a label changes with the other labels or from call to call"),
        ("drawn", "the value at a label changes with the other labels or from call to call"),
        ("nothing", "there is no function 'nothing' in that module"),
    ],
)
def test_bad_map_of_the_user(name: str, message: str, tmp_path: Path) -> None:
    """Catches points off the sphere, a map that is none of a label alone, and a traceback."""
    case = own_map(tmp_path, name)
    with pytest.raises(CaseError, match=rf"^auxiliary\.map: .*my_maps\.py:{name}:? {message}"):
        create_map(case)(XI)
