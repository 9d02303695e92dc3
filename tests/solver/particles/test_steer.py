"""The start via the saddle for tokens: every seed's own control, on its own noise."""

from __future__ import annotations

from collections.abc import Callable

from mpi4py import MPI

import numpy as np
import pytest

from solver.case import Case, CaseError
from solver.particles.create import create_field
from solver.particles.problem import ParticleProblem
from solver.particles.steer import steer_tokens

pytestmark = pytest.mark.serial

AT_THE_SADDLE = {
    "attention.eigenvalues": [1.0, 0.65],
    "noise.epsilon": 0.01,
    "depth.T": 12.0,
    "initial.mean": [0.825, 0.565],
    "initial.kappa": 3.0,
    "optimizer.start": "steer",
    "particles.n": 32,
}


def directions(problem: ParticleProblem, W: np.ndarray) -> np.ndarray:
    """Mean directions of every seed along depth, (steps + 1, batch, d)."""
    mean = np.array([x.mean(axis=1) for x in problem.states(W)])
    return mean / np.linalg.norm(mean, axis=2, keepdims=True)


def test_every_seed_waits_at_the_saddle_and_reaches_the_target(make_case: Callable[..., Case]) -> None:
    """Catches one control for all seeds (noise throws the others off), and a wait at another place."""
    case = make_case("circle", {**AT_THE_SADDLE, "objective.target": [1.0, 1.0]})
    problem = ParticleProblem(case, create_field(case, MPI.COMM_SELF), [0, 5])
    W = steer_tokens(problem)
    found = directions(problem, W)
    waiting = (problem.t > 5.0) & (problem.t < 7.5)
    np.testing.assert_allclose(found[waiting] @ [0.0, 1.0], 1.0, atol=1e-12)
    np.testing.assert_allclose(found[-1] @ [np.sqrt(0.5), np.sqrt(0.5)], 1.0, atol=1e-12)
    assert np.abs(W[0] - W[1]).max() > 0.01
    alone = ParticleProblem(case, create_field(case, MPI.COMM_SELF), [5])
    np.testing.assert_array_equal(steer_tokens(alone)[0], W[1])


def test_corrections_are_the_smallest(make_case: Callable[..., Case]) -> None:
    """Catches corrections with parts that do not turn the mean: what turns a narrow cluster is of rank one."""
    case = make_case("circle", {**AT_THE_SADDLE, "depth.T": 4.0})
    problem = ParticleProblem(case, create_field(case, MPI.COMM_SELF), [1])
    singular = np.linalg.svd(steer_tokens(problem)[0], compute_uv=False)
    still = np.median(singular[:, 0])
    assert still > 1e-3
    assert np.median(singular[:, 1]) < 0.1 * still


def test_labels_are_refused(make_case: Callable[..., Case]) -> None:
    """Catches steering the mean of tokens whose frames differ."""
    with pytest.raises(CaseError, match=r"optimizer\.start: 'steer' knows no labels"):
        make_case("circle", {**AT_THE_SADDLE, "auxiliary.kernel": "rope", "auxiliary.labels": 3})
