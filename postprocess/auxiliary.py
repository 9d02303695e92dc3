"""P2's experiments, labels that keep tokens from collapsing, as docs/auxiliary.md shows them.

python -m postprocess.auxiliary [RESULTS] [-o FILE]

Reads the folders that `make auxiliary` fills (default: results/auxiliary), writes the page and its pictures.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from postprocess.document import markdown_table, study
from postprocess.labelled import LAWS, TokenState, universality
from postprocess.members import Member, Sample, read_members
from solver.particles.metastability import lifetime_integral, lifetime_slope, token_lifetime

__all__ = ["ANGLES", "BETAS", "KERNELS", "auxiliary_tables", "beta", "collapse_depths", "main"]

COLLAPSED = 0.99  # resultant from which on tokens count as collapsed
KERNELS = {
    "usa": "`usa`",
    "rope": "`rope`",
    "rope_general": "`rope_general`",
    "prefix": "`prefix`, wave",
    "toeplitz_linear": "`toeplitz`, linear",
    "toeplitz_exponential": "`toeplitz`, exponential",
    "distance_bias": "`distance_bias`",
}
_EXACT = ("usa", "rope", "rope_general", "prefix", "toeplitz_linear_long")
BETAS = (8.0, 12.0, 16.0, 20.0, 24.0)
ANGLES = (45.0, 60.0, 75.0)


def beta(member: Member) -> float:
    """β of A = βI."""
    return float(member.key("attention.eigenvalues")[0])


def auxiliary_tables(results: Path) -> dict[str, str | None]:
    """Every table of the page by name; None where there are no results.

    Raises:
        RunError: A results folder is damaged.
    """
    members = {name: read_members(results / f"{name}-particles") for name in (*KERNELS, "toeplitz_linear_long")}
    return {
        "kernels": _kernels({name: members[name] for name in KERNELS}),
        "shapes": _shapes(read_members(results / "distance_bias_shapes-particles")),
        "exact": _exact({name: members[name] for name in _EXACT}),
        "states": _states(read_members(results / "toeplitz_states-particles")),
        "universality": _universality(results),
        "reached": _reached(members["prefix"]),
        "lifetimes": _lifetimes(),
        "random_lifetimes": _random_lifetimes(read_members(results / "metastability-particles")),
    }


def _numbers(values: Sequence[float]) -> str:
    """Distinct whole numbers with how often they occur, as ``2 (3×), 5``."""
    counted = sorted(Counter(round(value) for value in values).items())
    return ", ".join(f"{value}" if often == 1 else f"{value} ({often}×)" for value, often in counted) or "–"


_STATE = ("resultant", "collapsed", "clusters of the others", "gap to the maximum", "largest angle to a maximiser")


def _state_cells(member: Member) -> list[str]:
    rows = member.summary["seeds"]
    others = [row["clusters"] for row in rows if row["resultant"] <= COLLAPSED]
    return [
        member.sample("resultant").text(".4f"), f"{len(rows) - len(others)}/{len(rows)}", _numbers(others),
        _spread(member.sample("interaction_gap")), _spread(member.sample("maximiser_angle_max")),
    ]  # fmt: skip


def _spread(sample: Sample) -> str:
    """Median and largest by size."""
    if not sample.values:
        return "–"
    largest = max(sample.values, key=abs)
    return f"{_tidy(float(np.median(sample.values)))} ({_tidy(largest)})"


def _tidy(value: float) -> str:
    return "0" if abs(value) < 1e-14 else f"{value:.1e}"


def _kernels(members: dict[str, list[Member]]) -> str | None:
    rows = [
        [KERNELS[name], f"{beta(member):g}", str(member.summary["n"]), *_state_cells(member)]
        for name, group in members.items()
        for member in sorted(group, key=lambda m: (beta(m), m.summary["n"]))
    ]
    return markdown_table(("kernel", "β", "n", *_STATE), rows) if rows else None


def _shapes(members: Sequence[Member]) -> str | None:
    ordered = sorted(members, key=lambda m: (m.key("auxiliary.decay"), beta(m)))
    rows = [[f"`{m.key('auxiliary.decay')}`", f"{beta(m):g}", *_state_cells(m)] for m in ordered]
    return markdown_table(("decay", "β", *_STATE), rows) if rows else None


def _exact(members: dict[str, list[Member]]) -> str | None:
    head = ("kernel", "T", "n", "maximum", "maximisers: symmetry", "largest gap", "largest angle to a maximiser, rad")
    rows = []
    for name, group in members.items():
        for member in sorted((m for m in group if beta(m) == 1.0), key=lambda m: m.summary["n"]):
            known = member.summary["auxiliary"]
            gap, angle = (
                max(map(abs, member.sample(key).values)) for key in ("interaction_gap", "maximiser_angle_max")
            )
            rows.append([
                KERNELS[name.removesuffix("_long")], f"{member.key('depth.T'):g}", str(member.summary["n"]),
                f"{known['maximum']:.9f}", known["symmetry"], _tidy(gap), f"{angle:.1e}",
            ])  # fmt: skip
    return markdown_table(head, rows) if rows else None


def _states(members: Sequence[Member]) -> str | None:
    head = (
        "β",
        "great circle",
        "highest energy found",
        "gain",
        "seeds above / at / below it",
        "resultant of the highest",
    )
    rows = []
    for member in sorted(members, key=beta):
        circle = member.summary["auxiliary"]["maximum"]
        gaps = np.array(member.sample("interaction_gap").values)
        best = min(member.summary["seeds"], key=lambda row: row["interaction_gap"])
        level = 1e-5 * circle
        counts = (int((gaps < -level).sum()), int((abs(gaps) <= level).sum()), int((gaps > level).sum()))
        rows.append([
            f"{beta(member):g}", f"{circle:.6f}", f"{best['interaction_energy']:.6f}",
            _gain(-best["interaction_gap"]),
            " / ".join(map(str, counts)), f"{best['resultant']:.4f}",
        ])  # fmt: skip
    return markdown_table(head, rows) if rows else None


def _gain(value: float) -> str:
    """Six digits, without the sign of round-off."""
    return "0" if abs(value) < 5e-7 else f"{value:.6f}"


def _universality(results: Path) -> str | None:
    """A row for the tokens of each law and kind of labels, and one for independent samples of the law."""
    rows, counts = [], []
    for name, title in LAWS.items():
        for series in universality(results / f"universality_{name}-particles"):
            counts = series.counts
            rows.append(_distances(title, f"tokens, `{series.kernel}`, {series.law} labels", series.reached))
            rows[-1].append(f"{series.exponent(series.reached):.2f}")
            if series.law == "random":
                rows.append(_distances(title, "samples of the law", series.sampled))
                rows[-1].append(f"{series.exponent(series.sampled):.2f}")
    return markdown_table(("law", "W₁ of", *(f"n = {n}" for n in counts), "exponent"), rows) if rows else None


def _distances(title: str, what: str, values: Sequence[float]) -> list[str]:
    return [title, what, *(f"{value:.5f}" for value in values)]


def _reached(members: Sequence[Member]) -> str | None:
    """From random starts: v, and how far the tokens are from the law it makes, and from the one v = u would."""
    member = max((m for m in members if beta(m) == 1.0), key=lambda m: m.summary["n"], default=None)
    if member is None:
        return None
    state = TokenState(member.directory)
    rows = []
    for k in range(min(5, len(state.arrays["positions"]))):
        v = state.reached(k)
        rows.append([
            str(k), "(" + ", ".join(f"{value:.3f}" for value in v) + ")", f"{state.distance(k, v):.4f}",
            f"{state.distance(k, state.u):.4f}",
        ])  # fmt: skip
    head = ("seed", "v", "W₁ to (Q_ξᵀv)_#ρ", "W₁ to the target (Q_ξᵀu)_#ρ")
    return markdown_table(head, rows)


def _lifetimes() -> str:
    """Two clusters at fixed angles: measured by tokens, by quadrature, and the slopes."""
    head = (
        "θ₀",
        *(f"β = {value:g}" for value in BETAS),
        "slope, tokens",
        "slope, integral",
        "1 − cos θ₀",
        "difference",
    )
    rows = []
    for degrees in ANGLES:
        angle = math.radians(degrees)
        lives = [token_lifetime(value, angle) for value in BETAS]
        slope, exact = (
            lifetime_slope(BETAS, angle, lives),
            lifetime_slope(BETAS, angle, [lifetime_integral(value, angle) for value in BETAS]),
        )
        limit = 1.0 - math.cos(angle)
        rows.append([
            f"{degrees:g}°", *(f"{life * math.exp(value):.4g}" for life, value in zip(lives, BETAS, strict=True)),
            f"{slope:.4f}", f"{exact:.4f}", f"{limit:.4f}", f"{100.0 * (slope / limit - 1.0):+.1f} %",
        ])  # fmt: skip
    return markdown_table(head, rows)


def collapse_depths(member: Member) -> Iterator[tuple[float | None, float | None]]:
    """For every seed the depth from which on there is one cluster, and how long two were left before; None if never."""
    arrays = TokenState(member.directory).arrays
    t = arrays["t"]
    for clusters in arrays["clusters"]:
        many, more = np.flatnonzero(clusters > 1), np.flatnonzero(clusters > 2)
        merged = None if clusters[-1] > 1 else float(t[many[-1] + 1]) if len(many) else 0.0
        paired = float(t[more[-1] + 1]) if len(more) and clusters[-1] <= 2 else 0.0
        yield merged, merged - paired if merged is not None and clusters[-1] == 1 else None


def _random_lifetimes(members: Sequence[Member]) -> str | None:
    head = ("β", "T e^β", "one cluster at T", "clusters left in the others", "depth of collapse, e^{−β}: quartiles",
            "life of two clusters, e^{−β}: quartiles, longest")  # fmt: skip
    rows = []
    for member in sorted(members, key=beta):
        unit = math.exp(beta(member))
        found = list(collapse_depths(member))
        depths = [unit * depth for depth, _ in found if depth is not None]
        lives = [unit * life for _, life in found if life is not None]
        left = [row["clusters"] for row in member.summary["seeds"] if row["clusters"] > 1]
        rows.append([
            f"{beta(member):g}", f"{member.key('depth.T') * unit:.0f}", f"{len(depths)}/{len(found)}", _numbers(left),
            _quartiles(depths), f"{_quartiles(lives)}; {max(lives):.3g}" if lives else "–",
        ])  # fmt: skip
    return markdown_table(head, rows) if rows else None


def _quartiles(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in np.quantile(values, (0.25, 0.5, 0.75))) if values else "–"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write docs/auxiliary.md from the command line; returns the exit code."""
    from postprocess.auxiliary_figures import draw_auxiliary

    return study("auxiliary", "auxiliary", "auxiliary.md", auxiliary_tables, draw_auxiliary, arguments)


if __name__ == "__main__":
    sys.exit(main())
