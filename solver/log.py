"""What the user reads while the program runs: rank 0 only, with elapsed seconds, on screen and in run.log."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

from mpi4py import MPI

__all__ = ["LOG", "Progress", "close_log_files", "format_seconds", "log_to_file", "start_log"]

LOG = logging.getLogger("turnpike")
_STARTED = time.perf_counter()


class _Stream(logging.StreamHandler):  # type: ignore[type-arg]
    """A handler that never fails a run: what cannot be written to a full disk or a closed pipe is dropped."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Do nothing."""


class _File(_Stream, logging.FileHandler):
    """The same for a file."""


class _Elapsed(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        mark = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        return f"[{time.perf_counter() - _STARTED:7.1f} s] {mark}{record.getMessage()}"


def start_log(comm: MPI.Comm, quiet: bool = False) -> None:
    """Send the log to standard output on rank 0 (`quiet`: warnings only), and nowhere on the other ranks."""
    LOG.handlers.clear()
    LOG.propagate = False
    LOG.setLevel(logging.INFO)
    if comm.rank > 0:
        LOG.addHandler(logging.NullHandler())
        LOG.setLevel(logging.CRITICAL)
        return
    handler = _Stream(sys.stdout)
    handler.setFormatter(_Elapsed())
    handler.setLevel(logging.WARNING if quiet else logging.INFO)
    LOG.addHandler(handler)


def log_to_file(path: Path) -> None:
    """Also write everything to a file (call on rank 0)."""
    handler = _File(path, mode="w", encoding="utf-8")
    handler.setFormatter(_Elapsed())
    LOG.addHandler(handler)


def format_seconds(seconds: float) -> str:
    """12 s, 3 min 20 s, 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def close_log_files() -> None:
    """Write no further to the files of `log_to_file`."""
    for handler in [handler for handler in LOG.handlers if isinstance(handler, _File)]:
        LOG.removeHandler(handler)
        handler.close()


class Progress:
    """Timed lines `what n/N, %, elapsed, ETA`, no more often than every few seconds."""

    def __init__(self, what: str, total: int, every: float = 5.0) -> None:
        self._what, self._total, self._every = what, total, every
        self._started = self._last = time.perf_counter()

    def __call__(self, done: int) -> None:
        """Report that `done` of the total are done."""
        now = time.perf_counter()
        if now - self._last < self._every:
            return
        self._last = now
        elapsed = now - self._started
        eta = format_seconds(elapsed * (self._total - done) / done) if done else "unknown"
        LOG.info(
            "%s %d/%d, %d %%, %s so far, ETA %s",
            self._what, done, self._total, 100 * done // self._total, format_seconds(elapsed), eta,
        )  # fmt: skip
