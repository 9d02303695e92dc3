"""Keys and values that the case format reserves but this version does not offer yet."""

from __future__ import annotations

from solver.types import Json

__all__ = ["not_yet"]

_KEYS = {
    "geometry": {"adapt", "tolerance", "max_nodes"},
    "output": {"memory"},
}
_VALUES: dict[tuple[str, str], set[object]] = {
    ("depth", "grid"): {"adaptive"},
    ("optimizer", "method"): {"newton"},
}


def not_yet(raw: Json) -> list[tuple[str, str]]:
    """(key, message) for everything in a raw case that a later version will bring."""
    found = []
    for section, table in raw.items():
        if isinstance(table, dict):
            for key, value in table.items():
                if key in _KEYS.get(section, ()):
                    found.append((f"{section}.{key}", "not available yet in this version"))
                elif isinstance(value, str | bool) and value in _VALUES.get((section, key), ()):
                    shown = str(value).lower() if isinstance(value, bool) else repr(value)
                    found.append((f"{section}.{key}", f"{shown} is not available yet in this version"))
    return found
