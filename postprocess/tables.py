"""P1's experiments: what it reports beside what was found with a density and with tokens.

python -m postprocess.tables [RESULTS] [-o FILE]

Reads the folders that `make paper` fills (default: results/paper), writes the page, and the pictures beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from postprocess.document import markdown_table, study
from postprocess.members import Member, Sample, read_members
from postprocess.reported import BAG_OF_WORDS, PHASES

__all__ = ["effort_cells", "main", "paper_tables", "shown"]

_MISSING = "–"
_HEAD = (
    "setting", "source", "nodes or N", "clustered / plateau / escaped", "initial width", "plateau", "final width",
    "variation of the plateau", "displacement", "rate of ‖W‖", "of the gradient at W = 0", "R_ρ", "closed form", "J",
    "tolerance", "evaluations",
)  # fmt: skip
_REPORTED = (
    "size",
    "phases",
    "initial_width",
    "plateau_width",
    "final_width",
    "variation",
    "displacement",
    "rate",
    "untrained",
    "R_rho",
)
_SPREAD = 0.5  # rad: of tokens that training has spread, not only turned
_WIDTHS = ("initial_width", "plateau_width", "final_width")


@dataclass(frozen=True)
class _Experiment:
    """Rows of one table: members of a density's sweep and of a sweep of tokens, told apart by a setting."""

    name: str
    setting: Callable[[Member], str]
    density: str | None
    tokens: str | None
    only: Callable[[Member], bool] = lambda member: True


def _second(member: Member) -> str:
    return f"λ₂ = {member.second:g}"


_EXPERIMENTS = (
    _Experiment("no_training", _second, "no_training", "no_training-particles"),
    _Experiment("align", _second, "align", "align-particles"),
    _Experiment(
        "seeds", lambda member: "20 seeds", "align", "align-particles", lambda member: _second(member) == "λ₂ = 0.65"
    ),
    _Experiment("noise", lambda member: f"ε = {member.key('noise.epsilon'):g}", "noise", "noise_particles-particles"),
    _Experiment("depth", lambda member: f"T = {member.key('depth.T'):g}", "depth", "depth-particles"),
    _Experiment("tokens", lambda member: f"N = {member.key('particles.n')}", None, "tokens-particles"),
    _Experiment(
        "regularization", lambda member: f"λ_reg = {member.key('objective.regularization'):g}",
        "regularization", "regularization-particles",
    ),
)  # fmt: skip


def paper_tables(results: Path) -> dict[str, str | None]:
    """Every table of the page by name; None where there are no results.

    Raises:
        RunError: A results folder is damaged.
    """
    tables = {experiment.name: _phase_table(results, experiment) for experiment in _EXPERIMENTS}
    tables["bag_of_words"] = _word_table(results)
    tables["rates"] = _rate_table(read_members(results / "terminal_rates"))
    tables["rates_sphere"] = _rate_table(read_members(results / "terminal_rates_sphere"))
    return tables


def _phase_table(results: Path, experiment: _Experiment) -> str | None:
    """P1, density and tokens for every setting."""
    found = {
        source: {
            experiment.setting(member): member
            for member in (read_members(results / folder) if folder else [])
            if experiment.only(member)
        }
        for source, folder in (("density", experiment.density), ("tokens", experiment.tokens))
    }
    reported = PHASES[experiment.name]
    settings = sorted({name for members in found.values() for name in members}, key=_number_in)
    if not settings:
        return None
    rows = []
    for setting in settings:
        if setting in reported:
            cells = [reported[setting].get(name, _MISSING) for name in _REPORTED]
            rows.append([setting, "P1", *cells, *[_MISSING] * (len(_HEAD) - 2 - len(cells))])
        theory = found["density"].get(setting)
        for source, members in found.items():
            if setting in members:
                rows.append([setting, source, *_phase_cells(members[setting], theory)])
    return markdown_table(_HEAD, rows)


def _number_in(setting: str) -> float:
    word = setting.split()[-1]
    return float(word) if word[0].isdigit() else 0.0


def _phase_cells(member: Member, theory: Member | None) -> list[str]:
    """What is measured on a member; R_ρ and its closed form from the theory of the density's mesh."""
    counts = [member.successes([name]) for name in ("clustered", "plateau", "escaped")]
    if member.particles:
        verdict = " / ".join(f"{count}" for count, _ in counts) + f" of {counts[0][1]}"
    else:
        verdict = " / ".join("yes" if count else "no" for count, _ in counts)
    return [
        str(member.summary["n"] if member.particles else member.summary["dofs"]),
        verdict,
        *(member.sample(name).text(".2f") for name in _WIDTHS),
        member.sample("plateau_variation").text(".1e"),
        member.sample("displacement").text(),
        member.sample("terminal_rate").text(),
        shown(member.summary["phases"].get("untrained_gradient_rate")),
        *(shown(theory.theory_value("R_rho", which) if theory else None) for which in ("value", "closed_form")),
        member.sample("J").text(".5f"),
        *effort_cells([member]),
    ]


