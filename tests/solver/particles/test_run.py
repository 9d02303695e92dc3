"""``python -m solver.particles``: results, ranks, given controls, bad input."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from postprocess.figures import draw_figures
from solver.control import write_control
from solver.particles.run import main

pytestmark = pytest.mark.serial

ROOT = Path(__file__).resolve().parents[3]
CASE = str(ROOT / "cases" / "turnpike_circle.toml")
SMALL = ["--set=depth.T=6", "--set=particles.n=20", "--set=particles.seeds=3", "--set=optimizer.gradient_tolerance=0.1"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run on one rank."""
    folder = tmp_path_factory.mktemp("particles") / "out"
    assert main([CASE, *SMALL, "-o", str(folder), "--quiet", "--strict"]) == 0
    return folder


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_results_fit_together(trained: Path) -> None:
    """Catches files that disagree: per-seed table, statistics, arrays and point series are of the same run."""
    summary = json.loads((trained / "summary.json").read_text(encoding="utf-8"))
    rows = table(trained / "seeds.csv")
    assert [row["seed"] for row in rows] == ["0", "1", "2"]
    J = np.array([float(row["J"]) for row in rows])
    assert summary["statistics"]["J"]["mean"] == pytest.approx(J.mean())
    assert summary["statistics"]["J"]["sd"] == pytest.approx(J.std(ddof=1))
    assert [row["J"] for row in summary["seeds"]] == J.tolist()
    assert summary["counts"]["converged"] == 3
    with np.load(trained / "particles.npz") as data:
        assert data["positions"].shape == (3, len(data["depths"]), 20, 2)
        assert data["W"].shape == (3, 60, 2, 2)
        assert data["labels"].shape == (20,)
        assert np.abs(np.linalg.norm(data["positions"], axis=-1) - 1).max() <= 1e-13
        assert data["positions"].mean(axis=2)[:, -1] == pytest.approx(data["mean"][:, -1], abs=1e-13)
        regularization = 0.005 * 0.1 * (data["W"] ** 2).sum(axis=(1, 2, 3))
        assert regularization == pytest.approx([float(row["regularization"]) for row in rows], rel=1e-12)
        assert 1 - data["mean"][:, -1] @ [0.5**0.5, 0.5**0.5] == pytest.approx([float(row["loss"]) for row in rows])
    history = table(trained / "history.csv")
    for row in rows:
        last = [line for line in history if line["seed"] == row["seed"]][-1]
        assert float(last["J"]) == pytest.approx(float(row["J"]), rel=1e-12)
    assert (trained / "particles.pvd").read_text().count("<DataSet") == len(list((trained / "particles").iterdir()))


def test_seeds_do_not_depend_on_ranks(trained: Path, tmp_path: Path) -> None:
    """Catches random numbers or optimisers that depend on how seeds are dealt out, and ranks that wait for ever."""
    mpirun = Path(sys.executable).parent / "mpirun"
    command = [
        str(mpirun),
        "-n",
        "2",
        sys.executable,
        "-m",
        "solver.particles",
        CASE,
        *SMALL,
        "-o",
        str(tmp_path / "two"),
    ]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    with np.load(trained / "particles.npz") as one, np.load(tmp_path / "two" / "particles.npz") as two:
        assert set(one.files) == set(two.files)
        for name in one.files:
            assert np.abs(one[name] - two[name]).max() <= 1e-10, name


def test_given_control_is_run_as_it_is(trained: Path, tmp_path: Path) -> None:
    """Catches a control that is trained on, or the wrong seed's: under its own control seed 0 has its own J."""
    given = ["--control", str(trained / "control.npz"), "-o", str(tmp_path / "out"), "--quiet"]
    assert main([CASE, *SMALL, *given]) == 0
    again, first = (table(folder / "seeds.csv") for folder in (tmp_path / "out", trained))
    assert float(again[0]["J"]) == pytest.approx(float(first[0]["J"]), rel=1e-12)
    assert again[0]["converged"] == ""
    assert again[1]["J"] != first[1]["J"]


def test_control_of_another_grid_is_averaged_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a PDE's control on its graded grid being refused, or stretched without a word."""
    write_control(tmp_path / "c.npz", np.array([0.0, 1.0, 5.0, 6.0]), np.ones((3, 2, 2)))
    given = ["--control", str(tmp_path / "c.npz"), "-o", str(tmp_path / "out")]
    assert main([CASE, *SMALL, *given]) == 0
    assert "control averaged from 3 onto 60 depth steps" in capsys.readouterr().out
    with np.load(tmp_path / "out" / "particles.npz") as data:
        assert data["W"] == pytest.approx(1.0)


