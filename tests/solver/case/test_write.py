"""Resolved cases as TOML."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from solver.case import dump_case, load_case
from solver.case.schema import Case

pytestmark = pytest.mark.serial  # nothing here knows of ranks

ROOT = Path(__file__).resolve().parents[3]
CASES = sorted((ROOT / "cases").glob("*.toml"))
CIRCLE = ROOT / "cases" / "turnpike_circle.toml"


def _round_trip(path: Path, folder: Path, overrides: dict[str, Any]) -> tuple[Case, Case]:
    case = load_case(path, overrides)
    copy = folder / "case.toml"
    copy.write_text(dump_case(case), encoding="utf-8")
    return case, load_case(copy)


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_shipped_cases_dump_and_reload(path: Path, tmp_path: Path) -> None:
    """Catches a results folder whose case.toml does not reproduce its run, from another folder under another name."""
    case, again = _round_trip(path, tmp_path, {})
    assert again == case
    assert dump_case(again) == dump_case(case)


@pytest.mark.parametrize(
    "overrides",
    [
        {"attention.matrix": [[1.0, 0.2], [0.2, 0.65]], "attention.eigenvalues": None},
        {"initial.mean": [1.0, 3.0], "objective.target": [-2.0, 0.7]},
        {"initial.mean": [0.3, 1e-17], "objective.target": [1e-200, 1e-200]},
        {"noise.epsilon": 0.0, "ffn.activation": "gelu", "ffn.bias": True, "ffn.width": 7, "ffn.seed": 3},
        {"petsc.ksp_type": "gmres", "petsc.ksp_max_it": 50, "petsc.ksp_rtol": 1e-12, "petsc.ksp_monitor": True},
        {"output.formats": [], "output.figures": False, "geometry.continuation": []},
        {"title": 'quotes " and \\ and ε\nand a line'},
        {"depth.T": 80, "initial.kappa": 3},
        {"optimizer.method": "gradient", "optimizer.step": 0.1},
        {"optimizer.method": "gradient", "optimizer.step": "armijo"},
        {"optimizer.method": "gradient", "optimizer.step": 2},
        {"optimizer.method": "sweep", "optimizer.relaxation": 1, "optimizer.anderson": 0},
        {"optimizer.method": "none"},
    ],
)
def test_overridden_cases_dump_and_reload(overrides: dict[str, Any], tmp_path: Path) -> None:
    """Catches values lost or changed in the last bit on the way through TOML (directions are renormalised on
    reading).
    """
    case, again = _round_trip(CIRCLE, tmp_path, overrides)
    assert again == case


def test_uniform_grid_dumps_and_reloads(tmp_path: Path) -> None:
    """Catches the graded grid's keys written for a uniform one, which the loader then refuses."""
    text = CIRCLE.read_text().replace("layer = 8.0", 'grid = "uniform"\nsteps = 40')
    path = tmp_path / "uniform.toml"
    path.write_text(text)
    case, again = _round_trip(path, tmp_path, {})
    assert again == case
    assert again.depth.steps == 40


def test_file_paths_survive_from_another_folder(tmp_path: Path) -> None:
    """Catches paths written relative to a folder that the copy is not in."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "ring.msh").write_bytes(b"")
    text = CIRCLE.read_text().replace("h = 0.01\ncontinuation = [0.04]", 'file = "ring.msh"')
    (tmp_path / "a" / "x.toml").write_text(text)
    case, again = _round_trip(tmp_path / "a" / "x.toml", tmp_path / "b", {})
    assert again == case
    assert again.geometry.file is not None
    assert again.geometry.file.is_file()


def test_every_default_is_written_out(tmp_path: Path) -> None:
    """Catches a resolved case that depends on the defaults of the version that reads it."""
    case = load_case(CIRCLE)
    tables = tomllib.loads(dump_case(case))
    assert tables["objective"]["loss"] == "align"
    assert tables["attention"]["tolerance"] == 1e-10
    assert tables["ffn"] == {"activation": "identity", "bias": False, "width": 0, "seed": 0}
    for section, field in Case.model_fields.items():
        model = field.annotation
        if hasattr(model, "model_fields"):
            value = getattr(case, section)
            missing = {key for key in model.model_fields if getattr(value, key) is not None} - set(tables[section])
            assert not missing, f"{section}: {missing}"
