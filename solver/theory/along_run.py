"""Two inequalities of P1 along a run that was trained: dissipation and the turnpike bound. Pure NumPy.

Dissipation. With D = ∫ |∇δE|² dμ the gap Δ = E − E_min obeys

    dΔ/dt = −D + ∫ ⟨∇δE, P W σ⟩ dμ ≤ −½ D + ½ sup|σ|² ‖W‖²,

and where D ≥ 2aΔ (a = a₁, the slowest rate of −HΔ_ρ, near ρ) this is dΔ/dt ≤ −aΔ + C ‖W‖² with the sufficient constant
C_σ = ½ sup|σ|². W is constant on a step, so the inequality is used as integrated exactly,

    Δ_{n+1} ≤ e^{−aΔt} Δ_n + C ‖W_n‖² (1 − e^{−aΔt})/a.

Turnpike. Δ(t) ≤ C (e^{−at} + e^{−a(T−t)}), above a floor F: the mass left near −e₁, and round-off. What P1's theorem
assumes is known to us from a summary only, so that numbers here neither confirm nor contradict it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from solver.phases import COARSEST_FITTED_STEP, weighted_median
from solver.types import FloatArray

if TYPE_CHECKING:
    from postprocess.load import Run

__all__ = [
    "LATE_ESCAPE",
    "NEITHER",
    "VIA_THE_SADDLE",
    "Constant",
    "Dissipation",
    "EndRate",
    "Independence",
    "RunBound",
    "SaddleGrowth",
    "StepSet",
    "TurnpikeBound",
    "bound_of_run",
    "dissipation_inequality",
    "turnpike_bound",
]

LATE_ESCAPE, VIA_THE_SADDLE, NEITHER = "late escape", "via the saddle", "neither"

ROUND_OFF = 1e-12  # of the largest |E|: round-off of the sums in E, and |E| times the mass lost to linear solves
FAMILY_SHARE = 0.1  # of the saddle's gap: smaller gaps belong to late escape, gaps as near to it to the saddle
FIT_TOP = 0.1  # the fit begins at this share of the gap's maximum at that end ..
FIT_FLOORS = 10.0  # .. and ends at so many floors
RATE_SPREAD, CONSTANT_SPREAD = 0.05, 0.20  # independence of T: (max − min)/mean


@dataclass(frozen=True)
class Constant:
    """The smallest constant over some steps.

    Attributes:
        C: Smallest C ≥ 0 that makes the inequality true on all of them; None, with a reason, where there is none.
        depth: Where the step begins that needs it; None without C, or where C = 0.
        steps: Number of steps looked at.
        reason: Why C is None.
    """

    C: float | None
    depth: float | None
    steps: int
    reason: str | None


@dataclass(frozen=True)
class StepSet:
    """Some steps of a run.

    Attributes:
        count: How many.
        first: Depth at which the first begins; None if there is none.
        last: Depth at which the last begins.
    """

    count: int
    first: float | None
    last: float | None


@dataclass(frozen=True)
class Dissipation:
    """dΔ/dt ≤ −aΔ + C ‖W‖² along a run.

    Attributes:
        rate: a.
        sufficient: C_σ = ½ sup|σ|², enough where D ≥ 2aΔ.
        round_off: Numerators Δ_{n+1} − e^{−aΔt}Δ_n no larger than this say nothing.
        whole: Over the whole run.
        near: Over steps with both ends in Δ ≤ `near_gap`.
        near_gap: The neighbourhood.
        skipped: Number of steps without information.
        impossible: Steps with W = 0 on which Δ falls more slowly than e^{−at}: no C helps.
        large: Steps that need C ≥ `large_ratio` C_σ: the inequality fails in practice.
        large_ratio: See `large`.
    """

    rate: float
    sufficient: float
    round_off: float
    whole: Constant
    near: Constant
    near_gap: float
    skipped: int
    impossible: StepSet
    large: StepSet
    large_ratio: float

    @property
    def holds(self) -> bool:
        """Whether a C of the size of C_σ serves on the whole run."""
        return self.impossible.count == 0 and self.large.count == 0


def dissipation_inequality(
    run: Run, rate: float, sufficient: float, neighbourhood: float, large: float = 100.0
) -> Dissipation:
    """The smallest C of dΔ/dt ≤ −aΔ + C ‖W‖² on a run.

    Args:
        run: A run with an energy.
        rate: a > 0; P1: a₁ of the same mesh.
        sufficient: C_σ > 0, ½ sup|σ|².
        neighbourhood: Largest gap near ρ, for instance 0.1 Δ₀.
        large: Ratio to C_σ beyond which the inequality is said to fail.

    Raises:
        ValueError: The run has no energy gap, or an argument is not positive.
    """
    if min(rate, sufficient, neighbourhood, large) <= 0.0:
        raise ValueError("rate, sufficient constant, neighbourhood and ratio must be positive")
    gap, round_off = _gap(run)
    start, dt = run.t[:-1], np.diff(run.t)
    squared = run.trajectory["control_norm"][:-1] ** 2
    numerator = gap[1:] - np.exp(-rate * dt) * gap[:-1]
    used = np.abs(numerator) > round_off
    needed = np.where(numerator > round_off, numerator, 0.0)
    C = np.zeros_like(dt)
    weight = squared * -np.expm1(-rate * dt) / rate
    np.divide(needed, weight, out=C, where=weight > 0.0)
    impossible = (needed > 0.0) & (weight == 0.0)
    near = (gap[1:] <= neighbourhood) & (gap[:-1] <= neighbourhood)
    return Dissipation(
        rate=rate,
        sufficient=sufficient,
        round_off=round_off,
        whole=_constant(start, C, used, impossible),
        near=_constant(start, C, used & near, impossible),
        near_gap=neighbourhood,
        skipped=int(np.count_nonzero(~used)),
        impossible=_step_set(start, impossible),
        large=_step_set(start, C >= large * sufficient),
        large_ratio=large,
    )


def _constant(start: FloatArray, C: FloatArray, used: NDArray[np.bool_], impossible: NDArray[np.bool_]) -> Constant:
    steps = int(np.count_nonzero(used))
    if steps == 0:
        return Constant(None, None, 0, "no step changes the gap by more than round-off")
    hopeless = int(np.count_nonzero(used & impossible))
    if hopeless:
        return Constant(None, None, steps, f"on {hopeless} steps W = 0 and the gap falls too slowly: no C helps")
    worst = int(np.where(used, C, -1.0).argmax())
    return Constant(float(C[worst]), float(start[worst]) if C[worst] > 0.0 else None, steps, None)


def _step_set(start: FloatArray, chosen: NDArray[np.bool_]) -> StepSet:
    depths = start[chosen]
    if len(depths) == 0:
        return StepSet(0, None, None)
    return StepSet(len(depths), float(depths[0]), float(depths[-1]))


@dataclass(frozen=True)
class EndRate:
    """Rate at which Δ − F falls with the distance from one end of [0, T].

    Attributes:
        rate: Slope of log(Δ − F); None, with a reason, without a window of at least one e-folding.
        start: Depth where the window starts; None without one.
        end: Depth where it ends.
        reason: Why there is no rate.
    """

    rate: float | None
    start: float | None
    end: float | None
    reason: str | None


@dataclass(frozen=True)
class RunBound:
    """The turnpike bound on one run.

    Attributes:
        name: Name of the run's folder.
        T: Depth.
        family: `LATE_ESCAPE`, `VIA_THE_SADDLE` or `NEITHER`.
        F: Median gap over the middle third of depth: the floor, or the gap at which the run waits.
        entrance: From depth 0; no rate where the run waits at the saddle.
        exit: From depth T; likewise.
        a: The smaller rate; where the run waits at the saddle the rate that was given.
        C: Smallest C with Δ − F ≤ C (e^{−at} + e^{−a(T−t)}); where the run waits at the saddle without F.
        depth: Where C is needed.
        reason: Why a and C are None.
    """

    name: str
    T: float
    family: str
    F: float
    entrance: EndRate
    exit: EndRate
    a: float | None
    C: float | None
    depth: float | None
    reason: str | None


def bound_of_run(run: Run, saddle_gap: float | None = None, rate: float | None = None) -> RunBound:
    """Rates, floor and constant of the turnpike bound on one run.

    The family is told by the gap over the middle third of depth. *Late escape*: its median is below 0.1 of the saddle's
    gap. *Via the saddle*: all of it is within 10 % of the saddle's gap. Without that gap: below 0.1 of the largest gap
    of the run; or above that and all of it within 10 % of its own median.

    Rates are slopes of log(Δ − F) over the stretch of [0, T/3] (of [2T/3, T]) that begins where Δ − F falls to 0.1 of
    its maximum there and ends at 10 F, at round-off, or where steps exceed four times the first (the last) one.

    Args:
        run: A run with an energy.
        saddle_gap: E(saddle) − E_min; None if unknown.
        rate: a for runs that wait at the saddle, which have none of their own.

    Raises:
        ValueError: The run has no energy gap.
    """
    gap, round_off = _gap(run)
    t, T = run.t, float(run.t[-1])
    F = weighted_median(t, gap, T / 3, 2 * T / 3)
    family = _family(t, gap, F, saddle_gap)
    if family == VIA_THE_SADDLE:
        none = EndRate(None, None, None, "the run waits at the saddle, where the gap does not decay")
        C, depth = (None, None) if rate is None else _smallest_constant(t, gap, rate, round_off)
        reason = "no rate is given for a run that waits at the saddle" if rate is None else None
        return RunBound(run.directory.name, T, family, F, none, none, rate, C, depth, reason)
    entrance = _end_rate(t, gap - F, F, round_off)
    mirrored = _end_rate(T - t[::-1], gap[::-1] - F, F, round_off)
    away = EndRate(
        mirrored.rate,
        None if mirrored.end is None else T - mirrored.end,
        None if mirrored.start is None else T - mirrored.start,
        mirrored.reason,
    )
    if entrance.rate is None or away.rate is None:
        missing = f"at the start {entrance.reason}" if entrance.rate is None else f"at the end {away.reason}"
        return RunBound(run.directory.name, T, family, F, entrance, away, None, None, None, missing)
    a = min(entrance.rate, away.rate)
    C, depth = _smallest_constant(t, gap - F, a, round_off)
    return RunBound(run.directory.name, T, family, F, entrance, away, a, C, depth, None)


def _gap(run: Run) -> tuple[FloatArray, float]:
    """The gap, (steps + 1,), and its round-off."""
    gap = run.trajectory["energy_gap"]
    if not np.isfinite(gap).all():
        raise ValueError(f"{run.directory.name}: the run has no energy gap")
    return gap, ROUND_OFF * float(np.abs(run.trajectory["energy"]).max())


def _family(t: FloatArray, gap: FloatArray, F: float, saddle_gap: float | None) -> str:
    T = float(t[-1])
    inside = t[(t > T / 3) & (t < 2 * T / 3)]
    middle = np.interp(np.concatenate([[T / 3], inside, [2 * T / 3]]), t, gap)
    level = F if saddle_gap is None else saddle_gap
    if (saddle_gap or float(gap.max())) * FAMILY_SHARE > F:
        return LATE_ESCAPE
    if float(np.abs(middle - level).max()) <= FAMILY_SHARE * level:
        return VIA_THE_SADDLE
    return NEITHER


def _end_rate(s: FloatArray, excess: FloatArray, F: float, round_off: float) -> EndRate:
    """Decay of Δ − F with the distance s from one end, both (steps + 1,), s from 0 to T."""
    third = s <= s[-1] / 3
    steps = np.diff(s)
    fine = np.concatenate([[True], np.cumprod(steps <= COARSEST_FITTED_STEP * steps[0]) > 0]) & third
    highest = int(np.where(third, excess, -np.inf).argmax())
    top, bottom = FIT_TOP * float(excess[highest]), max(FIT_FLOORS * F, round_off)
    below = np.flatnonzero(fine & (excess <= top) & (np.arange(len(s)) >= highest))
    if len(below) == 0:
        return EndRate(None, None, None, f"the gap does not fall to {FIT_TOP:g} of its maximum on fine steps")
    first = int(below[0])
    outside = np.flatnonzero(~(fine[first:] & (excess[first:] >= bottom)))
    last = first + (int(outside[0]) if len(outside) else len(s) - first) - 1
    if last <= first or math.log(excess[first] / excess[last]) < 1.0:
        return EndRate(None, None, None, "the window is shorter than one e-folding")
    window = slice(first, last + 1)
    slope = float(np.polyfit(s[window], np.log(excess[window]), 1)[0])
    return EndRate(-slope, float(s[first]), float(s[last]), None)


def _smallest_constant(t: FloatArray, excess: FloatArray, a: float, round_off: float) -> tuple[float, float]:
    """Smallest C with excess ≤ C (e^{−at} + e^{−a(T−t)}) wherever it is above round-off, and the depth that needs it."""
    log_shape = np.logaddexp(-a * t, -a * (t[-1] - t))
    log_excess = np.log(np.where(excess > round_off, excess, 1.0))
    log_C = np.where(excess > round_off, log_excess - log_shape, -np.inf)
    worst = int(log_C.argmax())
    return float(np.exp(log_C[worst])), float(t[worst])


@dataclass(frozen=True)
class Independence:
    """Whether a and C depend on T, over the runs of one family.

    Attributes:
        runs: Number of runs with a and C.
        rate_spread: (max − min)/mean of a.
        constant_spread: The same of C.
        rate_threshold: Spreads of a up to this count as independence.
        constant_threshold: The same of C.
        independent: Both are; None, with a reason, with fewer than two depths.
        reason: Why there is no verdict.
    """

    runs: int
    rate_spread: float | None
    constant_spread: float | None
    rate_threshold: float
    constant_threshold: float
    independent: bool | None
    reason: str | None


@dataclass(frozen=True)
class SaddleGrowth:
    """How C grows with T where runs wait at the saddle: a gap that stays makes it grow like e^{aT/2}.

    Attributes:
        growth: Slope of log C against T; None, with a reason, with fewer than two depths or no a.
        expected: a/2.
        reason: Why there is no slope.
    """

    growth: float | None
    expected: float | None
    reason: str | None


@dataclass(frozen=True)
class TurnpikeBound:
    """The turnpike bound on several runs that differ in T.

    Attributes:
        runs: One each, by family and T.
        late: Independence of T among runs of late escape.
        saddle: Growth of C among runs that wait at the saddle.
        reference: Runs at the saddle use this a: the one given, or the mean of the others; None if there is none.
        remark: What these numbers can say about P1's theorem.
    """

    runs: list[RunBound]
    late: Independence
    saddle: SaddleGrowth
    reference: float | None
    remark: str = (
        "The hypotheses of P1's theorem are known from a summary only: these numbers neither confirm nor contradict it."
    )


def turnpike_bound(runs: Sequence[Run], saddle_gap: float | None = None, rate: float | None = None) -> TurnpikeBound:
    """a, C and F of every run, and whether they depend on T.

    Args:
        runs: Of one case, differing in T.
        saddle_gap: E(saddle) − E_min; None if unknown.
        rate: a for runs that wait at the saddle; None: the mean a of the others.

    Raises:
        ValueError: A run has no energy gap.
    """
    bounds = [bound_of_run(run, saddle_gap) for run in runs]
    late = [bound for bound in bounds if bound.family == LATE_ESCAPE]
    rates = [bound.a for bound in late if bound.a is not None]
    reference = rate if rate is not None or not rates else float(np.mean(rates))
    bounds = [
        bound_of_run(run, saddle_gap, reference) if bound.family == VIA_THE_SADDLE else bound
        for run, bound in zip(runs, bounds, strict=True)
    ]
    bounds.sort(key=lambda bound: (bound.family, bound.T))
    waiting = [bound for bound in bounds if bound.family == VIA_THE_SADDLE]
    return TurnpikeBound(bounds, _independence(late), _saddle_growth(waiting, reference), reference)


def _independence(bounds: list[RunBound]) -> Independence:
    pairs = [(bound.a, bound.C, bound.T) for bound in bounds if bound.a is not None and bound.C is not None]
    if len({T for _, _, T in pairs}) < 2:
        reason = "two depths at least are needed"
        return Independence(len(pairs), None, None, RATE_SPREAD, CONSTANT_SPREAD, None, reason)
    spreads = [float(np.ptp(values) / np.mean(values)) for values in np.array(pairs).T[:2]]
    independent = spreads[0] <= RATE_SPREAD and spreads[1] <= CONSTANT_SPREAD
    return Independence(len(pairs), *spreads, RATE_SPREAD, CONSTANT_SPREAD, independent, None)


def _saddle_growth(bounds: list[RunBound], rate: float | None) -> SaddleGrowth:
    if rate is None:
        return SaddleGrowth(None, None, "no rate is given, and no run of late escape has one")
    pairs = [(bound.T, math.log(bound.C)) for bound in bounds if bound.C is not None]
    if len({T for T, _ in pairs}) < 2:
        return SaddleGrowth(None, 0.5 * rate, "two depths at least are needed")
    return SaddleGrowth(float(np.polyfit(*np.array(pairs).T, 1)[0]), 0.5 * rate, None)
