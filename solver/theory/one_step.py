"""P1's one step of gradient descent from W = 0, and the lower bound on its energy gap. Collective.

W^{1-GD} = −α g with g the L²(0,T) gradient at W = 0. P1 bounds the gap from below: on a window of depths before T
Δ(μ_t) ≥ Ω α² e^{−2(T−t)R_ρ} − C_R α³. The paper's full text is not available to us: the form of the bound is assumed,
its constants are measured.

Around a stationary ρ the adjoint is φ_t = e^{−(T−t)A} g_loss, A = −HΔ_ρ, g_loss = δloss/δμ̄. A is self-adjoint and
positive in ⟨·,·⟩_{H⁻¹}, so that log ‖φ_t‖²_{H⁻¹} is convex in T − t with slope −2R_ρ at T, R_ρ the Rayleigh quotient of
g_loss: ‖φ_t‖_{H⁻¹} ≥ ‖g_loss‖_{H⁻¹} e^{−(T−t)R_ρ}. W is linear in φ, and μ_t = ρ + α μ¹_t + O(α²) with
Δ = ½ α² ⟨μ¹_t, H μ¹_t⟩ + O(α³).

In truth the untrained flow has not quite arrived at ρ: Δ_t(α) = Δ_t(0) + Δ₁ α + Δ₂ α² + …. The gap is taken as it is,
and the window keeps to depths where Δ_t(0) and Δ₁ are small. Δ₂(t) is read from the polynomial in α through α = 0 and
all α, and

    Ω = min Δ₂(t) e^{2(T−t)R_ρ},    C_R = max |Δ_t(α) − Δ_t(0) − α² Δ₂(t)|/α³,

over the window, C_R also over all α. As Δ_t(0) ≥ 0 the bound with these constants is true there by construction; what
is measured is their size, and from which depth on the bound says more than Δ ≥ 0.

**Window.** Depths of one stretch where (1) at the smallest α, from there to T, Δ_t(α) ≥ 10 Δ_t(0), Δ_t(α) is above
round-off, and |Δ₁| α ≤ Δ₂ α²/10; (2) steps are at most four times the last one (longer ones distort rates); (3) the
local exponent, the slope of log Δ₂ between neighbouring depths, is within 5 % of its median over what passes (1) and
(2): near T faster modes may show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from solver.phases import COARSEST_FITTED_STEP, weighted_median
from solver.theory.energy import energy_gap
from solver.theory.equilibrium import Equilibrium, TheoryError, rayleigh_quotient
from solver.types import FloatArray, Json

if TYPE_CHECKING:
    from solver.problem import Problem

__all__ = ["OneStep", "Window", "default_alphas", "one_step", "read_off"]

DISPLACEMENT = 0.1  # rad: α ∫‖g_t‖ dt at the largest default α, a bound on how far tokens are carried for |σ| ≤ 1
HALVINGS = 3  # default α: 1, ½, ¼, ⅛ of the largest
UNTRAINED_SHARE = 0.1  # Δ_t(0) may be this much of Δ_t(α), and Δ₁α of Δ₂α²
EXPONENT_SPREAD = 0.05
ROUND_OFF = 1e-14  # of Δ, computed from log(μ/ρ)
_FEWEST = 5  # depths in a window


@dataclass(frozen=True)
class Window:
    """Depths on which the response is exponential, and what was measured there.

    Attributes:
        start: First depth.
        end: Last depth.
        exponent: Slope of log Δ₂ against −(T − t); to compare with 2R_ρ.
        exponents: The same of log Δ_t(α) for every α, (alphas,).
        powers: Smallest and largest slope of log Δ_t(α) against log α over the window; to compare with 2.
        Omega: Ω.
        Omega_end: Δ₂ e^{2(T−t)R_ρ} at the end of the window, its largest value if the exponent is below 2R_ρ.
        C_R: Largest |Δ_t(α) − Δ_t(0) − α²Δ₂|/α³.
        linear: Largest |Δ₁|/(α Δ₂) at the smallest α: how far the untrained flow is still from ρ.
        Omegas: Smallest Δ_t(α)/α² e^{2(T−t)R_ρ} over the window for every α, (alphas,): what tends to Ω.
        positive_from: Depth in the window from which on the bound is positive for every α, (alphas,); None if nowhere.
        alpha_everywhere: The bound is positive on the whole window for α below this; None if C_R = 0. (C_R was
            measured at the α that were tried: beyond the largest of them this extrapolates.)
        alpha_somewhere: The same at the end of the window.
    """

    start: float
    end: float
    exponent: float
    exponents: list[float]
    powers: tuple[float, float]
    Omega: float
    Omega_end: float
    C_R: float
    linear: float
    Omegas: list[float]
    positive_from: list[float | None]
    alpha_everywhere: float | None
    alpha_somewhere: float | None


@dataclass(frozen=True)
class OneStep:
    """1-GD along depth, for several α. The same on every rank.

    Attributes:
        t: Depth grid, (steps + 1,).
        alphas: α, falling, (alphas,).
        gradient_norm: ‖g‖ in L²(0,T).
        rayleigh: R_ρ(g_loss) at the equilibrium.
        untrained: Δ_t(0), (steps + 1,).
        gap: Δ_t(α), (alphas, steps + 1).
        linear: Δ₁(t), (steps + 1,).
        quadratic: Δ₂(t), (steps + 1,).
        round_off: Of Δ.
        window: None, with a reason, where there is none.
        reason: Why there is no window.
    """

    t: FloatArray
    alphas: FloatArray
    gradient_norm: float
    rayleigh: float
    untrained: FloatArray
    gap: FloatArray
    linear: FloatArray
    quadratic: FloatArray
    round_off: float
    window: Window | None
    reason: str | None

    def values(self) -> Json:
        """Everything but the columns along depth, ready for JSON."""
        window = None
        if self.window is not None:
            window = {**vars(self.window), "powers": list(self.window.powers)}
        return {
            "alphas": self.alphas.tolist(),
            "gradient_norm": self.gradient_norm,
            "rayleigh": self.rayleigh,
            "expected_exponent": 2.0 * self.rayleigh,
            "round_off": self.round_off,
            "window": window,
            "reason": self.reason,
        }


def default_alphas(problem: Problem, gradient: FloatArray) -> FloatArray:
    """1, ½, ¼, ⅛ of the α at which ∫‖αg_t‖_F dt is 0.1.

    Args:
        problem: Its depth steps are used.
        gradient: g, (steps, d, m).

    Raises:
        TheoryError: The gradient is zero.
    """
    size = float(problem.dt @ np.sqrt((gradient**2).sum(axis=(1, 2))))
    if size == 0.0:
        raise TheoryError("the gradient at W = 0 is zero: a step of gradient descent changes nothing")
    return np.array([DISPLACEMENT / size * 0.5**k for k in range(HALVINGS + 1)])


def one_step(problem: Problem, equilibrium: Equilibrium, alphas: Sequence[float] | None = None) -> OneStep:
    """Forward sweeps under −αg for several α, and the constants of the lower bound. Collective.

    Args:
        problem: On the equilibrium's mesh.
        equilibrium: ρ; the well in which the untrained tokens end up.
        alphas: At least three different α > 0; None: see `default_alphas`.

    Raises:
        TheoryError: The gradient is zero, or H is not positive at ρ.
        ValueError: Fewer than three α, or some are not positive.
        SweepError: A linear solve failed.
    """
    _, gradient = problem.gradient(None)
    chosen = default_alphas(problem, gradient) if alphas is None else np.unique(np.asarray(alphas, dtype=float))[::-1]
    if len(chosen) < 3 or not np.all(chosen > 0.0):
        raise ValueError("at least three different step sizes α > 0 are needed")
    untrained = problem.forward(None)
    rayleigh = rayleigh_quotient(equilibrium, problem.first_variation(untrained.densities[-1])[0])
    before = _gaps(problem, equilibrium, untrained.densities)
    sweeps = (problem.forward(-alpha * gradient).densities for alpha in chosen)
    gap = np.array([_gaps(problem, equilibrium, densities) for densities in sweeps])
    norm = float(np.sqrt(problem.squared_norm(gradient)))
    return read_off(problem.t, chosen, before, gap, rayleigh, norm, ROUND_OFF)


def read_off(
    t: FloatArray,
    alphas: FloatArray,
    untrained: FloatArray,
    gap: FloatArray,
    rayleigh: float,
    gradient_norm: float,
    round_off: float,
) -> OneStep:
    """The expansion in α and the window, from gaps that were computed; the arguments are attributes of `OneStep`."""
    linear, quadratic = _coefficients(alphas, gap - untrained)
    step = OneStep(t, alphas, gradient_norm, rayleigh, untrained, gap, linear, quadratic, round_off, None, None)
    window, reason = _window(step)
    return replace(step, window=window, reason=reason)


def _gaps(problem: Problem, equilibrium: Equilibrium, densities: list[FloatArray]) -> FloatArray:
    """Δ along one sweep, (steps + 1,). Collective."""
    log_rho = equilibrium.flow.log_density
    g = np.log(np.maximum(np.concatenate(densities), 1e-320)) - log_rho
    return energy_gap(problem.space, equilibrium.attention, problem.epsilon, log_rho, g)


def _coefficients(alphas: FloatArray, change: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Δ₁ and Δ₂ of the polynomial in α through α = 0 and all α; change Δ(α) − Δ(0), (alphas, steps + 1)."""
    scaled = alphas / alphas[0]
    powers = scaled[:, None] ** np.arange(1, len(alphas) + 1)
    coefficients: FloatArray = np.linalg.solve(powers, change)
    return coefficients[0] / alphas[0], coefficients[1] / alphas[0] ** 2


