"""Command-line helpers for programs that run on many ranks: errors are printed once, and exit codes agree."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from mpi4py import MPI

from solver import __version__
from solver.case.load import CaseError, load_case, parse_override
from solver.case.schema import Case
from solver.case.sweep import Member, is_sweep, load_members
from solver.parallel import abort_on_exception, check_launcher, on_root

__all__ = ["BAD_INPUT", "DONE", "FAILED", "RankParser", "fail", "read_case", "read_members", "start"]

DONE, FAILED, BAD_INPUT = 0, 1, 2


class RankParser(argparse.ArgumentParser):
    """An argument parser that speaks on rank 0 only."""

    def __init__(self, program: str, description: str) -> None:
        super().__init__(prog=program, description=description, allow_abbrev=False)
        self.add_argument("--version", action="version", version=f"turnpike {__version__}")

    def _print_message(self, message: str, file: object = None) -> None:
        if MPI.COMM_WORLD.rank == 0:
            super()._print_message(message, file)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """Print usage and the message once; exit with 2."""
        if MPI.COMM_WORLD.rank == 0:
            sys.stderr.write(f"{self.prog}: {message}\n{self.format_usage()}")
        raise SystemExit(BAD_INPUT)

    def add_case(self) -> None:
        """The case file and ``--set``."""
        self.add_argument("case", metavar="CASE", help="case file (TOML)")
        self.add_argument(
            "--set", dest="overrides", metavar="section.key=value", action="append", default=[],
            help="change a key of the case; may be repeated",
        )  # fmt: skip


def start(comm: MPI.Comm = MPI.COMM_WORLD) -> None:
    """What every parallel program does first: errors end all ranks, a wrong mpirun is refused."""
    abort_on_exception(comm)
    if any(word != word.encode(errors="ignore").decode() for word in sys.argv):
        sys.stderr.write("the command line holds characters that are not UTF-8\n" if comm.rank == 0 else "")
        raise SystemExit(BAD_INPUT)
    problem = check_launcher(comm)
    if problem is not None:
        sys.stderr.write(f"{problem}\n")  # every process is its own rank 0 here
        raise SystemExit(BAD_INPUT)


def read_case(comm: MPI.Comm, path: str, overrides: Sequence[str]) -> Case:
    """Read and validate a case on rank 0, for all ranks. Collective.

    Raises:
        CaseError: On every rank.
    """

    return on_root(comm, lambda: load_case(path, _pairs(overrides)))


def read_members(comm: MPI.Comm, path: str, overrides: Sequence[str]) -> tuple[list[Member], bool] | None:
    """The members of a sweep and whether they start from each other; None for a case without ``[sweep]``. Collective.

    Raises:
        CaseError: On every rank.
    """

    def read() -> tuple[list[Member], bool] | None:
        pairs = _pairs(overrides)
        return load_members(path, pairs) if is_sweep(path, pairs) else None

    return on_root(comm, read)


def _pairs(overrides: Sequence[str]) -> dict[str, object]:
    """``section.key`` → value.

    Raises:
        CaseError: Some are not written like that.
    """
    pairs, errors = [], []
    for text in overrides:
        try:
            pairs.append(parse_override(text))
        except CaseError as error:
            errors += error.lines
    if errors:
        raise CaseError(errors)
    return dict(pairs)


def fail(comm: MPI.Comm, error: Exception, code: int) -> int:
    """Print an error once and return its exit code."""
    if comm.rank == 0:
        sys.stdout.flush()
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
    return code
