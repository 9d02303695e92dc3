"""Stationary states, spectra, rates, barriers and bounds of a case, as a table, theory.json and figures.

mpirun -n N python -m solver.theory CASE [-o DIR] [--set section.key=value]... [--run RUN...] [--one-step]
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mpi4py import MPI

import numpy as np

from solver.arguments import BAD_INPUT, DONE, FAILED, RankParser, fail, read_case, start
from solver.case.load import CaseError
from solver.case.schema import Case
from solver.log import LOG, start_log

if TYPE_CHECKING:
    from types import ModuleType

    from matplotlib.figure import Figure

    from postprocess.load import Run
    from solver.theory.inequality import PLSamples
    from solver.theory.quantities import Measured
    from solver.types import Json

__all__ = ["main"]

_ROUND_OFF = 1e-15  # of a gap, relative to ε
_SIZES = (1e-1, 1e-2, 1e-3, 1e-4)  # of perturbations along a mode, relative to ρ


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; returns the exit code. Collective."""
    comm = MPI.COMM_WORLD
    start(comm)
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.alpha is not None and (not options.one_step or not _apart(options.alpha)):
        parser.error("--alpha takes at least three step sizes, 1 % apart or more, and belongs to --one-step")
    start_log(comm, options.quiet)
    try:
        case = read_case(comm, options.case, options.overrides)
        if case.auxiliary.labelled:
            raise CaseError(["auxiliary: the theory knows no labels; give a case without them"])
        directory = Path(os.path.abspath(options.output)) if options.output else case.output.directory
        return _run(comm, case, directory or Path("results"), options)
    except CaseError as error:
        return fail(comm, error.in_file(options.case), BAD_INPUT)


def _parser() -> RankParser:
    parser = RankParser("python -m solver.theory", "Stationary states, spectra, rates, barriers and bounds of a case.")
    parser.add_case()
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="where theory.json goes (default: the case's results folder)"
    )
    parser.add_argument("--no-refine", action="store_true", help="no second mesh of half the edge length, no h → 0")
    parser.add_argument("--modes", metavar="N", type=_count, default=8, help="slow modes to find (default: 8)")
    parser.add_argument("--samples", metavar="N", type=_count, default=1000,
                        help="random densities on which D ≥ c_PL Δ is tested (default: 1000)")  # fmt: skip
    parser.add_argument(
        "--run",
        dest="runs",
        metavar="RUN",
        type=Path,
        nargs="+",
        default=[],
        help="also test the dissipation inequality and the turnpike bound on these results folders",
    )
    parser.add_argument("--one-step", action="store_true", help="also one step of gradient descent and its lower bound")
    parser.add_argument("--alpha", metavar="A", type=_positive, nargs="+",
                        help="its step sizes, at least three (default: from the size of the gradient)")  # fmt: skip
    parser.add_argument("--quiet", action="store_true", help="print the table and warnings only")
    return parser


def _count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number between 1 and 10000")
    return int(text)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 1e-12 <= value <= 1e300:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1e-12 to 1e300")
    return value


def _apart(alphas: Sequence[float]) -> bool:
    """Whether a parabola in α can be fitted."""
    rising = np.sort(alphas)
    return len(rising) >= 3 and bool((rising[1:] >= 1.01 * rising[:-1]).all())


