"""Tables of points on the sphere in files: candidates, tokens, nodal values."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from solver.types import FloatArray

__all__ = ["read_points"]


def read_points(path: Path, dimension: int) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Points and the other columns of a table.

    Args:
        path: ``.npz`` with an array `points` (n, d) and others of n values; or CSV with a header, the first d columns
            being the points.
        dimension: d.

    Returns:
        Unit vectors (n, d), normalised on reading; the other columns by name, (n,) each.

    Raises:
        ValueError: Anything is missing, not finite or of another shape; with what is wrong.
    """
    try:
        columns = _npz(path) if path.suffix == ".npz" else _csv(path, dimension)
    except (OSError, ValueError, KeyError, csv.Error) as error:
        raise ValueError(f"{path.name} cannot be read as a table of points: {error}") from None
    points = columns.pop("points", np.empty(0))
    if points.ndim != 2 or points.shape[1] != dimension or not len(points):
        raise ValueError(f"{path.name}: points {points.shape}, (n, {dimension}) is needed")
    for name, column in {"points": points, **columns}.items():
        if column.shape[:1] != points.shape[:1] or (name != "points" and column.ndim != 1):
            raise ValueError(f"{path.name}: {name} {column.shape} does not fit to {len(points)} points")
        if not np.isfinite(column).all():
            raise ValueError(f"{path.name}: {name} is not finite")
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    if not norms.all():
        raise ValueError(f"{path.name}: row {int(np.argmin(norms)) + 1} is the zero vector, which has no direction")
    return points / norms, columns


def _npz(path: Path) -> dict[str, FloatArray]:
    with np.load(path, allow_pickle=False) as data:
        return {name: np.asarray(data[name], dtype=np.float64) for name in data.files}


def _csv(path: Path, dimension: int) -> dict[str, FloatArray]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.reader(file) if row]
    if len(rows) < 2:
        raise ValueError("a header and at least one row are needed")
    names, body = [name.strip() for name in rows[0]], rows[1:]
    ragged = next((k for k, row in enumerate(body, start=2) if len(row) != len(names)), None)
    if ragged is not None:
        raise ValueError(f"line {ragged} has {len(body[ragged - 2])} columns, the header {len(names)}")
    values = np.array(body, dtype=np.float64)
    others = {name: values[:, k] for k, name in enumerate(names) if k >= dimension}
    return {"points": values[:, :dimension], **others}
