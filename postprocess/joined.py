"""Labels in the continuum, and training in their presence, as docs/joined.md shows them.

python -m postprocess.joined [RESULTS] [-o FILE]

Reads the folders that `make joined` fills (default: results/joined), writes the page and its pictures.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from postprocess.compare import interaction_phases
from postprocess.document import markdown_table, study
from postprocess.load import RunError
from postprocess.members import Member, read_members
from postprocess.tables import shown
from solver.theory.closed_forms import cluster_rate, thermal_variance, token_rate

__all__ = ["KERNELS", "LOSSES", "joined_tables", "kernel", "main", "trained"]

KERNELS = {"usa": "`usa`", "rope": "`rope`", "prefix": "`prefix`", "toeplitz": "`toeplitz`, linear"}
LOSSES = {"align": "align", "bag_of_words": "bag of words"}
_DIRACS = ("rope", "prefix")
_SOURCES = {"": "PDE", "-controlled": "tokens, W of the PDE", "-particles": "tokens"}  # by the end of the folder's name


def kernel(member: Member) -> str:
    """Its label kernel."""
    return str(member.key("auxiliary.kernel"))


def trained(member: Member) -> bool:
    """Whether its control was optimised."""
    return bool(member.key("optimizer.method") != "none")


def joined_tables(results: Path) -> dict[str, str | None]:
    """Every table of the page by name; None where there are no results.

    Raises:
        RunError: A results folder is damaged.
    """
    return {
        "diracs": _diracs(results),
        "particles": _diracs_of_particles(results),
        **{name: _training(results, name) for name in LOSSES},
        "rates": _rates(read_members(results / "rates")),
    }


def _by_noise(sweep: Path) -> list[Member]:
    return sorted(read_members(sweep), key=lambda member: -float(member.key("noise.epsilon")))


def _first(member: Member) -> float:
    """λ₁."""
    return float(member.key("attention.eigenvalues")[0])


def _diracs(results: Path) -> str | None:
    """Means and widths of the labels' densities and the energy they approach, as the noise falls."""
    head = [
        "kernel", "ε", "largest angle of a mean to x*(ξ)", "thermal width", "width of μ_ξ", "as ε → 0",
        "gap to the maximum", "as ε → 0",
    ]  # fmt: skip
    rows = []
    for name in _DIRACS:
        for member in _by_noise(results / f"diracs_{name}"):
            epsilon, block = float(member.key("noise.epsilon")), member.summary["auxiliary"]
            normal = len(member.key("attention.eigenvalues")) - 1  # directions in which a token can leave its place
            width = math.sqrt(thermal_variance(_first(member), epsilon))
            rows.append([
                KERNELS[name], f"{epsilon:g}", f"{block['conditional_angle_max']:.1e}", f"{width:.4f}",
                f"{block['conditional_dispersion']:.4f}", f"{math.sqrt(normal) * width:.4f}",
                f"{block['interaction_gap']:.5f}", f"{0.5 * normal * epsilon:.5f}",
            ])  # fmt: skip
    return markdown_table(head, rows) if rows else None


def _diracs_of_particles(results: Path) -> str | None:
    """Tokens with the same noise beside the densities."""
    head = [
        "kernel", "ε", "means apart, s.e.", "width, PDE", "width, tokens", "interaction energy, PDE",
        "interaction energy, tokens", "W₁ of a label's tokens", "of as many samples",
    ]  # fmt: skip
    rows = []
    for name in _DIRACS:
        for member in _by_noise(results / f"diracs_{name}-particles"):
            found = _comparison(member.directory)
            if found is None:
                continue
            labels, energy = found["labels"], found["quantities"]["interaction_energy"]
            pde = np.mean([row["dispersion"]["pde"] for row in labels["conditional"]])
            tokens = np.mean([row["dispersion"]["mean"] for row in labels["conditional"]])
            rows.append([
                KERNELS[name], f"{member.key('noise.epsilon'):g}", f"{labels['standard_errors']:.1f}", f"{pde:.4f}",
                f"{tokens:.4f}", f"{energy['pde']:.5f}",
                f"{energy['particles']['mean']:.5f} ± {energy['particles']['sd']:.5f}",
                f"{labels['distance']['mean']:.4f}", f"{labels['distance']['exact_samples']:.4f}",
            ])  # fmt: skip
    return markdown_table(head, rows) if rows else None


