"""Numbers of `solver.theory` for comparison with references and closed forms; thresholds live in the tests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from mpi4py import MPI

import numpy as np
from system.studies import EIGENVALUES, circle_h, make_case, reference

from solver.problem import Problem
from solver.theory.closed_forms import cluster_rate, hilltop_rates, thermal_variance, token_rate
from solver.theory.equilibrium import Equilibrium, equilibrium_near, rayleigh_quotient
from solver.types import FloatArray

CIRCLE = ("E_min", "mean1", "thermal_std", "R_align")
SPHERE = ("E_min", "mean1", "x2sq", "R_align_e2", "R_align_e3")
RATES = 6
HILLTOP = 3


def equilibrium(manifold: str, h: float, epsilon: float, eigenvalues: Sequence[float] | None = None) -> Equilibrium:
    """The state near e₁ of A = diag(eigenvalues). On this rank alone."""
    values = list(eigenvalues or EIGENVALUES[manifold])
    pole = np.eye(len(values))[0]
    start = {"initial__mean": pole.tolist(), "geometry__allow_coarse": True}
    case = make_case(manifold, h, epsilon, 1.0, 1, attention__eigenvalues=values, **start)
    return equilibrium_near(Problem(case, MPI.COMM_SELF), pole)


def align_quotient(state: Equilibrium, k: int) -> float:
    """R_ρ of the align loss with target e_k, k from 0."""
    return rayleigh_quotient(state, -state.problem.space.x[:, k])


def reference_row(manifold: str, epsilon: float) -> dict[str, Any]:
    """A row of `reference/<manifold>_theory.json`."""
    name = "lam2=0.65" if manifold == "circle" else "lam=[1.0, 0.65, 0.3]"
    row: dict[str, Any] = reference(f"{manifold}_theory")[f"{name} eps={epsilon:g}"]
    return row


def theory_reference(manifold: str, epsilon: float) -> FloatArray:
    """What `circle_values` or `sphere_values` should tend to."""
    row = reference_row(manifold, epsilon)
    names = CIRCLE if manifold == "circle" else SPHERE
    rates = row["decay_rates"][1 : RATES + 1] if manifold == "circle" else []  # the first is mass
    return np.array([*(row[name] for name in names), *rates])


@cache
def circle_values(nodes: int, epsilon: float) -> FloatArray:
    """`CIRCLE`, then the slowest `RATES` rates, on a uniform circle."""
    state = equilibrium("circle", circle_h(nodes), epsilon)
    assert state.problem.space.nodes == nodes
    width = np.sqrt(state.thermal_variance(np.eye(2)[1]))
    rates = [mode.rate for mode in state.slow_modes(RATES)]
    return np.array([state.state.energy, state.mean[0], width, align_quotient(state, 1), *rates])


@cache
def collective_rate(nodes: int, epsilon: float) -> float:
    """The slowest rate of the cluster on a uniform circle."""
    return equilibrium("circle", circle_h(nodes), epsilon).cluster_modes(1)[0].rate


@cache
def sphere_values(h: float, epsilon: float) -> tuple[float, FloatArray]:
    """Mean edge length, and `SPHERE`."""
    state = equilibrium("sphere", h, epsilon)
    quotients = [align_quotient(state, k) for k in (1, 2)]
    second = state.second_moment(np.eye(3)[1])
    return state.problem.space.h, np.array([state.state.energy, state.mean[0], second, *quotients])


def from_two_meshes(coarse: tuple[float, FloatArray], fine: tuple[float, FloatArray]) -> FloatArray:
    """Richardson for order 2 with the meshes' own edge lengths."""
    (h, a), (g, b) = coarse, fine
    return b + (b - a) / ((h / g) ** 2 - 1)


def small_noise_values(state: Equilibrium) -> FloatArray:
    """R_ρ towards every e_k, k > 1; the collective rate; thermal variances over ε; the hilltop's rates.

    On the circle the token's rate (frozen potential) comes last.
    """
    d = state.problem.space.dimension
    quotients = [align_quotient(state, k) for k in range(1, d)]
    collective = state.cluster_modes(1)[0].rate
    variances = [state.thermal_variance(axis) / state.problem.epsilon for axis in np.eye(d)[1:]]
    hilltop = [mode.rate for mode in state.slow_modes(HILLTOP + 3) if mode.place == "hilltop"][:HILLTOP]
    token = [state.cluster_modes(1, frozen=True)[0].rate] if d == 2 else []
    return np.array([*quotients, collective, *variances, *hilltop, *token])


def small_noise_limits(eigenvalues: Sequence[float]) -> FloatArray:
    """The closed forms that `small_noise_values` should tend to as ε → 0."""
    first, *others = eigenvalues
    d = len(eigenvalues)
    quotients = [cluster_rate(first, other) for other in others]
    variances = [thermal_variance(first, 1.0)] * (d - 1)
    token = [token_rate(first)] if d == 2 else []
    return np.array([*quotients, quotients[0], *variances, *hilltop_rates(first, d, HILLTOP), *token])


def small_noise(
    manifold: str, eigenvalues: Sequence[float], epsilons: Sequence[float], hs: Sequence[float]
) -> FloatArray:
    """`small_noise_values` at every ε, extrapolated to h → 0 from h and h/2, (len(epsilons), values)."""
    rows = []
    for epsilon, h in zip(epsilons, hs, strict=True):
        states = [equilibrium(manifold, size, epsilon, eigenvalues) for size in (h, h / 2)]
        rows.append(from_two_meshes(*((state.problem.space.h, small_noise_values(state)) for state in states)))
    return np.array(rows)
