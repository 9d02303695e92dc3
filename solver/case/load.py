"""Read a case file, apply overrides, and report every mistake at once, a line each."""

from __future__ import annotations

import difflib
import logging
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from solver.case.checks import check_case, unused_keys, without_unused
from solver.case.factories import resolve_factories
from solver.case.later import not_yet
from solver.case.schema import Case
from solver.types import Json

__all__ = ["CaseError", "load_case", "parse_override", "read_case_file"]


# Values of required keys while the rest of a faulty case is checked.
_STAND_INS: Json = {"geometry": {"manifold": "sphere"}, "attention": {}, "noise": {"epsilon": 1.0}, "depth": {"T": 1.0}}

_PATHS = (
    ("geometry", "file"),
    ("initial", "file"),
    ("objective", "file"),
    ("auxiliary", "file"),
    ("output", "directory"),
    ("optimizer", "start"),
)
_LOG = logging.getLogger("turnpike")  # solver.log would start MPI
_SHOWN = 80  # characters of a wrong value in its message


class CaseError(ValueError):
    """Bad input. Its text has one line per mistake."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = list(lines)
        super().__init__("\n".join(self.lines))

    def in_file(self, path: str | Path) -> CaseError:
        """The same with the case file's name before every line that lacks it."""
        name = Path(path).name
        start = (f"{name}: ", f"{path}: ", "--set ")
        return CaseError(line if line.startswith(start) else f"{name}: {line}" for line in self.lines)

    def __reduce__(self) -> tuple[type[CaseError], tuple[list[str]]]:
        return CaseError, (self.lines,)


def load_case(path: str | Path, overrides: Mapping[str, Any] | None = None) -> Case:
    """Read and validate a case file. Touches no mesh and no MPI.

    A ``[sweep]`` table is left out: this is the case without it (`solver.case.sweep.load_members` reads all members).

    Args:
        path: TOML file. Relative paths in it are relative to its folder.
        overrides: ``{"section.key": value}``, applied before validation. Relative paths in them are relative to the
            working directory.

    Returns:
        The resolved case: defaults filled in, paths absolute.

    Raises:
        CaseError: Unreadable file, or any mistakes in it: one line each,
            ``file: section.key: what is wrong, what is allowed``.
    """
    path = Path(path)
    raw = read_case_file(path)
    raw.pop("sweep", None)
    errors = _apply_overrides(raw, overrides or {})
    resolve_factories(raw, path.resolve().parent)
    case, messages = _validate(raw)
    errors += messages
    if errors or case is None:
        raise CaseError(f"{path.name}: {message}" for message in errors)
    return _with_defaults(case, path.resolve().stem)


def parse_override(text: str) -> tuple[str, Any]:
    """``section.key=value`` → key and value; the value is read as TOML, and as plain text where it is none.

    Raises:
        CaseError: There is no ``=`` or no key.
    """
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise CaseError([f"--set {text}: write section.key=value, such as --set depth.T=40"])
    try:
        table = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError):
        return key.strip(), value.strip()
    return key.strip(), table["value"] if len(table) == 1 else value


