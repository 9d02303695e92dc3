"""docs/joined.md from few results or none."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from postprocess.compare import main as compare
from postprocess.joined import main as write_page
from solver.particles.run import main as run_tokens
from solver.run import main as run_density

pytestmark = pytest.mark.serial

CASES = Path(__file__).resolve().parents[2] / "cases" / "joined"
COARSE = {
    "geometry.h": 0.3,
    "geometry.continuation": "[]",
    "noise.epsilon": 0.1,
    "depth.T": 1.0,
    "depth.first_step": 0.25,
    "depth.layer": 0.5,
    "optimizer.max_iterations": 2,
    "auxiliary.labels": 4,
    "particles.n": 16,
    "particles.seeds": 3,
    "particles.steps": 10.0,
    "output.frames": 3,
}


def run(name: str, results: Path, sweep: str, tokens: bool = True) -> None:
    text, _, _ = (CASES / f"{name}.toml").read_text(encoding="utf-8").partition("[sweep]")
    case = results.parent / f"{name}.toml"
    case.write_text(f"{text}[sweep]\n{sweep}\n", encoding="utf-8")
    unswept = {key: value for key, value in COARSE.items() if f'"{key}"' not in sweep}
    words = [str(case), "--quiet", *(word for key, value in unswept.items() for word in ("--set", f"{key}={value}"))]
    assert run_density([*words, "-o", str(results / name)]) == 0
    if tokens:
        assert run_tokens([*words, "-o", str(results / f"{name}-particles")]) == 0


@pytest.mark.filterwarnings("error::UserWarning")
def test_page_from_no_results_and_from_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a page that fails for want of experiments, pictures or columns, and closed forms beside other rows."""
    results, page = tmp_path / "results", tmp_path / "docs" / "joined.md"
    results.mkdir()
    assert write_page([str(results), "-o", str(page)]) == 0
    assert "no results for: diracs, particles, align, bag_of_words, rates" in capsys.readouterr().err
    kernels = '"auxiliary.kernel" = ["rope", "toeplitz"]\n"optimizer.method" = ["none", "lbfgs"]'
    run("diracs_rope", results, '"noise.epsilon" = [0.2]')
    member = "epsilon=0.2"
    folders = [str(results / "diracs_rope" / member), str(results / "diracs_rope-particles" / member)]
    assert compare([*folders, "--depths", "2", "--draws", "1"]) == 0
    run("align", results, kernels)
    run("rates", results, '"auxiliary.kernel" = ["rope"]', tokens=False)
    capsys.readouterr()
    assert write_page([str(results), "-o", str(page)]) == 0
    assert "no results for: bag_of_words;" in capsys.readouterr().err
    for name in ("joined_diracs", "joined_trained", "joined_resultant", "joined_rates"):
        assert (page.parent / "images" / f"{name}.png").stat().st_size > 10_000
    text = page.read_text(encoding="utf-8")
    assert "| `rope` | PDE |" in text
    assert "| `toeplitz`, linear | tokens |" in text
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    first, *_, last = [cells for cells in lines if cells[0] == "`rope`"]
    assert first[3] == f"{math.sqrt(0.2 / math.e):.4f}"  # the thermal width
    assert first[7] == "0.20000"
    assert [float(cell) for cell in last[3:5]] == pytest.approx([0.35 * math.e, math.e], abs=1e-3)
