"""Check the solver on a case: Taylor and transpose tests, and the invariants of the scheme.

python -m solver.verify CASE [--set section.key=value]...
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mpi4py import MPI

import numpy as np

from solver.arguments import BAD_INPUT, DONE, FAILED, RankParser, fail, read_case, start
from solver.case.load import CaseError
from solver.log import LOG, start_log
from solver.parallel import allreduce
from solver.sweeps import SweepError
from solver.types import FloatArray

if TYPE_CHECKING:
    from solver.problem import Problem

__all__ = ["Check", "checks", "main", "random_control"]

_SEED = 2026
_ROUND_OFF = 1e-12


@dataclass(frozen=True)
class Check:
    """One line of the table.

    Attributes:
        name: What was checked.
        value: What was measured.
        bound: What it must satisfy, in words.
        passed: Whether it does; None where it does not apply.
    """

    name: str
    value: str
    bound: str
    passed: bool | None


def random_control(problem: Problem, size: float, seed: int) -> FloatArray:
    """A random control with ‖W_n‖_F ≈ size at every step, the same on every rank."""
    shape = problem.control_shape
    noise = np.random.default_rng(seed).standard_normal(shape)
    return size * noise / math.sqrt(shape[1] * shape[2])


def checks(problem: Problem) -> list[Check]:
    """All checks on one problem. Collective."""
    found: list[Check] = []
    for check in (_expansion, _transpose, _loss, _taylor, _trained_invariants, _untrained_invariants, _equilibrium):
        found += check(problem)
        LOG.info("checked: %s", found[-1].name)
    return found


def _expansion(problem: Problem) -> list[Check]:
    tolerance = problem.case.attention.tolerance
    error = problem.expansion.error
    return [Check("attention expansion error", f"{error:.1e}", f"≤ {tolerance:.0e}", error <= tolerance)]


def _transpose(problem: Problem) -> list[Check]:
    """⟨Lu, v⟩ = ⟨u, Lᵀv⟩ at a random drift."""
    space, dynamics = problem.space, problem.dynamics
    u, v = (_smooth_field(problem, seed) for seed in (1, 2))
    W = random_control(problem, 1.0, _SEED)[0]
    rates = dynamics.operator.rates(dynamics.drift(dynamics.attention.moments(problem.initial), W))
    Lu, Lv = dynamics.operator.apply(rates, u), dynamics.operator.apply_transpose(rates, v)
    left, right = (float(space.integrate(a / space.mass).sum()) for a in (Lu * v, u * Lv))
    size = math.sqrt(float(space.integrate(Lu**2 / space.mass).sum() * space.integrate(v**2 / space.mass).sum()))
    error = abs(left - right) / size
    return [Check("transpose of L: |⟨Lu,v⟩ − ⟨u,Lᵀv⟩|", f"{error:.1e}", "≤ 1e-12 ‖Lu‖‖v‖", error <= 1e-12)]


def _loss(problem: Problem) -> list[Check]:
    """Order of f(S + sδ) − f(S) − s⟨f′(S), δ⟩: is the derivative of the loss that of its value?

    S are the averages of the untrained tokens, and S + sδ those of a mixture with the initial ones.
    """
    loss, name = problem.loss, "Taylor order of the loss"
    S = problem.averages(problem.steps(None)[-1].after)
    delta = problem.averages(problem.initial) - S
    slope = float(loss.derivative(S) @ delta)
    sizes = np.array([0.1 * 0.5**k for k in range(6)])
    remainders = np.array([abs(loss.value(S + s * delta) - loss.value(S) - s * slope) for s in sizes])
    return [_order(name, sizes, remainders, 1e-14 * max(1.0, abs(loss.value(S))), "it is linear to round-off")]


def _order(name: str, sizes: FloatArray, remainders: FloatArray, round_off: float, otherwise: str) -> Check:
    """Whether remainders fall like the square of the sizes, those above round-off."""
    usable = remainders > round_off
    if np.count_nonzero(usable) < 2:
        return Check(name, "–", otherwise, None)
    order = float(np.polyfit(np.log(sizes[usable]), np.log(remainders[usable]), 1)[0])
    return Check(name, f"{order:.3f}", "in [1.95, 2.05]", 1.95 <= order <= 2.05)


def _taylor(problem: Problem) -> list[Check]:
    """Order of the remainder J(W + sδ) − J(W) − s⟨g, δ⟩ at a control never evaluated before."""
    if problem.epsilon == 0.0:
        return [Check("Taylor order of the gradient", "–", "needs ε > 0 (upwind has kinks)", None)]
    W, noise = random_control(problem, 0.3, _SEED + 1), random_control(problem, 1.0, _SEED + 2)
    J, gradient = problem.gradient(W)
    # Half along the gradient: in a purely random direction a small error of it could hide below the curvature.
    along = gradient / math.sqrt(problem.squared_norm(gradient))
    delta = along + noise / math.sqrt(problem.squared_norm(noise))
    slope = float(np.sum(problem.dt[:, None, None] * gradient * delta))
    sizes = np.array([1e-3 * 0.25**k for k in range(4)])
    remainders = np.array([abs(problem.gradient(W + s * delta)[0] - J - s * slope) for s in sizes])
    return [_order("Taylor order of the gradient", sizes, remainders, _ROUND_OFF, "J is linear here to round-off")]


def _trained_invariants(problem: Problem) -> list[Check]:
    W = random_control(problem, 1.0, _SEED + 3)
    return _invariants(problem, W, "‖W‖ = 1")


def _untrained_invariants(problem: Problem) -> list[Check]:
    return _invariants(problem, problem.zero_control(), "W = 0")


def _invariants(problem: Problem, W: FloatArray, where: str) -> list[Check]:
    steps = problem.steps(W)
    trajectory = problem.trajectory(steps, W)
    diagnostics = trajectory.diagnostics
    mass = float(np.abs(diagnostics.mass - 1.0).max())
    bound = 1e-11 * max(1.0, _stiffness(problem, W, trajectory.densities[-1]))
    lowest = float((diagnostics.min_density / diagnostics.max_density).min())
    found = [
        Check(f"mass error, {where}", f"{mass:.1e}", f"≤ {bound:.1e}", mass <= bound),
        Check(f"smallest density / largest, {where}", f"{lowest:.1e}", "≥ −1e-13", lowest >= -1e-13),
    ]
    if not W.any():
        found.append(_energy_rise(problem, diagnostics.energy))
    return found


def _energy_rise(problem: Problem, energy: FloatArray) -> Check:
    """With W = 0 the energy never rises, if the scheme is `euler` and the kernel positive semidefinite."""
    name = "largest rise of the energy, W = 0"
    if not problem.attention.has_energy:
        return Check(name, "–", "this attention descends no energy", None)
    rise = float(np.diff(energy).max() / np.abs(energy).max())
    value = f"{max(rise, 0.0):.1e}"
    if problem.attention.signs.min() < 0:
        return Check(name, value, "needs a positive semidefinite kernel", None)
    promised = problem.case.depth.scheme == "euler"
    return Check(name, value, "≤ 1e-11" if promised else "≤ 1e-11 with euler", rise <= 1e-11 if promised else None)


def _stiffness(problem: Problem, W: FloatArray, mu: FloatArray) -> float:
    """max Δt ‖M⁻¹L‖∞-bound at the end of a run: round-off in the mass grows with it. Collective."""
    dynamics, space = problem.dynamics, problem.space
    rates = dynamics.operator.rates(dynamics.drift(dynamics.attention.moments(mu), W[-1]))
    out = space.sum_to_nodes(rates.forward, rates.backward)[:, : space.owned] / space.mass[: space.owned]
    largest = float(allreduce(space.comm, out.max(initial=0.0), MPI.MAX))
    return 2.0 * largest * float(problem.dt.max())


def _equilibrium(problem: Problem) -> list[Check]:
    """The self-consistent Gibbs state must not move in 1000 steps."""
    from solver.theory.stationary import stationary_state

    name, bound = "Gibbs state after 1000 steps", "moves ≤ 1e-9 of its maximum"
    if problem.epsilon == 0.0:
        return [Check(name, "–", "needs ε > 0", None)]
    state = stationary_state(problem.space, problem.attention, problem.label_weights, problem.epsilon, problem.initial)
    if not state.converged:
        return [Check(name, "–", f"no state found (residual {state.residual:.1e})", None)]
    W = np.zeros(problem.control_shape[1:])
    mu = state.mu
    for _ in range(1000):
        mu = problem.scheme.step(problem.dynamics, mu, W, 0.1).after
    local = np.array([np.abs(mu - state.mu).max(initial=0.0), state.mu.max(initial=0.0)])
    moved, largest = allreduce(problem.comm, local, MPI.MAX)
    return [Check(name, f"{moved / largest:.1e}", bound, bool(moved <= 1e-9 * largest))]


def _smooth_field(problem: Problem, seed: int) -> FloatArray:
    """A random combination of low powers of the coordinates, the same for any number of ranks."""
    a, b, c = np.random.default_rng(seed).standard_normal((3, problem.space.dimension))
    x = problem.space.x
    field: FloatArray = (x @ a + (x @ b) ** 2 + np.sin(3 * x @ c))[None]
    return field


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; returns the exit code. Collective."""
    comm = MPI.COMM_WORLD
    start(comm)
    parser = RankParser("python -m solver.verify", "Check gradients, transposes and invariants on a case.")
    parser.add_case()
    options = parser.parse_args(arguments)
    start_log(comm)
    try:
        case = read_case(comm, options.case, options.overrides)
        from solver.problem import Problem

        found = checks(Problem(case, comm))
    except CaseError as error:
        return fail(comm, error.in_file(options.case), BAD_INPUT)
    except SweepError as error:
        return fail(comm, error, FAILED)
    if comm.rank == 0:
        print(table(found))
    return FAILED if any(check.passed is False for check in found) else DONE


def table(found: list[Check]) -> str:
    """The checks as text, a line each."""
    words = {True: "ok", False: "FAILED", None: "not applicable"}
    width = max(len(check.name) for check in found)
    lines = [f"{c.name:<{width}}  {c.value:>9}  {c.bound:<32}  {words[c.passed]}" for c in found]
    failed = sum(check.passed is False for check in found)
    verdict = "all checks passed" if failed == 0 else f"{failed} of {len(found)} checks FAILED"
    return "\n".join([*lines, verdict])


if __name__ == "__main__":
    sys.exit(main())