def read_case_file(path: Path) -> Json:
    """The tables of a case file, unchecked, with the relative paths in it made absolute.

    Raises:
        CaseError: It cannot be read, or is no TOML.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise CaseError([f"{path}: there is no such file"]) from None
    except tomllib.TOMLDecodeError as error:
        raise CaseError([f"{path.name}: not valid TOML: {error}"]) from None
    except UnicodeDecodeError:
        raise CaseError([f"{path.name}: not a text file in UTF-8"]) from None
    except OSError as error:
        raise CaseError([f"{path}: cannot be read: {error.strerror}"]) from None
    except (ValueError, RecursionError) as error:  # integers of thousands of digits, arrays nested as deep
        raise CaseError([f"{path.name}: not valid TOML: {error}"]) from None
    _resolve_paths(raw, path.resolve().parent)
    return raw


def _resolve_paths(raw: Json, folder: Path) -> None:
    """Make the relative paths of a case absolute, in place; also those that are swept."""
    swept = raw.get("sweep")
    for section, key in _PATHS:
        for table, name in ((raw.get(section), key), (swept, f"{section}.{key}")):
            value = table.get(name) if isinstance(table, dict) else None
            words = {"zero", "steer"} if key == "start" else set()
            if isinstance(table, dict) and isinstance(value, str | list):
                table[name] = _absolute(value, folder, words)


def _absolute(value: Any, folder: Path, words: set[str]) -> Any:
    """A path, or each in a list, below a folder; `words` are no paths."""
    if isinstance(value, list):
        return [_absolute(item, folder, words) for item in value]
    return str(folder / value) if isinstance(value, str) and value not in words else value


def _apply_overrides(raw: Json, overrides: Mapping[str, Any]) -> list[str]:
    """Set ``section.key`` (or a top-level key) in place; say what cannot be set."""
    errors = []
    for name, value in overrides.items():
        section, dot, key = name.partition(".")
        change = {section: {key: value} if dot else value}
        _resolve_paths(change, Path.cwd())
        resolve_factories(change, Path.cwd(), modules=False)
        if not dot:
            raw[section] = change[section]
        elif isinstance(raw.setdefault(section, {}), dict):
            raw[section].update(change[section])
        else:
            errors.append(f"{name}: [{section}] is not a table here")
    return errors


def _validate(raw: Json) -> tuple[Case | None, list[str]]:
    """Field errors, then the checks across keys on whatever is valid."""
    later = not_yet(raw)
    blocked = {name for name, _ in later}
    messages = [f"{name}: {text}" for name, text in later]
    case, errors = _parse(raw)
    bad = set(blocked)
    for name, text in errors:
        bad.add(name)
        if name not in blocked and name.partition(".")[0] not in blocked:
            messages.append(f"{name}: {text}")
    partial = case
    if partial is None:
        partial, _ = _parse(_without(raw, bad))
    if partial is not None:
        mistakes = check_case(partial, frozenset(bad | set(map(_meant, bad))))
        messages += [f"{name}: {text}" for name, text in mistakes]
    return case, messages


def _parse(raw: Json) -> tuple[Case | None, list[tuple[str, str]]]:
    try:
        return Case.model_validate(raw), []
    except ValidationError as error:
        found: dict[str, str] = {}
        for item in error.errors():
            location = [str(part) for part in item["loc"]]
            name = ".".join(location[:2])
            found.setdefault(name, _explain(location, dict(item)))
        return None, list(found.items())


def _without(raw: Json, bad: set[str]) -> Json:
    """The case less its bad keys, so that the rest can still be checked."""
    result: Json = {section: dict(table) for section, table in _STAND_INS.items()}
    for section, table in raw.items():
        if section in bad:
            continue
        if isinstance(table, dict):
            good = {key: value for key, value in table.items() if f"{section}.{key}" not in bad}
            result[section] = {**result.get(section, {}), **good}
        else:
            result[section] = table
    return result


def _explain(location: list[str], item: Json) -> str:
    """A pydantic error as one clear clause: what is wrong, what is allowed."""
    section, field = location[0], location[1] if len(location) > 1 else None
    model = Case if field is None else _section_model(section)
    allowed = _allowed(model, field or section) or _allowed(Case, section)
    kind = item["type"]
    if kind == "extra_forbidden":
        known = sorted(model.model_fields) if model is not None else []
        close = _closest(field or section, known)
        hint = f"did you mean {close!r}? " if close else ""
        return f"unknown {'key' if field else 'section or key'}: {hint}allowed: {', '.join(known)}"
    if kind == "missing" and len(location) <= 2:
        return f"missing, required: {allowed or f'a table [{section}]'}"
    if kind == "value_error":
        return str(item["msg"]).removeprefix("Value error, ")
    if kind in {"model_type", "dict_type"}:
        allowed = f"a table [{section}]"
    return f"{_shortened(item['input'])} is not allowed: {allowed}"


def _meant(name: str) -> str:
    """The known key that one of a case, perhaps misspelt, stands for."""
    section, _, field = name.partition(".")
    model = _section_model(section)
    if not field or model is None or field in model.model_fields:
        return name
    return f"{section}.{_closest(field, sorted(model.model_fields))}"


def _closest(name: str, known: list[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, known, n=1)), None)


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _section_model(section: str) -> type[BaseModel] | None:
    field = Case.model_fields.get(section)
    annotation = field.annotation if field is not None else None
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _allowed(model: type[BaseModel] | None, field: str) -> str:
    info = model.model_fields.get(field) if model is not None else None
    extra = info.json_schema_extra if info is not None else None
    return str(extra.get("allowed", "")) if isinstance(extra, dict) else ""


def _with_defaults(case: Case, stem: str) -> Case:
    """Fill in the defaults that depend on other keys or on the file's name; reset keys that mean nothing here."""
    for name, text, _ in unused_keys(case):
        _LOG.warning("%s is not used: it %s", name, text)
    case = without_unused(case)
    geometry, initial, objective = case.geometry, case.initial, case.objective
    if geometry.file is None and geometry.h is None and geometry.manifold != "hypersphere":
        geometry = geometry.model_copy(update={"h": 0.1 if geometry.manifold == "sphere" else 0.02})
    if initial.law == "von_mises_fisher":
        initial = initial.model_copy(update={"mean": case.initial_mean})
    if initial.law == "mixture":
        means, _, weights = case.mixture
        initial = initial.model_copy(update={"means": means, "weights": weights})
    if objective.loss == "align":
        objective = objective.model_copy(update={"target": case.target})
    if objective.loss == "bag_of_words":
        objective = objective.model_copy(update={"mean": case.candidates_mean})
    directory = case.output.directory or Path.cwd() / "results" / stem
    return case.model_copy(
        update={
            "title": case.title or stem,
            "geometry": geometry,
            "initial": initial,
            "objective": objective,
            "output": case.output.model_copy(update={"directory": directory}),
        }
    )
