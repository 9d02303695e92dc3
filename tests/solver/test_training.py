"""Training: continuation, starts, stopping, and the check that a mesh resolves the cluster."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path

from mpi4py import MPI

import numpy as np
import pytest
from conftest import smooth_control

from solver.case import CaseError
from solver.control import read_control, transfer, write_control
from solver.optimisers import Outcome, Proposals, Settings
from solver.parallel import on_root
from solver.problem import Evaluation, Problem
from solver.resolution import gradient_ratio
from solver.sweeps import SweepError
from solver.training import solve


def ratio_at(problem: Problem) -> float:
    steps = problem.steps(None)
    gradient, _ = problem.adjoint(steps, problem.zero_control())
    ratio = gradient_ratio(problem, steps[-1].after, gradient)
    assert ratio is not None
    return ratio


@pytest.mark.serial  # minutes where ranks outnumber cores; two meshes on ranks: the optimum below
def test_solve_converges_through_two_meshes(make_problem: Callable[..., Problem]) -> None:
    """Would catch a control lost between meshes, a tolerance relative to the wrong mesh, wrong sweep counts."""
    problem = make_problem("sphere", {"geometry.h": 0.2, "geometry.continuation": [0.4], "noise.epsilon": 0.1})
    result = solve(problem)
    summary = result.summary
    fine = [row for row in result.history if row.nodes == problem.space.nodes]
    coarse = [row for row in result.history if row.nodes != problem.space.nodes]
    assert result.converged
    assert len(coarse) > 1
    assert fine[0].J < 0.5 * coarse[0].J, "the fine mesh must start from the coarse control"
    assert all(later.J <= earlier.J for earlier, later in itertools.pairwise(fine))
    _, untrained = problem.gradient(None)
    initial = np.sqrt(problem.squared_norm(untrained))
    assert summary["optimizer"]["gradient_norm_initial"] == pytest.approx(initial, rel=1e-12)
    _, gradient = problem.gradient(result.W)
    assert np.sqrt(problem.squared_norm(gradient)) <= 1e-3 * initial
    assert summary["optimizer"]["forward_solves"] == summary["optimizer"]["adjoint_solves"]
    assert summary["objective"]["J"] == pytest.approx(fine[-1].J, rel=1e-12)


@pytest.mark.serial
def test_continuation_meshes_that_are_not_coarser_are_left_out(make_problem: Callable[..., Problem]) -> None:
    """Would catch `--set geometry.h=0.2` on a case with finer continuation meshes being refused, or solved on them."""
    settings = {"geometry.h": 0.1, "geometry.continuation": [0.2, 0.05], "noise.epsilon": 0.1, "depth.T": 2.0}
    history = make_problem("circle", settings).solve().history
    assert sorted({row.nodes for row in history}) == [31, 63]


def test_optimum_does_not_depend_on_ranks(make_case: Callable[..., object], comm: MPI.Comm) -> None:
    """Would catch an optimiser that sees different numbers on different ranks: J must agree to 1e-8."""
    overrides = {"noise.epsilon": 0.1, "depth.T": 2.0, "depth.layer": 1.0, "optimizer.gradient_tolerance": 1e-6}
    case = make_case("circle", {**overrides, "geometry.continuation": [0.2]})
    together, alone = Problem(case, comm).solve(), Problem(case, MPI.COMM_SELF).solve()
    assert together.converged
    assert alone.converged
    assert together.summary["objective"]["J"] == pytest.approx(alone.summary["objective"]["J"], rel=1e-8)


def test_same_case_same_bits(make_case: Callable[..., object], comm: MPI.Comm, shared_path: Path) -> None:
    """Would catch state carried from one evaluation to the next, or a time stamp in control.npz."""
    case = make_case("circle", {"noise.epsilon": 0.1, "depth.T": 2.0, "depth.layer": 1.0})
    results = [Problem(case, comm).solve() for _ in range(2)]
    assert np.array_equal(results[0].W, results[1].W)

    def compare() -> None:
        contents = []
        for result in results:
            write_control(shared_path / "control.npz", result.trajectory.t, result.W)
            contents.append((shared_path / "control.npz").read_bytes())
        assert contents[0] == contents[1]

    on_root(comm, compare)


@pytest.mark.serial
def test_start_from_file(make_problem: Callable[..., Problem], comm: MPI.Comm, shared_path: Path) -> None:
    """Would catch a start that is ignored: from an optimum no iteration is left to do."""
    short = {"noise.epsilon": 0.1, "depth.T": 2.0, "depth.layer": 1.0}
    first = make_problem("circle", short).solve()
    path = shared_path / "control.npz"
    on_root(comm, lambda: write_control(path, first.trajectory.t, first.W))
    again = make_problem("circle", {**short, "optimizer.start": str(path)}).solve()
    assert again.converged
    assert again.summary["optimizer"]["iterations"] == 0
    run_only = make_problem("circle", {**short, "optimizer.start": str(path), "optimizer.method": "none"}).solve()
    assert run_only.summary["objective"]["J"] == pytest.approx(first.summary["objective"]["J"], rel=1e-12)
    assert run_only.summary["energy"]["minimum"] == pytest.approx(first.summary["energy"]["minimum"], rel=1e-12)


def test_start_of_another_depth_is_refused(make_problem: Callable[..., Problem], shared_path: Path) -> None:
    """Would catch a control silently stretched to another depth."""
    path = shared_path / "control.npz"
    t = np.linspace(0.0, 9.0, 5)
    on_root(MPI.COMM_WORLD, lambda: write_control(path, t, np.zeros((4, 2, 2))))
    with pytest.raises(CaseError, match="reaches depth 9, this case 4"):
        make_problem("circle", {"optimizer.start": str(path)}).solve()


def test_transfer_keeps_integrals() -> None:
    """Would catch interpolation of values instead of averages between depth grids."""
    t, new = np.array([0.0, 1.0, 4.0]), np.array([0.0, 0.5, 2.0, 4.0])
    W = np.array([1.0, 3.0])[:, None, None]
    moved = transfer(t, W, new)
    np.testing.assert_allclose(moved[:, 0, 0], [1.0, (0.5 * 1 + 1.0 * 3) / 1.5, 3.0])
    np.testing.assert_allclose(np.diff(new) @ moved[:, 0, 0], np.diff(t) @ W[:, 0, 0])


@pytest.mark.serial
def test_damaged_control_is_named(tmp_path: Path) -> None:
    """Would catch a traceback for a file that is no control."""
    path = tmp_path / "control.npz"
    path.write_bytes(b"PK nonsense")
    with pytest.raises(CaseError, match=r"optimizer\.start: control\.npz is no control\.npz"):
        read_control(path)
    np.savez(path, t=np.arange(3.0), W=np.zeros((5, 2, 2)))
    with pytest.raises(CaseError, match=r"\(steps \+ 1,\)"):
        read_control(path)


@pytest.mark.serial
def test_pinned_mesh_stops_before_optimising(make_problem: Callable[..., Problem]) -> None:
    """Would catch "convergence" at W = 0 on a mesh to which the cluster sticks."""
    overrides = {"geometry.h": 0.5, "noise.epsilon": 0.001, "depth.T": 20.0}
    problem = make_problem("sphere", overrides)
    with pytest.raises(CaseError, match=r"geometry\.h: pinned: refine.*allow_coarse"):
        problem.solve()
    assert problem.counts.forward == 1, "only the untrained run may have been spent"
    allowed = make_problem("sphere", {**overrides, "geometry.allow_coarse": True, "optimizer.max_iterations": 1})
    assert allowed.solve().summary["dofs"] == problem.space.nodes


@pytest.mark.serial
def test_resolution_ratio_tends_to_one(make_problem: Callable[..., Problem]) -> None:
    """Would catch a wrong direct value: on a fine mesh and depth grid the two gradients agree."""
    ratios = [
        ratio_at(make_problem("circle", {"geometry.h": h, "noise.epsilon": 0.05, "depth.first_step": step}))
        for h, step in ((0.1, 0.1), (0.05, 0.025), (0.025, 0.00625))
    ]
    errors = 1.0 - np.array(ratios)
    assert errors[-1] < 0.02
    assert errors[-1] < 0.5 * errors[0]


@pytest.mark.slow
def test_resolution_ratio_on_the_sphere(make_problem: Callable[..., Problem]) -> None:
    """Would catch a resolution check that no longer orders meshes as measured before: 0.18, 0.63, 0.81."""
    ratios = [
        ratio_at(make_problem("sphere", {"geometry.h": h, "depth.T": 80.0, "depth.first_step": 0.05, "depth.layer": 4}))
        for h in (0.3, 0.15, 0.1)
    ]
    assert ratios[0] < ratios[1] < ratios[2]
    np.testing.assert_allclose(ratios, [0.18, 0.63, 0.81], atol=0.05)


@pytest.mark.serial
def test_failed_line_search_is_explained(
    make_problem: Callable[..., Problem], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Would catch an optimiser that fails in silence, or calls itself converged."""
    from solver import training

    problem = make_problem("circle", {"noise.epsilon": 0.1, "depth.T": 2.0})
    real = training.OPTIMISERS["lbfgs"]

    def failing(start: np.ndarray, settings: Settings) -> Proposals:
        outcome = yield from real(start, dataclasses.replace(settings, max_iterations=2))
        return Outcome(outcome.last, False, "the line search found no lower point (forced)")

    monkeypatch.setitem(training.OPTIMISERS, "lbfgs", failing)
    monkeypatch.setattr(training.LOG, "propagate", True)
    with caplog.at_level("INFO", logger="turnpike"):
        result = problem.solve()
    assert not result.converged
    assert result.summary["optimizer"]["converged"] is False
    assert "NOT converged" in caplog.text
    assert "the gradient is right" in caplog.text


