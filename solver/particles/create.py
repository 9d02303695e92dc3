"""The mean field of a case's tokens: through the separable expansion or over all pairs, whichever costs less."""

from __future__ import annotations

from mpi4py import MPI

import numpy as np

from solver.attention.create import create_expansion
from solver.attention.kernels import DotProductKernel, create_kernel
from solver.auxiliary.coupling import check_softmax, expand_bias
from solver.auxiliary.kernels import LabelKernel, create_label_kernel
from solver.auxiliary.labels import token_labels
from solver.case.load import CaseError
from solver.case.schema import Case
from solver.log import LOG
from solver.parallel import everywhere
from solver.particles.mean_field import DenseField, FramedField, MeanField, SeparableField
from solver.types import FloatArray

__all__ = ["create_field"]

_TOKENS_PER_SECTION = 3  # below it all pairs are cheaper
_MOST_DENSE = 20_000  # tokens whose bias is kept for all pairs: 3 GB


def create_field(case: Case, comm: MPI.Comm) -> MeanField | None:
    """The attention among N tokens; None where it is switched off (A = 0, and no bias among labels). Collective.

    ``particles.attention = "auto"`` takes the expansion if its sections, times the terms of the bias among labels, are
    at most N/3, else all pairs.

    Raises:
        CaseError: The kernel offers no derivatives, or its expansion was asked for and is not accurate enough.
    """
    kernel = everywhere(comm, lambda: create_kernel(case))
    if not isinstance(kernel, DotProductKernel):
        raise CaseError(
            [f"attention.kernel: {case.attention.kernel} has no `matrix` and `derivatives`, which particles need"]
        )

    def parts() -> tuple[FloatArray, LabelKernel, FloatArray | None]:
        labels, found = token_labels(case, case.particles.n), create_label_kernel(case)
        if case.attention.normalized and found.bias is not None:
            check_softmax(case.auxiliary.kernel, found.bias, labels)
        return labels, found, found.frames(labels) if found.frames is not None else None

    labels, label_kernel, frames = everywhere(comm, parts)
    content = label_kernel.content or kernel
    if not np.any(content.matrix) and label_kernel.bias is None:
        return None
    field = _content_field(case, comm, content, label_kernel, labels)
    return field if frames is None else FramedField(field, frames)


def _content_field(
    case: Case, comm: MPI.Comm, kernel: DotProductKernel, label_kernel: LabelKernel, labels: FloatArray
) -> MeanField:
    """Attention among u = Q_ξ x."""
    wanted, softmax, bias = case.particles.attention, case.attention.normalized, label_kernel.bias
    failure: CaseError | None = None
    if wanted != "dense":
        try:
            expanded = everywhere(comm, lambda: bias and expand_bias(bias, labels, case.attention.tolerance))
            terms = len(expanded.signs) if expanded else 1
            limit = case.particles.n // (_TOKENS_PER_SECTION * terms) if wanted == "auto" else None
            expansion = create_expansion(case, comm, kernel, limit)
            LOG.info("attention: separable, %d sections, error %.1e%s", len(expansion.pivots), expansion.error,
                     f"; {terms} terms of the labels, error {expanded.error:.1e}" if expanded else "")  # fmt: skip
            return SeparableField(expansion, softmax, expanded)
        except CaseError as error:
            if wanted == "separable":
                raise
            failure = error
    if bias is not None and len(labels) > _MOST_DENSE:
        raise failure or CaseError(
            [f"particles.attention: 'dense' keeps the bias of all pairs: at most {_MOST_DENSE} tokens"]
        )
    LOG.info("attention: all pairs")
    return DenseField(kernel, softmax, None if bias is None else everywhere(comm, lambda: bias(labels, labels)))
