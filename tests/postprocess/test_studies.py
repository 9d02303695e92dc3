"""Pages of studies: tables and pictures from the folders of small sweeps."""

from __future__ import annotations

import importlib
import json
import math
import re
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from postprocess.document import study, write_page
from postprocess.members import Member, Sample, read_members
from postprocess.tables import main as write_paper
from postprocess.tables import paper_tables
from postprocess.two_optima import crossings, escape_depth, family
from postprocess.two_optima import main as write_families
from solver.particles.run import main as train_tokens
from solver.run import main as solve
from solver.theory.families import crossing

pytestmark = pytest.mark.serial

CASE = """
title = "Small"
[geometry]
manifold = "circle"
h = 0.1
allow_coarse = true
[attention]
eigenvalues = [1.0, 0.65]
[noise]
epsilon = 0.05
[initial]
mean = [0.825, 0.565]
[depth]
T = 8.0
layer = 2.0
first_step = 0.25
[optimizer]
gradient_tolerance = 0.1
[particles]
n = 16
seeds = 3
steps = 4
[output]
formats = ["vtk"]
frames = 3
figures = false
[sweep]
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """results/align and results/align-particles, and results/families."""
    folder = tmp_path_factory.mktemp("study")
    case = folder / "case.toml"
    case.write_text(CASE + '"attention.eigenvalues" = [[1.0, 0.65], [1.0, 0.2]]\n', encoding="utf-8")
    assert solve([str(case), "-o", str(folder / "align"), "--quiet"]) == 0
    assert train_tokens([str(case), "-o", str(folder / "align-particles"), "--quiet"]) == 0
    case.write_text(CASE + '"optimizer.start" = ["zero", "steer"]\n', encoding="utf-8")
    assert solve([str(case), "-o", str(folder / "families"), "--quiet"]) == 0
    return folder


def _rows(table: str | None) -> dict[tuple[str, str], list[str]]:
    """Cells of a Markdown table by (setting, source)."""
    assert table is not None
    lines = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()]
    assert len({len(line) for line in lines}) == 1
    return {(cells[0], cells[1]): cells[2:] for cells in lines[2:]}


def test_row_of_tokens_is_mean_and_deviation_over_the_seeds(results: Path) -> None:
    """Catches a row that belongs to another member, a population deviation, and successes that are not joint."""
    table = _rows(paper_tables(results)["align"])
    summary = json.loads((results / "align-particles" / "eigenvalues=1.0,0.2" / "summary.json").read_text())
    cells = table[("λ₂ = 0.2", "tokens")]
    counts = [sum(row[name] for row in summary["seeds"]) for name in ("clustered", "plateau", "escaped")]
    assert cells[0] == "16"
    assert cells[1] == f"{counts[0]} / {counts[1]} / {counts[2]} of 3"
    J = np.array([row["J"] for row in summary["seeds"]])
    assert f"{J.mean():.5f} ± {J.std(ddof=1):.5f}" in cells
    evaluations = np.array([row["evaluations"] for row in summary["seeds"]])
    assert cells[-2:] == ["1e-01", f"{evaluations.mean():.0f} ± {evaluations.std(ddof=1):.0f}"]


def test_row_of_the_density_stands_beside_the_reported_one(results: Path) -> None:
    table = _rows(paper_tables(results)["align"])
    summary = json.loads((results / "align" / "eigenvalues=1.0,0.65" / "summary.json").read_text())
    cells = table[("λ₂ = 0.65", "density")]
    assert f"{summary['phases']['displacement']:.3f}" in cells
    assert cells[-1] == str(summary["optimizer"]["forward_solves"])
    reported = table[("λ₂ = 0.65", "P1")]
    assert [reported[7], reported[9]] == ["0.08", "0.07"]
    assert ("λ₂ = 0.3", "P1") not in table


def test_page_says_what_is_missing(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a page with holes that does not say so, and a command that fails for want of one experiment."""
    page = tmp_path / "docs" / "page.md"
    assert write_paper([str(results), "-o", str(page)]) == 0
    said = capsys.readouterr()
    assert "no results for: no_training, noise, depth" in said.err
    assert "*Not run yet.*" in page.read_text(encoding="utf-8")
    assert "have not been run here" in page.read_text(encoding="utf-8")
    assert "paper_widths.png" not in page.read_text(encoding="utf-8")
    assert "{{" not in page.read_text(encoding="utf-8")
    assert (page.parent / "images" / "paper_plateau.png").stat().st_size > 10_000
    assert not (page.parent / "images" / "paper_widths.png").exists()


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout's docs/ with a page and a picture of complete results, and its root the working folder."""
    folder = tmp_path / "checkout" / "docs"
    (folder / "images").mkdir(parents=True)
    (folder / "paper-tables.md").write_text("complete", encoding="utf-8")
    (folder / "images" / "paper_plateau.png").write_bytes(b"complete")
    monkeypatch.chdir(folder.parent)
    return folder


