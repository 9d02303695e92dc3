"""The control problem of N tokens: gradients, batches, and the invariants of what a seed fixes."""

from __future__ import annotations

from collections.abc import Callable

from mpi4py import MPI

import numpy as np
import pytest

from solver.auxiliary.kernels import create_label_kernel
from solver.auxiliary.labels import token_labels
from solver.case import Case
from solver.ffn import ACTIVATIONS
from solver.parallel import allreduce
from solver.particles.create import create_field
from solver.particles.ensemble import solve_ensemble
from solver.particles.problem import ParticleProblem

MakeCase = Callable[..., Case]
SMALL = {"depth.T": 1.0, "particles.n": 30, "noise.epsilon": 0.05}
WORDS = {"objective.loss": "bag_of_words", "objective.kappa": 2.0, "objective.temperature": 0.3}
NEAR = {"auxiliary.kernel": "distance_bias", "auxiliary.law": "random", "auxiliary.labels": 7}
LABELS: dict[str, dict[str, object]] = {
    "labels": {"auxiliary.kernel": "rope", "auxiliary.frequencies": [2.0], "auxiliary.law": "random"},
    "labels, softmax": {"auxiliary.kernel": "rope", "auxiliary.labels": 3, "attention.normalized": True},
    "labels, start u": {"auxiliary.kernel": "rope", "auxiliary.start": "u"},
    "toeplitz": {"auxiliary.kernel": "toeplitz"},
    "toeplitz, linear": {"auxiliary.kernel": "toeplitz", "auxiliary.form": "linear", "auxiliary.frequency": 9.0},
    "distance": NEAR,
    "distance, softmax": {**NEAR, "attention.normalized": True, "auxiliary.decay": "gaussian"},
    "distance, window": {**NEAR, "auxiliary.decay": "window"},
    "prefix": {"auxiliary.kernel": "prefix", "auxiliary.u": [0.6, 0.8]},
    "prefix, start u": {"auxiliary.kernel": "prefix", "auxiliary.map": "uniform", "auxiliary.start": "u"},
}
VARIANTS: dict[str, dict[str, object]] = {
    "plain": {},
    "dense": {"particles.attention": "dense"},
    "separable": {"particles.attention": "separable"},
    "softmax": {"attention.normalized": True},
    "words": WORDS,
    "pooled words": {**WORDS, "objective.readout": "pooled"},
    "random features": {"ffn.width": 5, "ffn.activation": "gelu", "ffn.bias": True},
    **LABELS,
    "no noise": {"noise.epsilon": 0.0},
    "long steps": {"particles.steps": 2.0, "depth.T": 4.0},
    "no attention": {"attention.eigenvalues": None, "attention.matrix": [[0.0, 0.0], [0.0, 0.0]]},
    # relu's kink lies where a coordinate vanishes: 1e-4 is less than any token's distance from it here
    **{name: {"ffn.activation": name} for name in sorted(ACTIVATIONS)},
}


def make(case: Case, seeds: list[int]) -> ParticleProblem:
    return ParticleProblem(case, create_field(case, MPI.COMM_SELF), seeds)


def controls(problem: ParticleProblem, size: float, seed: int) -> np.ndarray:
    shape = (len(problem.seeds), *problem.control_shape)
    return size * np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.serial
@pytest.mark.parametrize("name", VARIANTS)
def test_gradient_has_taylor_order_two(name: str, make_case: MakeCase) -> None:
    """Catches any error of the pathwise adjoint, with the noise held fixed, at a control not evaluated before."""
    problem = make(make_case("circle", {**SMALL, **VARIANTS[name]}), [0, 7])
    problem.evaluate(controls(problem, 2.0, 1))
    W, dW = controls(problem, 0.5, 2), controls(problem, 0.5, 3)
    at = problem.evaluate(W)
    slope = problem.dt * (at.gradient * dW).sum(axis=(1, 2, 3))
    sizes = np.array([2e-2, 1e-2, 5e-3]) * {"relu": 0.01, "long steps": 0.1}.get(name, 1.0)
    remainders = np.array([np.abs(problem.evaluate(W + s * dW).J - at.J - s * slope) for s in sizes])
    assert remainders.min() > 1e-15
    orders = np.log2(remainders[:-1] / remainders[1:])
    assert ((orders >= 1.9) & (orders <= 2.1)).all(), orders


