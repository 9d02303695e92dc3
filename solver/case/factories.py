"""Parts of the user's own, named ``module:factory``: a loss, a kernel, an activation.

``module`` is a file beside the case (``my_parts`` is my_parts.py there), an installed module, or the path of a .py
file. A resolved case holds absolute paths, so that it can be run again from anywhere.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from solver.types import Json

__all__ = ["FACTORY_KEYS", "OWN", "is_factory", "missing_factory", "resolve_factories"]

OWN = "module:factory"  # stands for any part of the user's own where alternatives are listed
FACTORY_KEYS = (
    ("objective", "loss"),
    ("attention", "kernel"),
    ("ffn", "activation"),
    ("auxiliary", "kernel"),
    ("auxiliary", "map"),
)


def is_factory(name: str) -> bool:
    """Whether a value names a part of the user's own."""
    return ":" in name


def resolve_factories(raw: Json, folder: Path, modules: bool = True) -> None:
    """Make the paths of .py files, relative to `folder`, and of `modules` that lie in it absolute, in place."""
    for section, key in FACTORY_KEYS:
        table = raw.get(section)
        value = table.get(key) if isinstance(table, dict) else None
        if isinstance(table, dict) and isinstance(value, str) and is_factory(value):
            module, _, factory = value.rpartition(":")
            beside = folder / (module if module.endswith(".py") else f"{module.replace('.', '/')}.py")
            if module.endswith(".py") or (modules and _exists(beside)):
                table[key] = f"{beside}:{factory}"


def missing_factory(value: str) -> str | None:
    """What is wrong with where a part is looked for; None if its module is there."""
    module, _, factory = value.rpartition(":")
    if not module or not factory.isidentifier():
        return f"{value!r}: write module:factory, such as my_parts:my_loss"
    if module.endswith(".py"):
        return None if _exists(Path(module)) else f"there is no file {module}"
    try:
        found = importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        found = False
    name = f"{module.replace('.', '/')}.py"
    return None if found else f"{value!r}: there is no {name} beside the case file, and no installed module {module!r}"


def _exists(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that the system does not allow
        return False
