"""Finite elements for the mean-field theory of Transformers.

The package solves the nonlocal Fokker–Planck equation of attention on the circle and the sphere, its exact discrete
adjoint, and the control problem of training. ``solver.problem.Problem`` is the entry point from Python and
``python -m solver.run CASE`` the one from the shell.
"""

import contextlib
import os
import sys

__all__ = ["__version__"]

__version__ = "0.1.0"

# One BLAS thread per rank, unless the user says otherwise: ranks are the parallelism here.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

if "petsc4py" not in sys.modules:
    with contextlib.suppress(ModuleNotFoundError):  # Docker images and conda have none
        import dolfinx_solver  # noqa: F401  (the PyPI wheel's loader, before petsc4py)
