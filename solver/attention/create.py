"""The attention of a case."""

from __future__ import annotations

from mpi4py import MPI

from solver.attention.expansion import Expansion, expand, kernel_range
from solver.attention.kernels import Kernel, create_kernel
from solver.attention.labelled import LabelledAttention, SoftmaxLabelledAttention
from solver.attention.separable import SeparableAttention
from solver.attention.softmax import SoftmaxAttention
from solver.auxiliary.coupling import Coupling
from solver.case.load import CaseError
from solver.case.schema import Case
from solver.parallel import everywhere, on_root
from solver.space import Space
from solver.types import FloatArray

__all__ = ["create_attention", "create_expansion"]

_BEST_TOLERANCE = 1e-13  # of an expansion, relative to the kernel's largest value: round-off


def create_expansion(case: Case, comm: MPI.Comm, kernel: Kernel | None = None, limit: int | None = None) -> Expansion:
    """Expand the kernel of a case, as accurately as it needs. Collective.

    Args:
        case: Resolved case.
        comm: All of its ranks must call.
        kernel: The kernel, if it is not that of the case.
        limit: Largest number of sections that is of use.

    Raises:
        CaseError: The kernel cannot be used, or the accuracy cannot be reached.
    """
    if kernel is None:
        kernel = everywhere(comm, lambda: create_kernel(case))
    expanded = kernel

    def arrays() -> tuple[FloatArray, FloatArray, FloatArray, float]:
        expansion = _expand(expanded, case, limit)
        return expansion.pivots, expansion.weights, expansion.signs, expansion.error

    # Only arrays travel: a kernel of the user's need not survive pickling.
    return Expansion(expanded, *on_root(comm, arrays))


def _expand(kernel: Kernel, case: Case, limit: int | None) -> Expansion:
    tolerance = case.attention.tolerance
    try:
        smallest, largest = kernel_range(kernel, case.dimension)
    except CaseError:
        raise
    except ValueError as error:
        raise CaseError([f"attention.kernel: {error}"]) from None
    if case.attention.normalized:
        _check_logarithm(smallest, largest, tolerance)
    try:
        reference = smallest if case.attention.normalized else None
        return expand(kernel, case.dimension, tolerance, reference, limit)
    except CaseError:
        raise
    except ValueError as error:
        raise CaseError([f"attention.tolerance: {error}"]) from None


def _check_logarithm(smallest: float, largest: float, tolerance: float) -> None:
    """log Z needs an expansion with errors small against the smallest Z, which may be the kernel's smallest value."""
    if smallest <= 0.0:
        raise CaseError(
            [f"attention.normalized: the kernel falls to {smallest:.3g}: softmax attention needs a positive kernel"]
        )
    reachable = _BEST_TOLERANCE * largest / smallest
    if tolerance >= reachable:
        return
    spread = (
        f"the kernel spans {smallest:.2g} to {largest:.2g}, so that log ∫ h dμ can be had to {reachable:.1e} at best"
    )
    if reachable > 1e-2:
        raise CaseError([f"attention.normalized: {spread}; take smaller eigenvalues (λ₁ up to 12)"])
    raise CaseError([f"attention.tolerance: {tolerance:g} is not reached with normalized = true: {spread}"])


def create_attention(
    space: Space, expansion: Expansion, coupling: Coupling, normalized: bool
) -> SeparableAttention | LabelledAttention:
    """Plain or softmax attention, that sees labels or not.

    Args:
        space: Where the densities live.
        expansion: From `create_expansion`, of the coupling's content kernel if it has one.
        coupling: The labels.
        normalized: Softmax attention.
    """
    if coupling.matters:
        return (SoftmaxLabelledAttention if normalized else LabelledAttention)(space, expansion, coupling)
    return (SoftmaxAttention if normalized else SeparableAttention)(space, expansion, coupling.weights)
