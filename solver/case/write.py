"""Write a resolved case back as TOML, every default included, such that it loads again."""

from __future__ import annotations

from typing import Any

import tomli_w

from solver.case.schema import Case

__all__ = ["dump_case"]


def dump_case(case: Case) -> str:
    """TOML text of a resolved case. Keys without a value (alternatives not taken) are left out."""
    return tomli_w.dumps(_lists(case.model_dump(mode="json", exclude_none=True)))


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value
