"""No nodes × nodes array anywhere."""

from __future__ import annotations

import tracemalloc

from mpi4py import MPI

import pytest
from conftest import ROOT

from solver.case import load_case
from solver.problem import Problem


@pytest.mark.serial
def test_peak_memory_stays_far_below_a_dense_kernel() -> None:
    """Would catch a dense kernel, or a separable basis whose size grows with the mesh, on the way to a gradient."""
    case = load_case(
        ROOT / "cases" / "turnpike.toml", {"geometry.h": 0.06, "geometry.continuation": [], "depth.T": 0.5}
    )
    tracemalloc.start()
    problem = Problem(case, MPI.COMM_SELF)
    problem.gradient(None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    nodes = problem.space.nodes
    assert nodes > 4000
    assert peak < 0.5 * 8 * nodes**2
