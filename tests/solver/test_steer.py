"""The start "steer": the saddle on the target's side, held for as long as it is free, left in time."""

from __future__ import annotations

from collections.abc import Callable

from mpi4py import MPI

import numpy as np
import pytest

from solver.case import Case, CaseError
from solver.parallel import allreduce
from solver.problem import Problem
from solver.saddle import loss_direction, saddle_near, saddle_plan
from solver.steer import carry, follow, steer

CIRCLE = {
    "geometry.h": 0.06,
    "noise.epsilon": 0.02,
    "depth.T": 16.0,
    "depth.layer": 3.0,
    "depth.first_step": 0.2,
    "initial.mean": [0.825, 0.565],
    "optimizer.start": "steer",
}
SPHERE = {**CIRCLE, "geometry.h": 0.35, "noise.epsilon": 0.05, "initial.mean": [0.8, 0.4, 0.45]}

Make = Callable[..., Problem]


def directions(problem: Problem, W: np.ndarray) -> np.ndarray:
    """Mean direction at every depth of the open-loop replay."""
    mean = problem.forward(W).mean
    return mean / np.linalg.norm(mean, axis=1)[:, None]


def while_waiting(problem: Problem, directions: np.ndarray) -> np.ndarray:
    return directions[(problem.t > 7.0) & (problem.t < 10.0)]


@pytest.mark.serial
@pytest.mark.parametrize(
    "changes",
    [
        {"objective.target": [0.0, 1.0]},
        {"objective.target": [1.0, 1.0]},
        {"objective.target": [1.0, -1.0]},
        {"objective.target": [1.0, 1.0], "depth.scheme": "euler"},
        {"objective.target": [1.0, 1.0], "ffn.width": 12, "ffn.bias": True, "ffn.activation": "tanh"},
        {"objective.target": [0.0, 1.0], "attention.eigenvalues": None, "attention.matrix": [[0.8, 0.15], [0.15, 0.8]]},
    ],
    ids=["saddle", "45°", "other side", "euler", "random features", "matrix"],
)
def test_reaches_holds_and_leaves_the_saddle(changes: dict[str, object], make_problem: Make) -> None:
    """Catches the wrong saddle, a control that drifts off it, one that is not released, and a replay that differs."""
    problem = make_problem("circle", {**CIRCLE, **changes})
    W = steer(problem)
    assert W.shape == problem.control_shape
    reached = directions(problem, W)
    A, target = np.array(problem.case.matrix), np.array(problem.case.target)
    waiting = while_waiting(problem, reached)
    assert len(waiting) > 0
    second = np.linalg.eigvalsh(A)[0]
    np.testing.assert_allclose(waiting @ A, second * waiting, atol=1e-7)
    assert (waiting @ target > 0.0).all()
    assert reached[-1] @ target > 1.0 - 1e-10
    middle = np.argmin(np.abs(problem.t - 8.5))
    assert np.abs(W[middle]).max() < 0.01 * np.abs(W).max(), "waiting must cost nothing"


@pytest.mark.serial
def test_softmax_attention(make_problem: Make) -> None:
    """Catches the cluster flow of the unnormalised kernel used where tokens slide e^{λ₂} times slower."""
    softmax = {"attention.normalized": True, "objective.target": [1.0, 1.0]}
    problem = make_problem("circle", {**CIRCLE, **softmax, "depth.T": 24.0})
    reached = directions(problem, steer(problem))
    middle = (problem.t > 10.0) & (problem.t < 14.0)
    np.testing.assert_allclose(np.abs(reached[middle][:, 1]), 1.0, atol=1e-9)
    np.testing.assert_allclose(reached[-1], problem.case.target, atol=1e-6)


