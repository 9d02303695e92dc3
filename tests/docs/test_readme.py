"""The list of commands in README.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from solver.cli import main

pytestmark = pytest.mark.serial

TEXT = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def test_commands_are_all_there(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a command that the README does not name, or one that there is not."""
    assert main(["--help"]) == 0
    offered = re.findall(r"^  (\S+) ", capsys.readouterr().out, flags=re.MULTILINE)
    (listed,) = re.findall(r"`turnpike (run \|[^`]*)`", TEXT)
    assert listed.split(" | ") == offered
