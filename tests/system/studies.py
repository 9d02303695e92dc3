"""Convergence studies against analytic and reference values, shared by the tests here and by `verification.py`.

A study returns numbers; what is good enough is decided by the tests.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import solver  # noqa: F401  (loads the MPI and PETSc libraries in the right order)

from mpi4py import MPI

import numpy as np
import tomli_w
from scipy.special import eval_legendre

from solver.case import Case, load_case
from solver.phases import terminal_rate
from solver.problem import Problem
from solver.theory.stationary import stationary_state

REFERENCE = Path(__file__).parent / "reference"

EIGENVALUES = {"circle": (1.0, 0.65), "sphere": (1.0, 0.65, 0.3)}
START = {"circle": (float(np.cos(0.6)), float(np.sin(0.6))), "sphere": (0.8, 0.4, 0.45)}
CONSTANT_W = {
    "circle": np.array([[0.1, 0.3], [0.5, -0.2]]),
    "sphere": np.array([[0.1, 0.3, -0.2], [0.5, -0.2, 0.1], [0.2, -0.4, 0.3]]),
}
HORIZON = {"circle": 5.0, "sphere": 2.0}


def reference(name: str) -> dict[str, Any]:
    """A file of `reference/`."""
    return json.loads((REFERENCE / f"{name}.json").read_text(encoding="utf-8"))


def circle_h(nodes: int) -> float:
    """Target edge length that gives this many equal cells."""
    return 2 * np.pi / nodes


def make_case(manifold: str, h: float, epsilon: float, T: float, steps: int, **settings: Any) -> Case:
    """A case on a uniform depth grid, read from a file like any user's.

    Args:
        manifold: `circle` or `sphere`.
        h: Target edge length.
        epsilon: ε.
        T: Depth.
        steps: Number of equal depth steps.
        **settings: `section__key=value`, on top.
    """
    raw: dict[str, dict[str, Any]] = {
        "geometry": {"manifold": manifold, "h": float(h)},
        "attention": {"eigenvalues": EIGENVALUES[manifold]},
        "noise": {"epsilon": float(epsilon)},
        "initial": {"mean": START[manifold], "kappa": 3.0},
        "depth": {"T": float(T), "grid": "uniform", "steps": int(steps)},
    }
    for name, value in settings.items():
        section, _, key = name.partition("__")
        raw.setdefault(section, {})[key] = value
    if "matrix" in raw["attention"]:
        del raw["attention"]["eigenvalues"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.toml"
        path.write_text(tomli_w.dumps(raw), encoding="utf-8")
        return load_case(path)


def order(sizes: Sequence[float], errors: Sequence[float]) -> float:
    """Slope of log error against log size, by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(errors), 1)[0])


def extrapolated(coarse: np.ndarray, fine: np.ndarray, power: int = 2) -> np.ndarray:
    """Richardson: the limit of a quantity of this order, from a step and its half."""
    return fine + (fine - coarse) / (2**power - 1)


@dataclasses.dataclass(frozen=True)
class Convergence:
    """Errors of a quantity at falling sizes.

    Attributes:
        label: Of what.
        sizes: h or Δt.
        errors: At these sizes.
        nodes: Of the meshes.
    """

    label: str
    sizes: tuple[float, ...]
    errors: tuple[float, ...]
    nodes: tuple[int, ...] = ()

    @property
    def order(self) -> float:
        """By regression over all sizes."""
        return order(self.sizes, self.errors)

    @property
    def orders(self) -> list[float]:
        """From each size to the next."""
        pairs = zip(self.sizes, self.sizes[1:], self.errors, self.errors[1:], strict=False)
        return [float(np.log(e / f) / np.log(a / b)) for a, b, e, f in pairs]


# --- forward runs ----------------------------------------------------------------------------------------------------


@cache
def reference_table(manifold: str, epsilon: float, control: str) -> tuple[tuple[float, ...], np.ndarray]:
    """Depths, and rows of (energy, mean_1, ..) there."""
    rows = reference(f"{manifold}_forward")[f"eps={epsilon:g} {control}"]
    depths = tuple(float(t) for t in rows)
    return depths, np.array([[row["energy"], *row["mean"]] for row in rows.values()])


def forward_table(
    manifold: str, h: float, epsilon: float, control: str, dt: float, scheme: str = "mprk2", comm: MPI.Comm | None = None
) -> tuple[np.ndarray, Problem]:
    """Rows of (energy, mean_1, ..) at the reference's depths, and the problem they come from. Collective."""
    depths, _ = reference_table(manifold, epsilon, control)
    T = HORIZON[manifold]
    steps = round(T / dt)
    case = make_case(manifold, h, epsilon, T, steps, depth__scheme=scheme)
    problem = Problem(case, comm or MPI.COMM_WORLD)
    W = None if control == "W0" else np.tile(CONSTANT_W[manifold], (steps, 1, 1))
    run = problem.forward(W)
    at = [int(np.argmin(np.abs(run.t - t))) for t in depths]
    assert np.allclose(run.t[at], depths, rtol=0, atol=1e-9)
    return np.column_stack([run.energy[at], run.mean[at]]), problem


