"""Meshes of the circle and the sphere: gmsh places the vertices, all of them on the unit sphere."""
