"""Train N tokens, or run them under a given control, and write a results folder.

mpirun -n N python -m solver.particles CASE [-o DIR] [--control RUN/control.npz] [--set section.key=value]...
                                       [--strict] [--overwrite] [--quiet]

Seeds are spread over the ranks; nothing depends on how many there are.
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
        if sweep is not None:
            return _run_sweep(comm, *sweep, options)
        converged = _solve(comm, _case(comm, options), options.control, options.overwrite)
    except CaseError as error:
        return fail(comm, error.in_file(options.case), BAD_INPUT)
    except OSError as error:
        return fail(comm, error, FAILED)
    return FAILED if options.strict and not converged else DONE


def _solve(comm: MPI.Comm, case: Case, control: Path | None, overwrite: bool) -> bool:
    """Train or run the tokens of a case and write its folder; whether every seed converged. Collective."""
    from solver.parallel import on_root
    from solver.particles.ensemble import solve_ensemble
    from solver.particles.output import write_ensemble
    from solver.results import PARTIAL_LOG, claim_folder, finish_folder

    directory = case.output.directory or Path("results")
    claim_folder(comm, directory, overwrite)
    on_root(comm, lambda: log_to_file(directory / PARTIAL_LOG))
    LOG.info(
        "%s: %d tokens, %d seed%s on %d rank%s, results in %s", case.title, case.particles.n, case.particles.seeds,
        "s" if case.particles.seeds > 1 else "", comm.size, "s" if comm.size > 1 else "", directory,
    )  # fmt: skip
    ensemble = solve_ensemble(case, comm, control)
    on_root(comm, lambda: write_ensemble(ensemble, directory, case), share=False)
    converged = bool(comm.bcast(ensemble is not None and ensemble.converged, root=0))
    if not converged:
        LOG.warning("the gradient tolerance was not met on every seed; the results are those of the last iterates")
    on_root(comm, lambda: finish_folder(directory))
    return converged


def _run_sweep(comm: MPI.Comm, members: list[Member], warm: bool, options: argparse.Namespace) -> int:
    """Run every member of a sweep that is not complete yet. Collective."""
    from solver.sweep import run_members

    own = members[0].case.output.directory
    members = moved(members, _directory(options, own.parent if own is not None else None))
    open_ends: list[bool] = []
    done = run_members(
        comm, members, warm, options.overwrite,
        lambda case, replace: open_ends.append(not _solve(comm, case, options.control, replace)),
    )  # fmt: skip
    return DONE if done and not (options.strict and any(open_ends)) else FAILED


def _parser() -> RankParser:
    parser = RankParser("python -m solver.particles", "Train N tokens, or run them under a given control.")
    parser.add_case()
    parser.add_argument("-o", "--output", metavar="DIR", help="results folder (default: results/<case>-particles)")
    parser.add_argument("--control", metavar="NPZ", type=Path, help="run this control.npz; nothing is trained")
    parser.add_argument("--overwrite", action="store_true", help="replace the results in that folder")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a seed did not converge")
    parser.add_argument("--quiet", action="store_true", help="print warnings and errors only (run.log has it all)")
    return parser


def _case(comm: MPI.Comm, options: argparse.Namespace) -> Case:
    """The case, with a results folder of its own unless one was named."""
    case = read_case(comm, options.case, options.overrides)
    directory = _directory(options, case.output.directory)
    return case.model_copy(update={"output": case.output.model_copy(update={"directory": directory})})


def _directory(options: argparse.Namespace, directory: Path | None) -> Path:
    """A folder beside the PDE's default one, unless one was named."""
    default = Path.cwd() / "results" / Path(options.case).stem
    if options.output is not None:
        return Path(os.path.abspath(options.output))
    return default.with_name(f"{default.name}-particles") if directory in {None, default} else directory or default


if __name__ == "__main__":
    sys.exit(main())