@pytest.mark.serial
def test_bag_of_words_steers_to_where_its_loss_is_lowest(make_problem: Make, comm: MPI.Comm) -> None:
    """Catches a target that only `align` has: for words it is the direction in which a Dirac has the lowest loss."""
    words = {"objective.loss": "bag_of_words", "objective.kappa": 50.0, "objective.mean": [0.6, 0.8]}
    problem = make_problem("circle", {**CIRCLE, **words, "objective.temperature": 0.2})
    W = steer(problem)
    reached = directions(problem, W)
    ring = np.linspace(0.0, 2.0 * np.pi, 7201)
    x = np.column_stack([np.cos(ring), np.sin(ring)])
    best = x[np.argmin([problem.loss.value(s) for s in problem.loss.statistics(x)])]
    np.testing.assert_allclose(reached[-1], best, atol=1e-3)
    np.testing.assert_allclose(while_waiting(problem, reached) @ [0.0, 1.0], 1.0, atol=1e-9)


def test_own_kernel_is_refused(make_case: Callable[..., Case]) -> None:
    """Catches the saddles of e^{⟨x,Ay⟩} assumed for a kernel that is another."""
    with pytest.raises(CaseError, match=r"optimizer\.start: 'steer' knows the saddles of kernel = 'exponential' only"):
        make_case("circle", {**CIRCLE, "attention.kernel": "operator:itemgetter"})


@pytest.mark.serial
def test_sphere(make_problem: Make) -> None:
    """Catches a feedback in the plane of v₁ and v₂ only, and a target off it that is not reached."""
    problem = make_problem("sphere", {**SPHERE, "objective.target": [0.5, -1.0, 0.4]})
    reached = directions(problem, steer(problem))
    waiting = while_waiting(problem, reached)
    assert len(waiting) > 0
    np.testing.assert_allclose(waiting @ [0.0, -1.0, 0.0], 1.0, atol=1e-10)
    np.testing.assert_allclose(reached[-1], problem.case.target, atol=1e-6)


@pytest.mark.serial
@pytest.mark.parametrize("scheme", ["mprk2", "euler"])
def test_corrections_are_the_smallest(scheme: str, make_problem: Make) -> None:
    """Catches a W with a part that does not turn the mean: it lies along the derivative of the step's direction."""
    problem = make_problem("circle", {**CIRCLE, "ffn.width": 8, "ffn.activation": "tanh", "depth.scheme": scheme})
    W = steer(problem)
    step = problem.steps(W)[0]
    mean = problem.space.integrate(step.after * problem.space.x.T)
    across = problem.space.x @ np.array([-mean[1], mean[0]])
    derivative = allreduce(
        problem.comm, problem.scheme.pullback(problem.dynamics, step, (problem.space.mass * across)[None]).W
    )
    cosine = (W[0] * derivative).sum() / np.linalg.norm(W[0]) / np.linalg.norm(derivative)
    assert abs(cosine) == pytest.approx(1.0, abs=0.02)


def test_does_not_depend_on_ranks(make_case: Callable[..., Case], comm: MPI.Comm) -> None:
    """Catches a derivative that is one rank's share, or a direction chosen by one rank."""
    case = make_case("circle", {**CIRCLE, "objective.target": [1.0, 1.0]})
    together, alone = Problem(case, comm), Problem(case, MPI.COMM_SELF)
    W = steer(together)
    np.testing.assert_array_equal(comm.bcast(W), W)
    objective, _ = together.gradient(W)
    assert objective == pytest.approx(alone.gradient(steer(alone))[0], rel=1e-8)
    np.testing.assert_array_equal(steer(together), W)


@pytest.mark.serial
def test_lower_than_descent_from_zero(make_problem: Make) -> None:
    """Catches a start that descent cannot improve or that is not in the better family: P1's target e₂.

    Before any descent it is lower than descent from zero gets.
    """
    changes = {**CIRCLE, "objective.target": [0.0, 1.0], "optimizer.max_iterations": 12}
    steered = make_problem("circle", changes).solve()
    descended = make_problem("circle", {**changes, "optimizer.start": "zero"}).solve()
    first, last = steered.history[0], steered.history[-1]
    assert last.J < first.J
    assert first.J < 0.9 * descended.history[-1].J


