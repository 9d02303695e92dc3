"""Tables of points on the sphere in files: candidates, tokens, nodal values."""

from __future__ import annotations

import csv
from collections.abc import Collection
from pathlib import Path

import numpy as np

from solver.types import FloatArray

__all__ = ["read_points"]


def read_points(path: Path, dimension: int, columns: Collection[str]) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Points and the other columns of a table.

    Args:
        path: ``.npz`` with an array `points` (n, d) and others of n values; or CSV with a header, the first d columns
            being the points.
        dimension: d.
        columns: Names of the other columns there may be.

    Returns:
        Unit vectors (n, d), normalised on reading; the other columns by name, (n,) each.

    Raises:
        ValueError: Anything is missing, not finite or of another shape; with what is wrong.
    """
    try:
        found = _npz(path) if path.suffix.lower() == ".npz" else _csv(path, dimension)
    except Exception as error:  # zipfile, numpy, csv and OS errors all mean the same here
        raise ValueError(f"{path.name} cannot be read as a table of points: {error}") from None
    points = found.pop("points", np.empty(0))
    if points.ndim != 2 or points.shape[1] != dimension or not len(points):
        raise ValueError(f"{path.name}: points {points.shape}, (n, {dimension}) is needed")
    unknown = sorted(set(found) - set(columns))
    if unknown:
        allowed = f"{dimension} coordinates" + "".join(f" and {name!r}" for name in columns)
        raise ValueError(f"{path.name}: unknown column {unknown[0]!r}: {allowed} are allowed")
    for name, column in {"points": points, **found}.items():
        if column.shape[:1] != points.shape[:1] or (name != "points" and column.ndim != 1):
            raise ValueError(f"{path.name}: {name} {column.shape} does not fit to {len(points)} points")
        if not np.isfinite(column).all():
            raise ValueError(f"{path.name}: {name} is not finite")
    largest = np.abs(points).max(axis=1, keepdims=True)
    if not largest.all():
        raise ValueError(f"{path.name}: row {int(np.argmin(largest)) + 1} is the zero vector, which has no direction")
    scaled = points / largest  # so that nothing overflows or underflows
    return scaled / np.linalg.norm(scaled, axis=1, keepdims=True), found


def _npz(path: Path) -> dict[str, FloatArray]:
    with np.load(path, allow_pickle=False) as data:
        arrays = {name: data[name] for name in data.files}
    if any(np.iscomplexobj(array) for array in arrays.values()):
        raise ValueError("complex numbers are no coordinates")
    return {name: np.asarray(array, dtype=np.float64) for name, array in arrays.items()}


def _csv(path: Path, dimension: int) -> dict[str, FloatArray]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.reader(file) if row]
    if len(rows) < 2:
        raise ValueError("a header and at least one row are needed")
    names, body = [name.strip() for name in rows[0]], rows[1:]
    if all(_is_number(name) for name in names):
        raise ValueError("the first line must be a header, such as x,y,weight")
    ragged = next((k for k, row in enumerate(body, start=2) if len(row) != len(names)), None)
    if ragged is not None:
        raise ValueError(f"line {ragged} has {len(body[ragged - 2])} columns, the header {len(names)}")
    values = np.array(body, dtype=np.float64)
    others = {name: values[:, k] for k, name in enumerate(names) if k >= dimension}
    return {"points": values[:, :dimension], **others}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