def _window(step: OneStep) -> tuple[Window | None, str | None]:
    """The window and what is measured on it, or why there is none."""
    t, gap, quadratic = step.t, step.gap, step.quadratic
    dt = np.diff(t)
    arrived = np.abs(step.linear) <= UNTRAINED_SHARE * quadratic * step.alphas[-1]
    above = (gap[-1] * UNTRAINED_SHARE >= step.untrained) & (gap[-1] > step.round_off) & arrived & (quadratic > 0.0)
    fine = np.append(dt, dt[-1]) <= COARSEST_FITTED_STEP * dt[-1]
    first = _run_start(above & fine)
    if len(t) - first < _FEWEST:
        return None, "the untrained flow is nowhere close enough to ρ before T: take depth.T longer or α larger"
    local = np.diff(np.log(quadratic[first:])) / dt[first:]
    middle = 0.5 * (t[first:-1] + t[first + 1 :])
    typical = weighted_median(middle, local, middle[0], middle[-1])
    close = np.abs(local / typical - 1.0) <= EXPONENT_SPREAD
    start, end = _longest_run(close, dt[first:])
    inside = np.arange(first + start, first + end + 1)
    if len(inside) < _FEWEST:
        return None, "nowhere before T is the response exponential to 5 %"
    return _measure(step, inside), None


