"""From a case's geometry to a simplicial mesh: one place that knows every manifold."""

from __future__ import annotations

from collections.abc import Callable

from meshes.circle import circle
from meshes.simplicial import SimplicialMesh
from meshes.sphere import sphere

__all__ = ["GENERATORS"]

GENERATORS: dict[str, Callable[[float], SimplicialMesh]] = {"circle": circle, "sphere": sphere}
