"""What the trained layers are for: W set to 0 in a window of depth, and the loss without it, window by window.

mpirun -n N python -m solver.pruning RUN [--width W] [--windows N] [--quiet]

RUN is a results folder of solver.run or solver.particles. Writes pruning.json and figures/pruning.png into it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mpi4py import MPI

import numpy as np

from solver.arguments import BAD_INPUT, DONE, FAILED, RankParser, fail, start
from solver.case.load import CaseError, load_case
from solver.case.schema import Case
from solver.log import LOG, Progress, start_log
from solver.types import FloatArray, Json

__all__ = ["Pruned", "main", "prune", "without"]

FORMAT_VERSION = 1
_KINDS = ("density", "particles")  # of summary.json, which names the second only


@dataclass(frozen=True)
class Pruned:
    """Losses without a window of the control.

    Attributes:
        start: Depth at which each window starts, (windows,).
        end: Where it ends, (windows,).
        loss: loss(μ̄_T) with W = 0 there, (windows, systems): one system for a density, one a seed for tokens.
        removed: Share of ∫‖W‖² that lies in the window, (windows, systems); 0 for W = 0.
        trained: The loss with the whole control, (systems,).
        untrained: The loss at W = 0, (systems,).
    """

    start: FloatArray
    end: FloatArray
    loss: FloatArray
    removed: FloatArray
    trained: FloatArray
    untrained: FloatArray

    def content(self) -> Json:
        """For pruning.json."""
        columns: Json = {name: values.tolist() for name, values in vars(self).items()}
        return {"format_version": FORMAT_VERSION, **columns}


def without(t: FloatArray, W: FloatArray, start: float, end: float) -> FloatArray:
    """W set to 0 on [start, end], averaged over each depth step: a step that lies in it by half keeps half of W.

    Args:
        t: Depth grid, (steps + 1,).
        W: Controls, (systems, steps, d, m).
        start: Of the window.
        end: Of the window.
    """
    kept: FloatArray = W * (1.0 - _overlap(t, start, end) / np.diff(t))[None, :, None, None]
    return kept


def prune(
    losses: Callable[[FloatArray], FloatArray], t: FloatArray, W: FloatArray, width: float, windows: int
) -> Pruned:
    """The loss without each of `windows` windows of equal width, evenly placed. Collective if `losses` is.

    Args:
        losses: loss(μ̄_T) of controls (systems, steps, d, m), shape (systems,).
        t: Depth grid, (steps + 1,).
        W: Controls, (systems, steps, d, m).
        width: Of a window, in units of depth, ≤ T.
        windows: Their number.
    """
    starts = np.linspace(0.0, t[-1] - width, windows)
    squares = (W**2).sum(axis=(2, 3))
    whole = squares @ np.diff(t)
    loss, removed = [], []
    progress = Progress("window", windows)
    for number, first in enumerate(starts):
        loss.append(losses(without(t, W, first, first + width)))
        inside = squares @ _overlap(t, first, first + width)
        removed.append(np.divide(inside, whole, out=np.zeros_like(whole), where=whole > 0))
        progress(number + 1)
    return Pruned(starts, starts + width, np.array(loss), np.array(removed), losses(W), losses(np.zeros_like(W)))


def _overlap(t: FloatArray, start: float, end: float) -> FloatArray:
    """Depth of every step that lies in [start, end], (steps,)."""
    shared: FloatArray = np.clip(np.minimum(t[1:], end) - np.maximum(t[:-1], start), 0.0, None)
    return shared


def main(arguments: Sequence[str] | None = None) -> int:
    """Prune a run from the command line; returns the exit code. Collective."""
    comm = MPI.COMM_WORLD
    start(comm)
    parser = RankParser("python -m solver.pruning", "Set W to 0 in a window of depth; the loss against its position.")
    parser.add_argument("run", metavar="RUN", type=Path, help="results folder of solver.run or solver.particles")
    parser.add_argument("--width", metavar="W", type=float, help="of a window, in units of depth (default: T/20)")
    parser.add_argument("--windows", metavar="N", type=int, default=39, help="number of windows (default: 39)")
    parser.add_argument("--quiet", action="store_true", help="print the result and warnings only")
    options = parser.parse_args(arguments)
    start_log(comm, options.quiet)

    from solver.linear import LinearSolveError
    from solver.parallel import on_root
    from solver.sweeps import SweepError

    try:
        case, kind = on_root(comm, lambda: _read(options.run, options.width, options.windows))
        losses, t, W = _tokens(case, options.run) if kind == "particles" else _density(case, options.run, comm)
        if not W.any():
            raise CaseError([f"{options.run}: its control is zero throughout: nothing to prune, train it first"])
        width = case.depth.T / 20 if options.width is None else options.width
        pruned = prune(losses, t, W, width, options.windows)
        if not np.isfinite(pruned.loss).all():
            raise CaseError([f"{options.run}: the loss is not finite, with |W| up to {np.abs(W).max():.3g}"])
        drawn = on_root(comm, lambda: _write(options.run, pruned))
    except CaseError as error:
        return fail(comm, error, BAD_INPUT)
    except (SweepError, LinearSolveError, OSError) as error:
        return fail(comm, error, FAILED)
    if comm.rank == 0:
        print("\n".join([*_lines(pruned), f"wrote {options.run / 'pruning.json'}", *drawn]))
    return DONE


def _read(folder: Path, width: float | None, windows: int) -> tuple[Case, str]:
    """The case of a finished run and which program ran it.

    Raises:
        CaseError: There is none, or the windows do not fit.
    """
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        from postprocess.load import missing_file

        raise CaseError([missing_file(folder, "summary.json")]) from None
    except (OSError, ValueError) as error:
        raise CaseError([f"{folder / 'summary.json'}: cannot be read ({error})"]) from None
    if not isinstance(summary, dict) or summary.get("kind", "density") not in _KINDS or "objective" not in summary:
        raise CaseError([f"{folder / 'summary.json'}: not that of a run of solver.run or solver.particles"])
    case = load_case(folder / "case.toml")
    problems = []
    if width is not None and not 0.0 < width <= case.depth.T:
        problems.append(f"--width: {width!r} is not allowed: above 0, at most T = {case.depth.T:g}")
    if not 1 <= windows <= 10_000:
        problems.append(f"--windows: {windows} is not allowed: 1 to 10000")
    if problems:
        raise CaseError(problems)
    return case, summary.get("kind", "density")


Losses = Callable[[FloatArray], FloatArray]


def _density(case: Case, folder: Path, comm: MPI.Comm) -> tuple[Losses, FloatArray, FloatArray]:
    """Losses of a density, with the run's control (1, steps, d, m). Collective."""
    from solver.control import control_on_grid
    from solver.parallel import on_root
    from solver.problem import Problem

    problem = Problem(case, comm)
    W = on_root(comm, lambda: control_on_grid(folder / "control.npz", problem.t, problem.control_shape[1:], "RUN"))
    return lambda W: np.array([problem.terminal_loss(problem.steps(W[0])[-1].after)]), problem.t, W[None]


