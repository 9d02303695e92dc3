"""`bag_of_words`: candidates, both read-outs, coverage and divergence."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from mpi4py import MPI

import numpy as np
import pytest
from scipy.special import i0, i1

from solver.case import Case, CaseError
from solver.losses import LOSSES, Reading, create_loss
from solver.losses.bag_of_words import PooledBagOfWords, TokenBagOfWords, angular_divergence, draw_candidates
from solver.parallel import on_root
from solver.problem import Problem

MakeCase = Callable[..., Case]
WORDS = {"objective.loss": "bag_of_words"}
COMPASS = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
EQUAL = np.full(4, 0.25)
RING = np.column_stack([np.cos(np.linspace(0, 2 * np.pi, 720, False)), np.sin(np.linspace(0, 2 * np.pi, 720, False))])


@pytest.mark.parametrize("kappa", [0.0, 1e-16, 2.0, 10.0])
@pytest.mark.parametrize("d", [2, 3])
def test_candidates_follow_the_von_mises_fisher_law(d: int, kappa: float) -> None:
    """Catches a wrong concentration or mean: the mean vector of many has length I₁/I₀ or coth κ − 1/κ."""
    mean = np.array([0.6, 0.8, 0.0][:d])
    drawn = draw_candidates(20_000, mean, kappa, seed=1)
    assert np.abs(np.linalg.norm(drawn, axis=1) - 1).max() <= 1e-12
    exact = i1(kappa) / i0(kappa) if d == 2 else 1 / np.tanh(kappa) - 1 / kappa if kappa > 1e-9 else 0.0
    assert np.abs(drawn.mean(axis=0) - exact * mean).max() <= 0.02


def test_seed_decides_the_candidates() -> None:
    """Catches candidates drawn from a global generator: the loss would change from run to run."""
    mean = np.array([1.0, 0.0, 0.0])
    assert np.array_equal(draw_candidates(5, mean, 5.0, 7), draw_candidates(5, mean, 5.0, 7))
    assert not np.array_equal(draw_candidates(5, mean, 5.0, 7), draw_candidates(5, mean, 5.0, 8))


def test_readouts_agree_on_one_token_and_differ_on_two() -> None:
    """Catches the read-outs mixed up: softmax of the mean is not the mean of softmaxes."""
    token, pooled = (kind(COMPASS, EQUAL, 0.5) for kind in (TokenBagOfWords, PooledBagOfWords))
    one = RING[[37]]
    assert token.value(token.statistics(one)[0]) == pytest.approx(pooled.value(pooled.statistics(one)[0]), rel=1e-13)
    two = RING[[0, 360]]
    means = [loss.statistics(two).mean(axis=0) for loss in (token, pooled)]
    p = np.exp(2 * COMPASS @ two.T)
    assert token.value(means[0]) == pytest.approx(-0.25 * np.log((p / p.sum(axis=0)).mean(axis=1)).sum(), rel=1e-13)
    assert pooled.value(means[1]) == pytest.approx(math.log(4), rel=1e-13)  # the mean is 0: all words alike
    assert token.value(means[0]) > pooled.value(means[1]) + 0.1


@pytest.mark.parametrize("kind", [TokenBagOfWords, PooledBagOfWords])
def test_loss_is_bounded_by_the_entropy_of_the_histogram(kind: type) -> None:
    """Catches p and q exchanged: −Σ q log p ≥ −Σ q log q, with equality where p = q (here: tokens all round)."""
    loss = kind(COMPASS, EQUAL, 0.2)
    assert loss.value(loss.statistics(RING).mean(axis=0)) == pytest.approx(math.log(4), rel=1e-12)
    skewed = kind(COMPASS, np.array([0.7, 0.1, 0.2, 0.0]), 0.2)
    entropy = -(0.7 * math.log(0.7) + 0.1 * math.log(0.1) + 0.2 * math.log(0.2))
    for some in (RING, RING[:100], RING[[5]]):
        assert skewed.value(skewed.statistics(some).mean(axis=0)) > entropy


def test_small_temperature_does_not_overflow() -> None:
    """Catches e^{⟨c,x⟩/τ} computed as it stands: at τ = 0.01 the loss of the farthest word is 200, not infinity."""
    for kind in (TokenBagOfWords, PooledBagOfWords):
        loss = kind(COMPASS, EQUAL, 0.01)
        S = loss.statistics(RING[[0]])[0]
        assert loss.value(S) == pytest.approx(0.25 * (100 + 200 + 100), rel=1e-9)
        assert np.isfinite(loss.derivative(S)).all()


def test_coverage_counts_words_with_half_their_share() -> None:
    """Catches a threshold relative to something else than each word's own share, and words nobody asked for."""
    loss = TokenBagOfWords(COMPASS, np.array([0.5, 0.3, 0.2, 0.0]), 1.0)
    assert isinstance(loss, Reading)
    read = loss.readings(np.array([0.25, 0.149, 0.101, 0.5]), np.array([0.6, 0.0]))
    assert read["coverage"] == 2
    assert read["angular_divergence"] == pytest.approx(math.acos(0.36))


