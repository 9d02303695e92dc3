"""Import the user's own parts (``module:factory``) and build them."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from solver.case.load import CaseError
from solver.case.schema import Case

__all__ = ["build_part"]


def build_part(key: str, name: str, case: Case, parameters: Mapping[str, Any]) -> Any:
    """``factory(case, **parameters)`` of a part named ``module:factory``.

    Args:
        key: Key of the case that names it, for messages.
        name: ``module:factory``, as a resolved case holds it.
        case: First argument of the factory.
        parameters: Keyword arguments of the factory.

    Raises:
        CaseError: It cannot be imported, or the factory fails; with the place in the user's file.
    """
    module, _, attribute = name.rpartition(":")
    try:
        loaded = _from_file(Path(module), Path(module).stat().st_mtime_ns) if module.endswith(".py") else None
        factory = getattr(loaded or importlib.import_module(module), attribute)
    except Exception as error:
        raise CaseError([f"{key}: {name} cannot be imported: {_described(error)}"]) from error
    try:
        return factory(case, **parameters)
    except Exception as error:
        raise CaseError([f"{key}: {name} failed: {_described(error)}"]) from error


@functools.cache
def _from_file(path: Path, modified: int) -> ModuleType:
    """The module in a file, imported once per version of the file; its neighbours can be imported from it."""
    name = f"turnpike_part_{path.stem}_{hashlib.sha1(f'{path}{modified}'.encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.append(folder)  # last, so that nothing there shadows an installed package
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _described(error: Exception) -> str:
    """Kind, text and place of an error, on one line."""
    text = " ".join(str(error).split())
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if len(frames) > 1 else ""
    return f"{type(error).__name__}: {text}{place}"