@pytest.mark.serial
@pytest.mark.parametrize("name", LABELS)
def test_separable_is_dense(name: str, make_case: MakeCase) -> None:
    """Catches a bias or frames that one of the two leaves out: J and its gradient, to the expansion's accuracy."""
    wanted = [{**SMALL, **LABELS[name], "particles.attention": kind} for kind in ("separable", "dense")]
    one, other = (make(make_case("circle", settings), [0, 7]) for settings in wanted)
    W = controls(one, 0.5, 2)
    found, exact = one.evaluate(W), other.evaluate(W)
    assert pytest.approx(exact.J, rel=1e-9) == found.J
    assert np.abs(found.gradient - exact.gradient).max() <= 1e-8 * np.abs(exact.gradient).max()
    x, y = one.initial, other.initial
    assert one.interaction_energy(x) == pytest.approx(other.interaction_energy(y), rel=1e-9)


@pytest.mark.serial
@pytest.mark.parametrize("name", ["labels, start u", "prefix, start u"])
def test_start_in_the_frames(name: str, make_case: MakeCase) -> None:
    """Catches Q in place of Qᵀ: u = Q_ξx must be what x is in a case without labels, for every seed."""
    plain = make(make_case("circle", SMALL), [0, 7]).initial
    turned = make(make_case("circle", {**SMALL, **LABELS[name]}), [0, 7])
    frames = create_label_kernel(turned.case).frames
    assert frames is not None
    assert np.abs(np.einsum("nij,bnj->bni", frames(turned.labels), turned.initial) - plain).max() <= 1e-14
    here = make(make_case("circle", {**SMALL, **LABELS[name], "auxiliary.start": "x"}), [0, 7]).initial
    assert np.array_equal(here, plain)
    for other in ("usa", "toeplitz"):  # without frames there is no difference
        case = make_case("circle", {**SMALL, "auxiliary.kernel": other, "auxiliary.start": "u"})
        assert np.array_equal(make(case, [0, 7]).initial, plain)


@pytest.mark.ranks
def test_gradient_of_seeds_spread_over_ranks(make_case: MakeCase, comm: MPI.Comm) -> None:
    """Catches numbers that depend on how seeds are dealt out: Taylor order 2 of the sum, equal to one rank's."""
    case = make_case("circle", {**SMALL, **VARIANTS["labels"]})
    seeds = list(range(8))
    alone, here = make(case, seeds), make(case, seeds[comm.rank :: comm.size])
    W, dW = controls(alone, 0.5, 2), controls(alone, 0.5, 3)

    def total(shift: float) -> tuple[float, float]:
        found = here.evaluate((W + shift * dW)[comm.rank :: comm.size])
        slope = here.dt * float((found.gradient * dW[comm.rank :: comm.size]).sum())
        return float(allreduce(comm, float(found.J.sum()))), float(allreduce(comm, slope))

    J, slope = total(0.0)
    exact = alone.evaluate(W)
    assert pytest.approx(exact.J.sum(), rel=1e-12) == J
    assert slope == pytest.approx(alone.dt * (exact.gradient * dW).sum(), rel=1e-10)
    remainders = [abs(total(s)[0] - J - s * slope) for s in (1e-2, 5e-3)]
    assert np.log2(remainders[0] / remainders[1]) == pytest.approx(2.0, abs=0.05)


