"""Figures of what P1's theory says along a run: the turnpike bound, and one step of gradient descent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from postprocess.figures import BLUE, GREEN, ORANGE
from postprocess.load import Run
from solver.theory.one_step import OneStep
from solver.theory.turnpike import LATE_ESCAPE, NEITHER, VIA_THE_SADDLE, RunBound, TurnpikeBound

__all__ = ["bound_figure", "one_step_figure"]

_SHADE = "#CFE3F1"
_LOWEST = 1e-13  # of the largest gap: below it the gap is round-off
_END = 20.0  # depth shown at either end


def bound_figure(runs: Sequence[Run], bound: TurnpikeBound) -> Figure:
    """Δ of all runs against t and against T − t, one row a family, with the fitted bound of every run dashed.

    Args:
        runs: Those that the bound was made of, in any order; names of folders tell them apart.
        bound: Their bound.
    """
    by_name = {run.directory.name: run for run in runs}
    families = [
        family
        for family in (LATE_ESCAPE, VIA_THE_SADDLE, NEITHER)
        if any(entry.family == family for entry in bound.runs)
    ]
    figure = Figure(figsize=(6.6, 2.7 * len(families) + 0.3), layout="constrained")
    grid = figure.subplots(len(families), 2, sharey="row", squeeze=False)
    for (left, right), family in zip(grid, families, strict=True):
        entries = [entry for entry in bound.runs if entry.family == family]
        for k, entry in enumerate(entries):
            colour = _colours(len(entries))[k]
            _draw_run(left, right, by_name[entry.name], entry, colour)
        largest = max(float(by_name[entry.name].trajectory["energy_gap"].max()) for entry in entries)
        lowest = min(float(_positive(by_name[entry.name].trajectory["energy_gap"]).min()) for entry in entries)
        left.set_ylim(max(lowest, _LOWEST * largest) / 3, 10 * largest)
        span = min(_END, max(entry.T for entry in entries))
        left.set_xlim(0.0, span)
        right.set_xlim(span, 0.0)
        left.set_ylabel(r"$\Delta=E-E_{\min}$" + f"\n{family}")
        left.legend(loc="best", frameon=False)
        left.set_xlabel("$t$")
        right.set_xlabel("$T-t$")
    figure.suptitle(_bound_title(bound), fontsize=9)
    return figure


def _colours(count: int) -> list[tuple[float, float, float]]:
    """From blue to orange."""
    first, last = (np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]) for colour in (BLUE, ORANGE))
    mixed = [first + (last - first) * k / max(count - 1, 1) for k in range(count)]
    return [(float(r), float(g), float(b)) for r, g, b in mixed]


def _positive(gap: np.ndarray) -> np.ndarray:
    return gap[gap > 0.0]


def _draw_run(left: Axes, right: Axes, run: Run, entry: RunBound, colour: tuple[float, float, float]) -> None:
    t, gap = run.t, run.trajectory["energy_gap"]
    shown = np.where(gap > 0.0, gap, np.nan)
    left.semilogy(t, shown, color=colour, label=f"$T={entry.T:g}$")
    right.semilogy(entry.T - t, shown, color=colour)
    if entry.a is None or entry.C is None:
        return
    floor = 0.0 if entry.family == VIA_THE_SADDLE else max(entry.F, 0.0)
    fine = np.linspace(0.0, entry.T, 2001)
    curve = floor + entry.C * (np.exp(-entry.a * fine) + np.exp(-entry.a * (entry.T - fine)))
    left.semilogy(fine, curve, color=colour, ls="--", lw=0.9)
    right.semilogy(entry.T - fine, curve, color=colour, ls="--", lw=0.9)


def _bound_title(bound: TurnpikeBound) -> str:
    parts = ["dashed: smallest $F + C(e^{-at}+e^{-a(T-t)})$"]
    if bound.late.rate_spread is not None and bound.late.constant_spread is not None:
        a, C = bound.late.rate_spread, bound.late.constant_spread
        parts.append(f"{LATE_ESCAPE}: spread of $a$ {100 * a:.2g} %, of $C$ {100 * C:.2g} %")
    if bound.saddle.growth is not None and bound.saddle.expected is not None:
        parts.append(
            f"{VIA_THE_SADDLE}: $C$ grows like $e^{{{bound.saddle.growth:.3f}\\,T}}$, $a/2={bound.saddle.expected:.3f}$"
        )
    return "\n".join([parts[0], "; ".join(parts[1:])]) if len(parts) > 1 else parts[0]


def one_step_figure(step: OneStep) -> Figure:
    """Δ_t(α)/α² of every α and Δ₂ against T − t, with Ω e^{−2(T−t)R_ρ}; the window is shaded."""
    remaining = step.t[-1] - step.t
    figure = Figure(figsize=(6.6, 3.6), layout="constrained")
    axes = figure.subplots()
    for k, (alpha, gap) in enumerate(zip(step.alphas, step.gap, strict=True)):
        colour = _colours(len(step.alphas))[k]
        axes.semilogy(
            remaining, np.where(gap > 0, gap, np.nan) / alpha**2, color=colour, label=rf"$\alpha={alpha:.3g}$"
        )
    quadratic = np.where(step.quadratic > 0.0, step.quadratic, np.nan)
    axes.semilogy(remaining, quadratic, color="black", lw=0.9, label=r"$\Delta_2$ ($\alpha\to 0$)")
    top = float((step.gap / step.alphas[:, None] ** 2)[:, -1].max())
    span, bottom = float(remaining[0]), 1e-8 * top
    if step.window is not None:
        window = step.window
        decay = np.exp(-2.0 * remaining * step.rayleigh)
        label = r"$\Omega\,e^{-2(T-t)R_\rho}$"
        axes.semilogy(remaining, window.Omega * decay, color=GREEN, ls="--", label=label)
        width = step.t[-1] - window.start
        axes.axvspan(step.t[-1] - window.end, width, color=_SHADE, zorder=0, lw=0)
        span = min(span, 1.6 * width)
        bottom = 0.1 * window.Omega * float(np.exp(-2.0 * width * step.rayleigh))
        axes.set_title(
            rf"exponent {window.exponent:.4f}, $2R_\rho={2 * step.rayleigh:.4f}$; $\Omega={window.Omega:.3g}$, "
            rf"$C_R={window.C_R:.2g}$",
            fontsize=9,
        )
    axes.set_xlim(span, 0.0)
    axes.set_ylim(bottom, 10.0 * top)
    axes.set_xlabel("$T-t$")
    axes.set_ylabel(r"$\Delta_t(\alpha)/\alpha^2$")
    axes.legend(loc="best", frameon=False)
    return figure
