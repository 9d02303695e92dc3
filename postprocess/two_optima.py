"""The two families of optima: late escape and via the saddle, as docs/two-optima.md shows them.

python -m postprocess.two_optima [RESULTS] [-o FILE]

Reads the folders that `make two-optima` fills (default: results/two_optima), writes the page and its pictures.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from postprocess.document import markdown_table, study
from postprocess.members import Member, read_members
from postprocess.tables import effort_cells, shown
from solver.theory.families import crossing, family_costs

__all__ = [
    "Crossing",
    "crossing_members",
    "crossings",
    "escape_depth",
    "family",
    "main",
    "target_angle",
    "two_optima_tables",
]

_PASSED = 0.8  # rad: the angle that dates the escape
_FAMILIES = {"zero": "from W = 0", "steer": "via the saddle"}


def escape_depth(member: Member) -> float | None:
    """The last depth at which the angle of the mean passes 0.8 rad upwards; None if it never does."""
    columns = member.run().trajectory
    t, angle = columns["t"], columns["angle"]
    below = np.flatnonzero((angle[:-1] < _PASSED) & (angle[1:] >= _PASSED))
    if not len(below):
        return None
    k = int(below[-1])
    return float(t[k] + (t[k + 1] - t[k]) * (_PASSED - angle[k]) / (angle[k + 1] - angle[k]))


def target_angle(member: Member) -> float:
    """Angle of the target from e₁, rad."""
    x, y = member.key("objective.target")[:2]
    return math.atan2(y, x)


def family(member: Member) -> str:
    """Which family the control belongs to, by where the tokens are at T/2: `late` (near ±e₁) or `saddle` (near ±e₂)."""
    columns = member.run().trajectory
    middle = 0.5 * float(columns["t"][-1])
    means = [float(np.interp(middle, columns["t"], columns[f"mean_{k}"])) for k in (1, 2)]
    return "late" if abs(means[0]) > abs(means[1]) else "saddle"


def two_optima_tables(results: Path) -> dict[str, str | None]:
    """Every table of the page by name; None where there are no results.

    Raises:
        RunError: A results folder is damaged.
    """
    return {
        "effort": _effort(read_members(results / "effort")),
        "effort_graded": _effort(read_members(results / "effort_graded")),
        "effort_sphere": _effort(read_members(results / "effort_sphere")),
        "families": _members(read_members(results / "families"), "T", "depth.T"),
        "families_sphere": _members(read_members(results / "families_sphere"), "T", "depth.T"),
        "targets": _targets(read_members(results / "targets")),
        "crossing": _crossings(crossing_members(results)),
        "penalty": _members(read_members(results / "penalty"), "λ_reg", "objective.regularization"),
        "centred": _centred(read_members(results / "centred")),
        "tokens": _tokens(read_members(results / "tokens-particles"), read_members(results / "families")),
    }  # fmt: skip


def _effort(members: Sequence[Member]) -> str | None:
    """J and the depth of the escape against iterations."""
    head = ("method", "iterations", "evaluations", "J", "loss", "relative gradient", "passes 0.8 rad at", "final width")
    rows = []
    for member in sorted(members, key=lambda m: (m.key("optimizer.method"), m.key("optimizer.max_iterations"))):
        optimizer = member.summary["optimizer"]
        row = [
            optimizer["method"], str(optimizer["iterations"]), str(optimizer["forward_solves"]),
            shown(member.summary["objective"]["J"], ".5f"), shown(member.summary["objective"]["loss"], ".5f"),
            shown(optimizer["gradient_norm"] / optimizer["gradient_norm_initial"], ".1e"),
            shown(escape_depth(member), ".2f"), shown(member.summary["phases"]["final_width"], ".2f"),
        ]  # fmt: skip
        if row not in rows:  # it stopped before it was told to
            rows.append(row)
    return markdown_table(head, rows) if rows else None


def _cells(member: Member) -> list[str]:
    """What tells the families apart."""
    objective = member.summary["objective"]
    optimizer = member.summary["optimizer"]
    relative = optimizer["gradient_norm"] / optimizer["gradient_norm_initial"]
    return [
        _FAMILIES.get(member.key("optimizer.start"), member.key("optimizer.start")), family(member),
        shown(objective["J"], ".5f"), shown(objective["loss"], ".5f"), shown(objective["regularization"], ".5f"),
        shown(escape_depth(member), ".2f"), f"{relative:.1e}", *effort_cells([member]),
    ]  # fmt: skip


_CELLS = (
    "start",
    "ends as",
    "J",
    "loss",
    "penalty",
    "passes 0.8 rad at",
    "relative gradient",
    "tolerance",
    "evaluations",
)


def _members(members: Sequence[Member], name: str, key: str) -> str | None:
    """A row for every value of a key and start."""
    ordered = sorted(members, key=lambda m: (m.key(key), m.key("optimizer.start") != "zero"))
    rows = [[f"{member.key(key):g}", *_cells(member)] for member in ordered]
    return markdown_table((name, *_CELLS), rows) if rows else None


def _targets(members: Sequence[Member]) -> str | None:
    """Both families for every target, beside the cluster limit."""
    rows = []
    for member in sorted(members, key=lambda m: (target_angle(m), m.key("optimizer.start") != "zero")):
        first, second = member.key("attention.eigenvalues")
        start = math.atan2(*reversed(member.key("initial.mean")))
        costs = family_costs((first, second), start, target_angle(member), member.key("objective.regularization"))
        limit = costs.late if family(member) == "late" else costs.saddle
        rows.append([f"{math.degrees(target_angle(member)):.0f}°", *_cells(member), f"{limit:.5f}"])
    return markdown_table(("target", *_CELLS, "J in the cluster limit"), rows) if rows else None


@dataclass(frozen=True)
class Crossing:
    """Where the families cost the same.

    Attributes:
        epsilon: ε.
        kappa: Concentration of the start.
        targets: Angles of the targets, rad.
        difference: J of the late escape less J via the saddle, at each.
        measured: The target where the difference vanishes, rad (extrapolated outside of `targets`); None if nowhere.
        predicted: By the cluster limit, rad.
    """

    epsilon: float
    kappa: float
    targets: NDArray[np.float64]
    difference: NDArray[np.float64]
    measured: float | None
    predicted: float


def crossing_members(results: Path) -> list[Member]:
    """Runs around the crossing, with little and with more noise."""
    return read_members(results / "crossing") + read_members(results / "crossing_noise")


def crossings(members: Sequence[Member]) -> list[Crossing]:
    """Where J of both families is equal, for every (ε, κ), by a parabola through the differences at the targets."""
    found = []
    for epsilon, kappa in sorted({(m.key("noise.epsilon"), m.key("initial.kappa")) for m in members}, reverse=True):
        group = [m for m in members if (m.key("noise.epsilon"), m.key("initial.kappa")) == (epsilon, kappa)]
        costs: dict[str, dict[float, float]] = {"late": {}, "saddle": {}}
        for member in group:
            angle = target_angle(member)
            reached = costs[family(member)]
            reached[angle] = min(member.summary["objective"]["J"], reached.get(angle, math.inf))
        targets = np.array(sorted(costs["late"].keys() & costs["saddle"].keys()))
        if len(targets) < 3:
            continue
        difference = np.array([costs["late"][angle] - costs["saddle"][angle] for angle in targets])
        roots = np.roots(np.polyfit(targets, difference, 2))
        near = [float(root.real) for root in roots if abs(root.imag) < 1e-9 and 0.0 < root.real < 0.5 * math.pi]
        middle = float(targets.mean())
        first, second = group[0].key("attention.eigenvalues")
        start = math.atan2(*reversed(group[0].key("initial.mean")))
        predicted = crossing((first, second), start, group[0].key("objective.regularization"))
        measured = min(near, key=lambda angle: abs(angle - middle), default=None)
        found.append(Crossing(epsilon, kappa, targets, difference, measured, predicted))
    return found


def _crossings(members: Sequence[Member]) -> str | None:
    head = (
        "ε",
        "κ of the start",
        "targets with both families",
        "late − saddle there",
        "crossing",
        "cluster limit",
        "difference",
    )
    rows = []
    for one in crossings(members):
        measured = None if one.measured is None else math.degrees(one.measured)
        predicted = math.degrees(one.predicted)
        rows.append([
            f"{one.epsilon:g}", f"{one.kappa:g}", ", ".join(f"{math.degrees(angle):.0f}°" for angle in one.targets),
            ", ".join(f"{value:+.5f}" for value in one.difference),
            "–" if measured is None else f"{measured:.2f}°", f"{predicted:.2f}°",
            "–" if measured is None else f"{measured - predicted:+.2f}°",
        ])  # fmt: skip
    return markdown_table(head, rows) if rows else None


def _centred(members: Sequence[Member]) -> str | None:
    ordered = sorted(members, key=lambda m: (target_angle(m), m.key("optimizer.start") != "zero"))
    rows = [[f"{math.degrees(target_angle(member)):.0f}°", *_cells(member)] for member in ordered]
    return markdown_table(("target", *_CELLS), rows) if rows else None


def _tokens(members: Sequence[Member], density: Sequence[Member]) -> str | None:
    """Both families with tokens, mean ± sd over the seeds, beside the density's J."""
    head = (
        "start",
        "J, tokens",
        "J, density",
        "loss",
        "penalty",
        "displacement",
        "rate of ‖W‖",
        "tolerance",
        "evaluations",
    )
    rows = []
    for member in sorted(members, key=lambda m: m.key("optimizer.start") != "zero"):
        start = member.key("optimizer.start")
        beside = next((m for m in density if m.key("optimizer.start") == start), None)
        rows.append([
            _FAMILIES.get(start, start), member.sample("J").text(".5f"),
            shown(beside.summary["objective"]["J"] if beside else None, ".5f"), member.sample("loss").text(".5f"),
            member.sample("regularization").text(".5f"), member.sample("displacement").text(),
            member.sample("terminal_rate").text(), *effort_cells([member]),
        ])  # fmt: skip
    return markdown_table(head, rows) if rows else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Write docs/two-optima.md from the command line; returns the exit code."""
    from postprocess.two_optima_figures import draw_two_optima

    return study("two_optima", "two_optima", "two-optima.md", two_optima_tables, draw_two_optima, arguments)


if __name__ == "__main__":
    sys.exit(main())
