"""The dissipation inequality along a run that was trained. Pure NumPy.

With D = ∫ |∇δE|² dμ the gap Δ = E − E_min obeys (P1)

    dΔ/dt = −D + ∫ ⟨∇δE, P W σ⟩ dμ ≤ −½ D + ½ sup|σ|² ‖W‖²,

and where D ≥ 2aΔ (a = a₁, the slowest rate of −HΔ_ρ, near ρ) this is dΔ/dt ≤ −aΔ + C ‖W‖² with the sufficient constant
C_σ = ½ sup|σ|². W is constant on a step, so the inequality is used as integrated exactly,

    Δ_{n+1} ≤ e^{−aΔt} Δ_n + C ‖W_n‖² (1 − e^{−aΔt})/a.

A depth step of order p lets a mode of rate a decay too slowly by about (aΔt)^{p+1}, and on the long steps in the middle
of a graded grid that is most of what is left of Δ. Steps on which the inequality is decided by this or by round-off are
skipped and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from solver.types import FloatArray

if TYPE_CHECKING:
    from postprocess.load import Run

__all__ = ["Constant", "Dissipation", "StepSet", "dissipation_inequality", "energy_gap_along"]

ROUND_OFF = 1e-12  # of the largest |E|: round-off of the sums in E, and |E| times the mass lost to linear solves


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
        round_off: Of Δ. A step says nothing where |Δ_{n+1} − e^{−aΔt}Δ_n| ≤ round_off + (aΔt)^{p+1} Δ_n.
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
    run: Run, rate: float, sufficient: float, neighbourhood: float, large: float = 100.0, order: int = 2
) -> Dissipation:
    """The smallest C of dΔ/dt ≤ −aΔ + C ‖W‖² on a run.

    Args:
        run: A run with an energy.
        rate: a > 0; P1: a₁ of the same mesh.
        sufficient: C_σ > 0, ½ sup|σ|².
        neighbourhood: Largest gap near ρ, for instance 0.1 Δ₀.
        large: Ratio to C_σ beyond which the inequality is said to fail.
        order: p, the order of the run's depth step: 2 for `mprk2`, 1 for `euler`.

    Raises:
        ValueError: The run has no energy gap, or an argument is not positive.
    """
    if min(rate, sufficient, neighbourhood, large) <= 0.0:
        raise ValueError("rate, sufficient constant, neighbourhood and ratio must be positive")
    gap, round_off = energy_gap_along(run)
    start, dt = run.t[:-1], np.diff(run.t)
    squared = run.trajectory["control_norm"][:-1] ** 2
    numerator = gap[1:] - np.exp(-rate * dt) * gap[:-1]
    used = np.abs(numerator) > round_off + (rate * dt) ** (order + 1) * np.abs(gap[:-1])
    needed = np.where(used & (numerator > 0.0), numerator, 0.0)
    C = np.zeros_like(dt)
    weight = squared * -np.expm1(-rate * dt) / rate
    np.divide(needed, weight, out=C, where=weight > 0.0)
    impossible = (needed > 0.0) & (weight == 0.0)
    near = (gap[1:] <= neighbourhood) & (gap[:-1] <= neighbourhood)
    return Dissipation(
        rate=rate,
        sufficient=sufficient,
        round_off=round_off,
        whole=_constant(start, C, used, impossible, "the run"),
        near=_constant(start, C, used & near, impossible, "the neighbourhood"),
        near_gap=neighbourhood,
        skipped=int(np.count_nonzero(~used)),
        impossible=_step_set(start, impossible),
        large=_step_set(start, large * sufficient <= C),
        large_ratio=large,
    )


def _constant(
    start: FloatArray, C: FloatArray, used: NDArray[np.bool_], impossible: NDArray[np.bool_], where: str
) -> Constant:
    steps = int(np.count_nonzero(used))
    if steps == 0:
        return Constant(None, None, 0, f"no step in {where} says anything")
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


def energy_gap_along(run: Run) -> tuple[FloatArray, float]:
    """Δ along depth, (steps + 1,), and its round-off.

    Raises:
        ValueError: The run has no energy gap.
    """
    gap = run.trajectory["energy_gap"]
    if not np.isfinite(gap).all():
        raise ValueError(f"{run.directory.name}: the run has no energy gap")
    return gap, ROUND_OFF * float(np.abs(run.trajectory["energy"]).max())
