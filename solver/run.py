"""Solve a case and write its results folder.

mpirun -n N python -m solver.run CASE [-o DIR] [--set section.key=value]... [--dry-run] [--strict] [--overwrite]
                                 [--quiet]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from mpi4py import MPI

from solver.arguments import BAD_INPUT, DONE, FAILED, RankParser, fail, read_case, read_members, start
from solver.case.load import CaseError
from solver.case.schema import Case
from solver.case.sweep import Member, moved
from solver.case.write import dump_case
from solver.log import LOG, log_to_file, start_log

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; returns the exit code. Collective."""
    comm = MPI.COMM_WORLD
    start(comm)
    options = _parser().parse_args(arguments)
    start_log(comm, options.quiet)
    try:
        sweep = read_members(comm, options.case, options.overrides)
        case = _case(comm, options) if sweep is None else None
    except CaseError as error:
        return fail(comm, error, BAD_INPUT)

    # Imported only now: bad input is reported before PETSc, DOLFINx and gmsh take their seconds.
    from solver.linear import LinearSolveError
    from solver.sweeps import SweepError

    try:
        if sweep is not None:
            return _run_sweep(comm, *sweep, options)
        assert case is not None
        if options.dry_run:
            return _dry_run(comm, case)
        converged = _solve(comm, case, options.overwrite)
    except CaseError as error:
        return fail(comm, error.in_file(options.case), BAD_INPUT)
    except (SweepError, LinearSolveError, OSError) as error:
        return fail(comm, error, FAILED)
    return FAILED if options.strict and not converged else DONE


def _solve(comm: MPI.Comm, case: Case, overwrite: bool) -> bool:
    """Solve a case and write its results folder; whether the optimiser converged. Collective."""
    from solver.output import write_results
    from solver.parallel import on_root
    from solver.problem import Problem
    from solver.report import closing_lines
    from solver.results import PARTIAL_LOG, claim_folder, finish_folder

    directory = case.output.directory or Path("results")
    claim_folder(comm, directory, overwrite)
    on_root(comm, lambda: log_to_file(directory / PARTIAL_LOG))
    _announce(comm, case, directory)
    result = Problem(case, comm).solve()
    write_results(result, directory, case)
    if case.output.figures:
        on_root(comm, lambda: _draw(directory))
    for line in closing_lines(result.summary):
        LOG.info("%s", line)
    if not result.converged:
        LOG.warning("the gradient tolerance was not met; the results are those of the last iterate")
    on_root(comm, lambda: finish_folder(directory))
    return result.converged


def _run_sweep(comm: MPI.Comm, members: list[Member], warm: bool, options: argparse.Namespace) -> int:
    """Run every member of a sweep that is not complete yet. Collective."""
    from solver.sweep import run_members

    if options.output is not None:
        members = moved(members, Path(os.path.abspath(options.output)))
    if options.dry_run:
        if comm.rank == 0:
            print("\n".join([f"{len(members)} members, the first of which is:", *(f"  {m.name}" for m in members), ""]))
        return _dry_run(comm, members[0].case)
    open_ends: list[bool] = []
    done = run_members(
        comm, members, warm, options.overwrite, lambda case, replace: open_ends.append(not _solve(comm, case, replace))
    )
    return DONE if done and not (options.strict and any(open_ends)) else FAILED


def _parser() -> RankParser:
    parser = RankParser("python -m solver.run", "Solve a case: forward, adjoint, control; write a results folder.")
    parser.add_case()
    parser.add_argument("-o", "--output", metavar="DIR", help="results folder (default: results/<case>)")
    parser.add_argument("--overwrite", action="store_true", help="replace the results in that folder")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if the optimiser did not converge")
    parser.add_argument("--quiet", action="store_true", help="print warnings and errors only (run.log has it all)")
    parser.add_argument("--dry-run", action="store_true", help="print the resolved case and what it costs; run nothing")
    parser.add_argument("--resume", action=_NotYet, help="not available yet in this version")
    return parser


class _NotYet(argparse.Action):
    def __init__(self, option_strings: list[str], dest: str, **options: object) -> None:
        super().__init__(option_strings, dest, nargs=0, help=str(options.get("help", "")))

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        parser.error(f"{self.option_strings[0]} is not available yet in this version")


def _case(comm: MPI.Comm, options: argparse.Namespace) -> Case:
    case = read_case(comm, options.case, options.overrides)
    if options.output is None:
        return case
    directory = Path(os.path.abspath(options.output))
    return case.model_copy(update={"output": case.output.model_copy(update={"directory": directory})})


def _dry_run(comm: MPI.Comm, case: Case) -> int:
    """Print the resolved case and an estimate of its costs. Collective."""
    from solver.estimate import estimate, lines

    found = estimate(case, comm)
    if comm.rank == 0:
        print("\n".join([dump_case(case), *lines(found, case, comm.size)]))
    return DONE


def _announce(comm: MPI.Comm, case: Case, directory: Path) -> None:
    LOG.info("%s: %d rank%s, results in %s", case.title, comm.size, "s" if comm.size > 1 else "", directory)
    cores = len(os.sched_getaffinity(0))
    if comm.size > cores:
        LOG.warning("%d ranks on %d cores: right, but slower than %d ranks", comm.size, cores, cores)


def _draw(directory: Path) -> None:
    """Draw the figures; whatever goes wrong there must not lose the run."""
    try:
        from postprocess.figures import draw_figures

        for path in draw_figures(directory):
            LOG.info("drew %s", path)
    except Exception as error:
        LOG.warning("figures could not be drawn (%s); later: python -m postprocess.figures %s", error, directory)


if __name__ == "__main__":
    sys.exit(main())
