"""Write a resolved case back as TOML, every default included, such that it loads again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomli_w

from solver.case.schema import Case

__all__ = ["dump_case"]


def dump_case(case: Case) -> str:
    """TOML text of a resolved case. Keys without a value (alternatives not taken) are left out."""
    return tomli_w.dumps(_plain(case.model_dump(exclude_none=True)))


def _plain(value: Any) -> Any:
    """Lists for tuples, text for paths."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
