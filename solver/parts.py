"""Import the user's own parts (``module:factory``), build them, and keep their errors apart from the program's."""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from solver.case.load import CaseError
from solver.case.schema import Case
from solver.types import FloatArray

__all__ = ["Guarded", "build_part", "check_alone", "check_pointwise"]

_PREFIX = "turnpike_part_"
_CAUGHT = (Exception, SystemExit)  # a part that calls sys.exit must not end one rank alone


@dataclass(frozen=True)
class Guarded:
    """A function of the user's, of arrays: it gets copies, returns real arrays, and its errors are bad input.

    Attributes:
        key: Key of the case that names the part.
        name: The part's name.
        function: From arrays to an array.
    """

    key: str
    name: str
    function: Callable[..., Any]

    def __call__(self, *arrays: FloatArray) -> FloatArray:
        """Call it.

        Raises:
            CaseError: It failed, or returned something else than real numbers.
        """
        return self.call(lambda: _real(self.function(*(np.array(array) for array in arrays))))

    def call[T](self, function: Callable[[], T]) -> T:
        """Run something of the part's; its errors become a `CaseError` that names key and part."""
        try:
            return function()
        except _CAUGHT as error:
            raise CaseError([f"{self.key}: {self.name} failed: {_described(error)}"]) from error


def _real(value: Any) -> FloatArray:
    array = np.asarray(value)
    if np.iscomplexobj(array):
        raise ValueError("it returns complex numbers: real ones are needed")
    if array.dtype == object or array.dtype.kind in "USV":
        raise TypeError(f"it returns {type(value).__name__}: numbers are needed")
    return array.astype(np.float64)


def check_pointwise(guarded: Guarded, x: FloatArray) -> None:
    """A function of points must treat each by itself, and give the same twice: ranks hold different points.

    Raises:
        CaseError: It does not.
    """
    whole, again, part = guarded(x), guarded(x), guarded(x[: len(x) // 3])
    if not (_same(whole, again) and _same(whole[: len(part)], part)):
        raise CaseError(
            [f"{guarded.key}: {guarded.name}: the value at a point changes with the other points or from call to call"]
        )


def check_alone(guarded: Guarded, value: FloatArray, *labels: FloatArray) -> None:
    """A function of labels must treat each by itself, and give the same twice: they are not always asked for together.

    Args:
        guarded: The function.
        value: What it returned, a dimension for each of its arguments first.
        labels: Its arguments, (n,) each. The second quarter of each is asked for again.

    Raises:
        CaseError: It does not.
    """
    some = [np.arange(len(a) // 4, max(len(a) // 2, 1)) for a in labels]  # neither first nor last, nor of their mean
    again = guarded(*(a[places] for a, places in zip(labels, some, strict=True)))
    if not _same(value[np.ix_(*some)], again):
        raise CaseError(
            [f"{guarded.key}: {guarded.name}: the value at a label changes with the other labels or from call to call"]
        )


def _same(a: FloatArray, b: FloatArray) -> bool:
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True))


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
    folder = Path(module).parent if module.endswith(".py") else None
    with _importing_from(folder):
        try:
            loaded = _from_file(Path(module), Path(module).stat().st_mtime_ns) if folder else None
            factory = getattr(loaded or importlib.import_module(module), attribute, None)
        except _CAUGHT as error:
            raise CaseError([f"{key}: {name} cannot be imported: {_described(error)}"]) from error
        if not callable(factory):
            raise CaseError([f"{key}: {name}: there is no function {attribute!r} in that module"])
        try:
            return factory(case, **copy.deepcopy(dict(parameters)))
        except _CAUGHT as error:
            raise CaseError([f"{key}: {name} failed: {_described(error)}"]) from error


@contextlib.contextmanager
def _importing_from(folder: Path | None) -> Iterator[None]:
    """Let a part import its neighbours, and forget them afterwards: another case may have others of the same names."""
    if folder is None:
        yield
        return
    before = set(sys.modules)
    sys.path.append(str(folder))  # last, so that nothing there shadows an installed package
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            origin = getattr(sys.modules[name], "__file__", None)
            if origin is not None and folder in Path(origin).parents and not name.startswith(_PREFIX):
                del sys.modules[name]


@functools.cache
def _from_file(path: Path, modified: int) -> ModuleType:
    """The module in a file, imported once per version of the file; its neighbours can be imported from it."""
    name = f"{_PREFIX}{path.stem}_{hashlib.sha1(f'{path}{modified}'.encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _described(error: BaseException) -> str:
    """Kind, text and place of an error, on one line."""
    text = " ".join(str(error).split())
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) or len(frames) < 2:  # the text says where
        return f"{type(error).__name__}: {text}"
    return f"{type(error).__name__}: {text} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