def _tokens(case: Case, folder: Path) -> tuple[Losses, FloatArray, FloatArray]:
    """Losses of every seed's tokens, with the controls of all seeds. The same on every rank.

    Raises:
        CaseError: particles.npz is missing or does not fit.
    """
    from solver.particles.create import create_field
    from solver.particles.problem import ParticleProblem

    seeds = [case.particles.seed + k for k in range(case.particles.seeds)]
    problem = ParticleProblem(case, create_field(case, MPI.COMM_SELF), seeds)
    try:
        with np.load(folder / "particles.npz", allow_pickle=False) as data:
            W = np.asarray(data["W"]).astype(np.float64, casting="safe")
    except Exception as error:  # zipfile and numpy each have their own
        raise CaseError([f"{folder / 'particles.npz'}: cannot be read ({error})"]) from None
    if W.shape != (len(seeds), *problem.control_shape):
        raise CaseError(
            [f"{folder / 'particles.npz'}: W {W.shape} does not fit the case: {(len(seeds), *problem.control_shape)}"]
        )

    if not np.isfinite(W).all():
        raise CaseError([f"{folder / 'particles.npz'}: W is not finite"])

    def losses(W: FloatArray) -> FloatArray:
        for x in problem.states(W):  # noqa: B007
            pass
        return problem.losses(x)

    return losses, problem.t, W


def _write(folder: Path, pruned: Pruned) -> list[str]:
    """pruning.json and the picture: one that cannot be drawn loses nothing."""
    from solver.results import write_json

    write_json(folder / "pruning.json", pruned.content())
    try:
        from postprocess.pruning_figure import draw_pruning

        return [f"drew {draw_pruning(folder)}"]
    except Exception as error:
        LOG.warning("figures/pruning.png could not be drawn: %s", error)
        return []


def _lines(pruned: Pruned) -> list[str]:
    """First, middle and last window beside the whole and the untrained."""
    count = len(pruned.start)
    named = {"first": 0, "middle": count // 2, "last": count - 1} if count > 2 else {"first": 0, "last": count - 1}
    lines = [f"loss with the whole control {_shown(pruned.trained)}, untrained {_shown(pruned.untrained)}; W = 0 in"]
    for name, k in named.items():
        lines.append(
            f"  the {name} window, t = {pruned.start[k]:.4g} to {pruned.end[k]:.4g}: {_shown(pruned.loss[k])} "
            f"({100 * pruned.removed[k].mean():.3g} % of ∫‖W‖² removed)"
        )
    return lines


def _shown(values: FloatArray) -> str:
    spread = f" ± {values.std(ddof=1):.2g}" if len(values) > 1 else ""
    return f"{values.mean():.6g}{spread}"


if __name__ == "__main__":
    sys.exit(main())
