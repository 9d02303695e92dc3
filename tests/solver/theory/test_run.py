"""``python -m solver.theory`` as users start it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mpi4py import MPI

import numpy as np
import pytest
from conftest import ROOT

from solver.case import load_case
from solver.problem import Problem
from solver.run import main as solve
from solver.theory.closed_forms import cluster_rate
from solver.theory.quantities import measure
from solver.theory.run import main

CASE = str(ROOT / "cases" / "turnpike_circle.toml")
SMALL = {"geometry.h": 0.1, "geometry.continuation": "[]", "noise.epsilon": 0.1, "depth.T": 8.0, "depth.layer": 3.0,
         "depth.first_step": 0.1}  # fmt: skip


def _theory(folder: Path, *words: str, **overrides: object) -> dict[str, Any]:
    settings = SMALL | {name.replace("__", "."): value for name, value in overrides.items()}
    sets = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    assert main([CASE, "-o", str(folder), "--quiet", "--samples", "20", *sets, *words]) == 0
    content: dict[str, Any] = json.loads((folder / "theory.json").read_text(encoding="utf-8"))
    return content


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    sets = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
    assert solve([CASE, "-o", str(folder), "--quiet", *sets, "--set", "output.figures=false"]) == 0
    return folder


@pytest.mark.serial
def test_table_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches numbers in the table or in theory.json that are not those measured, and missing pictures."""
    content = _theory(tmp_path)
    shown = capsys.readouterr().out
    measured = measure(Problem(load_case(CASE, SMALL | {"geometry.continuation": []}), MPI.COMM_SELF))
    assert set(content["quantities"]) == set(measured.values)
    for name, value in measured.values.items():
        row = content["quantities"][name]
        assert row["value"] == pytest.approx(value, rel=1e-9, abs=1e-12)
        assert f"{row['value']:.6g}" in shown
        if row["closed_form"] is not None:
            assert row["difference"] == row["extrapolated"] - row["closed_form"]
    assert content["quantities"]["cluster_rate_1"]["closed_form"] == cluster_rate(1.0, 0.65)
    coarse, fine = (content["quantities"]["cluster_rate_1"][key] for key in ("value", "extrapolated"))
    assert abs(fine - 0.8624927420679154) < 0.2 * abs(coarse - 0.8624927420679154)  # tests/system/reference
    assert content["barrier"]["path"] == "rotate"
    assert content["inequality"]["relative"]["violations"] == 0
    assert "uniform" in content["reasons"]
    for picture in ("modes.png", "barrier.png"):
        assert (tmp_path / "theory" / picture).stat().st_size > 10_000
    with np.load(tmp_path / "theory" / "modes.npz") as data:
        assert data["modes"].shape == (len(data["rates"]), len(data["points"])) == (8, content["mesh"]["nodes"])


def test_values_do_not_depend_on_ranks() -> None:
    """Catches a sum or a mode that depends on the partition."""
    case = load_case(CASE, SMALL | {"geometry.continuation": [], "geometry.h": 0.2})
    together, alone = (measure(Problem(case, comm), 3) for comm in (MPI.COMM_WORLD, MPI.COMM_SELF))
    assert together.values.keys() == alone.values.keys()
    for name, value in alone.values.items():
        assert together.values[name] == pytest.approx(value, rel=1e-7, abs=1e-10), name


