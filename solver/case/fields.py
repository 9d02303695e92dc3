"""What keys of a case are made of: strict numbers, vectors that are checked, and fields that document themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, AllowInfNan, BaseModel, ConfigDict, Field, Strict

from solver.case.factories import OWN, is_factory

__all__ = [
    "Direction",
    "Flag",
    "Integer",
    "Parameters",
    "Real",
    "Section",
    "Shares",
    "Spectrum",
    "SymmetricMatrix",
    "Unused",
    "Vector",
    "bounded",
    "key",
    "one_of",
    "unit",
    "unused",
    "was_set",
]

MAX_EIGENVALUE = 50.0

Real = Annotated[float, Strict(), AllowInfNan(False)]
Integer = Annotated[int, Strict()]
Flag = Annotated[bool, Strict()]
Vector = tuple[Real, ...]
Unused = tuple[str, str, bool]  # key, message, whether the alternative was chosen in so many words


class Section(BaseModel):
    """A table of the case file."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def key(default: Any, allowed: str, meaning: str, unit: str = "", only: tuple[str, ...] = (), **limits: Any) -> Any:
    """A field with its documentation: what is allowed, what it means, in which unit.

    `only` lists the values of its section's selector (`schema.SELECTORS`) with which the key means anything.
    """
    extra: dict[str, Any] = {"allowed": allowed, "unit": unit, "only": list(only)}
    return Field(default, description=meaning, json_schema_extra=extra, **limits)


def was_set(table: Section, name: str) -> bool:
    """Whether a key was given another value than its default."""
    default: Any = type(table).model_fields[name].default
    return name in table.model_fields_set and bool(getattr(table, name) != default)


def unused(table: Section, selector: str, keys: Mapping[str, Sequence[str]]) -> Iterator[Unused]:
    """Keys that were set but belong to other values of a selector than the one it has; `keys`: name → those values."""
    value = getattr(table, selector)
    kind = OWN if is_factory(value) else value
    for name, values in keys.items():
        if kind not in values and was_set(table, name):
            belongs = " or ".join(f"{selector} = {item!r}" for item in values)
            yield name, f"belongs to {belongs}; here {selector} = {value!r}", selector in table.model_fields_set


def _spectrum(values: Vector) -> Vector:
    for value in values:
        if not 0 <= value <= MAX_EIGENVALUE:
            raise ValueError(f"{value:g} is not allowed: eigenvalues between 0 and {MAX_EIGENVALUE:g}")
    return values


def _symmetric(rows: tuple[Vector, ...]) -> tuple[Vector, ...]:
    if not rows:
        return rows  # the check of lengths speaks
    if any(len(row) != len(rows) for row in rows):
        raise ValueError("not square: as many rows as columns")
    matrix = np.array(rows)
    if np.abs(matrix - matrix.T).max(initial=0.0) > 1e-12 * np.abs(matrix).max(initial=1.0):
        raise ValueError("not symmetric: the matrix must equal its transpose")
    eigenvalues = np.linalg.eigvalsh(matrix)
    if eigenvalues.min() < -1e-12 * max(1.0, eigenvalues.max()) or eigenvalues.max() > MAX_EIGENVALUE:
        shown = ", ".join(f"{value:.4g}" for value in eigenvalues)
        raise ValueError(f"has eigenvalues {shown}: all must lie between 0 and {MAX_EIGENVALUE:g}")
    return rows


def _direction(vector: Vector) -> Vector:
    if vector and math.hypot(*vector) == 0.0:
        raise ValueError("is zero: a direction needs a vector other than zero")
    return vector


def _shares(weights: Vector) -> Vector:
    if not weights or min(weights) < 0 or not 0 < sum(weights) < math.inf:
        raise ValueError(f"{list(weights)} is not allowed: numbers ≥ 0, not all zero, with a finite sum")
    return weights


def one_of(*names: str) -> AfterValidator:
    """Allows some names, and "module:factory"."""

    def check(value: str) -> str:
        if value in names or is_factory(value):
            return value
        raise ValueError(f"{value!r} is not allowed: {', '.join(map(repr, names))} or 'module:factory'")

    return AfterValidator(check)


def bounded(limit: float) -> AfterValidator:
    """Allows lists of numbers from −limit to limit."""

    def check(values: Vector) -> Vector:
        for value in values:
            if abs(value) > limit:
                raise ValueError(f"{value:g} is not allowed: numbers from {-limit:g} to {limit:g}")
        return values

    return AfterValidator(check)


def unit(vector: Vector) -> Vector:
    """The vector over its norm; one of norm 1 as it is, so that a resolved case resolves to itself."""
    norm = math.hypot(*vector)
    if abs(norm - 1.0) < 4e-16:
        return vector
    return tuple(value / norm for value in vector)


Direction = Annotated[Vector, AfterValidator(_direction)]
Shares = Annotated[Vector, AfterValidator(_shares)]
Spectrum = Annotated[Vector, AfterValidator(_spectrum)]
SymmetricMatrix = Annotated[tuple[Vector, ...], AfterValidator(_symmetric)]
Parameters = dict[str, Any]
