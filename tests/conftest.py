"""Shared fixtures. The same suite runs on one rank and under mpirun; a failure on any rank ends all of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from mpi4py import MPI

import numpy as np
import pytest
from hypothesis import settings

from solver.case import Case, load_case
from solver.problem import Problem

ROOT = Path(__file__).resolve().parents[1]

# Derandomised, and without a database or deadlines: every rank must draw the same examples.
settings.register_profile("mpi", derandomize=True, database=None, deadline=None, max_examples=25)
settings.load_profile("mpi")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if MPI.COMM_WORLD.rank > 0:
        reporter = config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            reporter._tw._file = open(os.devnull, "w")  # noqa: SIM115


# The files that take longest, so that no process starts one of them when the others have nothing left to do.
LONGEST = (
    "solver/test_run.py", "system/test_forward_reference.py", "docs/test_notebook.py", "solver/theory/test_run.py",
    "system/test_gradient_growth.py", "system/test_optimal_control.py", "system/test_sweep_reaches_lbfgs.py",
    "system/test_mean_field.py", "solver/particles/test_step.py", "postprocess/test_compare.py",
    "system/test_bag_of_words.py", "solver/test_parts.py", "system/test_softmax.py", "solver/test_steer.py",
    "system/test_heat_flow.py", "solver/test_training.py", "system/test_antipodal_clusters.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {str(ROOT / "tests" / name): place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(str(item.path), len(rank)))
    if MPI.COMM_WORLD.size > 1:
        items[:] = [item for item in items if item.get_closest_marker("serial") is None]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed and MPI.COMM_WORLD.size > 1:
        sys.__stderr__.write(f"\n[rank {MPI.COMM_WORLD.rank}] {item.nodeid}\n{report.longreprtext}\n")
        sys.__stderr__.flush()
        MPI.COMM_WORLD.Abort(1)  # the other ranks may already wait in a collective call


@pytest.fixture(autouse=True)
def _no_petsc_options_left() -> Iterator[None]:
    """No test may leave PETSc options behind for the next."""
    from petsc4py import PETSc  # after the solver package has loaded the libraries

    before = dict(PETSc.Options().getAll())
    yield
    assert dict(PETSc.Options().getAll()) == before


@pytest.fixture
def comm() -> MPI.Comm:
    return MPI.COMM_WORLD


@pytest.fixture
def shared_path(comm: MPI.Comm, tmp_path: Path) -> Path:
    """One temporary folder for all ranks."""
    return comm.bcast(tmp_path, root=0)


CASES = {
    "circle": {"geometry.h": 0.1, "geometry.continuation": [], "depth.T": 4.0, "depth.first_step": 0.1},
    "sphere": {"geometry.h": 0.35, "geometry.continuation": [], "depth.T": 4.0, "depth.first_step": 0.1},
}
FILES = {"circle": "turnpike_circle.toml", "sphere": "turnpike.toml"}


@pytest.fixture
def make_case() -> Callable[..., Case]:
    """A small case on a manifold, with overrides such as ``{"noise.epsilon": 0.1}``."""

    def make(manifold: str, overrides: dict[str, object] | None = None) -> Case:
        return load_case(ROOT / "cases" / FILES[manifold], {**CASES[manifold], "depth.layer": 2.0, **(overrides or {})})

    return make


@pytest.fixture
def make_problem(comm: MPI.Comm, make_case: Callable[..., Case]) -> Callable[..., Problem]:
    def make(manifold: str, overrides: dict[str, object] | None = None) -> Problem:
        return Problem(make_case(manifold, overrides), comm)

    return make


def smooth_control(problem: Problem, size: float, seed: int = 0) -> np.ndarray:
    """A control that is smooth in depth, random in its entries, and the same on every rank."""
    generator = np.random.default_rng(seed)
    a, b = generator.standard_normal((2, *problem.control_shape[1:]))
    t = 0.5 * (problem.t[1:] + problem.t[:-1])[:, None, None] / problem.t[-1]
    return size * (a * np.cos(3 * t) + b * np.sin(5 * t)) / np.sqrt(a.size)
