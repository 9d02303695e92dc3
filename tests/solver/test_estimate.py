"""``--dry-run``: what a case will cost."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

from mpi4py import MPI

import pytest

from solver.case import Case, load_case
from solver.estimate import estimate, lines
from solver.problem import Problem
from solver.run import main

MakeCase = Callable[..., Case]
ROOT = Path(__file__).resolve().parents[2]


def test_sizes_are_those_of_the_run(make_case: MakeCase, comm: MPI.Comm) -> None:
    """Catches an estimate of another mesh or depth grid than the run's, and continuation meshes left out."""
    case = make_case("sphere", {"geometry.h": 0.35, "geometry.continuation": [0.5], "ffn.width": 4})
    coarse, fine = estimate(case, comm)
    problem = Problem(case, comm)
    assert fine.nodes == problem.space.nodes > coarse.nodes
    assert fine.h == problem.space.h
    assert fine.steps == len(problem.dt)
    assert fine.control_shape == problem.control_shape == (fine.steps, 3, 4)
    assert (fine.rank, fine.expansion_error) == (problem.attention.rank, problem.expansion.error)
    assert fine.labels == 1
    text = "\n".join(lines([coarse, fine], case, comm.size))
    assert "labels" not in text
    for number in (f"{fine.nodes} nodes", f"{fine.steps} steps", f"rank {fine.rank},", "all 200 iterations allowed"):
        assert number in text


def test_labels_are_named(make_case: MakeCase, comm: MPI.Comm) -> None:
    """Catches a dry run that does not say how many densities it is about."""
    case = make_case("circle", {"auxiliary.kernel": "rope", "auxiliary.labels": 3})
    assert "labels: 3, a density each" in lines(estimate(case, comm), case, comm.size)


def test_memory_counts_every_stage_of_every_step(make_case: MakeCase, comm: MPI.Comm) -> None:
    """Catches stages or the adjoint forgotten: between two depths, memory grows by 3 states a step (`mprk2`)."""
    small, large = (
        estimate(make_case("circle", {"depth.grid": "uniform", "depth.steps": steps, "depth.T": 1.0}), comm)[0]
        for steps in (10, 200_000)
    )
    kept = 3 * 8 * small.nodes * 199_990
    assert kept <= large.memory - small.memory <= 1.5 * kept + 2e8 * comm.size  # ghosts, and what the process grew by


def test_time_is_that_of_an_evaluation(make_case: MakeCase, comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches seconds per step in place of per evaluation: a clock that ticks once, for the steps sampled."""
    clock = itertools.count(0.0, 4.0)
    monkeypatch.setattr("solver.estimate.time", SimpleNamespace(perf_counter=lambda: next(clock)))
    (found,) = estimate(make_case("circle", {"depth.grid": "uniform", "depth.steps": 100}), comm)
    assert found.evaluation == pytest.approx(4.0 / 8 * 100)  # 8 of the 100 steps took 4 s


@pytest.mark.serial
def test_dry_run_prints_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches a dry run that starts the run, or that prints a case which does not load."""
    monkeypatch.chdir(tmp_path)
    arguments = [str(ROOT / "cases" / "turnpike_circle.toml"), "--set", "geometry.h=0.1", "--set", "depth.T=5"]
    assert main([*arguments, "--set", "geometry.continuation=[]", "--dry-run"]) == 0
    assert list(tmp_path.iterdir()) == []
    printed = capsys.readouterr().out
    toml, _, estimates = printed.partition("\nmesh: ")
    assert "63 nodes" in estimates
    copy = tmp_path / "copy.toml"
    copy.write_text(toml)
    case = load_case(copy)
    assert (case.depth.T, case.geometry.h) == (5.0, 0.1)