def _comparison(folder: Path) -> dict[str, Any] | None:
    path = folder / "compare.json"
    if not path.exists():
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: damaged ({error})") from None
    return found


def _training(results: Path, name: str) -> str | None:
    """One loss: every kernel, the PDE and tokens, untrained and trained."""
    head = [
        "kernel", "", "loss, W = 0", "loss", "J", "plateau", "its resultant", "its conditional resultant",
        "its angle to x*", "last phase", "resultant at T",
    ]  # fmt: skip
    rows = []
    for key, title in KERNELS.items():
        for end, source in _SOURCES.items():
            chosen = [m for m in read_members(results / f"{name}{end}") if kernel(m) == key and trained(m)]
            rows += [[title, source, *_training_cells(member)] for member in chosen]
    return markdown_table(head, rows) if rows else None


def _training_cells(member: Member) -> list[str]:
    run = member.run()
    columns = run.trajectory
    middle = 0.5 * float(columns["t"][-1])

    def at_middle(column: str) -> str:
        return f"{np.interp(middle, columns['t'], columns[column]):.3f}" if column in columns else "–"

    phases = {} if member.particles else interaction_phases(run)

    def width(name: str) -> str:
        return shown(phases[name], ".2f") if name in phases else member.sample(name).text(".2f")

    angle = "conditional_angle" if "conditional_angle" in columns else "maximiser_angle"
    return [
        *(member.sample(key).text(".4f") for key in ("untrained_loss", "loss", "J")),
        width("plateau_width"), at_middle("resultant"), at_middle("conditional_resultant"), at_middle(angle),
        width("final_width"), f"{columns['resultant'][-1]:.3f}",
    ]  # fmt: skip


def _rates(members: list[Member]) -> str | None:
    """Growth rates of the control and of the gradient at W = 0, beside the closed forms of both kinds of mode."""
    head = [
        "kernel", "rate of ‖W‖", "rate of the gradient at W = 0", "all labels together", "label against label", "J",
        "plateau", "last phase",
    ]  # fmt: skip
    rows = []
    for key, title in KERNELS.items():
        for member in members:
            if kernel(member) == key:
                phases, block = member.summary["phases"], member.summary["auxiliary"]
                rows.append([
                    title, shown(phases["terminal_rate"], ".3f"), shown(phases["untrained_gradient_rate"], ".3f"),
                    *_closed_forms(member, block), f"{member.summary['objective']['J']:.5f}",
                    shown(phases["plateau_width"], ".1f"), shown(phases["final_width"], ".2f"),
                ])  # fmt: skip
    return markdown_table(head, rows) if rows else None


def _closed_forms(member: Member, block: dict[str, Any]) -> tuple[str, str]:
    """Rates as ε → 0 at which displacements decay that all labels share, and that sum to zero over the labels.

    At u = v₁ for all tokens the force on a displacement δ_ξ of label ξ is e^{λ₁} (A δ̄ − λ₁ δ_ξ), δ̄ the mean over the
    labels. Linear Toeplitz attention on a whole period holds a token with ½ ⟨x, x*⟩ alone; to turn all of it is free.
    """
    if kernel(member) == "toeplitz":
        return "0", f"{0.5:.3f}"
    first, second = member.key("attention.eigenvalues")[:2]
    return f"{cluster_rate(first, second):.3f}", f"{token_rate(first):.3f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write docs/joined.md from the command line; returns the exit code."""
    from postprocess.joined_figures import draw_joined

    return study("joined", "joined", "joined.md", joined_tables, draw_joined, arguments)


if __name__ == "__main__":
    sys.exit(main())
