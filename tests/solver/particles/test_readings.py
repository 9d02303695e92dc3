"""Clusters, resultants of labels, and distances to maximisers, by hand."""

from __future__ import annotations

from collections.abc import Callable

from mpi4py import MPI

import numpy as np
import pytest

from solver.auxiliary.maximisers import create_maximisers
from solver.case import Case
from solver.particles.create import create_field
from solver.particles.diagnostics import diagnose_tokens
from solver.particles.problem import ParticleProblem
from solver.particles.readings import CLUSTER_RADIUS, TokenReadings, count_clusters
from solver.types import FloatArray

pytestmark = pytest.mark.serial

MakeCase = Callable[..., Case]


def make_readings(case: Case, labels: FloatArray) -> TokenReadings:
    return TokenReadings(labels, create_maximisers(case, labels))


def on_circle(*degrees: float) -> FloatArray:
    angles = np.deg2rad(degrees)
    return np.column_stack([np.cos(angles), np.sin(angles)])


def groups(centres: FloatArray, each: int, size: float, seed: int) -> FloatArray:
    """Tokens about centres, at most `size` from them, in random order."""
    generator = np.random.default_rng(seed)
    x = np.repeat(centres, each, axis=0)
    shift = generator.standard_normal(x.shape)
    shift -= (shift * x).sum(axis=1, keepdims=True) * x
    x = x + np.tan(size) * shift / np.maximum(np.linalg.norm(shift, axis=1, keepdims=True), 1.0)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return generator.permutation(x)


@pytest.mark.parametrize("count", [1, 2, 5, 6])
def test_tight_groups_are_counted(count: int) -> None:
    """Catches groups counted twice or merged, in whatever order their tokens come: of width half the radius."""
    centres = np.concatenate([np.eye(3), -np.eye(3)])[:count]
    for seed in range(5):
        assert count_clusters(groups(centres, 9, 0.5 * CLUSTER_RADIUS, seed)[None]).tolist() == [count]


