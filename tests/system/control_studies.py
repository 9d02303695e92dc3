"""Studies of optimal controls (circle, ε = 0.01, λ = (1, 0.65)), for docs/verification.md."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from solver.case import load_case
from solver.problem import Problem
from solver.types import Json

ROOT = Path(__file__).resolve().parents[2]

# P1's public summary (arXiv 2605.07772), particles: T -> plateau, initial and final width.
REPORTED = {40.0: (32.0, 2.67, 5.33), 80.0: (71.2, 2.67, 6.15), 120.0: (109.7, 2.67, 7.62)}


def solve(case: str, **overrides: object) -> Json:
    return Problem(load_case(ROOT / "cases" / case, overrides)).solve().summary


def uniform(h: float, steps: int) -> float:
    """Optimal J for the target at 45°, T = 20, equal steps."""
    text = (ROOT / "cases" / "turnpike_circle.toml").read_text(encoding="utf-8")
    text = text.replace("T = 80.0\nlayer = 8.0\n", f'T = 20.0\ngrid = "uniform"\nsteps = {steps}\n')
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "uniform.toml"
        path.write_text(text, encoding="utf-8")
        case = load_case(path, {"geometry.h": h, "geometry.continuation": [], "optimizer.gradient_tolerance": 1e-6})
        return float(Problem(case).solve().summary["objective"]["J"])


def orders(values: list[float]) -> str:
    steps = np.abs(np.diff(values))
    return ", ".join(f"{value:.2f}" for value in np.log2(steps[:-1] / steps[1:]))


def effort() -> Iterator[list[str]]:
    """Sweeps to relative gradient 1e-6, target at 45°, T = 20."""
    for h in (0.02, 0.01):
        for step, growth in ((0.1, 1.3), (0.05, 1.3**0.5)):
            settings = {"geometry.h": h, "geometry.continuation": [], "optimizer.gradient_tolerance": 1e-6}
            grid = {"depth.T": 20.0, "depth.layer": 4.0, "depth.first_step": step, "depth.growth": growth}
            found = solve("turnpike_circle.toml", **settings, **grid)
            optimizer, objective = found["optimizer"], found["objective"]
            cells = [f"{found['dofs']}", f"{found['steps']}", f"{optimizer['forward_solves']}"]
            yield [*cells, str(optimizer["converged"]), f"{objective['J']:.8f}"]


def convergence_of_the_optimum() -> str:
    in_h = [
        solve(
            "turnpike_circle.toml",
            **{"geometry.h": h, "geometry.continuation": [], "optimizer.gradient_tolerance": 1e-6},
            **{"depth.T": 20.0, "depth.layer": 4.0, "depth.first_step": 0.1},
        )["objective"]["J"]
        for h in (0.08, 0.04, 0.02, 0.01)
    ]
    in_dt = [uniform(0.08, steps) for steps in (100, 200, 400, 800, 1600)]
    return (
        f"Orders of the optimal J, pair by pair: in h (0.08 to 0.01) {orders(in_h)};\n"
        f"in Δt (0.2 to 0.0125, 79 nodes) {orders(in_dt)}."
    )


def rates() -> Iterator[list[str]]:
    """Terminal rate, widths and displacement: target at 45°, then e₂ at two tolerances."""
    yield _row("45°", 1e-4, solve("turnpike_circle.toml"))
    for tolerance in (1e-2, 1e-3):
        for T in REPORTED:
            settings = {"depth.T": T, "optimizer.gradient_tolerance": tolerance}
            yield _row("e₂", tolerance, solve("escape_to_saddle.toml", **settings))


def _row(target: str, tolerance: float, found: Json) -> list[str]:
    phases, optimizer = found["phases"], found["optimizer"]
    T = phases["initial_width"] + phases["plateau_width"] + phases["final_width"]
    widths = [phases["plateau_width"], phases["initial_width"], phases["final_width"]]
    reported = " / ".join(f"{value:g}" for value in REPORTED[round(T)]) if target == "e₂" else "–"
    return [
        target, f"{T:.0f}", f"{tolerance:g}", f"{optimizer['forward_solves']}", f"{found['objective']['J']:.5f}",
        _number(phases["terminal_rate"]), _number(phases["untrained_gradient_rate"]), f"{phases['displacement']:.3f}",
        " / ".join(f"{value:.2f}" for value in widths), reported,
    ]  # fmt: skip


def _number(value: float | None) -> str:
    """Four digits; a dash where no window is left to fit."""
    return "–" if value is None else f"{value:.4f}"
