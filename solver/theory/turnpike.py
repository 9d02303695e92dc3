"""The turnpike bound Δ(t) ≤ C (e^{−at} + e^{−a(T−t)}) on runs that were trained. Pure NumPy.

It is read above a floor F: what is left of the mass near −e₁ at mid-depth, and round-off. C is sought where the grid
resolves a, aΔt ≤ 0.25; on the long steps in the middle of a graded grid the scheme decays too slowly. What P1's theorem
assumes is known to us from a summary only, so that numbers here neither confirm nor contradict it.

There are two families of optima. On *late escape* Δ falls to F and rises at the end. A run *via the saddle* waits where
Δ is the saddle's gap: no C serves for all T, the smallest grows like e^{aT/2}.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from solver.phases import COARSEST_FITTED_STEP, weighted_median
from solver.theory.along_run import energy_gap_along
from solver.types import FloatArray

if TYPE_CHECKING:
    from postprocess.load import Run

__all__ = [
    "LATE_ESCAPE",
    "NEITHER",
    "VIA_THE_SADDLE",
    "EndRate",
    "Independence",
    "RunBound",
    "SaddleGrowth",
    "TurnpikeBound",
    "bound_of_run",
    "turnpike_bound",
]

LATE_ESCAPE, VIA_THE_SADDLE, NEITHER = "late escape", "via the saddle", "neither"

FAMILY_SHARE = 0.1  # of the saddle's gap: smaller gaps belong to late escape, gaps as near to it to the saddle
FIT_TOP = 0.1  # the window of a rate begins at this share of the gap's maximum at that end ..
FIT_FLOORS = 10.0  # .. and ends at so many floors
FIT_FOLDINGS = 2.0  # e-foldings at the far end of the window that the rate is read from
RESOLVED = 0.25  # a·Δt up to which the grid resolves a decay at rate a (1 % of the rate)
RATE_SPREAD, CONSTANT_SPREAD = 0.05, 0.20  # independence of T: (max − min)/mean


@dataclass(frozen=True)
class EndRate:
    """Rate at which Δ − F falls with the distance from one end of [0, T].

    Attributes:
        rate: The smaller of the two below; None, with a reason, without a window of at least one e-folding.
        mean_rate: Slope of log(Δ − F) over the whole window.
        far_rate: The same over the two e-foldings of the window farthest from the end (all of it, if it is shorter).
            Where Δ is a sum of exponentials log(Δ − F) is convex, and a bound with `mean_rate` fails farther inside.
        start: Depth where the window starts; None without one.
        end: Depth where it ends.
        reason: Why there is no rate.
    """

    rate: float | None
    mean_rate: float | None
    far_rate: float | None
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
        C: Smallest C with Δ − F ≤ C (e^{−at} + e^{−a(T−t)}) where the grid resolves a; where the run waits at the
            saddle, smallest C with Δ ≤ C (…) at every depth.
        depth: Where C is needed.
        unresolved: Depths between which C was not sought, (2,); None if there are none.
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
    unresolved: tuple[float, float] | None
    reason: str | None


def bound_of_run(run: Run, saddle_gap: float | None = None, rate: float | None = None) -> RunBound:
    """Rates, floor and constant of the turnpike bound on one run.

    The family is told by the gap over the middle third of depth. *Late escape*: its median is below 0.1 of the saddle's
    gap. *Via the saddle*: all of it is within 10 % of the saddle's gap. Without that gap: below 0.1 of the largest gap
    of the run; or above that and all of it within 10 % of its own median.

    The window of a rate is the stretch of [0, T/3] (of [2T/3, T]) that begins where Δ − F falls to 0.1 of its maximum
    there and ends at 10 F, at round-off, or where steps exceed four times the first (the last) one.

    Args:
        run: A run with an energy.
        saddle_gap: E(saddle) − E_min; None if unknown.
        rate: a for runs that wait at the saddle, which have none of their own.

    Raises:
        ValueError: The run has no energy gap.
    """
    gap, round_off = energy_gap_along(run)
    t, T = run.t, float(run.t[-1])
    F = weighted_median(t, gap, T / 3, 2 * T / 3)
    family = _family(t, gap, F, saddle_gap)
    if family == VIA_THE_SADDLE:
        none = _no_rate("the run waits at the saddle, where the gap does not decay")
        C, depth = (None, None) if rate is None else _smallest_constant(t, gap, rate, gap > round_off)
        reason = "no rate is given for a run that waits at the saddle" if rate is None else None
        return RunBound(run.directory.name, T, family, F, none, none, rate, C, depth, None, reason)
    entrance = _end_rate(t, gap - F, F, round_off)
    mirrored = _end_rate(T - t[::-1], gap[::-1] - F, F, round_off)
    away = EndRate(
        mirrored.rate,
        mirrored.mean_rate,
        mirrored.far_rate,
        None if mirrored.end is None else T - mirrored.end,
        None if mirrored.start is None else T - mirrored.start,
        mirrored.reason,
    )
    if entrance.rate is None or away.rate is None:
        missing = f"at the start {entrance.reason}" if entrance.rate is None else f"at the end {away.reason}"
        return RunBound(run.directory.name, T, family, F, entrance, away, None, None, None, None, missing)
    a = min(entrance.rate, away.rate)
    fine = a * np.diff(t) <= RESOLVED
    resolved = np.append(True, np.cumprod(fine) > 0) | np.append(np.cumprod(fine[::-1])[::-1] > 0, True)
    C, depth = _smallest_constant(t, gap - F, a, resolved & (gap - F > round_off))
    gaps = np.flatnonzero(~resolved)
    unresolved = (float(t[gaps[0] - 1]), float(t[gaps[-1] + 1])) if len(gaps) else None
    return RunBound(run.directory.name, T, family, F, entrance, away, a, C, depth, unresolved, None)


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
        return _no_rate(f"the gap does not fall to {FIT_TOP:g} of its maximum on fine steps")
    first = int(below[0])
    outside = np.flatnonzero(~(fine[first:] & (excess[first:] >= bottom)))
    last = first + (int(outside[0]) if len(outside) else len(s) - first) - 1
    if last <= first or math.log(excess[first] / excess[last]) < 1.0:
        return _no_rate("the window is shorter than one e-folding")
    window = np.arange(first, last + 1)
    logarithm = np.log(excess[window])
    far = logarithm <= logarithm[-1] + FIT_FOLDINGS
    mean_rate = -float(np.polyfit(s[window], logarithm, 1)[0])
    far_rate = -float(np.polyfit(s[window[far]], logarithm[far], 1)[0])
    return EndRate(min(mean_rate, far_rate), mean_rate, far_rate, float(s[first]), float(s[last]), None)


def _no_rate(reason: str) -> EndRate:
    return EndRate(None, None, None, None, None, reason)


def _smallest_constant(
    t: FloatArray, excess: FloatArray, a: float, where: NDArray[np.bool_]
) -> tuple[float | None, float | None]:
    """Smallest C with excess ≤ C (e^{−at} + e^{−a(T−t)}) where `where` holds, and the depth that needs it."""
    if not where.any():
        return None, None
    log_shape = np.logaddexp(-a * t, -a * (t[-1] - t))
    log_C = np.where(where, np.log(np.where(where, excess, 1.0)) - log_shape, -np.inf)
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
    a, C, _ = np.array(pairs).T
    spread_a, spread_C = float(np.ptp(a) / a.mean()), float(np.ptp(C) / C.mean())
    independent = spread_a <= RATE_SPREAD and spread_C <= CONSTANT_SPREAD
    return Independence(len(pairs), spread_a, spread_C, RATE_SPREAD, CONSTANT_SPREAD, independent, None)


def _saddle_growth(bounds: list[RunBound], rate: float | None) -> SaddleGrowth:
    if rate is None:
        return SaddleGrowth(None, None, "no rate is given, and no run of late escape has one")
    T = [bound.T for bound in bounds if bound.C is not None]
    if len(set(T)) < 2:
        return SaddleGrowth(None, 0.5 * rate, "two depths at least are needed")
    log_C = [math.log(bound.C) for bound in bounds if bound.C is not None]
    return SaddleGrowth(float(np.polyfit(T, log_C, 1)[0]), 0.5 * rate, None)
