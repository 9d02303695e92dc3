"""The unit circle, cut by gmsh into equal arcs; its cells are the chords.

python -m meshes.circle --h 0.02 -o circle.msh
"""

from __future__ import annotations

import math

import numpy as np

from meshes.command import write_from_command_line
from meshes.simplicial import SimplicialMesh, gmsh_model

__all__ = ["circle"]


def circle(h: float) -> SimplicialMesh:
    """Interval mesh of S¹ with round(2π/h) equal cells (at least 3) and a vertex at e₁.

    Args:
        h: Target edge length, rad.
    """
    import gmsh

    cells = max(3, round(2 * math.pi / h))
    with gmsh_model("circle"):
        curve = gmsh.model.occ.addCircle(0, 0, 0, 1)
        gmsh.model.occ.synchronize()
        gmsh.model.mesh.setTransfiniteCurve(curve, cells + 1)
        gmsh.model.mesh.generate(1)
        _, coordinates, _ = gmsh.model.mesh.getNodes()
    points = np.asarray(coordinates, dtype=np.float64).reshape(-1, 3)[:, :2]
    points = points[np.argsort(np.arctan2(points[:, 1], points[:, 0]) % (2 * math.pi))]
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    start = np.arange(len(points), dtype=np.int64)
    return SimplicialMesh(points, np.column_stack([start, np.roll(start, -1)]))


if __name__ == "__main__":
    write_from_command_line("circle", circle)
