"""Studies of softmax attention, shared by its tests and by `verification.py`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
from system.studies import (
    CONSTANT_W,
    Convergence,
    circle_h,
    cluster_rate,
    logarithmic_rate,
    make_case,
    untrained_gradient,
)

from solver.problem import Problem
from solver.types import FloatArray

EIGENVALUES = (1.0, 0.65)


@cache
def final(manifold: str, h: float, dt: float) -> tuple[FloatArray, float]:
    """Mean and interaction energy at depth 1 under a constant W, and the mean edge length."""
    steps = round(1.0 / dt)
    problem = Problem(make_case(manifold, h, 0.1, 1.0, steps, attention__normalized=True))
    run = problem.forward(np.tile(2.0 * CONSTANT_W[manifold], (steps, 1, 1)))
    return np.append(run.mean[-1], run.diagnostics.interaction_energy[-1]), problem.space.h


def rates() -> Iterator[list[str]]:
    """Rates of the cluster at falling ε: the gradient's, the collective one and the single token's of the same mesh."""
    for epsilon in (0.04, 0.02, 0.01, 0.005):
        t, g = untrained_gradient(600, 0.05, 40.0, epsilon, attention__normalized=True)
        collective, token = (cluster_rate(600, epsilon, EIGENVALUES, True, response) for response in (1.0, 0.0))
        yield [f"{epsilon:g}", f"{logarithmic_rate(t, g, 25.0, 38.0):.4f}", f"{collective:.4f}", f"{token:.4f}"]


def convergence() -> tuple[list[Convergence], list[Convergence]]:
    """Errors in h and in Δt, against a much finer run."""
    in_h, in_dt = [], []
    meshes = {
        "circle": ([circle_h(n) for n in (40, 80, 160, 320)], circle_h(1280)),
        "sphere": ([0.3, 0.2, 0.13], 0.045),
    }
    for manifold, (hs, finest) in meshes.items():
        exact, _ = final(manifold, finest, 0.05)
        runs = [final(manifold, h, 0.05) for h in hs]
        errors = tuple(float(np.abs(values - exact).max()) for values, _ in runs)
        in_h.append(Convergence(f"{manifold}, in h", tuple(size for _, size in runs), errors, (0,)))
        dts = (1 / 10, 1 / 20, 1 / 40, 1 / 80)
        exact, _ = final(manifold, hs[1], 1 / 1280)
        errors = tuple(float(np.abs(final(manifold, hs[1], dt)[0] - exact).max()) for dt in dts)
        in_dt.append(Convergence(f"{manifold}, in Δt", dts, errors, (0,)))
    return in_h, in_dt
