"""The densities of a run along depth, read back from density.pvd, and laws to compare tokens with.

A law is a density made ready for distances: on the circle piecewise linear in the angle, on the sphere piecewise linear
on the flat triangles of the mesh and projected radially. The scheme's mass is that of chords and flat triangles; as the
law on the circle lives on arcs, either is divided by its own integral (1 + O(h²)).
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from postprocess.load import RunError

__all__ = ["CircleLaw", "DensitySeries", "Law", "SphereLaw", "load_densities", "make_law"]

FloatArray = NDArray[np.float64]

_PARTS = 4  # of a triangle's edge, in the quadrature of a SphereLaw


class Law(Protocol):
    """A probability law on the circle or the sphere."""

    def samples(self, generator: np.random.Generator, count: int) -> FloatArray:
        """Independent draws, unit vectors (count, d)."""


@dataclass(frozen=True)
class CircleLaw:
    """Density piecewise linear in the angle, with total mass 1.

    Attributes:
        angles: Nodes from the first one round to itself, rising by 2π, (n + 1,), rad.
        values: Density there, (n + 1,), 1/rad.
    """

    angles: FloatArray
    values: FloatArray

    @cached_property
    def cumulative(self) -> FloatArray:
        """Mass between the first node and every node, (n + 1,)."""
        cells = 0.5 * np.diff(self.angles) * (self.values[1:] + self.values[:-1])
        return np.concatenate([[0.0], np.cumsum(cells)])

    def quantiles(self, mass: FloatArray) -> FloatArray:
        """Angles up to which the law has the given masses in [0, 1], rad."""
        k = np.clip(np.searchsorted(self.cumulative, mass, side="right") - 1, 0, len(self.angles) - 2)
        length = self.angles[k + 1] - self.angles[k]
        found: FloatArray = self.angles[k] + mass_crossing(
            mass - self.cumulative[k], length, self.values[k], self.values[k + 1]
        )
        return found

    def samples(self, generator: np.random.Generator, count: int) -> FloatArray:
        """See `Law`; by inversion."""
        angle = self.quantiles(generator.random(count))
        return np.column_stack([np.cos(angle), np.sin(angle)])


def mass_crossing(mass: FloatArray, length: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
    """Distance s from the left end of intervals at which ∫₀ˢ p = mass, for p linear from `left` to `right`.

    s = 2 mass/(p₀ + √(p₀² + 2 mass (p₁ − p₀)/length)), the root that does not cancel.
    """
    discriminant = left**2 + 2.0 * mass * (right - left) / length
    denominator = left + np.sqrt(np.maximum(discriminant, 0.0))
    s = np.divide(2.0 * mass, denominator, out=np.zeros_like(denominator), where=denominator > 0)
    return np.clip(s, 0.0, length)


@dataclass(frozen=True, eq=False)
class SphereLaw:
    """Density linear on flat triangles, projected radially onto the sphere.

    Attributes:
        points: Vertices, (nodes, 3).
        cells: Triangles, (cells, 3).
        values: Density at the vertices, (nodes,), 1/area.
    """

    points: FloatArray
    cells: NDArray[np.int64]
    values: FloatArray

    @cached_property
    def _masses(self) -> FloatArray:
        """Mass of every triangle, (cells,), of sum 1."""
        a, b, c = (self.points[self.cells[:, k]] for k in range(3))
        area = 0.5 * np.linalg.norm(np.cross(b - a, c - a), axis=1)
        mass: FloatArray = area * self.values[self.cells].mean(axis=1)
        return mass / mass.sum()

    @cached_property
    def quadrature(self) -> tuple[FloatArray, FloatArray]:
        """Unit vectors (q, 3) and masses (q,) of sum 1: every triangle is cut into 16."""
        barycentric = _centroids(_PARTS)
        vertices, values = self.points[self.cells], self.values[self.cells]
        x = np.einsum("qk,ckd->cqd", barycentric, vertices).reshape(-1, 3)
        share = values @ barycentric.T
        mean = values.mean(axis=1, keepdims=True)
        share = np.divide(share, mean, out=np.zeros_like(share), where=mean > 0) / len(barycentric)
        weights = (self._masses[:, None] * share).ravel()
        return x / np.linalg.norm(x, axis=1, keepdims=True), weights

    def samples(self, generator: np.random.Generator, count: int) -> FloatArray:
        """See `Law`; a triangle by its mass, and in it a uniform point, kept with chance density/maximum."""
        chosen = self.cells[generator.choice(len(self.cells), size=count, p=np.maximum(self._masses, 0.0))]
        x = np.empty((count, 3))
        missing = np.arange(count)
        while len(missing):
            corner = np.sort(generator.random((len(missing), 2)), axis=1)
            barycentric = np.column_stack([corner[:, 0], corner[:, 1] - corner[:, 0], 1.0 - corner[:, 1]])
            values = self.values[chosen[missing]]
            density = np.einsum("nk,nk->n", barycentric, values)
            kept = generator.random(len(missing)) * values.max(axis=1) <= density
            x[missing[kept]] = np.einsum("nk,nkd->nd", barycentric[kept], self.points[chosen[missing[kept]]])
            missing = missing[~kept]
        unit: FloatArray = x / np.linalg.norm(x, axis=1, keepdims=True)
        return unit


def _centroids(parts: int) -> FloatArray:
    """Barycentric centroids of the parts² congruent triangles of a triangle, (parts², 3)."""
    upward = [(3 * i + 1, 3 * j + 1) for i in range(parts) for j in range(parts - i)]
    downward = [(3 * i + 2, 3 * j + 2) for i in range(parts - 1) for j in range(parts - 1 - i)]
    first, second = np.array([*upward, *downward]).T / (3 * parts)
    return np.column_stack([first, second, 1.0 - first - second])


def make_law(points: FloatArray, cells: NDArray[np.int64], values: FloatArray) -> CircleLaw | SphereLaw:
    """The law of nodal densities (nodes,) on a mesh of the circle, points (nodes, 2), or the sphere, (nodes, 3)."""
    if points.shape[1] == 3:
        return SphereLaw(points, cells, values)
    angle = np.arctan2(points[:, 1], points[:, 0])
    order = np.argsort(angle)
    around = np.append(angle[order], angle[order[0]] + 2.0 * np.pi)
    density = np.append(values[order], values[order[0]])
    return CircleLaw(around, density / (0.5 * np.diff(around) @ (density[1:] + density[:-1])))


@dataclass(frozen=True)
class DensitySeries:
    """Nodal densities at saved depths.

    Attributes:
        depths: (frames,), rising.
        points: Vertices of the mesh, (nodes, d).
        cells: Lines (cells, 2) or triangles (cells, 3).
        values: (frames, nodes).
    """

    depths: FloatArray
    points: FloatArray
    cells: NDArray[np.int64]
    values: FloatArray

    def bracket(self, depth: float) -> tuple[int, int, float]:
        """The neighbouring frames of a depth, and its place s ∈ [0, 1] between them."""
        k = int(np.clip(np.searchsorted(self.depths, depth, side="right") - 1, 0, len(self.depths) - 2))
        before, after = self.depths[k], self.depths[k + 1]
        s = float(np.clip((depth - before) / (after - before), 0.0, 1.0))
        return k, k + 1, 0.0 if s < 1e-9 else 1.0 if s > 1 - 1e-9 else s

    def at(self, depth: float) -> CircleLaw | SphereLaw:
        """The law at a depth, linear in depth between frames."""
        before, after, s = self.bracket(depth)
        return make_law(self.points, self.cells, (1.0 - s) * self.values[before] + s * self.values[after])

    def frame(self, k: int) -> CircleLaw | SphereLaw:
        """The law of a frame."""
        return make_law(self.points, self.cells, self.values[k])


def load_densities(directory: Path, dimension: int, field: str = "mu", last_only: bool = False) -> DensitySeries:
    """Read density.pvd of a results folder.

    Args:
        directory: The folder.
        dimension: d, 2 or 3.
        field: Which density: `mu`, of all tokens together, or `mu_0`, …, of one label.
        last_only: Whether to read the last depth only.

    Raises:
        RunError: It or one of its files is missing or damaged; the message names it.
    """
    path = directory / "density.pvd"
    if not path.exists():
        raise RunError(f"{directory}: no density.pvd there; run the case with output.formats containing 'vtk'")
    try:
        entries = [(float(e.attrib["timestep"]), e.attrib["file"]) for e in ET.parse(path).iter("DataSet")]
    except (ET.ParseError, KeyError, ValueError) as error:
        raise RunError(f"{path}: damaged ({error})") from None
    if len(entries) < 2:
        raise RunError(f"{path}: damaged (it lists {len(entries)} depths)")
    if last_only:
        entries = entries[-1:]
    grids = [_read_grid(directory / name, field) for _, name in entries]
    points, cells = grids[0][0][:, :dimension], grids[0][1]
    if any(len(values) != len(points) for _, _, values in grids) or cells.shape[1] != dimension:
        raise RunError(f"{path}: damaged (its files hold different meshes, or none of dimension {dimension - 1})")
    return DensitySeries(np.array([t for t, _ in entries]), points, cells, np.stack([values for *_, values in grids]))


def _read_grid(path: Path, field: str) -> tuple[FloatArray, NDArray[np.int64], FloatArray]:
    """Points (nodes, 3), cells and the values (nodes,) of a field of a .vtu."""
    import pyvista  # seconds, not needed to refuse different cases

    if not path.exists():
        raise RunError(f"{path}: missing, though density.pvd lists it")
    try:
        _expect_whole(path)
        grid: Any = pyvista.read(path)
        if field not in grid.point_data:
            raise ValueError(f"fields {', '.join(grid.point_data.keys()) or 'none'}, but no {field}")
        (cells,) = grid.cells_dict.values()
        return np.asarray(grid.points, float), np.asarray(cells, np.int64), np.asarray(grid.point_data[field], float)
    except Exception as error:  # VTK's and ours
        raise RunError(f"{path}: damaged ({error})") from None


def _expect_whole(path: Path) -> None:
    """VTK prints to the screen, and reads on, where a file is cut off."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 64))
        if b"</VTKFile>" not in file.read():
            raise ValueError("cut off")
