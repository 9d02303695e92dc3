"""MPI helpers."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

from mpi4py import MPI

import numpy as np
import pytest

from solver.case import CaseError
from solver.parallel import allreduce, check_launcher, everywhere, on_root

ROOT = Path(__file__).resolve().parents[2]


class Unpicklable(Exception):  # noqa: N818
    """Its constructor's signature differs from its args, as in many libraries: it pickles, and fails to unpickle."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


@pytest.mark.ranks
def test_everywhere_raises_on_all_what_one_rank_met(comm: MPI.Comm) -> None:
    """Catches a rank that fails alone, say with a file it cannot see, while the others go on into a collective call."""

    def fail_on_the_last() -> int:
        if comm.rank == comm.size - 1:
            raise CaseError([f"objective.loss: rank {comm.rank} has no such file"])
        return comm.rank

    with pytest.raises(CaseError, match=f"rank {comm.size - 1} has no such file"):
        everywhere(comm, fail_on_the_last)
    assert everywhere(comm, lambda: comm.rank) == comm.rank


@pytest.mark.ranks
def test_on_root_raises_the_same_error_everywhere(comm: MPI.Comm) -> None:
    """Catches an error on rank 0 that leaves the other ranks waiting in the broadcast."""

    def fail() -> None:
        raise CaseError(["geometry.h: one", "noise.epsilon: two"])

    with pytest.raises(CaseError) as caught:
        on_root(comm, fail)
    assert caught.value.lines == ["geometry.h: one", "noise.epsilon: two"]


@pytest.mark.ranks
def test_on_root_error_that_cannot_be_pickled(comm: MPI.Comm) -> None:
    """Catches a broadcast that dies while unpickling the error, hanging or hiding the cause: its text must arrive."""

    def fail() -> None:
        raise Unpicklable(1, 2)

    with pytest.raises(RuntimeError, match="1 and 2"):
        on_root(comm, fail)


@pytest.mark.ranks
def test_on_root_runs_once_and_shares(comm: MPI.Comm) -> None:
    """Catches a function run by every rank (8 gmsh sessions, 8 log lines) or a result that only rank 0 gets."""
    calls: list[int] = []

    def work() -> dict[str, np.ndarray]:
        calls.append(comm.rank)
        return {"x": np.arange(3.0)}

    result = on_root(comm, work)
    assert np.array_equal(result["x"], [0, 1, 2])
    assert comm.allreduce(len(calls)) == 1
    kept = on_root(comm, work, share=False)
    assert (kept is None) == (comm.rank > 0)


@pytest.mark.ranks
def test_on_root_after_an_error_still_works(comm: MPI.Comm) -> None:
    """Catches ranks left out of step by a failure: the next collective call must pair up."""

    def fail() -> None:
        raise ValueError("no")

    for k in range(3):
        with pytest.raises(ValueError, match="no"):
            on_root(comm, fail)
        assert on_root(comm, lambda k=k: k) == k


def test_waiting_for_root_does_not_spin(comm: MPI.Comm) -> None:
    """Catches ranks that burn a core while rank 0 meshes: their CPU time must stay well below the wait."""
    comm.Barrier()
    cpu = time.process_time()
    on_root(comm, lambda: time.sleep(0.5))
    used = time.process_time() - cpu
    assert used < 0.35


@pytest.mark.ranks
@pytest.mark.parametrize(("op", "expected"), [(MPI.SUM, "sum"), (MPI.MIN, "min"), (MPI.MAX, "max")])
def test_allreduce(comm: MPI.Comm, op: MPI.Op, expected: str) -> None:
    """Catches a reduction that ignores its operation, changes its input, or returns a view of it."""
    mine = np.array([[comm.rank, -comm.rank], [1.0, 2.0]])
    before = mine.copy()
    result = allreduce(comm, mine, op)
    ranks = np.arange(comm.size)
    rows = np.stack([[[r, -r], [1.0, 2.0]] for r in ranks])
    assert np.array_equal(result, getattr(rows, expected)(axis=0))
    result += 1
    assert np.array_equal(mine, before)


@pytest.mark.ranks
def test_allreduce_of_a_number_and_of_a_transposed_array(comm: MPI.Comm) -> None:
    """Catches a buffer passed to MPI in Fortran order, whose entries would be added to the wrong places."""
    assert float(allreduce(comm, 2.0)) == 2.0 * comm.size
    a = np.arange(6.0).reshape(2, 3).T
    assert np.array_equal(allreduce(comm, a), comm.size * a)


@pytest.mark.parametrize("lines", [["one"], ["geometry.h: a", "depth.T: b"], []])
def test_case_error_survives_pickling(lines: list[str]) -> None:
    """Catches CaseError losing its lines on the way to other ranks, or unpickling its text as a list of letters."""
    again = pickle.loads(pickle.dumps(CaseError(lines)))
    assert isinstance(again, CaseError)
    assert again.lines == lines
    assert str(again) == "\n".join(lines)


@pytest.mark.serial
@pytest.mark.parametrize("variable", ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
def test_wrong_launcher_is_named(variable: str, comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches N copies of a serial run, each writing the same results folder."""
    monkeypatch.delenv("OMPI_COMM_WORLD_SIZE", raising=False)
    monkeypatch.delenv("PMI_SIZE", raising=False)
    assert check_launcher(comm) is None
    monkeypatch.setenv(variable, "4")
    message = check_launcher(comm)
    assert message is not None
    assert "4 processes" in message
    assert "mpirun" in message


@pytest.mark.ranks
def test_right_launcher_is_accepted(comm: MPI.Comm) -> None:
    """Catches a check that stops correct parallel runs."""
    assert check_launcher(comm) is None


@pytest.mark.serial
def test_error_on_one_rank_ends_all(tmp_path: Path) -> None:
    """Catches a run that hangs when one rank of three fails: all must end within 2 s, with that rank's traceback."""
    script = tmp_path / "fail.py"
    script.write_text(
        "import solver, os, time\n"
        "from mpi4py import MPI\n"
        "from solver.parallel import abort_on_exception\n"
        "abort_on_exception()\n"
        "MPI.COMM_WORLD.Barrier()\n"
        "os.write(1, f'start {time.time()}\\n'.encode())\n"
        "if MPI.COMM_WORLD.rank == 1:\n"
        "    raise ValueError('only here')\n"
        "MPI.COMM_WORLD.Barrier()\n"
    )
    mpirun = Path(sys.executable).with_name("mpirun")
    if not mpirun.exists():
        pytest.skip("no mpirun beside this Python")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "MPI", "HYDI"))}
    done = subprocess.run(
        [mpirun, "-n", "3", sys.executable, str(script)],
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    ended = time.time()
    started = max(float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("start"))
    assert done.returncode != 0
    assert ended - started < 2.0
    assert "[rank 1 of 3]" in done.stderr
    assert done.stderr.count("ValueError: only here") == 1