def _run_start(inside: NDArray[np.bool_]) -> int:
    """First index of the stretch of True that reaches the end; the length where there is none."""
    outside = np.flatnonzero(~inside)
    return int(outside[-1]) + 1 if len(outside) else 0


def _longest_run(inside: NDArray[np.bool_], dt: FloatArray) -> tuple[int, int]:
    """First step of the stretch of True that covers most depth, and the step after its last."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], inside.astype(int), [0]])))
    runs = list(zip(edges[::2], edges[1::2], strict=True))
    start, end = max(runs, key=lambda run: float(dt[run[0] : run[1]].sum()), default=(0, 0))
    return int(start), int(end)


def _measure(step: OneStep, inside: NDArray[np.intp]) -> Window:
    t, alphas, gap, quadratic = step.t[inside], step.alphas, step.gap[:, inside], step.quadratic[inside]
    remainder = np.abs(gap - step.untrained[inside] - alphas[:, None] ** 2 * quadratic)
    decay = np.exp(-2.0 * (step.t[-1] - t) * step.rayleigh)
    exponent, *exponents = (float(np.polyfit(t, np.log(row), 1)[0]) for row in (quadratic, *gap))
    powers = np.polyfit(np.log(alphas), np.log(gap), 1)[0]
    Omega = quadratic / decay
    C_R = float((remainder / alphas[:, None] ** 3).max())
    positive = Omega.min() * decay > C_R * alphas[:, None]
    return Window(
        start=float(t[0]),
        end=float(t[-1]),
        exponent=exponent,
        exponents=exponents,
        powers=(float(powers.min()), float(powers.max())),
        Omega=float(Omega.min()),
        Omega_end=float(Omega[-1]),
        C_R=C_R,
        linear=float((np.abs(step.linear[inside]) / (alphas[-1] * quadratic)).max()),
        Omegas=[float(value) for value in (gap / (alphas[:, None] ** 2 * decay)).min(axis=1)],
        positive_from=[float(t[row.argmax()]) if row.any() else None for row in positive],
        alpha_everywhere=float(Omega.min() * decay[0] / C_R) if C_R > 0.0 else None,
        alpha_somewhere=float(Omega.min() * decay[-1] / C_R) if C_R > 0.0 else None,
    )
