"""A small valid case and what tests of bad ones share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from solver.case import CaseError, load_case

GOOD = """
[geometry]
manifold = "sphere"
h = 0.3
[attention]
eigenvalues = [1.0, 0.65, 0.3]
[noise]
epsilon = 0.02
[depth]
T = 8.0
"""

Write = Callable[[str], Path]


def error_lines(path: Path, overrides: dict[str, Any] | None = None) -> list[str]:
    with pytest.raises(CaseError) as caught:
        load_case(path, overrides)
    assert str(caught.value) == "\n".join(caught.value.lines)
    assert all("\n" not in line for line in caught.value.lines)
    return caught.value.lines
