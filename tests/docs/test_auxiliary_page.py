"""The recipes of docs/auxiliary.md, as a reader would type them."""

from __future__ import annotations

import re
from pathlib import Path

from mpi4py import MPI

import numpy as np
import pytest

from solver.case import load_case
from solver.particles.ensemble import solve_ensemble

pytestmark = pytest.mark.serial

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "auxiliary.md").read_text(encoding="utf-8")


def test_lifetime_in_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a recipe that drifted from the functions: both lifetimes, which agree."""
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    exec(code, {})
    tokens, integral = map(float, capsys.readouterr().out.split())
    assert tokens == pytest.approx(integral, rel=5e-3)
    assert integral == pytest.approx(np.exp(-12.0 * np.cos(1.0)) / (12.0 * np.sin(1.0)) ** 2, rel=0.3)


def test_law_of_ones_own(tmp_path: Path) -> None:
    """Catches a case that is refused, or whose tokens end elsewhere than ¾ at one point and ¼ at the other."""
    (case,) = re.findall(r"```toml\n(.*?)```", TEXT, flags=re.DOTALL)
    (tmp_path / "case.toml").write_text(case, encoding="utf-8")
    (tmp_path / "my_points.csv").write_text("x,y,z,weight\n0,1,0,0.75\n0,0,1,0.25\n", encoding="utf-8")
    found = solve_ensemble(load_case(tmp_path / "case.toml", {"particles.n": 64}), MPI.COMM_SELF)
    assert found is not None
    x = found.diagnostics.frames[0, -1]
    assert [int((x @ point > 0.9999).sum()) for point in ([0.0, 1.0, 0.0], [0.0, 0.0, 1.0])] == [48, 16]
