"""Case files on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from casefiles import Write


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A case file with this text."""

    def make(text: str) -> Path:
        path = tmp_path / "some.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return make
