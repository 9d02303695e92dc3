"""The worked example of docs/extending.md, as a reader would type it."""

from __future__ import annotations

import re
from pathlib import Path

from mpi4py import MPI

import numpy as np
import pytest

from solver.case import load_case
from solver.parallel import on_root
from solver.problem import Problem
from solver.verify import checks

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")


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
