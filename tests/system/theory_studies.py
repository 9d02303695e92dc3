"""Numbers of `solver.theory` for comparison with references and closed forms; thresholds live in the tests."""

from __future__ import annotations

from collections.abc import Sequence

from mpi4py import MPI

import numpy as np
from system.studies import EIGENVALUES, make_case, reference

from solver.problem import Problem
from solver.theory.equilibrium import Equilibrium, equilibrium_near, rayleigh_quotient

CIRCLE_RATES = 7  # zero is left out of them: the spectrum holds six of the reference's nonzero rates and one to spare


def equilibrium(
    manifold: str, h: float, epsilon: float, eigenvalues: Sequence[float] | None = None, comm: MPI.Comm = MPI.COMM_SELF
) -> Equilibrium:
    """The state near e₁ of A = diag(eigenvalues). Collective."""
    values = list(eigenvalues or EIGENVALUES[manifold])
    pole = np.eye(len(values))[0]
    case = make_case(
        manifold,
        h,
        epsilon,
        1.0,
        1,
        attention__eigenvalues=values,
        initial__mean=pole.tolist(),
        geometry__allow_coarse=True,
    )
    return equilibrium_near(Problem(case, comm), pole)


def align_quotient(state: Equilibrium, k: int) -> float:
    """R_ρ of the align loss with target e_k, k from 0. Collective."""
    return rayleigh_quotient(state, -state.problem.space.x[:, k])


def reference_row(manifold: str, epsilon: float) -> dict[str, object]:
    """A row of `reference/<manifold>_theory.json`."""
    name = "lam2=0.65" if manifold == "circle" else "lam=[1.0, 0.65, 0.3]"
    return reference(f"{manifold}_theory")[f"{name} eps={epsilon:g}"]
