"""The command line that both mesh generators share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from meshes.simplicial import SimplicialMesh, check, write

__all__ = ["write_from_command_line"]


def write_from_command_line(name: str, generator: Callable[[float], SimplicialMesh]) -> None:
    """Parse ``--h`` and ``-o``, build the mesh, check it, write it, and say what it is."""
    parser = argparse.ArgumentParser(prog=f"python -m meshes.{name}", description=f"Mesh the unit {name} with gmsh.")
    parser.add_argument("--h", type=float, required=True, help="target edge length, rad (0 < h <= 1)")
    parser.add_argument("-o", "--output", type=Path, default=Path(f"{name}.msh"), help="file to write (.msh)")
    arguments = parser.parse_args()
    if not 0 < arguments.h <= 1:
        parser.error(f"--h: {arguments.h} is not allowed: a number above 0 and up to 1")
    if arguments.output.suffix != ".msh":
        parser.error(f"--output: {arguments.output} must end in .msh")
    if not arguments.output.parent.is_dir():
        parser.error(f"--output: there is no folder {arguments.output.parent}")
    mesh = generator(arguments.h)
    check(mesh)
    try:
        write(mesh, arguments.output)
    except OSError as error:
        parser.error(f"--output: {error}")
    print(f"{arguments.output}: {len(mesh.points)} vertices, {len(mesh.cells)} cells")