def _run(comm: MPI.Comm, case: Case, directory: Path, options: argparse.Namespace) -> int:
    """Everything after the case has been read. Collective."""
    # Imported only now: bad input is reported before PETSc, DOLFINx and gmsh take their seconds.
    from solver.linear import LinearSolveError
    from solver.parallel import on_root
    from solver.problem import Problem
    from solver.results import write_json
    from solver.sweeps import SweepError
    from solver.theory.quantities import measure
    from solver.theory.report import content, extrapolated, rows, table
    from solver.theory.trained import read_runs

    def claim() -> None:
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CaseError([f"output.directory: {str(directory)!r} cannot be written: {error.strerror}"]) from None
        if (directory / "theory.json").is_dir() or (directory / "theory").is_file():
            what = "theory.json that is a folder" if (directory / "theory.json").is_dir() else "theory that is a file"
            raise CaseError([f"output.directory: {directory} holds a {what}; use another folder (-o DIR)"])

    on_root(comm, claim)
    runs = on_root(comm, lambda: read_runs(case, options.runs))
    try:
        measured = measure(Problem(case, comm), options.modes)
        finer = None if options.no_refine else _finer(case)
        fine = None if finer is None else measure(Problem(finer, comm), options.modes)
        found = rows(measured, extrapolated(measured, fine) if fine is not None else {})
        samples = _sample(measured, options.samples)
        result = content(measured, found, fine, samples, _ratios(measured))
        words = _verdicts(samples, result) + _trained(comm, measured, runs, options, directory, result)
        on_root(comm, lambda: write_json(directory / "theory.json", result))
        drawn = _draw(comm, measured, directory)
    except (SweepError, LinearSolveError, OSError) as error:
        return fail(comm, error, FAILED)
    if comm.rank == 0:
        print("\n".join([table(measured, found), *words, *drawn]))
        print(f"wrote {directory / 'theory.json'}")
    return DONE


def _finer(case: Case) -> Case | None:
    """The case on a mesh of half the edge length; None where the mesh comes from a file."""
    if case.geometry.h is None:
        LOG.warning("geometry.file: there is no finer mesh, so no values for h → 0")
        return None
    geometry = case.geometry.model_copy(update={"h": 0.5 * case.geometry.h, "continuation": ()})
    return case.model_copy(update={"geometry": geometry})


def _sample(measured: Measured, samples: int) -> list[PLSamples]:
    """Tests of the PL inequality, where there are a constant and a barrier. Collective."""
    from solver.theory.inequality import NEIGHBOURHOOD, sample_inequality

    constant, barrier = measured.values.get("c_PL", -1.0), measured.values.get("barrier", -1.0)
    if constant <= 0.0 or barrier <= 0.0:
        measured.reasons["inequality"] = "D ≥ c_PL Δ needs a stable state, c_PL > 0, and a barrier Δ₀ > 0"
        return []
    near, limit = measured.states["near"], NEIGHBOURHOOD * barrier
    found = [sample_inequality(near, family, constant, limit, samples) for family in ("relative", "tilted")]
    resolved = [sample for sample in found if sample.gaps.min() > _ROUND_OFF * measured.problem.epsilon]
    if len(resolved) < len(found):
        measured.reasons["inequality"] = "gaps of perturbed densities are round-off: the cluster sits on one node"
    return resolved


def _ratios(measured: Measured) -> dict[str, Json]:
    """D/Δ along the slowest mode of each place. Collective."""
    from solver.theory.equilibrium import TheoryError
    from solver.theory.inequality import along_mode

    found: dict[str, Json] = {}
    if not measured.problem.attention.has_energy:
        return found
    for place in ("cluster", "hilltop"):
        mode = next((mode for mode in measured.modes if mode.place == place), None)
        if mode is None:
            continue
        try:
            ratios = along_mode(measured.states["near"], mode, np.array(_SIZES))
        except TheoryError as error:
            measured.reasons[f"inequality along the {place} mode"] = str(error)
            continue
        found[place] = {"two_a": 2.0 * mode.rate, "sizes": list(_SIZES), "ratios": [float(ratio) for ratio in ratios]}
    return found


