"""Stationary states, spectra, rates, barriers and bounds of a case, as a table, theory.json and figures.

mpirun -n N python -m solver.theory CASE [-o DIR] [--set section.key=value]... [--run RUN...] [--one-step]
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mpi4py import MPI

import numpy as np

from solver.arguments import BAD_INPUT, DONE, FAILED, RankParser, fail, read_case, start
from solver.case.load import CaseError
from solver.case.schema import Case
from solver.log import LOG, start_log

if TYPE_CHECKING:
    from solver.theory.inequality import PLSamples
    from solver.theory.quantities import Measured
    from solver.types import Json

__all__ = ["main"]

_SIZES = (1e-1, 1e-2, 1e-3, 1e-4)  # of perturbations along a mode, relative to ρ


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; returns the exit code. Collective."""
    comm = MPI.COMM_WORLD
    start(comm)
    options = _parser().parse_args(arguments)
    start_log(comm, options.quiet)
    try:
        case = read_case(comm, options.case, options.overrides)
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
    parser.add_argument("--modes", metavar="N", type=_count, default=8, help="slow modes to compute (default: 8)")
    parser.add_argument("--samples", metavar="N", type=_count, default=1000,
                        help="random densities on which D ≥ c_PL Δ is tested (default: 1000)")  # fmt: skip
    parser.add_argument("--quiet", action="store_true", help="print the table and warnings only")
    return parser


def _count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 100_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number between 1 and 100000")
    return int(text)


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

    def claim() -> None:
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CaseError([f"output.directory: {str(directory)!r} cannot be written: {error.strerror}"]) from None

    on_root(comm, claim)
    try:
        measured = measure(Problem(case, comm), options.modes)
        finer = None if options.no_refine else _finer(case)
        fine = None if finer is None else measure(Problem(finer, comm), options.modes)
        found = rows(measured, extrapolated(measured, fine) if fine is not None else {})
        samples = _sample(measured, options.samples)
        result = content(measured, found, fine, samples, _ratios(measured))
        on_root(comm, lambda: write_json(directory / "theory.json", result))
        drawn = _draw(comm, measured, directory)
    except (SweepError, LinearSolveError, OSError) as error:
        return fail(comm, error, FAILED)
    if comm.rank == 0:
        print("\n".join([table(measured, found), *_verdicts(samples, result), *drawn]))
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
    return [sample_inequality(near, family, constant, limit, samples) for family in ("relative", "tilted")]


def _ratios(measured: Measured) -> dict[str, Json]:
    """D/Δ along the slowest mode of each place. Collective."""
    from solver.theory.equilibrium import TheoryError
    from solver.theory.inequality import along_mode

    found: dict[str, Json] = {}
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