@pytest.mark.serial
def test_rope_is_plain_attention_in_turned_frames(make_case: MakeCase) -> None:
    """Catches R in place of Rᵀ, planes that do not commute in the wrong order, and labels of the wrong tokens."""
    rope = {"auxiliary.kernel": "rope", "auxiliary.planes": [[1, 2], [1, 3]], "auxiliary.frequencies": [2.0, 0.7]}
    settings = {**SMALL, "noise.epsilon": 0.0, "particles.n": 12}
    plain, turned = make(make_case("sphere", settings), [0]), make(make_case("sphere", {**settings, **rope}), [0])
    frames = create_label_kernel(turned.case).frames
    assert frames is not None
    R = frames(turned.labels)
    assert turned.labels == pytest.approx(np.arange(12) / 12)
    a, b = 2.0 / 12, 0.7 / 12
    first = np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]])
    second = np.array([[np.cos(b), 0, -np.sin(b)], [0, 1, 0], [np.sin(b), 0, np.cos(b)]])
    assert R[1] == pytest.approx(second @ first)
    u = plain.initial
    turned.initial = np.einsum("nji,bnj->bni", R, u)
    W = np.zeros((1, *plain.control_shape))
    for there, here in zip(plain.states(W), turned.states(W), strict=True):
        assert np.einsum("nij,bnj->bni", R, here) == pytest.approx(there, abs=1e-13)
    assert turned.interaction_energy(here) == pytest.approx(plain.interaction_energy(there), rel=1e-13)


@pytest.mark.serial
def test_labels(make_case: MakeCase) -> None:
    """Catches labels that change with N or the seed, or that are there although none were asked for."""
    assert not token_labels(make_case("circle"), 5).any()
    few = make_case("circle", {"auxiliary.labels": 3})
    assert token_labels(few, 5) == pytest.approx([0, 1 / 3, 2 / 3, 0, 1 / 3])
    law: dict[str, object] = {"auxiliary.law": "random", "auxiliary.labels": 4}
    random = [make_case("circle", {**law, "auxiliary.seed": seed}) for seed in (0, 1)]
    one, other = (token_labels(case, 9) for case in random)
    assert np.array_equal(one[:4], token_labels(random[0], 4))
    assert np.array_equal(one[:4], one[4:8])
    assert not np.isclose(one, other).any()
    assert ((one >= 0) & (one < 1)).all()


@pytest.mark.serial
def test_sphere_and_beyond(make_case: MakeCase) -> None:
    """Catches an adjoint tied to d = 2: Taylor order 2 on S² and S⁴."""
    beyond = {"geometry.manifold": "hypersphere", "geometry.dimension": 5, "geometry.h": None, "depth.layer": 0.5}
    five = {**beyond, "attention.eigenvalues": [1.0, 0.8, 0.6, 0.4, 0.2], "initial.mean": [1.0, 1.0, 0.0, 0.0, 0.0]}
    five["objective.target"] = [0.0, 1.0, 0.0, 0.0, 0.0]
    for changes in ({}, five):
        problem = make(make_case("sphere", {**SMALL, **changes}), [1])
        W, dW = controls(problem, 0.5, 2), controls(problem, 0.5, 3)
        at = problem.evaluate(W)
        slope = problem.dt * (at.gradient * dW).sum(axis=(1, 2, 3))
        remainders = [float(np.abs(problem.evaluate(W + s * dW).J - at.J - s * slope)[0]) for s in (1e-2, 5e-3)]
        assert np.log2(remainders[0] / remainders[1]) == pytest.approx(2.0, abs=0.1)


@pytest.mark.serial
def test_batch_is_the_seeds_one_by_one(make_case: MakeCase) -> None:
    """Catches seeds that see each other, and noise keyed by position in the batch."""
    case = make_case("circle", SMALL)
    together = make(case, [3, 4, 5])
    W = controls(together, 0.5, 0)
    found = together.evaluate(W)
    for k, seed in enumerate([3, 4, 5]):
        alone = make(case, [seed]).evaluate(W[k : k + 1])
        assert alone.J[0] == pytest.approx(found.J[k], rel=1e-13)
        assert np.abs(alone.gradient[0] - found.gradient[k]).max() <= 1e-12 * np.abs(alone.gradient).max()
    some = together.evaluate(W[[2, 0]], [2, 0])
    assert np.abs(some.J - found.J[[2, 0]]).max() <= 1e-13


