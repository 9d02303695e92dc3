"""docs/auxiliary.md from few results or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from postprocess.auxiliary import _states as states_table
from postprocess.auxiliary import main as write_page
from postprocess.members import Member
from solver.particles.run import main as run_particles

pytestmark = pytest.mark.serial

CASES = Path(__file__).resolve().parents[2] / "cases" / "auxiliary"


def small_sweep(name: str, results: Path) -> None:
    text, _, _ = (CASES / f"{name}.toml").read_text(encoding="utf-8").partition("[sweep]")
    case = results.parent / f"{name}.toml"
    case.write_text(f'{text}[sweep]\n"particles.n" = [8, 12]\n', encoding="utf-8")
    small = ["--set=particles.seeds=2", "--set=depth.T=0.2", "--quiet"]
    assert run_particles([str(case), "-o", str(results / f"{name}-particles"), *small]) == 0


@pytest.mark.filterwarnings("error::UserWarning")
def test_page_from_no_results_and_from_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a command that hangs, fails or warns for want of experiments, seeds or a β; and damage without a name."""
    results, page = tmp_path / "results", tmp_path / "docs" / "auxiliary.md"
    results.mkdir()
    assert write_page([str(results), "-o", str(page)]) == 0
    assert "no results for: kernels, shapes, exact, states, universality, reached" in capsys.readouterr().err
    small_sweep("prefix", results)
    assert write_page([str(results), "-o", str(page)]) == 0
    assert "no results for: shapes, states, universality, random_lifetimes" in capsys.readouterr().err
    assert (page.parent / "images" / "auxiliary_resultant.png").stat().st_size > 10_000
    damaged = results / "prefix-particles" / "n=12" / "particles.npz"
    damaged.write_text("{", encoding="utf-8")
    assert write_page([str(results), "-o", str(page)]) == 2
    assert f"{damaged}: damaged" in capsys.readouterr().err


def test_gain_of_round_off_is_none(tmp_path: Path) -> None:
    """Catches a gain of −0.000000, and a real one that is lost."""
    rows = []
    for gap in (3e-16, -0.0271034):
        summary = {
            "auxiliary": {"maximum": 0.28258},
            "seeds": [{"interaction_gap": gap, "interaction_energy": 0.28258 - gap, "resultant": 0.0}],
            "kind": "particles",
        }
        member = Member(tmp_path, {"attention": {"eigenvalues": [1.0]}}, summary, {})
        rows.append(states_table([member]).splitlines()[-1].split(" | ")[3])
    assert rows == ["0", "0.027103"]
