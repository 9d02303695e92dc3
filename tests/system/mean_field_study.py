"""Tokens under the PDE's optimal control against the PDE, N = 64 … 65 536; writes docs/mean-field-limit.md.

python tests/system/mean_field_study.py          some minutes on one core
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import solver  # noqa: E402, F401  (loads the MPI and PETSc libraries in the right order)

# isort: split
import matplotlib as mpl  # noqa: E402
import numpy as np  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from system.mean_field_studies import (  # noqa: E402
    Level,
    Limit,
    circle_case,
    deviations,
    exponents,
    ladder,
    level,
    limit,
    optimal_control,
    particles,
    sphere_case,
)

from postprocess.figures import BLUE, GREEN, ORANGE, STYLE  # noqa: E402

COMMAND = "python tests/system/mean_field_study.py"
STEPS = 20  # of x per unit of depth; y takes twice as many
TOKENS = 65_536  # in all seeds of a level together, at least
SEEDS = 8  # of a level, at least


@dataclass(frozen=True)
class Study:
    """One manifold: the PDE on its finest mesh and on one twice as coarse, and the tokens."""

    name: str
    limit: Limit
    coarser: Limit
    levels: list[Level]
    seconds: float


def study(manifold: str) -> Study:
    started = time.process_time()
    if manifold == "circle":
        make, fine, coarser, last = circle_case, (0.00125, 0.00625), (0.0025, 0.0125), 65_536
    else:
        make, fine, coarser, last = sphere_case, (0.025, 0.025), (0.05, 0.05), 16_384
    case = make()
    t, W = optimal_control(case)
    found = [limit(make(**{"geometry.h": h, "depth.first_step": dt}), t, W) for h, dt in (fine, coarser)]
    levels = []
    for n in ladder(64, last):
        levels.append(level(particles(case, n, STEPS), t, W, found[0], max(SEEDS, TOKENS // n)))
        print(f"{manifold}: N = {n}, {time.process_time() - started:.0f} s so far", flush=True)
    return Study(manifold, found[0], found[1], levels, time.process_time() - started)


def table(rows: list[list[str]]) -> str:
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def convergence(found: Study) -> str:
    """Deviations level by level, and the fitted exponents."""
    extrapolated, plain = (deviations(found.levels, found.limit, which) for which in (True, False))
    samples = np.array([each.samples.mean() for each in found.levels])
    plain_heads = [f"{what}, Δt = 1/{2 * STEPS}" for what in ("loss", "energy", "W₁")]
    rows = [["N", "seeds", "loss", "interaction energy", "W₁", "W₁, N exact samples", *plain_heads]]
    for each, one, other, exact in zip(found.levels, extrapolated, plain, samples, strict=True):
        rows.append([f"{each.n}", f"{each.seeds}", *(f"{value:.1e}" for value in [*one, exact, *other])])
    fitted = [*exponents(found.levels, extrapolated), *exponents(found.levels, samples[:, None])]
    rows.append(["exponent", "", *(f"**{value:.2f}**" for value in [*fitted, *exponents(found.levels, plain)])])
    return table(rows)


def signed(found: Study) -> str:
    """Mean differences with their standard errors: what does not vanish like N^{−1/2}."""
    rows = [["N", "loss", "in s.e.", "interaction energy", "in s.e.", "loss, Δt = 1/40", "energy, Δt = 1/40"]]
    for each in found.levels:
        goal = np.array([found.limit.loss, found.limit.energy])
        mean = each.extrapolated[:, :2].mean(axis=0) - goal
        error = each.extrapolated[:, :2].std(axis=0, ddof=1) / np.sqrt(each.seeds)
        plain = each.plain[:, :2].mean(axis=0) - goal
        cells = [f"{mean[0]:+.1e}", f"{mean[0] / error[0]:+.1f}", f"{mean[1]:+.1e}", f"{mean[1] / error[1]:+.1f}"]
        rows.append([f"{each.n}", *cells, f"{plain[0]:+.1e}", f"{plain[1]:+.1e}"])
    return table(rows)


def resolution(found: Study) -> str:
    """How well the PDE itself is resolved."""
    fine, coarser = found.limit, found.coarser
    change = np.array([fine.loss - coarser.loss, fine.energy - coarser.energy])
    return (
        f"PDE: {fine.nodes} nodes, {fine.steps} steps: loss {fine.loss:.6f}, interaction energy {fine.energy:.6f}. "
        f"They are\n{change[0]:+.1e} and {change[1]:+.1e} off those with h and Δt twice as large "
        f"({coarser.nodes} nodes, {coarser.steps} steps);\nboth are of order 2, so about {abs(change[0]) / 3:.0e} and "
        f"{abs(change[1]) / 3:.0e} are left."
    )


def figure(studies: list[Study]) -> Figure:
    drawn = Figure(figsize=(6.6, 5.6), layout="constrained")
    grid = drawn.subplots(len(studies), 3, squeeze=False, sharex="row")
    titles = ("loss, rms difference", "interaction energy, rms difference", "$W_1$, mean")
    for found, row in zip(studies, grid, strict=True):
        n = np.array([each.n for each in found.levels])
        extrapolated, plain = (deviations(found.levels, found.limit, which) for which in (True, False))
        slopes = exponents(found.levels, extrapolated)
        for k, axes in enumerate(row):
            axes.loglog(n, plain[:, k], color=BLUE, marker="s", ms=3, lw=0.8, ls="--", label=r"$\Delta t = 1/40$")
            axes.loglog(n, extrapolated[:, k], color=ORANGE, marker="o", ms=3.5, lw=0, label=r"$\Delta t \to 0$")
            fit = np.exp(np.polyval(np.polyfit(np.log(n), np.log(extrapolated[:, k]), 1), np.log(n)))
            axes.loglog(n, fit, color=ORANGE, lw=1.0, label=f"$N^{{{slopes[k]:.2f}}}$")
            axes.set_title(titles[k] if k < 2 or found.name == "circle" else f"sliced {titles[k]}", fontsize=8)
        exact = [each.samples.mean() for each in found.levels]
        row[2].loglog(n, exact, color=GREEN, marker="^", ms=3, lw=0.8, label="exact samples")
        row[0].set_ylabel(found.name)
        for axes in row:
            axes.legend(fontsize=6.5, loc="upper right")
            axes.set_xlabel("tokens $N$")
    return drawn


def main() -> None:
    studies = [study("circle"), study("sphere")]
    circle, sphere = studies
    with mpl.rc_context(STYLE):
        figure(studies).savefig(ROOT / "docs" / "images" / "mean-field-limit.png")
    text = f"""# The mean-field limit

