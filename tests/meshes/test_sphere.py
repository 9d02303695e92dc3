"""The sphere mesh."""

from __future__ import annotations

import math

import numpy as np
import pytest

from meshes.simplicial import SimplicialMesh, check, conductances
from meshes.sphere import sphere

pytestmark = pytest.mark.serial

SIZES = [0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.07, pytest.param(0.03, marks=pytest.mark.slow)]
FINEST = pytest.param(0.02, marks=pytest.mark.slow)


def _areas(mesh: SimplicialMesh) -> np.ndarray:
    a, b, c = (mesh.points[mesh.cells[:, k]] for k in range(3))
    return 0.5 * np.linalg.norm(np.cross(b - a, c - a), axis=1)


@pytest.mark.parametrize("h", [*SIZES, FINEST])
def test_conductances_are_not_negative(h: float) -> None:
    """Catches an obtuse pair of triangles: one negative w_ij and densities can go negative. gmsh's own have some."""
    mesh = sphere(h)
    check(mesh)
    _, w = conductances(mesh)
    assert w.min() >= 0.0


@pytest.mark.parametrize("h", [*SIZES, FINEST])
def test_closed_surface_of_genus_zero_on_the_sphere(h: float) -> None:
    """Catches vertices off the sphere, vertices the hull dropped, holes and doubled triangles (Euler: V − E + F =
    2).
    """
    mesh = sphere(h)
    assert np.abs(np.linalg.norm(mesh.points, axis=1) - 1).max() <= 1e-14
    edges, _ = conductances(mesh)
    assert len(np.unique(mesh.cells)) == len(mesh.points)
    assert len(mesh.points) - len(edges) + len(mesh.cells) == 2
    assert 2 * len(edges) == 3 * len(mesh.cells)


@pytest.mark.parametrize("h", [0.3, 0.1])
def test_triangles_face_outwards_and_none_is_degenerate(h: float) -> None:
    """Catches inward triangles (ParaView shades them black) and slivers from nearly coincident gmsh vertices."""
    mesh = sphere(h)
    a, b, c = (mesh.points[mesh.cells[:, k]] for k in range(3))
    normal = np.cross(b - a, c - a)
    assert ((normal * (a + b + c)).sum(axis=1) > 0).all()
    areas = _areas(mesh)
    assert areas.min() > 0.05 * areas.mean()


@pytest.mark.parametrize("h", [0.4, 0.2, 0.1])
def test_edges_have_the_length_asked_for(h: float) -> None:
    """Catches a mesh size that gmsh ignores or clamps: the mean edge must be within a quarter of h."""
    mesh = sphere(h)
    edges, _ = conductances(mesh)
    length = np.linalg.norm(mesh.points[edges[:, 0]] - mesh.points[edges[:, 1]], axis=1)
    assert 0.75 * h <= length.mean() <= 1.25 * h
    assert length.max() <= 2.0 * h


def test_area_converges_with_order_two() -> None:
    """Catches overlapping or missing triangles that the edge counts do not see: the area tends to 4π like h²."""
    deficits = [4 * math.pi - _areas(sphere(h)).sum() for h in (0.4, 0.1)]
    assert all(deficit > 0 for deficit in deficits)  # flat triangles lie inside
    assert math.log(deficits[0] / deficits[1], 4) == pytest.approx(2.0, abs=0.2)


def test_same_h_gives_the_same_mesh() -> None:
    """Catches multithreaded or seeded-by-time meshing: a rerun of a case must reproduce its bits."""
    first, second = sphere(0.3), sphere(0.3)
    assert np.array_equal(first.points, second.points)
    assert np.array_equal(first.cells, second.cells)