@pytest.mark.serial
def test_along_a_run_and_one_step(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches bounds read from the wrong run or with the wrong constants, and a 1-GD that is left out."""
    content = _theory(tmp_path, "--no-refine", "--run", str(trained), "--one-step")
    (inequality,) = content["run"]["dissipation"].values()
    assert inequality["rate"] == content["quantities"]["slowest_rate"]["value"]
    assert inequality["sufficient"] == pytest.approx(0.5)  # identity features on the unit circle
    assert inequality["near_gap"] == pytest.approx(0.1 * content["barrier"]["height"])
    assert 0.0 < inequality["whole"]["C"] < 1.0
    assert content["run"]["turnpike"]["runs"][0]["T"] == 8.0
    step = content["one_step"]
    assert step["expected_exponent"] == pytest.approx(2 * content["quantities"]["R_rho"]["value"], rel=1e-6)
    assert len(step["gap"]) == len(step["alphas"]) == 4
    shown = capsys.readouterr().out
    assert "1-GD" in shown
    assert "neither confirm nor contradict" in shown
    assert {"bound.png", "one_step.png"} <= {path.name for path in (tmp_path / "theory").iterdir()}


@pytest.mark.serial
def test_shares_a_folder_with_a_run(trained: Path) -> None:
    """Catches a run that refuses the folder, or deletes the theory, and theory that deletes the run."""
    _theory(trained, "--no-refine")
    assert (trained / "summary.json").exists()
    sets = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
    words = ["--quiet", "--overwrite", *sets, "--set", "output.figures=false", "--set", "optimizer.max_iterations=1"]
    assert solve([CASE, "-o", str(trained), *words]) == 0
    assert (trained / "theory.json").exists()
    assert (trained / "theory" / "modes.npz").exists()


@pytest.mark.serial
@pytest.mark.parametrize(
    ("overrides", "defined", "reason"),
    [
        ({"noise__epsilon": 0.0}, {"minimum_energy"}, "all"),
        ({"attention__normalized": "true"}, {"first_moment", "cluster_rate_1", "token_rate"}, "energy"),
        ({"noise__epsilon": 3.0}, {"minimum_energy", "slowest_rate", "R_rho"}, "barrier"),
        ({"attention__eigenvalues": [2.0, 2.0]}, {"barrier", "uniform_threshold"}, "inequality"),
    ],
)
def test_what_is_undefined_is_said(
    overrides: dict[str, object], defined: set[str], reason: str, tmp_path: Path
) -> None:
    """Catches a number where there is none (no noise, softmax, one state, free turning), and a crash."""
    content = _theory(tmp_path, "--no-refine", "--one-step", **overrides)
    assert defined <= set(content["quantities"])
    assert content["reasons"][reason]
    if reason == "energy":
        assert not {"minimum_energy", "c_PL", "R_rho", "barrier"} & set(content["quantities"])
        assert content["one_step"] is None
        assert content["inequality_along_modes"] is None
    if reason == "barrier":
        assert "token_rate" not in content["quantities"]
        assert "|∫x dρ|" in content["reasons"]["token_rate"]
    if reason == "inequality":
        assert content["quantities"]["barrier"]["value"] == 0.0


@pytest.mark.serial
def test_absurd_steps_and_pinned_clusters_lose_nothing(tmp_path: Path) -> None:
    """Catches 1-GD with absurd α that takes the spectrum with it, and a verdict on gaps that are round-off."""
    content = _theory(tmp_path, "--no-refine", "--one-step", "--alpha", "1e10", "1e20", "1e300")
    assert content["one_step"] is None
    assert content["reasons"]["one_step"]
    assert content["quantities"]["slowest_rate"]["value"] > 0.0
    pinned = _theory(tmp_path, "--no-refine", noise__epsilon=1e-6)
    assert pinned["inequality"] is None
    assert "round-off" in pinned["reasons"]["inequality"]


@pytest.mark.serial
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--run", "nowhere"], "nowhere: there is no such folder"),
        (["--alpha", "0"], "'0' is not a number from 1e-12 to 1e300"),
        (["--one-step", "--alpha", "1e-300", "0.1", "0.3"], "'1e-300' is not a number from 1e-12 to 1e300"),
        (["--alpha", "0.1", "0.2", "0.3"], "belongs to --one-step"),
        (["--one-step", "--alpha", "0.1", "0.1000001", "0.3"], "at least three step sizes, 1 % apart"),
        (["--modes", "0"], "'0' is not a whole number between 1"),
        (["--samples", "many"], "'many' is not a whole number"),
        (["--set", "noise.epsilon=-1"], "noise.epsilon: -1 is not allowed"),
        (["--set", "auxiliary.labels=4"], "auxiliary: the theory knows no labels"),
    ],
)
def test_bad_input_is_named(words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a traceback or a silent default, and anything written."""
    try:
        code = main([CASE, "-o", str(tmp_path / "out"), *words])
    except SystemExit as error:
        code = int(error.code or 0)
    assert code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out" / "theory.json").exists()


@pytest.mark.serial
def test_folder_that_cannot_take_the_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches minutes of work lost to a folder named theory.json."""
    (tmp_path / "theory.json").mkdir()
    assert main([CASE, "-o", str(tmp_path)]) == 2
    assert "holds a theory.json that is a folder; use another folder (-o DIR)" in capsys.readouterr().err


@pytest.mark.serial
def test_run_of_another_model_is_refused(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches constants of one model held against a run of another."""
    assert main([CASE, "-o", str(tmp_path), "--run", str(trained)]) == 2
    assert "was run with another noise" in capsys.readouterr().err