def test_members_of_a_batch_are_counted_by_themselves() -> None:
    """Catches a leader that clears the tokens of another system, and systems that end when the first does."""
    centres = np.concatenate([np.eye(3), -np.eye(3)])
    x = np.stack([groups(centres[:k].repeat(12 // k, axis=0), 1, 0.1, k) for k in (1, 6, 2, 4, 3)])
    assert count_clusters(x).tolist() == [1, 6, 2, 4, 3]


def test_radius_of_a_cluster() -> None:
    """Catches a chord or a cosine in place of the angle, and a diameter in place of the radius: 0.3 rad is 17.2°."""
    assert CLUSTER_RADIUS == 0.3
    assert count_clusters(on_circle(0.0, 17.1)[None]).tolist() == [1]
    assert count_clusters(on_circle(0.0, 17.3)[None]).tolist() == [2]
    assert count_clusters(on_circle(0.0, 17.1, -17.1)[None]).tolist() == [1]
    assert count_clusters(on_circle(17.1, 0.0, -17.1)[None]).tolist() == [2]
    assert count_clusters(on_circle(0.0, 40.0)[None], radius=np.deg2rad(41)).tolist() == [1]
    ring = on_circle(*range(360))
    assert count_clusters(ring[None], radius=np.deg2rad(10.5)).tolist() == [32]  # leaders 0, 11, …, 341; 0 sees 352


def test_many_tokens_are_sampled_over_all_of_their_order() -> None:
    """Catches the first 1000 tokens taken for all."""
    x = np.repeat(on_circle(0.0, 90.0, 180.0), 1500, axis=0)
    assert count_clusters(x[None]).tolist() == [3]


@pytest.mark.timeout(20)
def test_undefined_tokens_do_not_hang() -> None:
    """Catches an endless loop where a run has blown up: nothing is near to nan, not even itself."""
    x = on_circle(0.0, 1.0, 90.0)
    x[1] = np.nan
    assert count_clusters(x[None]).tolist() == [3]


def test_conditional_resultant(make_case: MakeCase) -> None:
    """Catches the mean over all tokens, labels that weigh the same, and a reading where no label is shared."""
    labels = np.array([0.5, 0.1, 0.5, 0.5, 0.1, 0.9])
    case = make_case("circle", {"auxiliary.kernel": "rope", "attention.eigenvalues": [1.0, 0.5]})
    x = np.stack([on_circle(0, 90, 0, 120, -90, 200), on_circle(7, 8, 7, 7, 8, 9)])
    found = make_readings(case, labels)(x, np.zeros(2))["conditional_resultant"]
    # |1 + 1 + e^{i2π/3}| = √3 of three tokens, 0 of two, 1 of one.
    assert found == pytest.approx([(np.sqrt(3.0) + 0.0 + 1.0) / 6, 1.0], rel=1e-14)
    for other in (np.arange(6) / 6, np.zeros(6)):
        assert "conditional_resultant" not in make_readings(case, other)(x, np.zeros(2))


def test_gap_and_angles(make_case: MakeCase) -> None:
    """Catches a gap of the wrong sign, degrees, and angles from cosines, which lose small ones: nearest to ±e₁."""
    case = make_case("circle", {"attention.eigenvalues": [1.0, 0.5]})
    readings = make_readings(case, np.zeros(2))
    x = np.stack([on_circle(60, -20), on_circle(180, 150), np.array([[1.0, 1e-12], [1.0, -3e-12]])])
    energy = np.array([0.3, 0.5 * np.e, 1.0])
    found = readings(x, energy)
    assert found["interaction_gap"] == pytest.approx([0.5 * np.e - 0.3, 0.0, 0.5 * np.e - 1.0], abs=1e-15)
    squares = np.array([[60.0, 20.0], [0.0, 30.0]]) ** 2
    expected = [*np.deg2rad(np.sqrt(squares.mean(axis=1))), np.sqrt(5.0) * 1e-12]
    assert found["maximiser_angle"] == pytest.approx(expected, rel=1e-12, abs=0.0)
    assert found["maximiser_angle_max"] == pytest.approx([*np.deg2rad([60.0, 30.0]), 3e-12], rel=1e-12, abs=0.0)


def test_opposite_tokens(make_case: MakeCase) -> None:
    """Catches an arcsine beyond 1: tokens opposite to the nearest maximiser are π away."""
    readings = make_readings(make_case("circle", {"attention.eigenvalues": [1.0, 0.5]}), np.zeros(3))
    found = readings(on_circle(0, 0, 180)[None], np.zeros(1))
    assert found["maximiser_angle_max"] == pytest.approx([np.pi], rel=1e-15)
    assert found["maximiser_angle"] == pytest.approx([np.pi / np.sqrt(3)], rel=1e-15)


def test_unknown_maximisers_are_not_read(make_case: MakeCase) -> None:
    """Catches a gap to a maximum that is not known."""
    case = make_case("circle", {"auxiliary.kernel": "toeplitz", "attention.eigenvalues": [1.0, 0.5]})
    assert set(make_readings(case, np.arange(6) / 6)(on_circle(*range(6))[None], np.zeros(1))) == {"clusters"}


def test_readings_along_a_run(make_case: MakeCase) -> None:
    """Catches energies and tokens of other depths: tokens of prefix that start at the target stay at distance 0."""
    table = {"auxiliary.kernel": "prefix", "auxiliary.map": "spiral", "auxiliary.start": "u"}
    plain = {"initial.mean": [1.0, 0.0, 0.0], "attention.eigenvalues": [1.0, 1.0, 1.0], "noise.epsilon": 0.0}
    case = make_case("sphere", {**table, **plain, "particles.n": 10, "particles.steps": 5.0, "depth.T": 4.0})
    problem = ParticleProblem(case, create_field(case, MPI.COMM_SELF), [0, 1])
    known = create_maximisers(problem.case, problem.labels)
    found = diagnose_tokens(problem, np.zeros((2, *problem.control_shape)), [0], known).readings
    gap, angle, largest = (found[name] for name in ("interaction_gap", "maximiser_angle", "maximiser_angle_max"))
    assert gap.shape == angle.shape == (2, 21)
    assert (gap > 0.0).all()
    assert (np.diff(gap, axis=1) < 0.0).all()
    assert (largest >= angle).all()
    assert (angle[:, -1] < 0.05 * angle[:, 0]).all()
    assert (found["clusters"][:, -1] > 3).all()
