"""Write a resolved case back as TOML, every default included, such that it loads again."""

from __future__ import annotations

from typing import Any

import tomli_w

from solver.case.schema import METHOD_OF, Case

__all__ = ["dump_case"]

_GRADED = {"first_step", "layer", "growth"}


def dump_case(case: Case) -> str:
    """TOML text of a resolved case. Keys without a value (alternatives not taken) are left out."""
    tables = case.model_dump(mode="json", exclude_none=True)
    if case.depth.grid == "uniform":
        tables["depth"] = {key: value for key, value in tables["depth"].items() if key not in _GRADED}
    method = case.optimizer.method
    tables["optimizer"] = {key: v for key, v in tables["optimizer"].items() if METHOD_OF.get(key, method) == method}
    return tomli_w.dumps(_lists(tables))


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value
