"""The mean field of a case's tokens: through the separable expansion or over all pairs, whichever costs less."""

from __future__ import annotations

from mpi4py import MPI

import numpy as np

from solver.attention.create import create_expansion
from solver.attention.kernels import DotProductKernel, create_kernel
from solver.auxiliary import frames, token_labels
from solver.case.load import CaseError
from solver.case.schema import Case
from solver.log import LOG
from solver.parallel import everywhere
from solver.particles.mean_field import DenseField, FramedField, MeanField, SeparableField

__all__ = ["create_field"]

_TOKENS_PER_SECTION = 3  # below it all pairs are cheaper


def create_field(case: Case, comm: MPI.Comm) -> MeanField | None:
    """The attention among N tokens; None where it is switched off (A = 0). Collective.

    ``particles.attention = "auto"`` takes the expansion if it has at most N/3 sections, else all pairs.

    Raises:
        CaseError: The kernel offers no derivatives, or its expansion was asked for and is not accurate enough.
    """
    field = _unlabelled(case, comm)
    R = frames(case, token_labels(case, case.particles.n))
    return field if field is None or R is None else FramedField(field, R)


def _unlabelled(case: Case, comm: MPI.Comm) -> MeanField | None:
    """Attention that ignores labels."""
    kernel = everywhere(comm, lambda: create_kernel(case))
    if not isinstance(kernel, DotProductKernel):
        raise CaseError(
            [f"attention.kernel: {case.attention.kernel} has no `matrix` and `derivatives`, which particles need"]
        )
    if not np.any(kernel.matrix):
        return None
    wanted, limit = case.particles.attention, case.particles.n // _TOKENS_PER_SECTION
    if wanted != "dense":
        try:
            expansion = create_expansion(case, comm, limit if wanted == "auto" else None)
            LOG.info("attention: separable, %d sections, error %.1e", len(expansion.pivots), expansion.error)
            return SeparableField(expansion, case.attention.normalized)
        except CaseError:
            if wanted == "separable":
                raise
    LOG.info("attention: all pairs")
    return DenseField(kernel, case.attention.normalized)
