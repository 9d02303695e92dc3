"""The circle mesh."""

from __future__ import annotations

import math

import numpy as np
import pytest

from meshes.circle import circle
from meshes.simplicial import check, conductances

pytestmark = pytest.mark.serial


@pytest.mark.parametrize("h", [0.02, 0.1, 0.37, 0.5, 1.0])
def test_vertices_are_equally_spaced_on_the_circle(h: float) -> None:
    """Catches vertices off the circle, a duplicated seam vertex, and a mesh that does not start at e₁."""
    mesh = circle(h)
    count = round(2 * math.pi / h)
    assert mesh.points.shape == (count, 2)
    assert np.abs(np.linalg.norm(mesh.points, axis=1) - 1).max() <= 1e-14
    angle = 2 * math.pi * np.arange(count) / count
    # gmsh places transfinite points along a numerically integrated arc length
    assert np.abs(mesh.points - np.column_stack([np.cos(angle), np.sin(angle)])).max() <= 1e-7
    assert np.abs(mesh.points[0] - [1, 0]).max() <= 1e-14


@pytest.mark.parametrize("h", [0.02, 0.5])
def test_cells_form_one_closed_loop(h: float) -> None:
    """Catches a missing closing cell and wrong orientation: Euler characteristic 0, every cell anticlockwise."""
    mesh = circle(h)
    check(mesh)
    assert len(mesh.cells) == len(mesh.points)
    a, b = (mesh.points[mesh.cells[:, k]] for k in range(2))
    turn = np.arctan2(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0], (a * b).sum(axis=1))
    assert (turn > 0).all()
    assert turn.sum() == pytest.approx(2 * math.pi, abs=1e-12)


def test_conductance_is_the_inverse_chord() -> None:
    """Catches a wrong scale of the stiffness entries: on an interval of length s, w = 1/s."""
    mesh = circle(0.1)
    edges, w = conductances(mesh)
    chord = np.linalg.norm(mesh.points[edges[:, 0]] - mesh.points[edges[:, 1]], axis=1)
    assert len(edges) == len(mesh.cells)
    assert np.abs(w * chord - 1).max() <= 1e-12


def test_coarsest_request_still_gives_a_closed_curve() -> None:
    """Catches a degenerate two-cell circle, whose two chords coincide, for absurdly large h."""
    mesh = circle(3.0)
    assert len(mesh.cells) == 3
    check(mesh)
