"""Versions of what computed a result. Imports nothing that starts MPI or PETSc: it may be called on one rank alone."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import platform
import subprocess
import sys
from pathlib import Path

from mpi4py import MPI

from solver import __version__
from solver.types import Json

__all__ = ["software"]

_PACKAGES = (
    "fenics-dolfinx",
    "dolfinx-solver-real",
    "petsc4py",
    "mpi4py",
    "numpy",
    "scipy",
    "gmsh",
    "pydantic",
)
_BINDINGS = {"petsc": "petsc4py", "slepc": "slepc4py"}  # versioned as the libraries they bind


def software() -> Json:
    """Versions of what computed the result, and the commit of a checkout."""
    versions: Json = {"turnpike": __version__, "python": platform.python_version(), "commit": _commit()}
    for name, module in _BINDINGS.items():
        loaded = importlib.util.find_spec(module) and importlib.import_module(module)  # starts neither MPI nor PETSc
        if loaded:
            versions[name] = loaded.__version__
    dolfinx = sys.modules.get("dolfinx")  # importing it would
    if dolfinx is not None:
        versions["dolfinx"] = dolfinx.__version__
    versions["mpi"] = MPI.Get_library_version().splitlines()[0].strip("\x00 ")
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _commit() -> str | None:
    folder = Path(__file__).resolve().parents[1]
    if not (folder / ".git").exists():
        return None
    try:
        run = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout.strip()
