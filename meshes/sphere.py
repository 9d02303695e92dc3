"""The unit sphere: gmsh places the vertices, their convex hull gives the triangles.

python -m meshes.sphere --h 0.1 -o sphere.msh
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import ConvexHull

from meshes.command import write_from_command_line
from meshes.simplicial import SimplicialMesh, gmsh_model

__all__ = ["sphere"]


def sphere(h: float) -> SimplicialMesh:
    """Triangle mesh of S² whose off-diagonal stiffness entries are all ≤ 0.

    The hull of points on a sphere is their Delaunay triangulation there: the two angles opposite to an edge add up to
    at most π, hence w_ij = ½(cot α + cot β) ≥ 0. gmsh's own triangles do not have this property.

    Args:
        h: Target edge length, rad.
    """
    import gmsh

    with gmsh_model("sphere"):
        gmsh.model.occ.addSphere(0, 0, 0, 1)
        gmsh.model.occ.synchronize()
        gmsh.option.setNumber("Mesh.MeshSizeMin", h)
        gmsh.option.setNumber("Mesh.MeshSizeMax", h)
        gmsh.model.mesh.generate(2)
        _, coordinates, _ = gmsh.model.mesh.getNodes()
    points = np.asarray(coordinates, dtype=np.float64).reshape(-1, 3)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    triangles = ConvexHull(points).simplices.astype(np.int64)
    a, b, c = (points[triangles[:, k]] for k in range(3))
    inward = np.einsum("ck,ck->c", np.cross(b - a, c - a), a) < 0
    triangles[inward] = triangles[inward][:, ::-1]
    return SimplicialMesh(points, triangles)


if __name__ == "__main__":
    write_from_command_line("sphere", sphere)
