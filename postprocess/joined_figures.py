"""Figures of labels in the continuum, for docs/joined.md."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from postprocess.figures import BLUE, GREEN, ORANGE
from postprocess.joined import KERNELS, LOSSES, kernel, trained
from postprocess.label_figure import draw_conditional
from postprocess.members import Member, read_members
from postprocess.paper_figures import save_figures
from solver.theory.closed_forms import cluster_rate, token_rate

__all__ = ["draw_joined"]

_COLOURS = dict(zip(KERNELS, ("0.45", BLUE, GREEN, ORANGE), strict=True))


def draw_joined(results: Path, folder: Path) -> list[Path]:
    """Draw what there are results for; returns the paths.

    Raises:
        RunError: A results folder is damaged.
        OSError: A picture cannot be written.
    """
    figures: dict[str, Callable[[Path], Figure | None]] = {
        "joined_diracs": _diracs, "joined_trained": _trained, "joined_resultant": _resultant,
        "joined_rates": _rates,
    }  # fmt: skip
    return save_figures(figures, results, folder)


def _panels(chosen: list[tuple[str, Path, float | None]], columns: int) -> Figure | None:
    if not chosen:
        return None
    rows = -(-len(chosen) // columns)
    figure = Figure(figsize=(2.6 * columns, 2.75 * rows), layout="constrained")
    for place, (title, directory, depth) in enumerate(chosen, start=1):
        axes = figure.add_subplot(rows, columns, place, projection="3d")
        draw_conditional(axes, directory, depth)
        axes.set_title(title, fontsize=9)
    return figure


def _diracs(results: Path) -> Figure | None:
    """Conditional densities at T as the noise falls."""
    chosen: list[tuple[str, Path, float | None]] = []
    for name in ("rope", "prefix"):
        members = sorted(read_members(results / f"diracs_{name}"), key=lambda m: -float(m.key("noise.epsilon")))
        chosen += [(f"{name}, ε = {member.key('noise.epsilon'):g}", member.directory, None) for member in members]
    return _panels(chosen, 3)


def _of(results: Path, name: str, key: str, optimised: bool) -> Member | None:
    found = [m for m in read_members(results / name) if kernel(m) == key and trained(m) == optimised]
    return found[0] if found else None


def _trained(results: Path) -> Figure | None:
    """Conditional densities under the trained control, loss `align`: on the plateau and at T."""
    chosen: list[tuple[str, Path, float | None]] = []
    for wanted in ("plateau", "end"):
        for key, title in KERNELS.items():
            member = _of(results, "align", key, optimised=True)
            if member is not None:
                middle = 0.5 * float(member.key("depth.T"))
                name = title.replace("`", "")
                depth = middle if wanted == "plateau" else None
                chosen.append((f"{name}, {'t = T/2' if depth else 't = T'}", member.directory, depth))
    return _panels(chosen, len(chosen) // 2 or 1)


def _resultant(results: Path) -> Figure | None:
    """Resultant of the marginal along depth, with and without training, and the energy of the trained run."""
    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    grid = figure.subplots(2, len(LOSSES), sharex=True, squeeze=False)
    drawn = False
    for column, (name, title) in enumerate(LOSSES.items()):
        resultant, energy = grid[:, column]
        for key, label in KERNELS.items():
            for optimised in (False, True):
                member = _of(results, name, key, optimised)
                if member is None:
                    continue
                columns, style = member.run().trajectory, {"color": _COLOURS[key], "ls": "-" if optimised else "--"}
                resultant.plot(columns["t"], columns["resultant"], lw=1.2, **style)
                if optimised:
                    energy.plot(columns["t"], columns["energy"], lw=1.2, label=label.replace("`", ""), **style)
                    drawn = True
        resultant.set(title=title, ylim=(-0.02, 1.02))
        energy.set_xlabel("depth $t$")
    grid[0, 0].set_ylabel("resultant; dashed: W = 0")
    grid[1, 0].set_ylabel("energy, trained")
    if drawn:
        handles, labels = grid[1, 0].get_legend_handles_labels()
        figure.legend(handles, labels, fontsize=8, loc="outside lower center", ncols=len(KERNELS))
    return figure if drawn else None


def _rates(results: Path) -> Figure | None:
    """‖W_t‖ towards T, circle, beside exponentials of both closed forms."""
    members = read_members(results / "rates")
    if not members:
        return None
    figure = Figure(figsize=(5.6, 3.4), layout="constrained")
    axes = figure.subplots()
    for member in members:
        run = member.run()
        middle = 0.5 * (run.t[1:] + run.t[:-1])
        norm = run.trajectory["control_norm"][:-1]
        label = KERNELS[kernel(member)].replace("`", "")
        axes.plot(middle, np.where(norm > 0.0, norm, np.nan), color=_COLOURS[kernel(member)], lw=1.3, label=label)
    first, second = members[0].key("attention.eigenvalues")[:2]
    end = float(members[0].key("depth.T"))
    for rate, style, words in (
        (cluster_rate(first, second), ":", "all labels together"), (token_rate(first), "--", "label against label"),
    ):  # fmt: skip
        t = np.linspace(end - 5.0 - 6.0 / rate, end - 5.0, 2)
        axes.plot(t, 0.1 * np.exp(rate * (t - t[-1])), color="black", ls=style, lw=0.9, label=f"{words}, {rate:.2f}")
    axes.set(yscale="log", xlabel="depth $t$", ylabel=r"control $\|W_t\|$", xlim=(0.4 * end, end), ylim=(1e-5, 10.0))
    axes.legend(fontsize=7, loc="lower right")
    return figure