@pytest.mark.serial
def test_continuation_stays_at_the_saddle(make_problem: Make) -> None:
    """Catches a control replayed on another mesh as it is: it falls off the saddle; and a start on the wrong mesh."""
    changes = {**CIRCLE, "objective.target": [1.0, 1.0], "optimizer.max_iterations": 3}
    fine = make_problem("circle", {**changes, "geometry.continuation": [0.11]})
    coarse = make_problem("circle", {**changes, "geometry.h": 0.11})
    W = steer(coarse)
    carried = directions(fine, carry(coarse, W, fine))
    np.testing.assert_allclose(carried[1:], directions(coarse, W)[1:], atol=1e-6)
    history = fine.solve().history
    finest = [row for row in history if row.nodes == fine.space.nodes]
    assert history[0].nodes == coarse.space.nodes
    objective, _ = coarse.gradient(W)
    assert objective == pytest.approx(history[0].J, rel=1e-6)
    assert finest[0].J < 1.2 * history[0].J


@pytest.mark.serial
def test_control_already_on_the_path_is_kept(make_problem: Make) -> None:
    """Catches corrections of round-off, which would make carrying a control to its own mesh change it."""
    problem = make_problem("circle", {**CIRCLE, "depth.T": 4.0})
    W = steer(problem)
    start, end = np.array(problem.case.initial_mean), loss_direction(problem.loss, 2)
    plan = saddle_plan(problem.case, problem.t, start, end)
    again = follow(problem, plan.path, W)
    np.testing.assert_array_equal(again.W, W)
    assert again.offset[1:].max() < 1e-8


def test_saddle_of_a_double_eigenvalue() -> None:
    """Catches an arbitrary eigenvector where λ₂ = λ₃: the saddle nearest to the target is meant; then the start's."""
    A = np.diag([1.0, 0.5, 0.5])
    start = np.array([0.0, 0.0, -1.0])
    np.testing.assert_allclose(saddle_near(A, np.array([0.0, 0.6, 0.8]), start), [0.0, 0.6, 0.8], atol=1e-14)
    np.testing.assert_allclose(saddle_near(A, np.array([1.0, 0.0, 0.0]), start), start, atol=1e-14)


@pytest.mark.parametrize("eigenvalues", [[0.0, 0.0], [1.0, 0.0], [0.7, 0.7]])
def test_attention_without_saddle_is_refused(eigenvalues: list[float], make_case: Callable[..., Case]) -> None:
    """Catches an arbitrary direction steered to, found out only after the mesh is built."""
    with pytest.raises(CaseError, match=r"optimizer\.start: 'steer' waits at the saddle.*λ₁ > λ₂ > 0"):
        make_case("circle", {**CIRCLE, "attention.eigenvalues": eigenvalues})


def test_dissolved_cluster_is_refused(make_problem: Make) -> None:
    """Catches a feedback on the direction of a mean that is noise."""
    with pytest.raises(CaseError, match=r"optimizer\.start: 'steer' needs a cluster.* at depth 0,"):
        steer(make_problem("circle", {**CIRCLE, "initial.kappa": 0.1}))
    with pytest.raises(CaseError, match=r"optimizer\.start: 'steer' needs a cluster"):
        steer(make_problem("circle", {**CIRCLE, "noise.epsilon": 3.0}))


@pytest.mark.serial
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"depth.T": 80.0}, "waits from depth"),
        ({"ffn.activation": "relu", "objective.target": [-1.0, -1.0], "depth.T": 8.0}, "misses its path"),
    ],
    ids=["too long", "features that vanish"],
)
def test_what_cannot_be_held_is_said(
    changes: dict[str, object],
    message: str,
    make_problem: Make,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Catches silence where round-off outgrows the control, or the features cannot turn the tokens."""
    from solver import steer as module

    monkeypatch.setattr(module.LOG, "propagate", True)
    with caplog.at_level("WARNING", logger="turnpike"):
        steer(make_problem("circle", {**CIRCLE, **changes}))
    if MPI.COMM_WORLD.size == 1:
        assert message in caplog.text
