"""Optimal controls against what theory and independent prototypes say of them (circle: ε = 0.01, λ = (1, 0.65))."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

from mpi4py import MPI

import numpy as np
import pytest
from conftest import ROOT

from solver.case import load_case
from solver.problem import Problem
from solver.training import Result


def circle(h: float, **overrides: object) -> Result:
    settings = {"geometry.h": h, "geometry.continuation": [], **overrides}
    return Problem(load_case(ROOT / "cases" / "turnpike_circle.toml", settings)).solve()


def uniform(tmp_path: Path, h: float, steps: int) -> Result:
    """Target at 45°, T = 20, equal steps."""
    text = (ROOT / "cases" / "turnpike_circle.toml").read_text()
    text = text.replace("T = 80.0\nlayer = 8.0\n", f'T = 20.0\ngrid = "uniform"\nsteps = {steps}\n')
    path = MPI.COMM_WORLD.bcast(tmp_path, root=0) / "uniform.toml"
    if MPI.COMM_WORLD.rank == 0:
        path.write_text(text)
    MPI.COMM_WORLD.Barrier()
    settings = {"geometry.h": h, "geometry.continuation": [], "optimizer.gradient_tolerance": 1e-6}
    return Problem(load_case(path, settings)).solve()


def order(values: list[float]) -> float:
    """Observed order of a sequence under halving."""
    return math.log2(abs(values[-3] - values[-2]) / abs(values[-2] - values[-1]))


@pytest.mark.slow
@pytest.mark.serial
def test_evaluations_do_not_grow_with_the_grid() -> None:
    """Would catch a wrong inner product: each grid would still pass a Taylor test, but finer ones cost more."""
    evaluations = []
    for step, growth in ((0.1, 1.3), (0.05, math.sqrt(1.3))):
        settings = {"depth.T": 20.0, "depth.layer": 4.0, "depth.first_step": step, "depth.growth": growth}
        result = circle(0.02, **settings, **{"optimizer.gradient_tolerance": 1e-6})
        assert result.converged
        evaluations.append(result.summary["optimizer"]["forward_solves"])
    assert max(evaluations) <= 120
    assert evaluations[1] <= 1.2 * evaluations[0]


@pytest.mark.slow
@pytest.mark.serial
def test_optimal_value_converges_with_order_two_in_h() -> None:
    """Would catch a first-order error in space that a forward run may hide: in the drift integrals, say."""
    settings = {"depth.T": 20.0, "depth.first_step": 0.1, "depth.layer": 4.0, "optimizer.gradient_tolerance": 1e-6}
    J = [circle(h, **settings).summary["objective"]["J"] for h in (0.04, 0.02, 0.01)]
    assert order(J) == pytest.approx(2.0, abs=0.15)


@pytest.mark.slow
@pytest.mark.serial
def test_optimal_value_converges_with_order_two_in_depth(tmp_path: Path) -> None:
    """Would catch a first-order error in depth. Measured: 1.54, 1.77, 1.91 from Δt = 0.2 down to 0.0125."""
    J = [uniform(tmp_path, 0.08, steps).summary["objective"]["J"] for steps in (400, 800, 1600)]
    assert order(J) == pytest.approx(2.0, abs=0.15)


@pytest.mark.serial
def test_terminal_rate_of_the_optimum_is_that_of_the_gradient() -> None:
    """Would catch a rate read off in the wrong window, and an optimum that is not the late escape."""
    result = Problem(load_case(ROOT / "cases" / "turnpike_circle.toml")).solve()
    phases = result.summary["phases"]
    assert result.converged
    assert phases["clustered"]
    assert phases["plateau"]
    assert phases["escaped"]
    assert phases["terminal_rate"] == pytest.approx(phases["untrained_gradient_rate"], rel=0.01)
    assert phases["untrained_gradient_rate"] == pytest.approx(0.931, abs=0.002)  # prototype: 0.931 at Δt = 0.05
    assert result.trajectory.diagnostics.angle[-1] == pytest.approx(math.pi / 4, abs=0.02)


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.parametrize("T", [40.0, 80.0, 120.0])
def test_escape_to_the_saddle(T: float) -> None:
    """Would catch a late escape to e₂ that leaves early or stops short; P1 reports a displacement of about 1.55 rad."""
    settings = {"depth.T": T}
    result = Problem(load_case(ROOT / "cases" / "escape_to_saddle.toml", settings)).solve()
    phases = result.summary["phases"]
    assert result.converged
    assert phases["clustered"]
    assert phases["escaped"]
    assert phases["displacement"] == pytest.approx(1.555, abs=0.02)
    assert phases["plateau_width"] == pytest.approx(T - 3.0, abs=0.5)


@pytest.mark.slow
@pytest.mark.serial
def test_the_turnpike(tmp_path: Path) -> None:
    """Would catch a main case that no longer does what README says: three phases, target reached, tolerance met."""
    mpirun = Path(sys.executable).parent / "mpirun"
    command = [str(mpirun), "-n", "2", sys.executable, "-m", "solver.run", "cases/turnpike.toml", "-o"]
    process = subprocess.run([*command, str(tmp_path / "out"), "--strict"], cwd=ROOT, timeout=500, check=False)
    assert process.returncode == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    phases = summary["phases"]
    assert phases["clustered"]
    assert phases["plateau"]
    assert phases["escaped"]
    assert summary["optimizer"]["gradient_norm"] <= 1e-3 * summary["optimizer"]["gradient_norm_initial"]
    assert summary["invariants"]["mass_error"] <= 1e-11
    assert summary["invariants"]["min_density"] >= 0.0
    angle = np.genfromtxt(tmp_path / "out" / "trajectory.csv", delimiter=",", names=True)["angle"][-1]
    assert angle == pytest.approx(math.pi / 4, abs=0.05)
