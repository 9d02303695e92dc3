"""Results folders as arrays; damaged ones are named, not traced."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from postprocess.compare import main as compare
from postprocess.figures import draw_figures, main
from postprocess.load import RunError, load_run
from solver.pruning import main as prune

pytestmark = pytest.mark.serial


def write_run(folder: Path, escaped: bool = True) -> Path:
    """A run by formula: gap 0.3 e^{−t} + 0.2 e^{t−T}, control e^{t−T}, T = 40."""
    T = 40.0
    t = np.linspace(0, T, 401)
    gap = 0.3 * np.exp(-t) + 0.2 * np.exp(t - T) * escaped
    W = np.exp(0.5 * (t[1:] + t[:-1]) - T)[:, None, None] * np.ones((1, 2, 2)) * escaped
    norm = np.linalg.norm(W.reshape(400, -1), axis=1)
    columns = {"t": t, "energy": gap - 1, "energy_gap": gap, "angle": 0.8 * np.exp(t - T) + 0.5 * np.exp(-t)}
    columns["control_norm"] = np.append(norm, norm[-1])
    rows = [",".join(columns), *(",".join(map(repr, map(float, row))) for row in zip(*columns.values(), strict=True))]
    (folder / "trajectory.csv").write_text("\n".join(rows) + "\n")
    (folder / "history.csv").write_text("nodes,iteration,J\n10,0,1.0\n10,1,0.5\n")
    phases = {"initial_width": 1.8, "plateau_width": 36.8, "final_width": 1.4, "clustered": True, "escaped": escaped}
    (folder / "summary.json").write_text(json.dumps({"case": "by formula", "phases": phases}))
    np.savez(folder / "control.npz", t=t, W=W)
    return folder


def test_load_run_returns_arrays_by_name(tmp_path: Path) -> None:
    """Would catch columns mixed up or cut short."""
    run = load_run(write_run(tmp_path))
    assert run.W.shape == (400, 2, 2)
    np.testing.assert_allclose(run.trajectory["energy_gap"][0], 0.3 + 0.2 * np.exp(-40.0))
    np.testing.assert_array_equal(run.history["J"], [1.0, 0.5])
    assert run.summary["case"] == "by formula"


@pytest.mark.parametrize("name", ["summary.json", "trajectory.csv", "history.csv", "control.npz"])
def test_missing_and_damaged_files_are_named(tmp_path: Path, name: str) -> None:
    """Would catch a traceback of json, csv or zipfile for a folder of an unfinished run."""
    write_run(tmp_path)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2] + b"\0\xff")
    with pytest.raises(RunError, match=name):
        load_run(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(RunError, match=f"no {name}"):
        load_run(tmp_path)


def test_figures_are_drawn_with_and_without_control(tmp_path: Path) -> None:
    """Would catch a log axis without positive values, and a picture that is empty."""
    for escaped in (True, False):
        folder = tmp_path / str(escaped)
        folder.mkdir()
        (path,) = draw_figures(write_run(folder, escaped))
        assert path.name == "phases.png"
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size > 20_000


def test_figures_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Would catch a wrong exit code or a silent command."""
    assert main([str(write_run(tmp_path))]) == 0
    assert "phases.png" in capsys.readouterr().out
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "there is no such folder" in capsys.readouterr().err


def test_folder_of_a_sweep_is_named_with_a_member(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a user sent to look for a summary.json that a sweep's folder never has; also before a member is done."""
    (tmp_path / "sweep.csv").write_text("member,state\n", encoding="utf-8")
    assert main([str(tmp_path)]) == 2
    what = f"{tmp_path}: the folder of a sweep; name that of one of its members"
    assert capsys.readouterr().err == f"{what}, none is finished yet\n"
    for name in ("T=40", "T=20"):
        (tmp_path / name).mkdir()
        write_run(tmp_path / name)
    for command, words in ((main, []), (compare, [str(tmp_path / "T=20")]), (prune, [])):
        assert command([str(tmp_path), *words]) == 2
        assert capsys.readouterr().err == f"{what}, such as {tmp_path / 'T=20'}\n"
    assert main([str(tmp_path / "T=20")]) == 0
