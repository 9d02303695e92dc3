"""All quantities of docs/theory.md on one mesh, by name, and their closed forms where there are any."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from solver.log import LOG
from solver.problem import Problem
from solver.theory import closed_forms as closed
from solver.theory.barrier import Barrier, find_barrier
from solver.theory.equilibrium import (
    Equilibrium,
    TheoryError,
    equilibrium_from,
    equilibrium_near,
    rayleigh_quotient,
)
from solver.theory.spectrum import Mode, SpectrumError, slow_modes
from solver.theory.uniform import UniformStability, uniform_stability
from solver.types import FloatArray

__all__ = ["Measured", "closed_form_values", "measure"]

_DEGREES = 3
_COMPETING_MODES = 8
_SHARP = 0.9  # |∫x dρ| of a state that is one cluster


@dataclass
class Measured:
    """What was measured on one mesh. Undefined quantities are missing, and `reasons` says why.

    Attributes:
        problem: Mesh, attention, loss.
        eigenvalues: λ₁ ≥ λ₂ ≥ …, (d,).
        axes: e₁, e₂, …, as columns (d, d); e₁ points to the side the case's tokens fall to.
        values: By name.
        reasons: Why something is missing, by name.
        states: Stationary states: `near`, `opposite` (±e₁) and `start` (from the case's initial law).
        modes: Slowest modes of −HΔ_ρ around `near`.
        barrier: Between `near` and `opposite`.
        uniform: For isotropic A.
    """

    problem: Problem
    eigenvalues: FloatArray
    axes: FloatArray
    values: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    states: dict[str, Equilibrium] = field(default_factory=dict)
    modes: list[Mode] = field(default_factory=list)
    barrier: Barrier | None = None
    uniform: UniformStability | None = None


def measure(problem: Problem, mode_count: int = 8) -> Measured:
    """Compute everything that exists for this case on this mesh. Collective.

    Args:
        problem: The PDE's problem, one label.
        mode_count: Number of slow modes.
    """
    eigenvalues, axes = closed.principal_axes(problem.case.matrix)
    found = Measured(problem, eigenvalues, axes)
    if problem.epsilon == 0.0:
        found.reasons["all"] = "ε = 0: stationary states are Diracs, −HΔ_ρ has no density to live on"
        energy = problem.minimum_energy(problem.initial)
        if energy is not None:
            found.values["minimum_energy"] = energy
        return found
    _attempt(found, "start", _start)
    _attempt(found, "clusters", _clusters)
    _attempt(found, "cluster", _cluster)
    if not problem.attention.has_energy:
        found.reasons["energy"] = (
            "softmax attention descends no free energy: E_min, Δ, H, R_ρ, c_PL, the barrier are undefined"
        )
        _attempt(found, "modes", lambda found: _modes(found, mode_count))
        return found
    found.values = (
        {"minimum_energy": found.states["near"].state.energy, **found.values} if "near" in found.states else {}
    )
    for name, part in (
        ("modes", lambda found: _modes(found, mode_count)),
        ("R_rho", _rayleigh),
        ("barrier", _barrier),
        ("antipodal", _antipodal),
        ("uniform", _uniform),
    ):
        LOG.info("theory on %d nodes: %s", problem.space.nodes, name)
        _attempt(found, name, part)
    return found


def _attempt(found: Measured, name: str, part: Callable[[Measured], None]) -> None:
    try:
        part(found)
    except (TheoryError, SpectrumError) as error:
        found.reasons[name] = str(error)


def _start(found: Measured) -> None:
    problem, pole = found.problem, found.axes[:, 0]
    found.states["start"] = equilibrium_from(problem, problem.initial)
    if float(found.states["start"].mean @ pole) < -1e-9:
        found.axes[:, 0] = -pole


def _clusters(found: Measured) -> None:
    pole = found.axes[:, 0]
    found.states["near"] = equilibrium_near(found.problem, pole)
    found.states["opposite"] = equilibrium_near(found.problem, -pole)


def _cluster(found: Measured) -> None:
    near = _near(found)
    found.values["first_moment"] = float(near.mean @ near.pole)
    for k, axis in _across(found):
        found.values[f"thermal_variance_{k}"] = near.thermal_variance(axis)
    width, h = math.sqrt(found.values["thermal_variance_2"]), found.problem.space.h
    expected = math.sqrt(_expected_variance(found))
    if min(width, expected) < h:
        LOG.warning(
            "the cluster is %.2g rad wide (ε → 0: %.2g) and the mesh's edges measure %.2g: refine to trust the rates",
            width, expected, h,
        )  # fmt: skip


def _expected_variance(found: Measured) -> float:
    """The small-ε thermal variance; that of a uniform law where the cluster is not held."""
    first, case = float(found.eigenvalues[0]), found.problem.case
    if first <= 0.0 or case.attention.kernel != "exponential":
        return 1.0
    return (
        case.noise.epsilon / first if case.attention.normalized else closed.thermal_variance(first, case.noise.epsilon)
    )


def _near(found: Measured) -> Equilibrium:
    if "near" not in found.states:
        raise TheoryError("there is no stationary state to start from")
    return found.states["near"]


def _across(found: Measured) -> list[tuple[int, FloatArray]]:
    """(k, e_k) for k = 2, …, d."""
    return [(k + 1, found.axes[:, k]) for k in range(1, len(found.eigenvalues))]


def _modes(found: Measured, count: int) -> None:
    near = _near(found)
    found.modes = near.slow_modes(count)
    cluster = near.cluster_modes(len(found.eigenvalues) - 1)
    token = near.cluster_modes(1, frozen=True)
    hilltop = [mode for mode in found.modes if mode.place == "hilltop"]
    slowest = min([*found.modes, *cluster], key=lambda mode: mode.rate)
    found.values["slowest_rate"] = slowest.rate
    if found.problem.attention.has_energy:
        found.values["c_PL"] = 2.0 * slowest.rate
    for name, modes in (("cluster_rate", cluster), ("hilltop_rate", hilltop)):
        found.values |= {f"{name}_{k + 1}": mode.rate for k, mode in enumerate(modes)}
    resultant = float(np.linalg.norm(near.mean))
    if resultant < _SHARP:
        found.reasons["token_rate"] = f"no token relaxes to a cluster where there is none: |∫x dρ| = {resultant:.3g}"
    elif token:
        found.values["token_rate"] = token[0].rate
    if slowest.rate < 0.0:
        raise TheoryError("the state near e₁ is unstable: c_PL < 0 is no PL constant")


def _rayleigh(found: Measured) -> None:
    near = _near(found)
    found.values["R_rho"] = rayleigh_quotient(near, found.problem.first_variation(near.state.mu)[0])


def _barrier(found: Measured) -> None:
    near = _near(found)
    found.barrier = find_barrier(near, found.states["opposite"], found.axes[:, 1])
    found.values["barrier"] = 0.0 if _turns_freely(found) else found.barrier.lowest.height
    found.values |= {f"barrier_{name}": path.height for name, path in found.barrier.paths.items()}


def _antipodal(found: Measured) -> None:
    if found.barrier is None or "split" not in found.barrier.paths:
        raise TheoryError("there is no state of two equal clusters")
    saddle = found.barrier.paths["split"].saddle
    for k, axis in _across(found):
        found.values[f"antipodal_rate_{k}"] = _turning_rate(found, saddle, k, axis)


def _turns_freely(found: Measured) -> bool:
    """Whether λ₁ = λ₂: the cluster meets no barrier on its way from e₁ to −e₁."""
    first, second = found.eigenvalues[:2]
    return bool(first - second <= 1e-12 * first)


def _turning_rate(found: Measured, saddle: Equilibrium, k: int, axis: FloatArray) -> float:
    """Rate of the mode of two equal clusters in which both move towards the same side, e_k."""
    expected = closed.antipodal_rate(float(found.eigenvalues[0]), float(found.eigenvalues[k - 1]))
    shift = 0.02 * closed.token_rate(float(found.eigenvalues[0])) + 1.5 * max(-expected, 0.0)
    modes = slow_modes(saddle.flow, _COMPETING_MODES, shift, saddle.pole, core=True)
    flow = saddle.flow
    direction = flow.project(flow.q * (flow.space.x[: flow.space.owned] @ axis))
    overlaps = [abs(float(flow.dot(mode.z, direction))) / float(flow.dot(mode.z, mode.z)) ** 0.5 for mode in modes]
    return modes[int(np.argmax(overlaps))].rate


def _uniform(found: Measured) -> None:
    found.uniform = uniform_stability(found.problem, _DEGREES)
    found.values["uniform_threshold"] = found.uniform.threshold
    found.values |= {f"uniform_growth_{k + 1}": rate for k, rate in enumerate(found.uniform.growth)}


def closed_form_values(found: Measured) -> dict[str, float]:
    """The closed forms of what `measure` names: small-ε limits, but for the uniform law, whose are exact."""
    case, problem = found.problem.case, found.problem
    if case.attention.kernel != "exponential":
        return {}
    first, d = float(found.eigenvalues[0]), case.dimension
    others = [float(value) for value in found.eigenvalues[1:]]
    if case.attention.normalized:
        return _softmax_values(found)
    values = {
        "minimum_energy": closed.minimum_energy(first),
        "barrier_rotate": closed.rotating_barrier(first, others[0]),
        "barrier_split": closed.splitting_barrier(first),
    }
    values["barrier"] = min(values["barrier_rotate"], values["barrier_split"])
    if first > 0.0:
        values["first_moment"] = 1.0
        values |= {f"thermal_variance_{k}": closed.thermal_variance(first, problem.epsilon) for k in range(2, d + 1)}
        values["token_rate"] = closed.token_rate(first)
        values |= {f"cluster_rate_{k + 1}": closed.cluster_rate(first, other) for k, other in enumerate(others)}
        hilltop = closed.hilltop_rates(first, d, len(found.modes) or 1)
        values |= {f"hilltop_rate_{k + 1}": rate for k, rate in enumerate(hilltop)}
        values["slowest_rate"] = min(hilltop[0], values["cluster_rate_1"])
        values["c_PL"] = 2.0 * values["slowest_rate"]
        values |= {f"antipodal_rate_{k + 2}": closed.antipodal_rate(first, other) for k, other in enumerate(others)}
    if case.objective.loss == "align":
        towards = np.array(case.target) @ found.axes[:, 1:]
        rate = _align_rate(first, others, towards)
        if rate is not None:
            values["R_rho"] = rate
    if found.uniform is not None:
        values["uniform_threshold"] = found.uniform.threshold_closed_form
        values |= {f"uniform_growth_{k + 1}": rate for k, rate in enumerate(found.uniform.closed_form)}
    return values


def _softmax_values(found: Measured) -> dict[str, float]:
    """Around a cluster at e₁ V = log Z is ⟨x, Ae₁⟩: rates λ₁ − λ_k and, of one token, λ₁; at −e₁ nλ₁, n ≥ d − 1."""
    first, *others = (float(value) for value in found.eigenvalues)
    if first <= 0.0:
        return {}
    d = len(found.eigenvalues)
    values = {"first_moment": 1.0, "token_rate": first, "slowest_rate": min(first - others[0], (d - 1) * first)}
    values |= {f"thermal_variance_{k}": _expected_variance(found) for k in range(2, d + 1)}
    values |= {f"cluster_rate_{k + 1}": first - other for k, other in enumerate(others)}
    hilltop = closed.hilltop_rates(first, d, len(found.modes) or 1)
    scale = math.exp(first)  # λ₁ in place of λ₁e^{−λ₁}
    return values | {f"hilltop_rate_{k + 1}": scale * rate for k, rate in enumerate(hilltop)}


def _align_rate(first: float, others: list[float], towards: FloatArray) -> float | None:
    """R_ρ of `align` as ε → 0: Σ b_k² / Σ b_k²/a_k with a_k = (λ₁ − λ_k)e^{λ₁}, b_k the target's part along e_k."""
    rates = np.array([closed.cluster_rate(first, other) for other in others])
    weights = towards**2
    if weights.sum() < 1e-12 or np.any((rates <= 0.0) & (weights > 1e-12)):
        return None
    used = rates > 0.0
    return float(weights[used].sum() / (weights[used] / rates[used]).sum())
