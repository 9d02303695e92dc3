"""Convergence studies against analytic and reference values, shared by the tests here and by `verification.py`.

A study returns numbers; what is good enough is decided by the tests.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from mpi4py import MPI

import numpy as np
import tomli_w
from scipy.special import eval_legendre

from solver.case import Case, load_case
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
        if value is None:
            raw[section].pop(key, None)
        else:
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
    manifold: str,
    h: float,
    epsilon: float,
    control: str,
    dt: float,
    scheme: str = "mprk2",
) -> tuple[np.ndarray, Problem]:
    """Rows of (energy, mean_1, ..) at the reference's depths, and the problem they come from. Collective."""
    depths, _ = reference_table(manifold, epsilon, control)
    T = HORIZON[manifold]
    steps = round(T / dt)
    case = make_case(manifold, h, epsilon, T, steps, depth__scheme=scheme)
    problem = Problem(case)
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


def split_errors(
    label: str, sizes: Sequence[float], nodes: Sequence[int], differences: Sequence[np.ndarray]
) -> list[Convergence]:
    """Largest error over the depths, of the energy and of the mean, as two `Convergence`s."""
    parts = {"energy": slice(0, 1), "mean": slice(1, None)}
    errors = {what: tuple(float(np.abs(d[:, part]).max()) for d in differences) for what, part in parts.items()}
    return [Convergence(f"{label}, {what}", tuple(sizes), values, tuple(nodes)) for what, values in errors.items()]


def mesh_convergence(manifold: str, epsilon: float, control: str, hs: Sequence[float], dt: float) -> list[Convergence]:
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
    exact, nodes = _finest_table(manifold, h, epsilon, control, finest)
    tables = [forward_table(manifold, h, epsilon, control, dt, scheme)[0] for dt in dts]
    label = f"{manifold}, ε = {epsilon:g}, {control}, {scheme}"
    return split_errors(label, dts, [nodes] * len(dts), [table - exact for table in tables])


@cache
def _finest_table(manifold: str, h: float, epsilon: float, control: str, dt: float) -> tuple[np.ndarray, int]:
    """`forward_table` and the number of nodes: one reference for all schemes. Collective."""
    table, problem = forward_table(manifold, h, epsilon, control, dt)
    return table, problem.space.nodes


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


@cache
def _heat_problem(manifold: str, h: float, steps: int) -> Problem:
    attention = [0.0] * len(EIGENVALUES[manifold])
    return Problem(make_case(manifold, h, HEAT_EPSILON, HEAT_DEPTH, steps, attention__eigenvalues=attention))


def heat_run(manifold: str, h: float, degree: int, steps: int) -> tuple[np.ndarray, Problem]:
    """Final density (labels, local nodes) under A = 0, W = 0, and the problem. Collective."""
    problem = _heat_problem(manifold, h, steps)
    problem.initial = heat_density(problem, degree, 0.0)[None]
    return problem.steps(None)[-1].after, problem


def heat_errors(manifold: str, h: float, degree: int, steps: int) -> tuple[float, float, Problem]:
    """Relative error of the mode's decay rate, relative L² error of the mode, and the problem. Collective.

    The depth error is extrapolated out (`steps` and twice as many).
    """
    coarse, problem = heat_run(manifold, h, degree, steps)
    fine, _ = heat_run(manifold, h, degree, 2 * steps)
    mu = extrapolated(coarse, fine)[0]
    space = problem.space
    one = np.ones(len(space.x))
    area = space.integrate(one)
    mode = harmonic(space.x, degree)
    mode = mode - space.integrate(mode) / area
    start, end = (float(space.integrate(mode * density)) for density in (problem.initial[0], mu))
    rate = -np.log(end / start) / (HEAT_EPSILON * HEAT_DEPTH)
    exact = heat_density(problem, degree, HEAT_DEPTH)
    distance = space.integrate((mu - exact) ** 2)
    size = space.integrate((exact - space.integrate(exact) / area) ** 2)
    return abs(float(rate) / heat_rate(manifold, degree) - 1), float(np.sqrt(distance / size)), problem


def heat_convergence(manifold: str, degree: int, hs: Sequence[float], steps: int) -> list[Convergence]:
    """Errors in h of the decay rate and of the density. Collective."""
    results = [heat_errors(manifold, h, degree, steps) for h in hs]
    sizes, nodes = zip(*[(r[2].space.h, r[2].space.nodes) for r in results], strict=True)
    label = f"{manifold}, {'k' if manifold == 'circle' else 'l'} = {degree}"
    return [
        Convergence(f"{label}, rate", sizes, tuple(r[0] for r in results), nodes),
        Convergence(f"{label}, density (L²)", sizes, tuple(r[1] for r in results), nodes),
    ]


# --- stationary states -----------------------------------------------------------------------------------------------


def stationary_values(manifold: str, epsilon: float, h: float) -> tuple[np.ndarray, Problem]:
    """(E_min, first moment along e₁) of the stationary state near e₁, and the problem. Collective."""
    case = make_case(manifold, h, epsilon, 1.0, 1, initial__mean=[1.0, *([0.0] * (len(EIGENVALUES[manifold]) - 1))])
    problem = Problem(case)
    energy = problem.minimum_energy(problem.initial)
    state = stationary_state(problem.space, problem.attention, problem.label_weights, problem.epsilon, problem.initial)
    assert state.energy == energy
    return np.array([energy, float(problem.space.integrate(state.mu[0] * problem.space.x[:, 0]))]), problem