def test_angular_divergence_is_the_mean_cosine_between_tokens() -> None:
    """Catches |m| in place of |m|²: compared with all pairs of a cloud."""
    cloud = RING[np.random.default_rng(0).integers(0, 200, 300)]
    pairs = float((cloud @ cloud.T).mean())
    assert angular_divergence(cloud.mean(axis=0)) == pytest.approx(math.acos(pairs), rel=1e-10)
    assert angular_divergence(np.array([1.0 + 1e-16, 0.0])) == 0.0


@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_keys_of_the_case(manifold: str, make_case: MakeCase) -> None:
    """Catches keys that are read but not used, a histogram or a mean left unnormalised."""
    d = 2 if manifold == "circle" else 3
    mean = [0.0, 2.0, 0.0][:d]
    settings = {"kappa": 1e6, "mean": mean, "candidates": 3, "temperature": 0.5, "histogram": [1.0, 1.0, 2.0]}
    case = make_case(manifold, {**WORDS, **{f"objective.{key}": value for key, value in settings.items()}})
    loss = create_loss(case)
    assert isinstance(loss, TokenBagOfWords)
    assert loss.temperature == 0.5
    assert loss.histogram == pytest.approx([0.25, 0.25, 0.5])
    assert loss.candidates.shape == (3, d)
    assert np.abs(loss.candidates - np.array(mean) / 2).max() <= 0.01
    pooled = create_loss(make_case(manifold, {**WORDS, "objective.readout": "pooled", "objective.seed": 3}))
    assert isinstance(pooled, PooledBagOfWords)
    assert len(pooled.candidates) == 8
    assert not np.array_equal(pooled.candidates, LOSSES["bag_of_words"](make_case(manifold, WORDS)).candidates)  # type: ignore[attr-defined]


def test_candidates_from_a_file(make_case: MakeCase, comm: MPI.Comm, shared_path: Path) -> None:
    """Catches a file that is ignored, and a histogram of another length than the file."""
    path = shared_path / "words.csv"
    on_root(comm, lambda: path.write_text("x,y\n2,0\n0,3\n-1,-1\n"))
    loss = create_loss(make_case("circle", {**WORDS, "objective.file": str(path)}))
    assert isinstance(loss, TokenBagOfWords)
    assert loss.candidates == pytest.approx(np.array([[1, 0], [0, 1], [-(0.5**0.5), -(0.5**0.5)]]))
    with pytest.raises(CaseError, match=r"objective\.histogram: has 2 numbers: 3, one per candidate"):
        create_loss(make_case("circle", {**WORDS, "objective.file": str(path), "objective.histogram": [1.0, 1.0]}))
    with pytest.raises(CaseError, match=r"objective\.file: words\.csv: points \(3, 2\), \(n, 3\) is needed"):
        create_loss(make_case("sphere", {**WORDS, "objective.file": str(path)}))


def test_single_word_is_nothing_to_learn(make_case: MakeCase, comm: MPI.Comm) -> None:
    """Catches 0/0 where the gradient vanishes exactly: one word is predicted whatever the tokens do."""
    result = Problem(make_case("circle", {**WORDS, "objective.candidates": 1, "depth.T": 1.0}), comm).solve()
    assert result.converged
    assert abs(result.summary["objective"]["J"]) <= 1e-14
    assert not result.W.any()


def test_readings_follow_depth(make_case: MakeCase, comm: MPI.Comm) -> None:
    """Catches readings of the last depth repeated: at the end the loss is that of the run, at 0 that of the start."""
    problem = Problem(make_case("circle", {**WORDS, "depth.T": 1.0, "depth.layer": 0.5}), comm)
    run = problem.forward(None)
    assert set(run.readings) == {"loss", "coverage", "angular_divergence"}
    assert all(column.shape == run.t.shape for column in run.readings.values())
    assert run.readings["loss"][0] == pytest.approx(problem.terminal_loss(problem.initial), rel=1e-13)
    assert run.readings["loss"][-1] == pytest.approx(problem.evaluate(None).loss, rel=1e-13)
    assert run.readings["angular_divergence"] == pytest.approx(np.arccos((run.mean**2).sum(axis=1)), rel=1e-12)
