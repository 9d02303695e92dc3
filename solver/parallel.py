"""MPI helpers: rank-0 work with errors raised everywhere, reductions, and the end of all ranks on an error."""

from __future__ import annotations

import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from mpi4py import MPI

import numpy as np

from solver.types import FloatArray

__all__ = ["abort_on_exception", "allreduce", "check_launcher", "everywhere", "on_root"]

T = TypeVar("T")


def _wait_for_root(comm: MPI.Comm) -> None:
    """Collective: let the other ranks sleep, not spin, until rank 0 arrives."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(0.002)


def on_root[T](comm: MPI.Comm, function: Callable[[], T], *, share: bool = True) -> T:
    """Run a function on rank 0 only. Collective.

    Args:
        comm: All of its ranks must call.
        function: Called on rank 0.
        share: Whether the other ranks get the result too; if not, they get None.

    Raises:
        Exception: Whatever the function raised on rank 0, raised on every rank.
    """
    result: T | None = None
    error: Exception | None = None
    if comm.rank == 0:
        try:
            result = function()
        except Exception as caught:
            error = _picklable(caught)
    if comm.size > 1:
        _wait_for_root(comm)
        error = comm.bcast(error, root=0)
        if share and error is None:
            result = comm.bcast(result, root=0)
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


def everywhere[T](comm: MPI.Comm, function: Callable[[], T]) -> T:
    """Run a function that needs no communication on every rank; an error on one is raised on all. Collective.

    Raises:
        Exception: What the function raised on the lowest rank on which it failed.
    """
    result: T | None = None
    error: Exception | None = None
    try:
        result = function()
    except Exception as caught:
        error = _picklable(caught)
    first = next((found for found in comm.allgather(error) if found is not None), None)
    if first is not None:
        raise first
    return result  # type: ignore[return-value]


def _picklable(error: Exception) -> Exception:
    """The error itself where it survives pickling, else its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError("".join(traceback.format_exception(error)))
    return error


def allreduce(comm: MPI.Comm, values: FloatArray | float, op: MPI.Op = MPI.SUM) -> FloatArray:
    """Elementwise reduction of equal-shaped arrays, the same on every rank. Collective."""
    local = np.array(values, dtype=np.float64, order="C")
    if comm.size == 1:
        return local
    result = np.empty_like(local)
    comm.Allreduce(local, result, op=op)
    return result


def abort_on_exception(comm: MPI.Comm = MPI.COMM_WORLD) -> None:
    """Make an uncaught exception on any rank print its traceback and end all ranks."""

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        text = "".join(traceback.format_exception(kind, value, trace))
        where = f"[rank {comm.rank} of {comm.size}]\n" if comm.size > 1 else ""
        sys.stderr.write(where + text)
        sys.stderr.flush()
        if comm.size > 1:
            comm.Abort(1)

    sys.excepthook = hook


def check_launcher(comm: MPI.Comm = MPI.COMM_WORLD) -> str | None:
    """What is wrong with how the program was started, in words; None if nothing is.

    Another MPI's ``mpirun`` starts N copies that each believe to be rank 0 of 1.
    """
    told = os.environ.get("OMPI_COMM_WORLD_SIZE", os.environ.get("PMI_SIZE", "1"))
    launched = int(told) if told.isdigit() else 1
    if launched > 1 and comm.size == 1:
        return (
            f"started as {launched} processes, but each sees only itself: this mpirun belongs to another MPI than "
            f"mpi4py ({MPI.Get_library_version().splitlines()[0]}); use the mpirun beside this Python "
            f"({os.path.dirname(sys.executable)})"
        )
    return None
