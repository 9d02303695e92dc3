"""Figures of P2's experiments, for docs/auxiliary.md."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from postprocess.auxiliary import KERNELS, beta, collapse_depths
from postprocess.figures import BLUE, GREEN, ORANGE
from postprocess.labelled import LAWS, TokenState, universality
from postprocess.members import Member, read_members
from postprocess.paper_figures import save_figures
from postprocess.token_figure import draw_tokens
from solver.auxiliary.kernels import DECAYS

__all__ = ["draw_auxiliary"]

FloatArray = NDArray[np.float64]

_GREY = "0.55"
_STYLES = dict(zip(KERNELS, (_GREY, BLUE, "#56b4e9", GREEN, ORANGE, "#cc79a7", "0.1"), strict=True))
_LABELS = 64  # in the spectra
_SHOWN = 5  # seeds


def draw_auxiliary(results: Path, folder: Path) -> list[Path]:
    """Draw what there are results for; returns the paths.

    Raises:
        RunError: A results folder is damaged.
        OSError: A picture cannot be written.
    """
    figures: dict[str, Callable[[Path], Figure | None]] = {
        "auxiliary_tokens": _tokens, "auxiliary_resultant": _resultant, "auxiliary_spectrum": _spectrum,
        "auxiliary_universality": _universality, "auxiliary_metastability": _metastability,
    }  # fmt: skip
    return save_figures(figures, results, folder)


def _largest(results: Path, name: str, value: float) -> Member | None:
    group = [m for m in read_members(results / f"{name}-particles") if beta(m) == value]
    return max(group, key=lambda m: m.summary["n"], default=None)


def _tokens(results: Path) -> Figure | None:
    """Tokens at T on the sphere, coloured by their label, with the nearest maximiser."""
    wanted = [(name, 1.0) for name in ("usa", "rope", "rope_general", "prefix", "toeplitz_linear")]
    panels: list[tuple[str, Member, int]] = []
    for name, value in wanted:
        member = _largest(results, name, value)
        if member is not None:
            panels.append((f"{KERNELS[name].replace('`', '')}, β = {value:g}", member, 0))
    states = _largest(results, "toeplitz_states", 4.0)
    if states is not None:
        gaps = np.array(states.sample("interaction_gap").values)
        panels.append(("toeplitz, exponential, β = 4: highest energy", states, int(gaps.argmin())))
    if not panels:
        return None
    figure = Figure(figsize=(8.4, 5.8), layout="constrained")
    for place, (title, member, seed) in enumerate(panels, start=1):
        axes = figure.add_subplot(2, 3, place, projection="3d")
        draw_tokens(axes, TokenState(member.directory), seed)
        axes.set_title(title, fontsize=9)
    return figure


def _resultant(results: Path) -> Figure | None:
    """|m| along depth, mean over the seeds, of all kernels."""
    figure = Figure(figsize=(7.6, 3.2), layout="constrained")
    drawn = False
    for axes, value in zip(figure.subplots(1, 2, sharey=True), (1.0, 4.0), strict=True):
        for name, title in KERNELS.items():
            member = _largest(results, name, value)
            if member is not None:
                columns = member.run().trajectory
                axes.plot(columns["t"][1:], columns["resultant"][1:], color=_STYLES[name], label=title.replace("`", ""))
                drawn = True
        axes.set(xscale="log", xlabel="depth $t$", title=f"β = {value:g}", ylim=(-0.02, 1.02))
    figure.axes[0].set_ylabel("resultant $|m|$, mean over seeds")
    if drawn:  # perhaps at one β only
        next(axes for axes in figure.axes if axes.lines).legend(fontsize=7, loc="upper left")
    return figure if drawn else None


def _spectrum(results: Path) -> Figure | None:
    """Eigenvalues of b on a grid of labels, over L: biases without negative ones, and with."""
    if not any(results.iterdir()):
        return None
    grid = np.arange(_LABELS) / _LABELS
    distance = np.abs(grid[:, None] - grid)
    kernels = {"toeplitz": np.cos(2.0 * np.pi * distance)}
    kernels |= {name: decay(distance / 0.2) for name, decay in DECAYS.items()}
    figure = Figure(figsize=(7.6, 3.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, b in kernels.items():
        values = np.linalg.eigvalsh(b)[::-1] / _LABELS
        signed = values.min() < -1e-10
        axes = right if signed else left
        axes.plot(np.arange(1, 21), values[np.argsort(-np.abs(values), kind="stable")][:20], "o", ms=3.5, label=name)
    for axes, title in ((left, "no negative eigenvalue"), (right, "some negative eigenvalues")):
        axes.axhline(0.0, color="0.3", lw=0.8)
        axes.set(title=title, xlabel="number, by size", ylabel="eigenvalue of $b$ over $L$")
        axes.set_yscale("symlog", linthresh=1e-4)
        axes.set_ylim(-0.2, 1.0)
        axes.legend(fontsize=7, loc="lower left" if axes is left else "center left")
    return figure


def _universality(results: Path) -> Figure | None:
    figure = Figure(figsize=(8.4, 2.9), layout="constrained")
    drawn = False
    for axes, (name, title) in zip(figure.subplots(1, len(LAWS), sharey=True), LAWS.items(), strict=True):
        for series in universality(results / f"universality_{name}-particles"):
            colour = BLUE if series.law == "random" else ORANGE
            axes.loglog(series.counts, series.reached, "o-", ms=4, color=colour, label=f"tokens, {series.law} labels")
            if series.law == "random":
                axes.loglog(series.counts, series.sampled, "--", color=_GREY, label="$n$ samples of the law")
            drawn = True
        axes.set_title(textwrap.fill(title, 18), fontsize=8)
        axes.set_xlabel("$n$")
    figure.axes[0].set_ylabel("sliced $W_1$ to the target law")
    if drawn:
        handles, labels = next(axes for axes in figure.axes if axes.lines).get_legend_handles_labels()
        figure.legend(handles, labels, fontsize=7, loc="outside lower center", ncols=3)
    return figure if drawn else None


def _metastability(results: Path) -> Figure | None:
    """Clusters and interaction energy of some seeds along depth, and the laws of lifetimes."""
    members = sorted(read_members(results / "metastability-particles"), key=beta)
    if not members:
        return None
    figure = Figure(figsize=(8.4, 2.9), layout="constrained")
    clusters, energy, lives = figure.subplots(1, 3)
    member = members[-1]
    arrays, unit = TokenState(member.directory).arrays, math.exp(beta(member))
    depth = arrays["t"][1:] * unit
    for k in range(min(_SHOWN, len(arrays["clusters"]))):
        clusters.plot(depth, arrays["clusters"][k, 1:], lw=1.2)
        energy.plot(depth, arrays["interaction_energy"][k, 1:] / (0.5 * unit), lw=1.2)
    clusters.set(ylabel=f"clusters, β = {beta(member):g}", xscale="log", xlabel="$t e^{β}$", yscale="log")
    energy.set(ylabel="interaction energy over its maximum", xscale="log", xlabel="$t e^{β}$")
    for member, colour in zip(members, (BLUE, GREEN, ORANGE), strict=False):
        found = [depth for depth, _ in collapse_depths(member)]
        depths = np.sort([value * math.exp(beta(member)) for value in found if value is not None])
        shares = np.arange(1, len(depths) + 1) / len(found)
        lives.step(depths, shares, where="post", color=colour, label=f"β = {beta(member):g}")
    lives.set(xscale="log", xlabel="depth of collapse, $e^{−β}$", ylabel="share of seeds with one cluster", ylim=(0, 1))
    lives.legend(fontsize=7)
    return figure