@pytest.mark.serial
@pytest.mark.parametrize("steps", [1.0, 10.0, 11.0, 16.0])
def test_what_is_not_kept_is_computed_again(steps: float, make_case: MakeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a gradient along other noise or tokens than the forward run's, where these are too large to be kept."""
    from solver.particles import problem as module

    case = make_case("circle", {**SMALL, "particles.steps": steps})
    kept = make(case, [3, 4])
    W = controls(kept, 0.5, 0)
    first = kept.evaluate(W)
    monkeypatch.setattr(module, "_NOISE_KEPT", 0)
    monkeypatch.setattr(module, "_STATES_KEPT", 0)
    again = make(case, [3, 4]).evaluate(W)
    assert np.array_equal(first.J, again.J)
    assert np.array_equal(first.gradient, again.gradient)


@pytest.mark.serial
def test_loss_without_derivative_is_differentiated(make_case: MakeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches differences that are coarser than the adjoint: a user's loss must give the built-in one's gradient."""
    problem = make(make_case("circle", {**SMALL, **WORDS}), [0])
    W = controls(problem, 0.5, 0)
    exact = problem.evaluate(W)

    class Plain:
        """The same loss without `statistics_vjp`."""

        def __init__(self, loss: object) -> None:
            self.statistics, self.value, self.derivative = loss.statistics, loss.value, loss.derivative  # type: ignore[attr-defined]

    problem.loss = Plain(problem.loss)
    assert np.abs(problem.evaluate(W).gradient - exact.gradient).max() <= 1e-9 * np.abs(exact.gradient).max()


@pytest.mark.serial
def test_stationary_law_in_a_fixed_potential(make_case: MakeCase) -> None:
    """Catches a wrong balance of drift and noise: with Wσ = (w, 0) constant the law is von Mises, κ = w/ε."""
    from scipy.special import i0, i1

    changes = {**SMALL, "noise.epsilon": 0.2, "depth.T": 15.0, "particles.n": 4000, "particles.steps": 40.0}
    nothing = {"attention.eigenvalues": None, "attention.matrix": [[0.0, 0.0], [0.0, 0.0]], "ffn.bias": True}
    problem = make(make_case("circle", {**changes, **nothing}), [0, 1])
    W = np.zeros((2, *problem.control_shape))
    W[:, :, 0, 2] = 0.6
    *_, x = problem.states(W)
    kappa = 0.6 / 0.2
    assert x[..., 0].mean() == pytest.approx(i1(kappa) / i0(kappa), abs=3 * x[..., 0].std() / np.sqrt(8000) + 0.003)
    assert abs(x[..., 1].mean()) <= 4 * x[..., 1].std() / np.sqrt(8000)


@pytest.mark.serial
def test_tokens_stay_on_the_sphere_however_long_the_steps(
    make_case: MakeCase, caplog: pytest.LogCaptureFixture
) -> None:
    """Catches norms whose round-off grows by |1 − 2Δt⟨x, ∇V⟩| a step, here 40, and a user who is not told."""
    stiff = {**SMALL, "attention.eigenvalues": [4.0, 3.0], "depth.T": 5.0, "optimizer.method": "none"}
    for steps, warned in ((10.0, True), (220.0, False)):
        caplog.clear()
        found = solve_ensemble(make_case("circle", {**stiff, "particles.steps": steps}), MPI.COMM_SELF)
        assert found is not None
        assert np.abs(np.linalg.norm(found.diagnostics.frames, axis=-1) - 1.0).max() <= 1e-14
        assert found.diagnostics.interaction_energy.max() <= 0.5 * np.exp(4.0) * (1.0 + 1e-12)
        assert ("take at least 219" in caplog.text) is warned