def stationary_reference(manifold: str, epsilon: float) -> np.ndarray:
    """(E_min, first moment) from `reference/`."""
    key = f"lam2=0.65 eps={epsilon:g}" if manifold == "circle" else f"lam=[1.0, 0.65, 0.3] eps={epsilon:g}"
    row = reference(f"{manifold}_theory")[key]
    return np.array([row["E_min"], row["mean1"]])


def stationary_convergence(
    manifold: str, epsilon: float, hs: Sequence[float]
) -> tuple[list[Convergence], list[np.ndarray]]:
    """Errors in h of E_min and of the first moment; and the values. Collective."""
    results = [stationary_values(manifold, epsilon, h) for h in hs]
    exact = stationary_reference(manifold, epsilon)
    sizes, nodes = zip(*[(p.space.h, p.space.nodes) for _, p in results], strict=True)
    values = [value for value, _ in results]
    return [
        Convergence(
            f"{manifold}, ε = {epsilon:g}, {what}", sizes, tuple(abs(float(v[k] - exact[k])) for v in values), nodes
        )
        for k, what in enumerate(("E_min", "first moment"))
    ], values


# --- growth of the gradient at W = 0 ---------------------------------------------------------------------------------


def untrained_gradient(
    nodes: int, dt: float, T: float = 20.0, epsilon: float = 0.01, **settings: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Depth grid and gradient at W = 0, circle, target e₂. On this rank alone."""
    target = {"objective__target": [0.0, 1.0]}
    case = make_case("circle", circle_h(nodes), epsilon, T, round(T / dt), **target, **settings)
    problem = Problem(case, MPI.COMM_SELF)
    return problem.t, problem.gradient(None)[1]


def logarithmic_rate(t: np.ndarray, g: np.ndarray, start: float, end: float) -> float:
    """Slope of log ‖g_t‖ at mid-step depths between `start` and `end`."""
    middle = 0.5 * (t[1:] + t[:-1])
    inside = (middle >= start) & (middle <= end)
    sizes = np.linalg.norm(g.reshape(len(g), -1), axis=1)
    return float(np.polyfit(middle[inside], np.log(sizes[inside]), 1)[0])


def collective_rate(
    nodes: int, epsilon: float = 0.01, eigenvalues: Sequence[float] = (1.0, 0.65), normalized: bool = False
) -> float:
    """The collective mode's rate in the spectrum of the linearised flow on a uniform circle; see `cluster_rate`."""
    return cluster_rate(nodes, epsilon, eigenvalues, normalized, response=1.0)


def cluster_rate(nodes: int, epsilon: float, eigenvalues: Sequence[float], normalized: bool, response: float) -> float:
    """The slowest odd rate of the cluster at e₁ on a uniform circle mesh; shares no code with the solver.

    Dense. With d_ij = V_j − V_i and the scheme's conductances c_ij = w β(−d_ij) ρ_i/ε the linearised flow is
    M δμ′ = −D_cᵀ c D H δμ, H = ε/ρ − K M (softmax: K_ij/Z_i in place of K_ij). In z = δμ √(m/ρ) that is
    z′ = −G Gᵀ Q z, Q = ε − √(mρ) K √(mρ); the nonzero rates are the eigenvalues of Gᵀ Q G, whose entries are ratios of
    densities along edges: nothing underflows.

    Args:
        nodes: Of the mesh.
        epsilon: ε.
        eigenvalues: Of A.
        normalized: Softmax attention.
        response: 1: the potential follows the perturbation (collective rate); 0: it is frozen (single-token rate).
    """
    theta = 2 * np.pi * np.arange(nodes) / nodes
    x = np.column_stack([np.cos(theta), np.sin(theta)])
    chord = 2 * np.sin(np.pi / nodes)
    kernel = np.exp((x * np.array(eigenvalues)) @ x.T)

    def potential(density: np.ndarray) -> np.ndarray:
        field = kernel @ (chord * density)
        return np.log(field) if normalized else field

    rho = np.exp(3.0 * x[:, 0])
    for _ in range(10_000):
        previous = rho = rho / (chord * rho.sum())
        V = potential(rho)
        rho = np.exp((V - V.max()) / epsilon)
        if np.abs(rho / (chord * rho.sum()) - previous).max() < 1e-13:
            break
    rho /= chord * rho.sum()
    V = potential(rho)
    i = np.arange(nodes)
    j = (i + 1) % nodes
    d = V[j] - V[i]

    def beta(s: np.ndarray) -> np.ndarray:
        safe = np.where(np.abs(s) < 1e-12, 1.0, s)
        return np.where(np.abs(s) < 1e-12, epsilon, safe / np.expm1(safe / epsilon))

    G = np.zeros((nodes, nodes))  # nodes × edges
    G[i, i] = np.sqrt(beta(-d) / (epsilon * chord**2))
    G[j, i] = -np.sqrt(beta(d) / (epsilon * chord**2))
    root = np.sqrt(chord * rho)
    variation = kernel / (kernel @ (chord * rho))[:, None] if normalized else kernel
    Q = epsilon * np.eye(nodes) - response * root[:, None] * variation * root
    flow = G.T @ Q @ G
    rates, y = np.linalg.eig(flow) if normalized else np.linalg.eigh(flow)
    assert np.abs(np.imag(rates)).max() < 1e-8
    modes, rates = np.real(G @ y), np.real(rates)
    mirrored = modes[(-i) % nodes]
    norms = (modes**2).sum(axis=0)
    odd = (modes * mirrored).sum(axis=0) < -0.9 * norms
    at_cluster = (modes[x[:, 0] > 0] ** 2).sum(axis=0) > 0.5 * norms
    return float(rates[odd & at_cluster & (rates > 1e-8)].min())
