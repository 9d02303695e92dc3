"""Running a sweep: folders, sweep.csv, resuming, failures."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

from mpi4py import MPI

import numpy as np
import pytest

from postprocess.load import load_run
from solver.case.sweep import load_members
from solver.particles.run import main as train_tokens
from solver.run import main as solve
from solver.sweep import run_members
from solver.sweeps import SweepError

pytestmark = pytest.mark.serial

CASE = """
[geometry]
manifold = "circle"
h = 0.2
[attention]
eigenvalues = [1.0, 0.65]
[noise]
epsilon = 0.1
[depth]
T = 2.0
grid = "uniform"
steps = 8
[optimizer]
gradient_tolerance = 1e-2
[particles]
n = 8
seeds = 2
[output]
formats = ["vtk"]
frames = 2
figures = false
[sweep]
"depth.T" = [2.0, 3.0]
"objective.regularization" = [0.01, 0.1]
"""


@pytest.fixture
def case(tmp_path: Path) -> str:
    path = tmp_path / "some.toml"
    path.write_text(CASE, encoding="utf-8")
    return str(path)


def _rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "sweep.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_member_has_its_folder_and_row(case: str, tmp_path: Path) -> None:
    """Catches members not run, run with another's values, or numbers of another member in sweep.csv."""
    assert solve([case, "-o", str(tmp_path / "out"), "--quiet"]) == 0
    rows = _rows(tmp_path / "out")
    assert [(row["depth.T"], row["objective.regularization"]) for row in rows] == [
        ("2.0", "0.01"), ("2.0", "0.1"), ("3.0", "0.01"), ("3.0", "0.1"),
    ]  # fmt: skip
    for row in rows:
        run = load_run(tmp_path / "out" / row["member"])
        assert row["state"] == "done"
        assert float(row["summary.objective.J"]) == run.summary["objective"]["J"]
        assert run.t[-1] == float(row["depth.T"])
        log = (tmp_path / "out" / row["member"] / "run.log").read_text(encoding="utf-8")
        assert log.count("results written") == 1  # not those of the members after it


def test_complete_members_are_skipped_and_unfinished_ones_are_not(case: str, tmp_path: Path) -> None:
    """Catches work done twice after a stop, and a run that died around its summary taken for finished."""
    words = [case, "-o", str(tmp_path / "out"), "--quiet"]
    assert solve(words) == 0
    folders = sorted(path for path in (tmp_path / "out").iterdir() if path.is_dir())
    before = {path: (path / "control.npz").stat().st_mtime_ns for path in folders}
    (folders[1] / "summary.json").unlink()
    for folder in folders[:2]:
        (folder / "run.log").rename(folder / "run.log.partial")
    assert solve(words) == 0
    changed = [path for path in folders if (path / "control.npz").stat().st_mtime_ns != before[path]]
    assert changed == folders[:2]
    assert all(row["state"] == "done" for row in _rows(tmp_path / "out"))


def test_results_of_another_case_are_not_replaced(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches a sweep with other settings that skips or overwrites what is there without being told to."""
    words = [case, "-o", str(tmp_path / "out"), "--quiet"]
    assert solve([*words, "--set", "sweep.depth.T=[2.0]"]) == 0
    before = (tmp_path / "out" / "sweep.csv").read_bytes()
    assert solve([*words, "--set", "noise.epsilon=0.2"]) == 2
    assert capsys.readouterr().err.count("is not empty") == 2
    assert (tmp_path / "out" / "sweep.csv").read_bytes() == before
    assert not (tmp_path / "out" / "T=3.0_regularization=0.01").exists()
    (tmp_path / "file").touch()
    assert solve([case, "-o", str(tmp_path / "file"), "--quiet"]) == 2
    assert "is a file; name a folder" in capsys.readouterr().err
    assert solve([*words, "--set", "noise.epsilon=0.2", "--overwrite"]) == 0


def test_damaged_and_copied_folders(case: str, tmp_path: Path) -> None:
    """Catches a traceback at a damaged summary.json, and a copied sweep that cannot be resumed."""
    words = [case, "--quiet", "--set", "sweep.depth.T=[2.0]"]
    assert solve([*words, "-o", str(tmp_path / "out")]) == 0
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    damaged, whole = sorted(path for path in (tmp_path / "copy").iterdir() if path.is_dir())
    (damaged / "summary.json").write_text('{"a": ', encoding="utf-8")
    before = (whole / "control.npz").stat().st_mtime_ns
    assert solve([*words, "-o", str(tmp_path / "copy")]) == 0
    assert (whole / "control.npz").stat().st_mtime_ns == before
    assert load_run(damaged).summary["objective"]["J"] > 0
    (damaged / "case.toml").write_bytes(b"\xff\xfe")
    assert solve([*words, "-o", str(tmp_path / "copy")]) == 2


def test_one_failure_does_not_stop_the_rest(case: str, tmp_path: Path) -> None:
    """Catches a sweep that ends at its first failure or forgets it."""
    members, _ = load_members(case, {"output.directory": str(tmp_path / "out")})
    tried = []

    def solve_member(case: object, replace: bool) -> None:
        tried.append(case)
        raise SweepError("forward step 3 failed")

    assert not run_members(MPI.COMM_SELF, members, False, False, solve_member)
    assert tried == [member.case for member in members]
    assert {(row["state"], row["error"]) for row in _rows(tmp_path / "out")} == {("failed", "forward step 3 failed")}


def test_warm_start_begins_at_the_control_before(case: str, tmp_path: Path) -> None:
    """Catches a warm start from W = 0: the second member's first J is that of the first member's control."""
    words = [case, "-o", str(tmp_path / "out"), "--quiet", "--set", "sweep.warm_start=true"]
    assert solve([*words, "--set", "sweep.depth.T=[2.0]"]) == 0
    first, second = (load_run(tmp_path / "out" / row["member"]) for row in _rows(tmp_path / "out"))
    loss, penalty = (first.summary["objective"][key] for key in ("loss", "regularization"))
    assert second.history["J"][0] == pytest.approx(loss + 10 * penalty, rel=1e-9)


def test_tokens_are_swept_too(case: str, tmp_path: Path) -> None:
    """Catches a sweep of particles that writes over the PDE's, or loses the seeds' statistics."""
    assert train_tokens([case, "-o", str(tmp_path / "out"), "--quiet", "--set", "sweep.depth.T=[2.0]"]) == 0
    rows = _rows(tmp_path / "out")
    assert len(rows) == 2
    for row in rows:
        assert row["summary.kind"] == "particles"
        assert float(row["summary.statistics.J.count"]) == 2
        assert np.isfinite(float(row["summary.statistics.J.sd"]))
        assert (tmp_path / "out" / row["member"] / "particles.npz").exists()
