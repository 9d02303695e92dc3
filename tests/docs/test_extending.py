"""The worked example of docs/extending.md, as a reader would type it."""

from __future__ import annotations

import re
from pathlib import Path

from mpi4py import MPI

import numpy as np
import pytest

from solver.auxiliary.maps import create_map
from solver.case import load_case
from solver.parallel import on_root
from solver.particles.ensemble import solve_ensemble
from solver.problem import Problem
from solver.verify import checks

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
LABELLED = """
[geometry]
manifold = "circle"
[attention]
eigenvalues = [1.0, 1.0]
[noise]
epsilon = 0.0
[initial]
kappa = 1.0
[depth]
T = 20.0
[optimizer]
method = "none"
[auxiliary]
kernel = "my_parts:my_labels"
start = "u"
"""


@pytest.mark.serial
def test_worked_example_verifies_and_trains(shared_path: Path, comm: MPI.Comm) -> None:
    """Catches an example that drifted from the interface, or whose loss does not fall."""
    files = re.findall(r"`(my_\w+\.(?:py|toml))`:\n\n```\w+\n(.*?)```", TEXT, flags=re.DOTALL)
    assert [name for name, _ in files] == ["my_parts.py", "my_case.toml"]
    on_root(comm, lambda: [(shared_path / name).write_text(content, encoding="utf-8") for name, content in files])
    case = load_case(shared_path / "my_case.toml")
    problem = Problem(case, comm)
    assert all(check.passed is not False for check in checks(problem))
    assert problem.expansion.signs.min() == -1, "the text says that the kernel is not positive semidefinite"
    x = np.array([[0.6, 0.8]])
    assert np.allclose(problem.features(x)[0], np.append(x / (1 + np.exp(-x)), 1.0), rtol=1e-14)
    result = problem.solve()
    assert result.converged
    assert result.summary["objective"]["J"] < result.summary["objective"]["untrained_loss"] - 0.1


@pytest.mark.serial
def test_label_kernel_and_map_of_the_text(tmp_path: Path) -> None:
    """Catches an example that drifted from the interface: both run, and do what they say."""
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL) if "class Twist" in block)
    (tmp_path / "my_parts.py").write_text(code, encoding="utf-8")
    (tmp_path / "my_case.toml").write_text(LABELLED, encoding="utf-8")
    twist = solve_ensemble(load_case(tmp_path / "my_case.toml"), MPI.COMM_SELF)
    assert twist is not None
    assert twist.diagnostics.readings["interaction_gap"][0, -1] < 1e-6 * 0.5 * np.e * 1.5**2
    assert twist.diagnostics.readings["clusters"][0, -1] > 5.0
    mapped = {
        "geometry.manifold": "sphere", "attention.eigenvalues": [1.0] * 3, "auxiliary.kernel": "prefix",
        "auxiliary.map": f"{tmp_path / 'my_parts.py'}:my_map", "auxiliary.map_parameters": {"latitude": 0.5},
    }  # fmt: skip
    f = create_map(load_case(tmp_path / "my_case.toml", mapped))
    r, z = np.cos(0.5), np.sin(0.5)
    assert f(np.array([0.0, 0.5])) == pytest.approx(np.array([[r, 0.0, z], [0.0, r, z]]))
