"""Attention kernels h(x, y). To add one: write its class here and enter its constructor in `KERNELS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from solver.case.factories import is_factory
from solver.case.load import CaseError
from solver.case.schema import Case
from solver.parts import Guarded, build_part
from solver.types import FloatArray

__all__ = ["KERNELS", "DotProductKernel", "ExponentialKernel", "Kernel", "LinearKernel", "create_kernel"]


class Kernel(Protocol):
    """A symmetric, smooth function of two tokens."""

    def __call__(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """h for all pairs of unit vectors x (n, d) and y (m, d), shape (n, m)."""


@runtime_checkable
class DotProductKernel(Protocol):
    """h(x, y) = f(⟨x, Ay⟩) with two derivatives of f: what particles need besides the values."""

    @property
    def matrix(self) -> FloatArray:
        """A, symmetric, (d, d)."""

    def __call__(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """See `Kernel`."""

    def derivatives(self, s: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """f, f′ and f″, elementwise."""


@dataclass(frozen=True)
class ExponentialKernel:
    """e^{⟨x,Ay⟩}, the kernel of dot-product attention (P1).

    Attributes:
        matrix: A, symmetric positive semidefinite, (d, d).
    """

    matrix: FloatArray

    def __call__(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """See `Kernel`."""
        return np.exp(x @ self.matrix @ y.T)

    def derivatives(self, s: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """See `DotProductKernel`."""
        f = np.exp(s)
        return f, f, f


@dataclass(frozen=True)
class LinearKernel:
    """⟨x, Ay⟩ (P2's linear Toeplitz attention).

    Attributes:
        matrix: A, symmetric positive semidefinite, (d, d).
    """

    matrix: FloatArray

    def __call__(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """See `Kernel`."""
        return x @ self.matrix @ y.T

    def derivatives(self, s: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """See `DotProductKernel`."""
        return s, np.ones_like(s), np.zeros_like(s)


KERNELS: dict[str, Callable[[Case], Kernel]] = {
    "exponential": lambda case: ExponentialKernel(np.array(case.matrix)),
}


def create_kernel(case: Case) -> Kernel:
    """The kernel a case names: one of `KERNELS` or the user's ``module:factory``.

    Raises:
        CaseError: It cannot be built.
    """
    name = case.attention.kernel
    if not is_factory(name):
        return KERNELS[name](case)
    part = build_part("attention.kernel", name, case, case.attention.parameters or {})
    if not callable(part):
        raise CaseError([f"attention.kernel: {name} returned {type(part).__name__}: a function h(x, y) is needed"])
    if hasattr(part, "matrix") and hasattr(part, "derivatives"):
        return _UserDotProductKernel(name, part)
    return _UserKernel(name, part)


class _UserKernel:
    """A kernel of the user's, guarded."""

    def __init__(self, name: str, part: Any) -> None:
        self._call = Guarded("attention.kernel", name, part)

    def __call__(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """See `Kernel`."""
        return self._call(x, y)


class _UserDotProductKernel(_UserKernel):
    """The same with what particles need."""

    def __init__(self, name: str, part: Any) -> None:
        super().__init__(name, part)
        self._derivatives = Guarded("attention.kernel", name, part.derivatives)
        self.matrix: FloatArray = np.array(part.matrix, dtype=np.float64)

    def derivatives(self, s: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """See `DotProductKernel`."""
        f, slope, curvature = self._derivatives(s)
        return f, slope, curvature