def test_tokens_that_are_not_finite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a run that ends well with tokens that are nan, and warnings of numpy's among what is said."""
    text = (ROOT / "cases" / "turnpike_circle.toml").read_text(encoding="utf-8")
    (tmp_path / "case.toml").write_text(text, encoding="utf-8")
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n\n\nclass Huge:\n    def bias(self, labels, others):\n"
        "        return np.full((len(labels), len(others)), 1e300)\n\n\ndef huge(case):\n    return Huge()\n"
    )
    huge = ["--set=optimizer.method=none", "--set=optimizer.start=zero"]
    overrides = [*SMALL[:2], *huge, f"--set=auxiliary.kernel={tmp_path / 'mine.py'}:huge"]
    assert main([str(tmp_path / "case.toml"), *overrides, "-o", str(tmp_path / "out"), "--quiet"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("case.toml: attention: tokens are not finite at depth 0.1: ")
    assert len(said.splitlines()) == 1


BAD: list[tuple[list[str], str]] = [
    (["--set=particles.n=0"], "turnpike_circle.toml: particles.n: 0 is not allowed: an integer between 1 and 1e8"),
    (["--set=particles.seeds=0"], "particles.seeds: 0 is not allowed"),
    (["--set=particles.steps=-1"], "particles.steps: -1 is not allowed: a number above 0 and up to 1e6"),
    (["--set=geometry.manifold=hypersphere"], "geometry.dimension: missing"),
    (
        ["--set=optimizer.start=steer", "--set=initial.law=uniform", "--set=particles.n=4096"],
        "optimizer.start: 'steer' needs a cluster to steer",
    ),
    (["--control", "nowhere.npz"], "--control: there is no file nowhere.npz"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input(arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a traceback, and a message that names neither key nor what is allowed."""
    assert main([CASE, *SMALL[:1], *arguments, "-o", str(tmp_path / "out"), "--quiet"]) == 2
    assert message in capsys.readouterr().err


def test_control_of_another_shape_or_depth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a control of another network being run."""
    write_control(tmp_path / "depth.npz", np.array([0.0, 9.0]), np.ones((1, 2, 2)))
    write_control(tmp_path / "shape.npz", np.array([0.0, 6.0]), np.ones((1, 2, 3)))
    for name, message in (("depth", "reaches depth 9, this case 6"), ("shape", "has (d, m) = (2, 3) a step")):
        given = ["--control", str(tmp_path / f"{name}.npz"), "-o", str(tmp_path / "out"), "--quiet", "--overwrite"]
        assert main([CASE, *SMALL, *given]) == 2
        assert f"--control: that control {message}" in capsys.readouterr().err


def test_old_pictures_go_and_the_users_own_stay(tmp_path: Path) -> None:
    """Catches the picture of an earlier run beside new results: a run of tokens draws none that would replace it."""
    words = [CASE, *SMALL[:2], "--set=optimizer.method=none", "-o", str(tmp_path / "out"), "--quiet"]
    assert main(words) == 0
    drawn = draw_figures(tmp_path / "out")
    assert {path.name for path in drawn} == {"phases.png", "tokens.png"}
    mine = tmp_path / "out" / "figures" / "mine.png"
    mine.write_bytes(b"mine")
    assert main([*words, "--overwrite"]) == 0
    assert list((tmp_path / "out" / "figures").iterdir()) == [mine]
    mine.unlink()
    draw_figures(tmp_path / "out")
    assert main([*words, "--overwrite"]) == 0
    assert not (tmp_path / "out" / "figures").exists()


def test_closing_table_fits_the_question(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches P1's verdicts on tokens that no control was asked to move, and a trained run without them."""
    short = [CASE, *SMALL[1:3], "--set=depth.T=1", "--set=optimizer.max_iterations=0"]
    assert main([*short, "-o", str(tmp_path / "trained")]) == 0
    head, *rows = closing_table(capsys.readouterr().out)
    assert head == [
        "seed", "J", "loss", "displacement", "initial_width", "plateau_width", "final_width", "terminal_rate",
        "clustered", "plateau", "escaped", "converged",
    ]  # fmt: skip
    assert [(row[0], len(row), row[-1]) for row in rows] == [("0", 12, "no"), ("1", 12, "no"), ("2", 12, "no")]
    assert main([*short, "--set=optimizer.method=none", "-o", str(tmp_path / "untrained")]) == 0
    head, *rows = closing_table(capsys.readouterr().out)
    assert head == [
        "seed", "interaction_energy", "interaction_gap", "maximiser_angle_max", "resultant", "dispersion", "clusters"
    ]  # fmt: skip
    assert [(row[0], len(row)) for row in rows] == [("0", 7), ("1", 7), ("2", 7)]


def closing_table(printed: str) -> list[list[str]]:
    """The head and a row for each seed, without the times in brackets."""
    lines = [line.partition("]")[2].split() for line in printed.splitlines()]
    first = next(k for k, words in enumerate(lines) if words[:1] == ["seed"])
    return lines[first : first + 4]
