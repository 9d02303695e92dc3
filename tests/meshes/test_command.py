"""``python -m meshes.sphere`` and ``python -m meshes.circle``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from meshes.simplicial import read

pytestmark = pytest.mark.serial

ROOT = Path(__file__).resolve().parents[2]


def _run(module: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *arguments]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(cwd)}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("name", "dimension"), [("sphere", 3), ("circle", 2)])
def test_writes_a_mesh_that_reads_back(name: str, dimension: int, tmp_path: Path) -> None:
    """Catches a command that writes elsewhere than -o says, or a file that the solver then refuses."""
    done = _run(f"meshes.{name}", "--h", "0.3", "-o", "x.msh", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    mesh = read(tmp_path / "x.msh", dimension)
    assert f"{len(mesh.points)} vertices, {len(mesh.cells)} cells" in done.stdout
    from meshes.build import GENERATORS

    assert np.abs(mesh.points - GENERATORS[name](0.3).points).max() <= 1e-15


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--h", "0"], "above 0"),
        (["--h", "-0.1"], "above 0"),
        (["--h", "nan"], "above 0"),
        (["--h", "1.5"], "up to 1"),
        (["--h", "0.3", "-o", "x.vtk"], ".msh"),
        (["--h", "0.3", "-o", "missing/x.msh"], "no folder"),
        ([], "--h"),
    ],
)
def test_bad_arguments_are_one_clear_error(arguments: list[str], message: str, tmp_path: Path) -> None:
    """Catches a gmsh traceback (or an endless mesh at h = 0) in place of exit code 2 and a sentence."""
    done = _run("meshes.sphere", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.msh"))