def depth_free_table(manifold: str, h: float, epsilon: float, control: str, dt: float) -> tuple[np.ndarray, Problem]:
    """`forward_table` with the depth error extrapolated out (`mprk2`, Δt and Δt/2). Collective."""
    coarse, problem = forward_table(manifold, h, epsilon, control, dt)
    fine, _ = forward_table(manifold, h, epsilon, control, 0.5 * dt)
    return extrapolated(coarse, fine), problem


def split_errors(label: str, sizes: Sequence[float], nodes: Sequence[int], differences: Sequence[np.ndarray]):
    """Largest error over the depths, of the energy and of the mean, as two `Convergence`s."""
    return [
        Convergence(
            f"{label}, {what}", tuple(sizes), tuple(float(np.abs(d[:, columns]).max()) for d in differences), tuple(nodes)
        )
        for what, columns in (("energy", slice(0, 1)), ("mean", slice(1, None)))
    ]


def mesh_convergence(
    manifold: str, epsilon: float, control: str, hs: Sequence[float], dt: float
) -> list[Convergence]:
    """Errors in h against the spectral reference, depth error extrapolated out. Collective."""
    _, exact = reference_table(manifold, epsilon, control)
    results = [depth_free_table(manifold, h, epsilon, control, dt) for h in hs]
    label = f"{manifold}, ε = {epsilon:g}, {control}"
    sizes, nodes = zip(*[(p.space.h, p.space.nodes) for _, p in results], strict=True)
    return split_errors(label, sizes, nodes, [table - exact for table, _ in results])


def depth_convergence(
    manifold: str, epsilon: float, control: str, scheme: str, dts: Sequence[float], h: float, finest: float
) -> list[Convergence]:
    """Errors in Δt against `mprk2` with a much finer Δt on the same mesh. Collective."""
    exact, problem = forward_table(manifold, h, epsilon, control, finest)
    tables = [forward_table(manifold, h, epsilon, control, dt, scheme)[0] for dt in dts]
    label = f"{manifold}, ε = {epsilon:g}, {control}, {scheme}"
    return split_errors(label, dts, [problem.space.nodes] * len(dts), [table - exact for table in tables])


# --- heat flow -------------------------------------------------------------------------------------------------------

HEAT_EPSILON, HEAT_DEPTH = 0.1, 1.0
AXIS = np.array([0.36, 0.48, 0.8])  # no symmetry axis of the mesh


def harmonic(x: np.ndarray, degree: int) -> np.ndarray:
    """cos kθ on the circle (shifted by 0.3 rad), the zonal harmonic P_l(⟨x, AXIS⟩) on the sphere."""
    if x.shape[1] == 2:
        return np.cos(degree * (np.arctan2(x[:, 1], x[:, 0]) - 0.3))
    return eval_legendre(degree, x @ AXIS)


def heat_rate(manifold: str, degree: int) -> float:
    """Eigenvalue of −Δ: k² or l(l+1)."""
    return float(degree**2 if manifold == "circle" else degree * (degree + 1))


def heat_density(problem: Problem, degree: int, t: float) -> np.ndarray:
    """The exact solution from (1 + ½ harmonic)/area, at the local nodes."""
    manifold = problem.case.geometry.manifold
    area = 2 * np.pi if manifold == "circle" else 4 * np.pi
    decay = np.exp(-heat_rate(manifold, degree) * problem.epsilon * t)
    return (1 + 0.5 * decay * harmonic(problem.space.x, degree)) / area


def heat_run(
    manifold: str, h: float, degree: int, steps: int, comm: MPI.Comm | None = None
) -> tuple[np.ndarray, Problem]:
    """Final density under A = 0, W = 0, and the problem. Collective."""
    case = make_case(
        manifold, h, HEAT_EPSILON, HEAT_DEPTH, steps, attention__eigenvalues=[0.0] * len(EIGENVALUES[manifold])
    )
    problem = Problem(case, comm or MPI.COMM_WORLD)
    problem.initial = heat_density(problem, degree, 0.0)[None]
    return problem.steps(None)[-1].after, problem


def heat_error(manifold: str, h: float, degree: int, steps: int) -> tuple[float, float, Problem]:
    """(relative error of the mode's decay rate, relative L² error of the density's perturbation, problem). Collective.

    The depth error is extrapolated out (`steps` and twice as many).
    """
    coarse, problem = heat_run(manifold, h, degree, steps)
    fine, _ = heat_run(manifold, h, degree, 2 * steps)
    mu = extrapolated(coarse, fine)[0]
    space = problem.space
    mode = harmonic(space.x, degree)
    mode = mode - space.integrate(mode) / space.integrate(np.ones_like(mode))
    start, end = (float(space.integrate(mode * density)) for density in (problem.initial[0], mu))
    rate = -np.log(end / start) / (HEAT_EPSILON * HEAT_DEPTH)
    expected = heat_rate(manifold, degree)
    exact = heat_density(problem, degree, HEAT_DEPTH)
    distance = float(np.sqrt(space.integrate((mu - exact) ** 2)))
    size = float(np.sqrt(space.integrate((exact - exact.mean()) ** 2))) if space.comm.size == 1 else _spread(space, exact)
    return abs(rate / expected - 1), distance / size, problem


def _spread(space: Any, f: np.ndarray) -> float:
    one = np.ones_like(f)
    mean = space.integrate(f) / space.integrate(one)
    return float(np.sqrt(space.integrate((f - mean) ** 2)))