def effort_cells(members: Sequence[Member]) -> list[str]:
    """Tolerance on the relative gradient, how many met it, and evaluations (of one system, on all meshes)."""
    if members[0].key("optimizer.method") == "none":
        return [_MISSING, _MISSING]
    met = sum(member.successes(["converged"])[0] for member in members if member.particles)
    met += sum(member.summary["optimizer"]["converged"] is True for member in members if not member.particles)
    total = sum(len(member.summary["seeds"]) if member.particles else 1 for member in members)
    name = "evaluations" if members[0].particles else "forward_solves"
    tolerance = f"{members[0].key('optimizer.gradient_tolerance'):.0e}"
    return [tolerance if met == total else f"{tolerance} ({met}/{total})", _joined(members, name).text(".0f")]


def _joined(members: Sequence[Member], name: str) -> Sample:
    samples = [member.sample(name) for member in members]
    return Sample(
        tuple(value for sample in samples for value in sample.values), sum(sample.count for sample in samples)
    )


def shown(value: float | None, digits: str = ".3f") -> str:
    """A number, or – for none."""
    return _MISSING if value is None else f"{value:{digits}}"


def _word_table(results: Path) -> str | None:
    """Bag of words: mean ± sd over the draws of the words (density), over draws and seeds (tokens)."""
    sources = {
        "density": read_members(results / "bag_of_words"),
        "tokens": read_members(results / "bag_of_words-particles"),
    }
    kappas = sorted({member.key("objective.kappa") for members in sources.values() for member in members})
    head = ("κ", "source", "systems", "loss untrained", "loss", "Δθ", "of them Δθ > 0.5",
            "Δθ of those", "dispersion", "words covered", "rate of ‖W‖",
            "R_ρ", "tolerance", "evaluations")  # fmt: skip
    rows = []
    for kappa in kappas:
        if kappa in BAG_OF_WORDS:
            divergence, rate, ratio = BAG_OF_WORDS[kappa]
            two = [_MISSING] * 2
            rows.append([f"{kappa:g}", "P1", "20", *two, divergence, *two, *two, rate, ratio, *two])
        for source, found in sources.items():
            members = [member for member in found if member.key("objective.kappa") == kappa]
            if not members:
                continue
            ratios = [member.theory_value("R_rho") for member in members]
            known = tuple(value for value in ratios if value is not None)
            divergences = _joined(members, "angular_divergence")
            spread = Sample(tuple(value for value in divergences.values if value > _SPREAD), divergences.count)
            rows.append([
                f"{kappa:g}", source, str(divergences.count), _joined(members, "untrained_loss").text(),
                _joined(members, "loss").text(), divergences.text(), f"{len(spread.values)}/{spread.count}",
                spread.text(), _joined(members, "dispersion").text(),
                _joined(members, "coverage").text(".1f"), _joined(members, "terminal_rate").text(),
                Sample(known, len(ratios)).text(), *effort_cells(members),
            ])  # fmt: skip
    return markdown_table(head, rows) if rows else None


def _rate_table(members: Sequence[Member]) -> str | None:
    """Growth of the optimal control beside that of the gradient at W = 0 on the same mesh and grid, and R_ρ."""
    head = ("λ₂", "h", "nodes", "first step", "rate of the optimum", "of the gradient at W = 0", "difference",
            "R_ρ, same mesh", "R_ρ, h → 0", "closed form", "tolerance", "evaluations")  # fmt: skip
    rows = []
    for member in sorted(members, key=lambda member: (member.second, -member.key("geometry.h"))):
        phases = member.summary["phases"]
        optimum, gradient = phases["terminal_rate"], phases["untrained_gradient_rate"]
        off = None if optimum is None or gradient is None else 100.0 * (optimum / gradient - 1.0)
        theory = [
            shown(member.theory_value("R_rho", which), ".4f") for which in ("value", "extrapolated", "closed_form")
        ]
        rows.append([
            f"{member.second:g}", f"{member.key('geometry.h'):g}", str(member.summary["dofs"]),
            f"{member.key('depth.first_step'):g}", shown(optimum, ".4f"), shown(gradient, ".4f"),
            _MISSING if off is None else f"{off:+.2f} %", *theory, *effort_cells([member]),
        ])  # fmt: skip
    return markdown_table(head, rows) if rows else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Write docs/paper-tables.md from the command line; returns the exit code."""
    from postprocess.paper_figures import draw_paper

    return study("paper", "tables", "paper-tables.md", paper_tables, draw_paper, arguments)


if __name__ == "__main__":
    sys.exit(main())