N tokens, moved by the particle module under the control that is optimal for the PDE, against the PDE. The two share the
case and the definitions of kernel, features and loss; nothing of the discretisation. Made by

    {COMMAND}

in {sum(found.seconds for found in studies):.0f} s of one core. The test `tests/system/test_mean_field.py` asserts the
exponents at a smaller size; `python -m postprocess.compare` makes the comparison for any pair of runs.

![Differences against N](images/mean-field-limit.png)

**Measured at T**: root mean square over seeds of the difference of loss and of interaction energy (pairs i = j
included); mean Wasserstein-1 distance to the PDE's density, exact on the circle (rad), sliced over 48 directions on the
sphere (chord). Beside it the distance that N independent samples of the density have: tokens are further away than
these, because they move together. A fluctuation of their common angle is not forgotten while they turn to the target.
Seeds: 8, or as many as make 65 536 tokens. With fewer, small N would look better than they are: the few tokens that
start near −e₁ and arrive late weigh 2/N in the loss each, and in most small samples there are none.

**Depth step.** The particles' scheme is of weak order 1, and at Δt = 1/40 its bias exceeds the sampling error from a
few thousand tokens on (last three columns): the distances stop falling. Therefore every seed is run twice along the
same Brownian paths, with Δt = 1/{STEPS} (tokens x) and 1/{2 * STEPS} (y), and extrapolated to second order in Δt: loss
and energy are twice those of y less those of x. W₁ on the circle is that of the tokens (2y − x)/|2y − x|; on the sphere
(where a token's own error has a part of order √Δt and mean zero, which would add to the width) that of masses 2/N at y
and −1/N at x. Steps alone would have to be some ten times smaller to get below the sampling error of 65 536 tokens.
Every N has random numbers of its own.

## Circle

`cases/turnpike_circle.toml` with T = 20: target at 45°, ε = 0.01. The control is the optimum on the case's own mesh
(628 nodes, 338 steps); with it the PDE is run again on a finer mesh and grid. (The case's own are off by 0.007 rad in
the angle at T, and 0.0025 in the interaction energy: as much as the spread of 1000 tokens.)

{resolution(circle)}

{convergence(circle)}
Mean differences, which a bias would leave over:

{signed(circle)}
## Sphere

`cases/turnpike.toml` with T = 5 and ε = 0.1. (With the case's ε = 0.02, h = 0.1 is off by 0.06 rad in the angle at
T = 10, ten times the spread of 500 tokens, and h = 0.035 still by 0.01: a mesh that resolves such a cluster beside
16 384 tokens is too large for this study.)

{resolution(sphere)}

{convergence(sphere)}
{signed(sphere)}"""
    (ROOT / "docs" / "mean-field-limit.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