def test_incomplete_results_leave_the_page_of_docs(
    results: Path, docs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches the committed page and pictures replaced by ones with holes."""
    assert write_paper([str(results)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "no results for: no_training, noise, depth" in said.err
    assert "docs/paper-tables.md and its pictures are left as they are; -o FILE writes" in said.err
    assert (docs / "paper-tables.md").read_text(encoding="utf-8") == "complete"
    assert (docs / "images" / "paper_plateau.png").read_bytes() == b"complete"


def test_no_docs_folder_is_made(results: Path, docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches docs/ appearing in whatever folder one is in, also for complete results."""
    shutil.rmtree(docs)
    assert write_paper([str(results)]) == 1
    assert "docs: no such folder; -o FILE writes a page of what there is" in capsys.readouterr().err
    assert _study(results) == 1
    assert capsys.readouterr().err == "docs: no such folder; -o FILE writes a page of what there is\n"
    assert not docs.exists()


def test_complete_results_replace_the_page_of_docs(
    results: Path, docs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches a page that is never made; and an unfinished sweep that counts as complete."""
    assert _study(results) == 0
    assert "a table" in (docs / "paper-tables.md").read_text(encoding="utf-8")
    assert capsys.readouterr().out == "wrote docs/paper-tables.md\n"
    shutil.copytree(results, docs.parent / "some")
    rows = (docs.parent / "some" / "align" / "sweep.csv").read_text(encoding="utf-8")
    (docs.parent / "some" / "align" / "sweep.csv").write_text(rows.replace("done", "failed", 1), encoding="utf-8")
    (docs / "paper-tables.md").write_text("complete", encoding="utf-8")
    assert _study(docs.parent / "some") == 1
    assert "some/align: 1 of 2 members are done" in capsys.readouterr().err
    assert (docs / "paper-tables.md").read_text(encoding="utf-8") == "complete"


def _study(results: Path) -> int:
    """P1's page with a table in every place."""
    tables = defaultdict(lambda: "a table")
    return study("paper", "tables", "paper-tables.md", lambda _: tables, lambda *_: [], [str(results)])


@pytest.mark.parametrize("module", ["tables", "two_optima", "auxiliary", "joined"])
def test_help_names_the_command(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches `usage: turnpike` or `usage: tables.py`: not what one can type."""
    with pytest.raises(SystemExit):
        importlib.import_module(f"postprocess.{module}").main(["--help"])
    assert capsys.readouterr().out.startswith(f"usage: python -m postprocess.{module} ")


def test_page_of_the_families(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "families.md"
    assert write_families([str(results), "-o", str(page)]) == 0
    assert "| from W = 0 | late |" in page.read_text(encoding="utf-8")
    for name in ("families_densities", "families_depth"):
        assert (tmp_path / "images" / f"{name}.png").stat().st_size > 10_000


def test_no_results_and_damaged_results(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a traceback."""
    assert write_paper([str(tmp_path / "nowhere")]) == 2
    assert "there is no such folder; `make paper` fills results/paper" in capsys.readouterr().err
    member = tmp_path / "align" / "one"
    member.mkdir(parents=True)
    (member / "case.toml").write_text("", encoding="utf-8")
    (member / "summary.json").write_text("{", encoding="utf-8")
    assert write_paper([str(tmp_path), "-o", str(tmp_path / "page.md")]) == 2
    assert "summary.json: damaged" in capsys.readouterr().err
    (member / "summary.json").write_text("{}", encoding="utf-8")
    assert write_paper([str(tmp_path), "-o", str(tmp_path / "page.md")]) == 2
    assert "summary.json: damaged (no table objective)" in capsys.readouterr().err
    (member / "summary.json").write_bytes((results / "align" / "eigenvalues=1.0,0.2" / "summary.json").read_bytes())
    (member / "case.toml").write_text("[attention]\n[depth]\n[objective]\n[optimizer]\n", encoding="utf-8")
    assert write_paper([str(tmp_path), "-o", str(tmp_path / "page.md")]) == 2
    assert "not the runs that `make paper` makes, or damaged" in capsys.readouterr().err


def test_unfinished_sweep_is_named(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a table that lacks a member without a word."""
    shutil.copytree(results / "align", tmp_path / "align")
    (tmp_path / "align" / "eigenvalues=1.0,0.2" / "summary.json").unlink()
    table = (tmp_path / "align" / "sweep.csv").read_text(encoding="utf-8")
    (tmp_path / "align" / "sweep.csv").write_text(table.replace("done", "failed", 1), encoding="utf-8")
    assert write_paper([str(tmp_path), "-o", str(tmp_path / "page.md")]) == 0
    assert "align: 1 of 2 members are done" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["auxiliary.md", "paper-tables.md", "two-optima.md"])
def test_committed_page_has_the_words_of_its_template(name: str) -> None:
    """Catches an edit of the page that the next one made from results would lose, and one of the template alone."""
    root = Path(__file__).resolve().parents[2]
    template = (root / "postprocess" / "templates" / name).read_text(encoding="utf-8")
    page = (root / "docs" / name).read_text(encoding="utf-8")
    parts = re.split(r"\{\{\w+\}\}", template)
    assert re.fullmatch(r"(?:\|[^\n]*\|\n?)+".join(map(re.escape, parts)), page)


def test_place_without_a_table(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        write_page("paper-tables.md", {}, tmp_path / "page.md")


def test_families_are_told_apart(results: Path) -> None:
    """Catches a verdict by the start alone; and the escape is dated where the angle last rises through 0.8 rad."""
    by_start = {member.key("optimizer.start"): member for member in read_members(results / "families")}
    assert family(by_start["zero"]) == "late"
    assert family(by_start["steer"]) == "saddle"
    late, saddle = (escape_depth(by_start[start]) for start in ("zero", "steer"))
    assert late is not None
    assert saddle is not None
    assert saddle < 2.0 < 6.0 < late
    columns = by_start["zero"].run().trajectory
    assert np.interp(late, columns["t"], columns["angle"]) == pytest.approx(0.8)


class _Made(Member):
    """A member whose J is a formula."""

    def run(self) -> object:  # type: ignore[override]
        late = self.key("optimizer.start") == "zero"
        columns = {"t": np.array([0.0, 1.0]), "mean_1": np.full(2, float(late)), "mean_2": np.full(2, float(not late))}
        return type("Run", (), {"trajectory": columns})


def test_crossing_is_where_the_difference_vanishes() -> None:
    """Catches differences in degrees, and the wrong root of the parabola."""
    members = []
    for degrees in (45.0, 50.0, 55.0, 60.0):
        angle = math.radians(degrees)
        for start, J in (("zero", (angle - 0.9) * (1.0 + 0.1 * angle)), ("steer", 0.0)):
            case = {
                "noise": {"epsilon": 0.01},
                "initial": {"kappa": 3.0, "mean": [math.cos(0.6), math.sin(0.6)]},
                "attention": {"eigenvalues": [1.0, 0.65]},
                "objective": {"target": [math.cos(angle), math.sin(angle)], "regularization": 0.01},
                "optimizer": {"start": start},
            }
            members.append(_Made(Path(), case, {"objective": {"J": J}}, {}))
    (found,) = crossings(members)
    assert found.measured == pytest.approx(0.9, abs=1e-9)
    assert found.predicted == pytest.approx(crossing((1.0, 0.65), 0.6, 0.01))


def test_sample() -> None:
    assert Sample((1.0, 2.0, 3.0), 4).text(".1f") == "2.0 ± 1.0"
    assert Sample((2.0,), 1).text(".1f") == "2.0"
    assert Sample((), 3).text() == "–"