@pytest.mark.serial
@pytest.mark.parametrize("method", ["lbfgs", "sweep", "gradient"])
def test_failed_sweep_at_a_trial_point_does_not_lose_the_run(
    method: str, make_problem: Callable[..., Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a run of hours ended without results by one wild trial point; a start that fails must end it."""
    problem = make_problem("circle", {"noise.epsilon": 0.1, "depth.T": 2.0, "optimizer.method": method})
    real, calls, failing = problem.evaluate, [0], [4]

    def evaluate(W: np.ndarray | None) -> Evaluation:
        calls[0] += 1
        if calls[0] in failing:
            raise SweepError("forward step 0: forced")
        return real(W)

    monkeypatch.setattr(problem, "evaluate", evaluate)
    result = problem.solve()
    J = [row.J for row in result.history]
    assert all(after < before for before, after in itertools.pairwise(J))
    if method == "lbfgs":  # SciPy's line search cannot go on
        assert "not finite at a trial point" in result.summary["optimizer"]["reason"]
    else:
        assert calls[0] > 4
    calls[0], failing[0] = 0, 1
    with pytest.raises(SweepError, match="forced"):
        problem.solve()


def test_forward_reports_what_is_wrong_with_a_control(make_problem: Callable[..., Problem]) -> None:
    """Would catch numpy's own words for a control of the wrong shape, or nan passing through."""
    problem = make_problem("circle")
    with pytest.raises(ValueError, match=r"\(steps, d, m\)"):
        problem.forward(np.zeros((1, 2, 2)))
    W = smooth_control(problem, 1.0)
    W[3, 0, 0] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        problem.gradient(W)
