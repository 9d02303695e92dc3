"""What is installed, what is missing, and how to get it.

python -m solver.doctor [--missing-packages]
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Finding", "examine", "main", "missing_packages"]

# Shared libraries that the gmsh and VTK wheels load, and the Debian packages that hold them.
_LIBRARIES = {
    "libGLU.so.1": "libglu1-mesa",
    "libGL.so.1": "libgl1",
    "libXrender.so.1": "libxrender1",
    "libXcursor.so.1": "libxcursor1",
    "libXfixes.so.3": "libxfixes3",
    "libXext.so.6": "libxext6",
    "libXft.so.2": "libxft2",
    "libfontconfig.so.1": "libfontconfig1",
    "libXinerama.so.1": "libxinerama1",
    "libX11.so.6": "libx11-6",
    "libgomp.so.1": "libgomp1",
}


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        name: What was examined.
        ok: Whether it is usable.
        text: What was found, or how to mend it.
        needed: Whether nothing works without it.
    """

    name: str
    ok: bool
    text: str
    needed: bool = True


def missing_packages() -> list[str]:
    """Debian packages of what the machine lacks: system libraries, a C compiler, Python's headers."""
    packages = [package for library, package in _LIBRARIES.items() if not _loads(library)]
    if _compiler() is None:
        packages += ["gcc", "libc6-dev"]
    if not _headers().is_file() and Path(sys.base_prefix) == Path("/usr"):
        packages.append(f"python{sys.version_info.major}.{sys.version_info.minor}-dev")
    return packages


def examine() -> list[Finding]:
    """Examine the machine; every import is tried in a process of its own, so that a crash is a finding too."""
    return [
        _python(),
        _libraries(),
        _compiler_finding(),
        _import("DOLFINx", "import dolfinx; print(dolfinx.__version__)", "pip install '.[wheel]' (make setup)"),
        _import("PETSc", _PETSC, "a real-valued PETSc is needed: pip install dolfinx-solver-real, in an environment "
                "without petsc, petsc4py or dolfinx-solver from PyPI"),
        _import("SLEPc", "from slepc4py import SLEPc; print(*SLEPc.Sys.getVersion(), sep='.')",
                "pip install dolfinx-solver-real"),
        _launcher(),
        _import("gmsh", "import gmsh; gmsh.initialize(); gmsh.finalize(); print(gmsh.__version__)",
                "pip install gmsh, and the system libraries above"),
        _import("pyvista", "import pyvista; print(pyvista.__version__)", "pip install pyvista: needed for density.pvd"),
        _import("matplotlib", "import matplotlib; print(matplotlib.__version__)", "pip install matplotlib"),
        _shadow(),
        _cache(),
    ]  # fmt: skip


_PETSC = """
from petsc4py import PETSc
import numpy
assert not numpy.issubdtype(PETSc.ScalarType, numpy.complexfloating), "complex scalars"
print(*PETSc.Sys.getVersion(), sep=".", end=" real")
"""


def _python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    ok = sys.version_info >= (3, 12)
    return Finding(
        "Python", ok, version if ok else f"{version}: 3.12 or newer is needed (apt or pyenv), then make setup"
    )


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _libraries() -> Finding:
    packages = [package for library, package in _LIBRARIES.items() if not _loads(library)]
    if not packages:
        return Finding("system libraries", True, f"all {len(_LIBRARIES)} found")
    return Finding("system libraries", False, f"missing; get them with: apt-get install {' '.join(packages)}")


def _compiler() -> str | None:
    return shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")


def _headers() -> Path:
    return Path(sysconfig.get_paths()["include"]) / "Python.h"


def _compiler_finding() -> Finding:
    compiler = _compiler()
    if compiler is None:
        return Finding("C compiler", False, "missing; get one with: apt-get install gcc libc6-dev")
    if not _headers().is_file():
        return Finding("C compiler", False, f"{compiler}, but no {_headers()}: apt-get install python3-dev")
    return Finding("C compiler", True, f"{compiler}, Python headers found")


def _import(name: str, code: str, remedy: str) -> Finding:
    run = subprocess.run(
        [sys.executable, "-c", "import solver\n" + code], capture_output=True, text=True, timeout=120, check=False
    )
    if run.returncode == 0:
        return Finding(name, True, run.stdout.strip())
    lines = run.stderr.strip().splitlines()
    why = lines[-1] if lines else f"ended by signal {-run.returncode}"
    return Finding(name, False, f"{why}; mend: {remedy}")


def _launcher() -> Finding:
    beside = Path(sys.executable).parent / "mpirun"
    launcher = str(beside) if beside.is_file() else shutil.which("mpirun")
    if launcher is None:
        return Finding("MPI", False, "no mpirun: pip install mpich (it comes with dolfinx-solver-real)")
    code = (
        "import solver; from mpi4py import MPI; total = MPI.COMM_WORLD.allreduce(1); "
        "MPI.COMM_WORLD.rank or print(f'{total} {MPI.Get_library_version().split()[0]}')"
    )
    outside = {key: value for key, value in os.environ.items() if not key.startswith(("PMI", "MPI", "HYDRA"))}
    command = [launcher, "-n", "2", sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=outside)
    answers = {line.split()[0] for line in run.stdout.splitlines() if line.split()}
    if run.returncode == 0 and answers == {"2"}:
        return Finding("MPI", True, f"{launcher} starts 2 ranks ({run.stdout.split()[1]})")
    return Finding(
        "MPI", False, f"{launcher} does not start 2 ranks of this Python's MPI; use the environment's own mpirun"
    )


def _shadow() -> Finding:
    here = Path.cwd()
    shadows = [name for name in ("solver.py", "meshes.py", "postprocess.py") if (here / name).is_file()]
    if shadows:
        return Finding(
            "working folder", False, f"{here / shadows[0]} hides our package of that name: rename it or move"
        )
    return Finding("working folder", True, "nothing here hides our packages")


def _cache() -> Finding:
    """A killed compilation leaves a .c file without its library, and the next run waits for it in vain."""
    root = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fenics"
    orphans = [path for path in root.glob("*.c") if not list(root.glob(f"{path.stem}*.so"))]
    if orphans:
        return Finding(
            "form cache", False, f"{len(orphans)} unfinished compilations in {root}: delete them", needed=False
        )
    return Finding("form cache", True, str(root))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report; returns 1 if something needed is missing."""
    parser = argparse.ArgumentParser(prog="python -m solver.doctor", description="Check this machine.")
    parser.add_argument("--missing-packages", action="store_true", help="print missing Debian packages only")
    if parser.parse_args(arguments).missing_packages:
        print(" ".join(missing_packages()))
        return 0
    found = examine()
    width = max(len(item.name) for item in found)
    for item in found:
        mark = "ok     " if item.ok else ("MISSING" if item.needed else "warning")
        print(f"{item.name:<{width}}  {mark}  {item.text}")
    return int(any(item.needed and not item.ok for item in found))


if __name__ == "__main__":
    sys.exit(main())
