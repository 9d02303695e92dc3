"""What the theory says about training, as JSON and text: bounds along trained runs, one step of gradient descent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from postprocess.load import Run, RunError, load_run
from solver.case.load import CaseError, load_case
from solver.case.schema import Case
from solver.log import LOG
from solver.parallel import allreduce
from solver.problem import Problem
from solver.theory.along_run import Dissipation, dissipation_inequality
from solver.theory.inequality import NEIGHBOURHOOD
from solver.theory.one_step import OneStep
from solver.theory.quantities import Measured
from solver.theory.turnpike import LATE_ESCAPE, VIA_THE_SADDLE, TurnpikeBound, turnpike_bound
from solver.types import Json

__all__ = ["Bounds", "bounds_along", "bounds_text", "one_step_text", "read_runs", "step_columns"]

_ORDERS = {"mprk2": 2, "euler": 1}
_SHARED = ("geometry.manifold", "attention", "noise", "ffn", "auxiliary")  # what a run's case must have in common


def read_runs(case: Case, folders: Sequence[Path]) -> list[Run]:
    """Read results folders of the same model as a case's.

    Raises:
        CaseError: A folder holds no run, or one of another model; all problems at once.
    """
    runs, problems = [], []
    for folder in folders:
        try:
            run = load_run(folder)
            other = load_case(folder / "case.toml")
        except RunError as error:
            problems.append(f"--run: {error}")
            continue
        except CaseError as error:
            problems += [f"--run: {folder / 'case.toml'}: {line}" for line in error.lines]
            continue
        differing = [name for name in _SHARED if _part(case, name) != _part(other, name)]
        if differing:
            problems.append(f"--run: {folder} was run with another {', '.join(differing)} than this case has")
            continue
        if other.geometry.h != case.geometry.h:
            LOG.warning(
                "%s was run with h = %s, the constants are those of h = %s", folder, other.geometry.h, case.geometry.h
            )
        runs.append(run)
    names = [run.directory.name for run in runs]
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.append(
            f"--run: {names.count(name)} folders are called {name}; the picture tells runs apart by that name"
        )
    if problems:
        raise CaseError(problems)
    return runs


def _part(case: Case, name: str) -> object:
    part: object = case
    for word in name.split("."):
        part = getattr(part, word)
    return part


@dataclass(frozen=True)
class Bounds:
    """What was found along trained runs.

    Attributes:
        dissipation: The dissipation inequality on each, by folder.
        turnpike: The turnpike bound on all.
    """

    dissipation: dict[str, Dissipation]
    turnpike: TurnpikeBound

    def content(self) -> Json:
        """For theory.json."""
        inequalities = {name: {**asdict(found), "holds": found.holds} for name, found in self.dissipation.items()}
        return {"dissipation": inequalities, "turnpike": asdict(self.turnpike)}


def bounds_along(measured: Measured, runs: list[Run]) -> Bounds:
    """Both bounds with the constants of the case's mesh. Collective.

    Raises:
        ValueError: There is no a₁ > 0 or no Δ₀, or a run has no energy.
    """
    rate, barrier = measured.values.get("slowest_rate", 0.0), measured.values.get("barrier", 0.0)
    if rate <= 0.0 or barrier <= 0.0:
        raise ValueError("the bounds along runs need a₁ > 0 and Δ₀ > 0 on the case's mesh")
    sufficient = 0.5 * _largest_feature(measured.problem)
    dissipation = {
        str(run.directory): dissipation_inequality(
            run,
            rate,
            sufficient,
            NEIGHBOURHOOD * barrier,
            order=_ORDERS[load_case(run.directory / "case.toml").depth.scheme],
        )
        for run in runs
    }
    path = measured.barrier.paths.get("rotate") if measured.barrier else None
    return Bounds(dissipation, turnpike_bound(runs, path.height if path else barrier))


def _largest_feature(problem: Problem) -> float:
    """sup |σ|² over the nodes. Collective."""
    from mpi4py import MPI

    squared = (problem.features(problem.space.x) ** 2).sum(axis=1)
    return float(allreduce(problem.comm, float(squared.max(initial=0.0)), MPI.MAX))


def bounds_text(bounds: Bounds) -> list[str]:
    """A few lines a run, and the verdicts."""
    lines = []
    for name, found in bounds.dissipation.items():
        lines.append(
            f"{name}: dΔ/dt ≤ −aΔ + C‖W‖², a = {found.rate:.4g}: smallest C {_constant(found.whole.C)} "
            f"on the whole run, {_constant(found.near.C)} where Δ ≤ {found.near_gap:.3g}; "
            f"½ sup|σ|² = {found.sufficient:.4g} {'suffices' if _suffices(found) else 'does not suffice'}"
        )
        if not found.holds:
            first, last = found.large.first, found.large.last
            where = f" between t = {first:.4g} and {last:.4g}" if first is not None and last is not None else ""
            lines.append(f"  it fails in practice on {found.large.count + found.impossible.count} steps{where}")
    lines.append(f"{'run':<24}{'T':>6}  {'family':<15}{'a_in':>8}{'a_out':>8}{'a':>8}{'C':>10}{'F':>10}")
    for bound in bounds.turnpike.runs:
        numbers = [_number(value) for value in (bound.entrance.rate, bound.exit.rate, bound.a, bound.C, bound.F)]
        lines.append(f"{bound.name[-24:]:<24}{bound.T:>6g}  {bound.family:<15}{numbers[0]:>8}{numbers[1]:>8}"
                     f"{numbers[2]:>8}{numbers[3]:>10}{numbers[4]:>10}")  # fmt: skip
    late, saddle = bounds.turnpike.late, bounds.turnpike.saddle
    if late.independent is not None and late.rate_spread is not None and late.constant_spread is not None:
        verdict = "independent of T" if late.independent else "not independent of T"
        lines.append(f"{LATE_ESCAPE}: a and C are {verdict} (spreads {100 * late.rate_spread:.2g} % "
                     f"and {100 * late.constant_spread:.2g} %)")  # fmt: skip
    elif late.reason is not None:
        lines.append(f"{LATE_ESCAPE}: no verdict on T, {late.reason}")
    if saddle.growth is not None and saddle.expected is not None:
        lines.append(
            f"{VIA_THE_SADDLE}: the smallest C grows like e^({saddle.growth:.3f} T), a/2 = {saddle.expected:.3f}"
        )
    return [*lines, bounds.turnpike.remark]


def _suffices(found: Dissipation) -> bool:
    return found.whole.C is not None and found.sufficient >= found.whole.C


def _constant(C: float | None) -> str:
    return "does not exist" if C is None else f"{C:.4g}"


def _number(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:.3g}"


def one_step_text(step: OneStep) -> list[str]:
    """What one step of gradient descent does, in a few lines."""
    window = step.window
    if window is None:
        return [f"1-GD: no window in which the bound could be tested: {step.reason}"]
    exponents = ", ".join(f"{value:.4g}" for value in window.exponents)
    return [
        f"1-GD, α = {', '.join(f'{alpha:.3g}' for alpha in step.alphas)}: on [{window.start:.4g}, {window.end:.4g}] "
        f"Δ grows like e^(at) with a = {exponents} ({window.exponent:.4g} as α → 0); 2R_ρ = {2 * step.rayleigh:.4g}",
        f"  Δ ~ α^p with p from {window.powers[0]:.4g} to {window.powers[1]:.4g}; "
        f"Ω = {window.Omega:.4g}, C_R = {window.C_R:.4g}; "
        f"the bound says more than Δ ≥ 0 from t = "
        f"{', '.join('nowhere' if t is None else f'{t:.4g}' for t in window.positive_from)} on",
    ]


def step_columns(step: OneStep) -> Json:
    """1-GD for theory.json, with its columns along depth."""
    columns = {"t": step.t, "untrained_gap": step.untrained, "gap": step.gap, "quadratic": step.quadratic}
    return {**step.values(), **{name: np.asarray(values).tolist() for name, values in columns.items()}}
