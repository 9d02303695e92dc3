"""Benchmark of labels in the PDE: time and memory against their number; ranks that share labels or nodes.

python tests/benchmarks/labels.py

Every row is a run of its own, so that its memory is its own: J and gradient on the sphere, 2 k nodes, rotary labels.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
COUNTS = (8, 16, 32, 64, 128)
CASE = {
    "geometry.h": 0.088,
    "geometry.continuation": [],
    "auxiliary.kernel": "rope",
    "auxiliary.start": "u",
    "depth.T": 10.0,
    "particles.n": 128,
}


def measure(count: int, by_nodes: bool) -> None:
    """One gradient after one to warm up; rank 0 prints what it took. Collective."""
    from mpi4py import MPI

    from solver.case import load_case
    from solver.linear import ImplicitSolver
    from solver.problem import Problem

    comm = MPI.COMM_WORLD
    problem = Problem(load_case(ROOT / "cases" / "turnpike.toml", {**CASE, "auxiliary.labels": count}), comm)
    if by_nodes:
        object.__setattr__(problem.dynamics, "solver", ImplicitSolver(problem.space, problem.case.petsc))
    problem.gradient(None)
    problem.counts.forward_seconds = problem.counts.adjoint_seconds = 0.0
    problem.gradient(None)
    memory = comm.reduce(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0)
    if comm.rank == 0:
        counts = problem.counts
        found = {"nodes": problem.space.nodes, "steps": len(problem.dt), "terms": problem.attention.rank}
        print(json.dumps({**found, "forward": counts.forward_seconds, "adjoint": counts.adjoint_seconds,
                          "memory": memory}))  # fmt: skip


def run(count: int, ranks: int, share: str = "labels") -> dict[str, Any]:
    words = [sys.executable, __file__, str(count), share]
    if ranks > 1:
        words = [str(Path(sys.executable).parent / "mpirun"), "-n", str(ranks), *words]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    rows = {count: run(count, 1) for count in COUNTS}
    one = rows[COUNTS[0]]
    print(f"one rank, {one['nodes']} nodes, {one['steps']} steps, {one['terms']} terms")
    print("labels  forward [s]  adjoint [s]  memory [MiB]  ms a label and step")
    for count, row in rows.items():
        each = 1e3 * (row["forward"] + row["adjoint"]) / count / row["steps"]
        print(f"{count:6d}  {row['forward']:11.2f}  {row['adjoint']:11.2f}  {row['memory']:12.0f}  {each:19.2f}")
    counts = np.array(COUNTS, dtype=float)
    times = np.array([row["forward"] + row["adjoint"] for row in rows.values()])
    memory = np.array([row["memory"] for row in rows.values()])
    exponent = np.polyfit(np.log(counts), np.log(times), 1)[0]
    slope, base = np.polyfit(counts, memory, 1)
    off = np.abs(memory - base - slope * counts).max() / memory.max()
    print(f"time grows like L^{exponent:.2f}; memory {base:.0f} + {slope:.2f} L MiB, within {100 * off:.1f} %")
    for ranks in (2, 3):
        for share in ("labels", "nodes"):
            row = run(64, ranks, share)
            print(f"64 labels, {ranks} ranks that share {share}: {row['forward']:.2f} + {row['adjoint']:.2f} s")
    return 0 if exponent <= 1.15 and off <= 0.05 else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(int(sys.argv[1]), sys.argv[2] == "nodes")
    else:
        sys.exit(main())
