"""Runs with labels: what the PDE writes, and its labels beside those of tokens."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

from postprocess.compare import main as compare
from postprocess.densities import load_densities
from postprocess.figures import draw_figures
from postprocess.label_figure import labels_figure
from postprocess.load import RunError, load_labels, load_run
from solver.particles.run import main as run_tokens
from solver.run import main as run_density

pytestmark = pytest.mark.serial

LABELS = 4
SETTINGS = {
    "geometry.h": 0.03,
    "geometry.continuation": "[]",
    "noise.epsilon": 0.05,
    "depth.T": 3.0,
    "depth.first_step": 0.04,
    "depth.growth": 1.0,
    "depth.layer": 1.0,
    "optimizer.method": "none",
    "auxiliary.kernel": "rope",
    "auxiliary.labels": LABELS,
    "auxiliary.start": "u",
    "particles.n": 800,
    "particles.seeds": 6,
    "particles.steps": 40.0,
    "output.frames": 4,
    "output.figures": "false",
}
CASE = [str(ROOT / "cases" / "turnpike_circle.toml")]
WORDS = [*CASE, "--quiet", *(word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}"))]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("labels")
    assert run_density([*WORDS, "-o", str(folder / "pde")]) == 0
    assert run_tokens([*WORDS, "-o", str(folder / "tokens")]) == 0
    return folder / "pde", folder / "tokens"


def test_results_of_the_density(finished: tuple[Path, Path]) -> None:
    """Catches labels mixed up between files, and a marginal without the weights."""
    folder, _ = finished
    arrays, run = load_labels(folder), load_run(folder)
    assert arrays is not None
    assert np.array_equal(arrays["labels"], np.arange(LABELS) / LABELS)
    assert arrays["mean"].shape == (len(run.t), LABELS, 2)
    assert arrays["maximiser"].shape == (LABELS, 2)
    with (folder / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["label"]) for row in rows] == arrays["labels"].tolist()
    assert [float(row["mean_1"]) for row in rows] == arrays["mean"][-1, :, 0].tolist()
    assert max(float(row["angle"]) for row in rows) == pytest.approx(run.trajectory["conditional_angle_max"][-1])
    series = [load_densities(folder, 2, f"mu_{label}") for label in range(LABELS)]
    marginal = load_densities(folder, 2)
    assert np.abs(marginal.values - np.mean([one.values for one in series], axis=0)).max() <= 1e-14
    heights = [one.values[-1] for one in series]
    for label, mean in enumerate(arrays["mean"][-1]):  # the density of a label is highest near its own mean
        peak = series[label].points[np.argmax(heights[label])]
        assert peak @ mean > 0.95 * np.linalg.norm(mean)
    block = json.loads((folder / "summary.json").read_text())["auxiliary"]
    assert (block["kernel"], block["labels"], block["exact"]) == ("rope", LABELS, True)
    assert block["interaction_gap"] == pytest.approx(block["maximum"] - run.trajectory["interaction_energy"][-1])
    assert block["conditional_angle_max"] == run.trajectory["conditional_angle_max"][-1]


def test_comparison(finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Densities and tokens of the same noise: means within a few standard errors, laws as near as exact samples."""
    assert compare([*map(str, finished), "-o", str(tmp_path), "--draws", "4"]) == 0
    printed = capsys.readouterr().out
    assert "4 labels: means of densities and tokens up to" in printed
    found = json.loads((tmp_path / "compare.json").read_text())
    labels = found["labels"]
    assert [row["tokens"] for row in labels["conditional"]] == [200] * LABELS
    assert labels["standard_errors"] < 2.5
    for row in labels["conditional"]:
        assert row["angle"] < 0.05
        assert row["dispersion"]["mean"] == pytest.approx(row["dispersion"]["pde"], rel=0.1)
    assert 0.5 < labels["distance"]["mean"] / labels["distance"]["exact_samples"] < 2.0
    row = found["quantities"]["conditional_resultant"]
    assert row["difference"] == pytest.approx(0.0, abs=0.01)


def test_picture(finished: tuple[Path, Path]) -> None:
    """Catches figures of labelled runs that need what a run may not have written: density.pvd, or maximisers."""
    folder, _ = finished
    assert [path.name for path in draw_figures(folder)] == ["phases.png", "labels.png"]
    assert (folder / "figures" / "labels.png").stat().st_size > 20_000
    run = load_run(folder)
    few = {name: column for name, column in run.trajectory.items() if name != "interaction_gap"}
    bare = replace(run, directory=folder.parent, trajectory=few)
    assert len(labels_figure(bare).axes) == 2
    assert len(labels_figure(run).axes) == 3


def test_labels_that_differ_are_refused(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches tokens given to the label of the same number."""
    tokens = Path(shutil.copytree(finished[1], tmp_path / "tokens"))
    with np.load(tokens / "particles.npz") as data:
        arrays = dict(data)
    np.savez(tokens / "particles.npz", **{**arrays, "labels": arrays["labels"] + 0.1})
    assert compare([str(finished[0]), str(tokens)]) == 2
    assert "give their number as auxiliary.labels" in capsys.readouterr().err
    np.savez(tokens / "particles.npz", **{key: value for key, value in arrays.items() if key != "labels"})
    assert compare([str(finished[0]), str(tokens)]) == 2
    assert "holds no labels" in capsys.readouterr().err


def test_damaged_labels_are_named(finished: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "labels.npz").write_bytes((finished[0] / "labels.npz").read_bytes()[:300])
    with pytest.raises(RunError, match=r"labels\.npz: damaged"):
        load_labels(tmp_path)
    np.savez(tmp_path / "labels.npz", t=np.zeros(3), labels=np.zeros(2), mean=np.zeros((2, 2, 2)))
    with pytest.raises(RunError, match="do not fit together"):
        load_labels(tmp_path)
