"""The doctor: what it finds on this machine and on broken ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from solver import doctor

pytestmark = pytest.mark.serial


@pytest.fixture
def no_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what starts processes: every import and the launcher are fine."""
    monkeypatch.setattr(doctor, "_import", lambda name, code, remedy: doctor.Finding(name, True, "not tried"))
    monkeypatch.setattr(doctor, "_launcher", lambda: doctor.Finding("MPI", True, "not tried"))


def test_this_machine_is_healthy(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Would catch a check that fails where everything works, or a report without its lines."""
    found = doctor.examine()
    monkeypatch.setattr(doctor, "examine", lambda: found)
    assert doctor.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(found)
    assert all(" ok " in line or " warning " in line for line in lines)


@pytest.mark.usefixtures("no_imports")
def test_missing_libraries_name_their_packages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Would catch a missing library without the apt line, or an exit code that hides it."""
    monkeypatch.setattr(doctor, "_loads", lambda library: library not in {"libGLU.so.1", "libXft.so.2"})
    assert doctor.missing_packages() == ["libglu1-mesa", "libxft2"]
    assert doctor.main([]) == 1
    assert "apt-get install libglu1-mesa libxft2" in capsys.readouterr().out


@pytest.mark.usefixtures("no_imports")
def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Would catch a machine that fails only at the first compilation of a form."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "nocc")
    finding = next(item for item in doctor.examine() if item.name == "C compiler")
    assert not finding.ok
    assert "gcc" in finding.text


def test_a_crashing_import_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a segmentation fault of a library taking the doctor down with it."""
    finding = doctor._import("gmsh", "import os; os.kill(os.getpid(), 11)", "the remedy")
    assert (finding.ok, "signal 11" in finding.text, "the remedy" in finding.text) == (False, True, True)
    assert sys.executable


def test_module_in_the_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Would catch a user's solver.py that hides the package with a message nobody understands."""
    (tmp_path / "solver.py").write_text("")
    monkeypatch.chdir(tmp_path)
    finding = doctor._shadow()
    assert not finding.ok
    assert "solver.py" in finding.text


def test_unfinished_compilation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Would catch the orphan of a killed compilation, for which the next run waits in vain."""
    (tmp_path / "fenics").mkdir()
    (tmp_path / "fenics" / "libffcx_forms_1.c").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    finding = doctor._cache()
    assert (finding.ok, finding.needed) == (False, False)
    assert "delete" in finding.text