def _trained(
    comm: MPI.Comm, measured: Measured, runs: list[Run], options: argparse.Namespace, directory: Path, result: Json
) -> list[str]:
    """Bounds along trained runs and one step of gradient descent: into `result`, as pictures, as text. Collective."""
    from solver.parallel import on_root
    from solver.results import finite
    from solver.sweeps import SweepError
    from solver.theory.equilibrium import TheoryError
    from solver.theory.one_step import one_step
    from solver.theory.trained import bounds_along, bounds_text, one_step_text, step_columns

    lines: list[str] = []
    figures: list[tuple[str, Callable[[], Figure]]] = []
    result["run"], result["one_step"] = None, None
    if runs:
        try:
            bounds = bounds_along(measured, runs)
            result["run"] = finite(bounds.content())
            lines += bounds_text(bounds)
            figures.append(("bound", lambda: _run_figures().bound_figure(runs, bounds.turnpike)))
        except ValueError as error:
            result["reasons"]["run"] = str(error)
            lines.append(f"undefined (run): {error}")
    if options.one_step:
        try:
            if "near" not in measured.states or not measured.problem.attention.has_energy:
                raise TheoryError("1-GD needs a stationary state and an energy")
            step = one_step(measured.problem, measured.states["near"], options.alpha)
            result["one_step"] = finite(step_columns(step))
            lines += one_step_text(step)
            figures.append(("one_step", lambda: _run_figures().one_step_figure(step)))
        except (TheoryError, SweepError, ValueError) as error:  # LinAlgError of step sizes too close is a ValueError
            result["reasons"]["one_step"] = str(error)
            lines.append(f"undefined (one_step): {error}")
    return lines + on_root(comm, lambda: _save(figures, directory / "theory"))


def _run_figures() -> ModuleType:
    import postprocess.theory_run_figures

    return postprocess.theory_run_figures


def _save(figures: list[tuple[str, Callable[[], Figure]]], folder: Path) -> list[str]:
    """Draw; a picture that cannot be drawn loses nothing."""
    drawn = []
    for name, make in figures:
        try:
            import matplotlib as mpl

            from postprocess.figures import STYLE

            folder.mkdir(exist_ok=True)
            with mpl.rc_context(STYLE):
                make().savefig(folder / f"{name}.png")
            drawn.append(f"drew {folder / f'{name}.png'}")
        except Exception as error:
            LOG.warning("%s.png could not be drawn: %s", name, error)
    return drawn


def _verdicts(samples: list[PLSamples], result: Json) -> list[str]:
    lines = [
        f"D ≥ c_PL Δ on {len(sample.gaps)} {sample.family} densities, gaps up to {sample.gaps.max():.2g}: "
        f"min D/Δ = {sample.smallest:.4g} against {sample.constant:.4g}, {sample.violations} violations"
        for sample in samples
    ]
    for place, row in (result["inequality_along_modes"] or {}).items():
        lines.append(f"D/Δ along the slowest {place} mode, |μ/ρ − 1| ≤ {row['sizes'][-1]:g}: "
                     f"{row['ratios'][-1]:.5g}, 2a = {row['two_a']:.5g}")  # fmt: skip
    return lines


def _draw(comm: MPI.Comm, measured: Measured, directory: Path) -> list[str]:
    """Write the modes and draw the figures; a picture that cannot be drawn loses nothing. Collective."""
    from solver.parallel import on_root

    if not measured.modes:
        return []
    space = measured.problem.space
    values = np.array([mode.u for mode in measured.modes]) / np.sqrt(space.mass[: space.owned])
    gathered = space.gather(values)

    def draw() -> list[str]:
        if space.input_mesh is None or gathered is None:
            raise RuntimeError("the mesh is kept on rank 0 only")
        (directory / "theory").mkdir(exist_ok=True)
        np.savez(
            directory / "theory" / "modes.npz",
            points=space.input_mesh.points,
            cells=space.input_mesh.cells,
            modes=gathered,
            rates=np.array([mode.rate for mode in measured.modes]),
            pole=measured.axes[:, 0],
        )
        try:
            from postprocess.theory_figures import draw_theory

            return [f"drew {path}" for path in draw_theory(directory)]
        except Exception as error:
            LOG.warning("figures could not be drawn: %s", error)
            return []

    return on_root(comm, draw)
