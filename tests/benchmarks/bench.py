"""Benchmark: ratios measured in one run, so that a noisy machine matters less. `make bench` runs it on one rank."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from solver.case import load_case
from solver.problem import Problem

CASES = Path(__file__).resolve().parents[2] / "cases"


def seconds(work: Callable[[], object], repeat: int = 5) -> float:
    """Median time of a call, after one to warm up."""
    work()
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def problem(h: float, T: float = 80.0) -> Problem:
    return Problem(
        load_case(
            CASES / "turnpike.toml",
            {"geometry.h": h, "geometry.continuation": [], "depth.T": T, "depth.first_step": 0.05, "depth.layer": 4.0},
        )
    )


def control(p: Problem) -> np.ndarray:
    return 0.1 * np.random.default_rng(0).standard_normal(p.control_shape)


def row(name: str, value: float, bound: float, aim: str = "") -> bool:
    ok = value <= bound
    print(f"{name:<58} {value:6.2f}   at most {bound:.2f}{aim}   {'ok' if ok else 'MISSED'}", flush=True)
    return ok


def adjoint_ratio(h: float) -> float:
    p = problem(h)
    W = control(p)
    steps = p.steps(W)
    forward = seconds(lambda: p.steps(W))
    adjoint = seconds(lambda: p.adjoint(steps, W))
    print(f"  {p.space.nodes} nodes, {len(p.dt)} steps: forward {forward:.3f} s, adjoint {adjoint:.3f} s")
    return adjoint / forward


def attention_share(h: float) -> float:
    """Moments and drift, timed where they are called: inside a whole forward sweep."""
    p = problem(h)
    W = control(p)
    spent = [0.0]

    def timed(method: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
        def call(argument: np.ndarray) -> np.ndarray:
            started = time.perf_counter()
            result = method(argument)
            spent[0] += time.perf_counter() - started
            return result

        return call

    p.attention.moments = timed(p.attention.moments)  # type: ignore[method-assign]
    p.attention.drift = timed(p.attention.drift)  # type: ignore[method-assign]
    shares = []
    for _ in range(6):
        spent[0], started = 0.0, time.perf_counter()
        p.steps(W)
        shares.append(spent[0] / (time.perf_counter() - started))
    print(f"  {p.space.nodes} nodes, rank {p.attention.rank}")
    return statistics.median(shares[1:])


def depth_ratio(h: float) -> float:
    times = {}
    for T in (80.0, 320.0):
        p = problem(h, T)
        W = control(p)
        times[T] = seconds(lambda p=p, W=W: p.gradient(W))  # type: ignore[misc]
        print(f"  T = {T:g}: {len(p.dt)} steps, {times[T]:.3f} s a gradient")
    return times[320.0] / times[80.0]


def main() -> int:
    print("one rank; medians; sphere, λ = (1, 0.65, 0.3), ε = 0.02, mprk2, graded grid")
    results = [
        row("adjoint sweep / forward sweep, h = 0.1", adjoint_ratio(0.1), 1.8, " (aim 1.30)"),
        row("adjoint sweep / forward sweep, h = 0.05", adjoint_ratio(0.05), 1.8, " (aim 1.30)"),
        row("share of attention in a step, h = 0.05", attention_share(0.05), 0.25),
        row("gradient at T = 320 / gradient at T = 80, h = 0.1", depth_ratio(0.1), 1.5),
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
