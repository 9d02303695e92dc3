"""The members of a sweep: one case for every combination of the values in its ``[sweep]`` table."""

from __future__ import annotations

import collections
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from solver.case.load import CaseError, load_case, read_case_file
from solver.case.schema import Case

__all__ = ["Member", "is_sweep", "load_members", "moved"]

_MOST_MEMBERS = 10_000
_COMBINE = ("product", "zip")


@dataclass(frozen=True)
class Member:
    """One case of a sweep.

    Attributes:
        name: Of its folder, such as ``T=40_epsilon=0.01``.
        values: Its swept keys, ``section.key`` → value.
        case: Resolved; its results go to a folder of the sweep's folder.
    """

    name: str
    values: dict[str, Any]
    case: Case


def is_sweep(path: str | Path, overrides: Mapping[str, Any] | None = None) -> bool:
    """Whether a case has a ``[sweep]`` table.

    Raises:
        CaseError: The file cannot be read.
    """
    return "sweep" in read_case_file(Path(path)) or any(name.split(".")[0] == "sweep" for name in overrides or {})


def load_members(path: str | Path, overrides: Mapping[str, Any] | None = None) -> tuple[list[Member], bool]:
    """Read a case with a ``[sweep]`` table; every member is validated before any of them runs.

    Args:
        path: TOML file.
        overrides: ``{"section.key": value}``, for all members; ``sweep.section.key`` replaces a list of values.

    Returns:
        The members, first key slowest, and whether each starts from the control of the one before.

    Raises:
        CaseError: Mistakes in the table or in members; one line each, those shared by all members once.
    """
    path, overrides = Path(path), dict(overrides or {})
    lists, combine, warm = _table(path, overrides)
    plain = {name: value for name, value in overrides.items() if name.split(".")[0] != "sweep"}
    rows = list(zip(*lists.values(), strict=True)) if combine == "zip" else list(itertools.product(*lists.values()))
    problems = [
        f"{name}: it is swept; replace its values by --set 'sweep.{name}=[…]'" for name in plain if name in lists
    ]
    problems += [f"sweep: {_shown_row(lists, row)} appears more than once" for row in _repeated(rows)]
    names = _names(list(lists), rows)
    members, errors = [], {f"{path.name}: {problem}": names for problem in problems}
    for name, row in zip(names, rows, strict=True):
        values = dict(zip(lists, row, strict=True))
        try:
            members.append(Member(name, values, _in_folder(load_case(path, plain | values), name)))
        except CaseError as error:
            for line in error.lines:
                errors.setdefault(line, []).append(name)
    if errors:
        raise CaseError(
            line if len(where) == len(rows) else f"{line} ({', '.join(where[:3])}{', …' if len(where) > 3 else ''})"
            for line, where in errors.items()
        )
    return members, warm


def _table(path: Path, overrides: dict[str, Any]) -> tuple[dict[str, list[Any]], str, bool]:
    """Lists of values by key, `combine` and `warm_start`."""
    raw = read_case_file(path).get("sweep", {})
    if not isinstance(raw, dict):
        raise CaseError([f"{path.name}: sweep: a table [sweep] is needed"])
    table, problems = _flat(raw)
    if "sweep" in overrides:
        problems.append("sweep: it is a table: --set 'sweep.section.key=[first, second]'")
    table |= {name.partition(".")[2]: value for name, value in overrides.items() if name.startswith("sweep.")}
    combine, warm = table.pop("combine", "product"), table.pop("warm_start", False)
    if combine not in _COMBINE:
        problems.append(f"sweep.combine: {combine!r} is not allowed: 'product' or 'zip'")
    if not isinstance(warm, bool):
        problems.append(f"sweep.warm_start: {warm!r} is not allowed: true or false")
    for key, values in table.items():
        if key == "output.directory":
            problems.append("sweep.output.directory: not allowed: every member gets a folder in the sweep's")
        elif key.count(".") != 1:
            problems.append(f'sweep.{key}: unknown: allowed: combine, warm_start, "section.key"')
        elif not isinstance(values, list) or not values:
            problems.append(f'sweep."{key}": {values!r} is not allowed: a list of at least one value')
    lengths = {key: len(values) for key, values in table.items() if isinstance(values, list)}
    if not table:
        problems.append('sweep: it names no key; write "section.key" = [first, second]')
    elif not problems and combine == "zip" and len(set(lengths.values())) > 1:
        counts = ", ".join(f'"{key}" {count}' for key, count in lengths.items())
        problems.append(f"sweep.combine: 'zip' needs lists of equal length: {counts}")
    elif not problems and math.prod(lengths.values()) > _MOST_MEMBERS and combine == "product":
        problems.append(f"sweep: {math.prod(lengths.values())} members: at most {_MOST_MEMBERS}")
    if problems:
        raise CaseError(f"{path.name}: {problem}" for problem in problems)
    return table, combine, warm


def _flat(table: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """``depth.T = [..]``, read by TOML as a table in a table, is ``"depth.T" = [..]``; and keys written both ways."""
    flat: dict[str, Any] = {key: value for key, value in table.items() if not isinstance(value, dict)}
    problems = []
    for section, keys in table.items():
        for name, item in keys.items() if isinstance(keys, dict) else ():
            if f"{section}.{name}" in flat:
                problems.append(f'sweep: "{section}.{name}" and {section}.{name} are the same key, written twice')
            flat[f"{section}.{name}"] = item
    return flat, problems


def _repeated(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Combinations that appear more than once."""
    keys = [repr(_as_floats(row)) for row in rows]
    counts, first = collections.Counter(keys), {key: k for k, key in reversed(list(enumerate(keys)))}
    return [rows[k] for key, k in first.items() if counts[key] > 1]


def _as_floats(value: Any) -> Any:
    """4 and 4.0 are the same value."""
    if isinstance(value, list | tuple):
        return [_as_floats(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _shown_row(keys: Iterable[str], row: tuple[Any, ...]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in zip(keys, row, strict=True))


def _names(keys: list[str], rows: list[tuple[Any, ...]]) -> list[str]:
    """Folder names, unique: the last words of the keys, whole keys where those clash, numbers where values do."""
    words = [key.rpartition(".")[2] for key in keys]
    shown = [word if words.count(word) == 1 else key for word, key in zip(words, keys, strict=True)]
    names = ["_".join(f"{word}={_text(value)}" for word, value in zip(shown, row, strict=True)) for row in rows]
    if len(set(names)) == len(names) and max(map(len, names)) <= 120:
        return names
    return [f"member_{number:04d}" for number in range(len(rows))]


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_text, value))
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return re.sub(r"[^\w.,+-]", "-", text)


def _in_folder(case: Case, name: str, sweep: Path | None = None) -> Case:
    """The case with its results in a folder of the sweep's."""
    directory = sweep or case.output.directory
    assert directory is not None  # resolved
    return case.model_copy(update={"output": case.output.model_copy(update={"directory": directory / name})})


def moved(members: Sequence[Member], sweep: Path) -> list[Member]:
    """The same members with their folders in another one."""
    return [replace(member, case=_in_folder(member.case, member.name, sweep)) for member in members]
