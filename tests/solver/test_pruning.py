"""Pruning: windows of the control set to zero, for a density and for tokens."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

from solver.case import load_case
from solver.particles.run import main as train_tokens
from solver.problem import Problem
from solver.pruning import main, prune, without
from solver.results import clear_folder
from solver.run import main as solve

pytestmark = pytest.mark.serial

SMALL = [
    str(ROOT / "cases" / "turnpike_circle.toml"),
    *(f"--set={key}" for key in ("geometry.h=0.1", "geometry.continuation=[]", "depth.T=6", "noise.epsilon=0.05")),
    *(f"--set={key}" for key in ("optimizer.gradient_tolerance=1e-2", "particles.n=16", "particles.seeds=2")),
    *(f"--set={key}" for key in ("output.formats=[]", "output.figures=false", "geometry.allow_coarse=true")),
]


def test_window_is_exact_on_an_uneven_grid() -> None:
    """Catches steps that lie in the window by a part being kept or dropped whole."""
    t = np.array([0.0, 1.0, 3.0, 3.5])
    W = np.ones((2, 3, 2, 2))
    kept = without(t, W, 0.5, 2.0)
    np.testing.assert_allclose(kept[1, :, 0, 1], [0.5, 0.5, 1.0])
    np.testing.assert_array_equal(without(t, W, 0.0, 3.5), 0.0)
    np.testing.assert_array_equal(W, 1.0)


def test_losses_and_shares_of_every_window() -> None:
    """Catches windows that do not reach both ends, and a share that is not that of ∫‖W‖²; the loss is linear in W."""
    t = np.array([0.0, 1.0, 2.0, 4.0])
    W = np.zeros((1, 3, 1, 1))
    W[0, :, 0, 0] = [1.0, 2.0, 3.0]

    def losses(W: np.ndarray) -> np.ndarray:
        return 100.0 - W[:, :, 0, 0] @ np.diff(t)

    found = prune(losses, t, W, 1.0, 4)
    np.testing.assert_allclose(found.start, [0.0, 1.0, 2.0, 3.0])
    np.testing.assert_allclose(found.loss[:, 0], 91.0 + np.array([1.0, 2.0, 3.0, 3.0]))
    np.testing.assert_allclose(found.removed[:, 0], np.array([1.0, 4.0, 9.0, 9.0]) / 23.0)
    assert found.trained == pytest.approx(91.0)
    assert found.untrained == pytest.approx(100.0)
    assert prune(losses, t, np.zeros_like(W), 1.0, 2).removed.max() == 0.0


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    assert solve([*SMALL, "-o", str(folder / "density"), "--quiet"]) == 0
    assert train_tokens([*SMALL, "-o", str(folder / "tokens"), "--quiet"]) == 0
    return folder


@pytest.mark.parametrize(("name", "systems"), [("density", 1), ("tokens", 2)])
def test_run_is_pruned(name: str, systems: int, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches another control or another noise than the run's: the whole control gives the run's own losses."""
    folder = runs / name
    assert main([str(folder), "--windows", "3", "--width", "2", "--quiet"]) == 0
    assert "the last window, t = 4 to 6" in capsys.readouterr().out
    pruning = json.loads((folder / "pruning.json").read_text())
    summary = json.loads((folder / "summary.json").read_text())
    rows = summary.get("seeds", [summary["objective"]])
    np.testing.assert_allclose(pruning["trained"], [row["loss"] for row in rows], rtol=1e-12)
    np.testing.assert_allclose(pruning["untrained"], [row["untrained_loss"] for row in rows], rtol=1e-12)
    loss = np.array(pruning["loss"])
    assert loss.shape == (3, systems)
    assert (loss[2] > 3 * np.array(pruning["trained"])).all()
    assert (loss[0] < 1.1 * np.array(pruning["trained"])).all()
    assert (folder / "figures" / "pruning.png").stat().st_size > 10_000


def test_pruned_loss_is_that_of_the_control_without_the_window(runs: Path) -> None:
    """Catches a window that is misplaced between the file's grid and the problem's."""
    folder = runs / "density"
    problem = Problem(load_case(folder / "case.toml"))
    with np.load(folder / "control.npz") as data:
        t, W = data["t"], data["W"].copy()
    W[t[:-1] >= t[-20]] = 0.0
    expected = problem.terminal_loss(problem.steps(W)[-1].after)
    assert main([str(folder), "--windows", "2", "--width", repr(float(t[-1] - t[-20])), "--quiet"]) == 0
    assert json.loads((folder / "pruning.json").read_text())["loss"][1][0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--width", "7"], "--width: 7.0 is not allowed: above 0, at most T = 6"),
        (["--width", "nan"], "--width: nan is not allowed"),
        (["--windows", "0"], "--windows: 0 is not allowed: 1 to 10000"),
    ],
)
def test_bad_windows(arguments: list[str], message: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(runs / "density"), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_untrained_run(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a study of nothing that ends as if it were one."""
    folder = Path(shutil.copytree(runs / "density", tmp_path / "run"))
    with np.load(folder / "control.npz") as data:
        np.savez(folder / "control.npz", t=data["t"], W=np.zeros_like(data["W"]))
    assert main([str(folder)]) == 2
    assert capsys.readouterr().err.endswith("its control is zero throughout: nothing to prune, train it first\n")


def test_folder_without_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "no summary.json there; is this the folder of a finished run?" in capsys.readouterr().err


def test_control_that_is_not_finite(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches nan that shows only when the results are written."""
    for name in ("case.toml", "summary.json"):
        (tmp_path / name).write_bytes((runs / "tokens" / name).read_bytes())
    with np.load(runs / "tokens" / "particles.npz") as data:
        W = data["W"]
    for factor, message in ((np.nan, "W is not finite"), (1e200, "the loss is not finite"), (1j, "cannot be read")):
        np.savez(tmp_path / "particles.npz", W=W * factor)
        with np.errstate(all="ignore"):
            assert main([str(tmp_path), "--windows", "1", "--quiet"]) == 2
        assert message in capsys.readouterr().err
    (tmp_path / "summary.json").write_text("{}", encoding="utf-8")
    assert main([str(tmp_path)]) == 2
    assert "not that of a run of solver.run or solver.particles" in capsys.readouterr().err


def test_tokens_whose_controls_are_gone(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a traceback where a file is missing or cut short."""
    for name in ("case.toml", "summary.json"):
        (tmp_path / name).write_bytes((runs / "tokens" / name).read_bytes())
    (tmp_path / "particles.npz").write_bytes((runs / "tokens" / "particles.npz").read_bytes()[:1000])
    assert main([str(tmp_path)]) == 2
    assert "particles.npz: cannot be read" in capsys.readouterr().err


def test_pruning_goes_with_the_run_it_shows(runs: Path, tmp_path: Path) -> None:
    """Catches windows of an earlier control, and their picture, beside a new one."""
    folder = tmp_path / "tokens"
    shutil.copytree(runs / "tokens", folder)
    assert main([str(folder), "--windows", "2", "--quiet"]) == 0
    clear_folder(folder)
    assert not (folder / "pruning.json").exists()
    assert not (folder / "figures").exists()
