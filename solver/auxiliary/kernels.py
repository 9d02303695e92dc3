"""Label kernels: what attention makes of labels. To add one: write its function, enter it in `LABEL_KERNELS`.

Each is h((x, ξ), (y, ζ)) = b(ξ, ζ) f(⟨Q_ξ x, A Q_ζ y⟩), f and A those of the case's attention kernel (P2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import expm

from solver.attention.kernels import DotProductKernel, LinearKernel
from solver.auxiliary.maps import create_map, rotations_between
from solver.case.factories import is_factory
from solver.case.fields import unit
from solver.case.load import CaseError
from solver.case.schema import Case
from solver.parts import Guarded, build_part, check_alone
from solver.types import FloatArray

__all__ = ["DECAYS", "FUNCTIONS", "LABEL_KERNELS", "LabelKernel", "create_label_kernel"]

_ORTHOGONAL = 1e-8
_LARGEST = 1e9  # angle, rad


@dataclass(frozen=True)
class LabelKernel:
    """What labels do in attention.

    Attributes:
        frames: Labels (n,) to Q, orthogonal (n, d, d); None: Q = 1.
        bias: Labels (n,) and (m,) to b, symmetric (n, m); None: b = 1.
        content: f and A where they are not those of the case.
    """

    frames: Callable[[FloatArray], FloatArray] | None = None
    bias: Callable[[FloatArray, FloatArray], FloatArray] | None = None
    content: DotProductKernel | None = None


def create_label_kernel(case: Case) -> LabelKernel:
    """The kernel [auxiliary] names: one of `LABEL_KERNELS` or the user's ``module:factory``.

    Raises:
        CaseError: It cannot be built.
    """
    name = case.auxiliary.kernel
    return _own(case, name) if is_factory(name) else LABEL_KERNELS[name](case)


def _rope(case: Case) -> LabelKernel:
    """Q_ξ = R_ξ, the rotation by ω_k ξ in the k-th of some planes, the first one applied first."""
    table, d = case.auxiliary, case.dimension
    frequencies = table.frequencies or (2.0 * np.pi,) * len(table.planes)

    def frames(labels: FloatArray) -> FloatArray:
        result = np.broadcast_to(np.eye(d), (len(labels), d, d)).copy()
        for (i, j), frequency in zip(table.planes, frequencies, strict=True):
            c, s = np.cos(frequency * labels), np.sin(frequency * labels)
            turn = np.broadcast_to(np.eye(d), result.shape).copy()
            turn[:, i - 1, i - 1] = turn[:, j - 1, j - 1] = c
            turn[:, i - 1, j - 1], turn[:, j - 1, i - 1] = -s, s
            result = turn @ result
        return result

    return LabelKernel(frames)


FUNCTIONS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "linear": lambda s: s,
    "square": lambda s: s**2,
    "sine": np.sin,
    "cosine": np.cos,
}


def _rope_general(case: Case) -> LabelKernel:
    """Q_ξ = exp(Σ_k f_k(ξ) S_k), f_k = a_k × a function of ω_k ξ, S_k skew."""
    table = case.auxiliary
    generators, count = np.array(table.generators), len(table.generators)
    functions = table.functions or ("linear",) * count
    frequencies, amplitudes = table.frequencies or (2.0 * np.pi,) * count, table.amplitudes or (1.0,) * count

    @np.errstate(over="ignore", invalid="ignore")
    def frames(labels: FloatArray) -> FloatArray:
        values = [
            a * FUNCTIONS[name](w * labels) for name, w, a in zip(functions, frequencies, amplitudes, strict=True)
        ]
        exponents = np.einsum("kn,kij->nij", np.array(values), generators)
        largest = float(np.abs(exponents).max(initial=0.0))
        if not largest <= _LARGEST:
            raise CaseError(
                [f"auxiliary.generators: the exponents Σ f_k(ξ) S_k reach {largest:.3g} rad: at most {_LARGEST:g}, "
                 "beyond which they are round-off"]
            )  # fmt: skip
        result: FloatArray = expm(exponents)
        return result

    return LabelKernel(frames)


def _prefix(case: Case) -> LabelKernel:
    """Q_ξ, the smallest rotation that turns f(ξ) to u."""
    f = create_map(case)
    u = np.array(unit(case.auxiliary.u or tuple(np.eye(case.dimension)[0])))
    return LabelKernel(lambda labels: rotations_between(f(labels), u))


def _toeplitz(case: Case) -> LabelKernel:
    """b = cos ω(ξ − ζ), times ⟨x, y⟩ or the attention kernel."""
    table = case.auxiliary
    frequency = 2.0 * np.pi if table.frequency is None else table.frequency
    content = LinearKernel(np.eye(case.dimension)) if table.form == "linear" else None
    return LabelKernel(bias=lambda xi, zeta: np.cos(frequency * (xi[:, None] - zeta)), content=content)


DECAYS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "exponential": lambda r: np.exp(-r),
    "gaussian": lambda r: np.exp(-0.5 * r**2),
    "cauchy": lambda r: 1.0 / (1.0 + r**2),
    "triangle": lambda r: np.maximum(1.0 - r, 0.0),
    "window": lambda r: np.asarray(r <= 1.0 + 1e-9, dtype=np.float64),  # labels of a grid: r = 1 up to round-off
    "cosine": lambda r: 0.5 + 0.5 * np.cos(np.minimum(np.pi * r, np.pi)),
}


def _distance_bias(case: Case) -> LabelKernel:
    """b ≥ 0, a function of |ξ − ζ|/length."""
    table = case.auxiliary

    def bias(xi: FloatArray, zeta: FloatArray) -> FloatArray:
        distance = np.abs(xi[:, None] - zeta)
        if table.periodic:
            distance = np.mod(distance, 1.0)
            distance = np.minimum(distance, 1.0 - distance)
        return DECAYS[table.decay](distance / table.length)

    return LabelKernel(bias=bias)


def _own(case: Case, name: str) -> LabelKernel:
    """A kernel of the user's: an object with `frames(labels)`, `bias(labels, others)`, or both."""
    part = build_part("auxiliary.kernel", name, case, case.auxiliary.parameters or {})
    given: dict[str, Any] = {key: getattr(part, key, None) for key in ("frames", "bias")}
    functions = {key: Guarded("auxiliary.kernel", name, value) for key, value in given.items() if callable(value)}
    if not functions:
        raise CaseError(
            [f"auxiliary.kernel: {name} returned {type(part).__name__}: an object with `frames(labels)`, "
             "`bias(labels, others)` or both is needed"]
        )  # fmt: skip
    frames, bias, d = functions.get("frames"), functions.get("bias"), case.dimension

    def fail(what: str) -> CaseError:
        return CaseError([f"auxiliary.kernel: {name}: {what}"])

    def checked_frames(labels: FloatArray) -> FloatArray:
        assert frames is not None
        Q = frames(labels)
        if Q.shape != (len(labels), d, d):
            raise fail(f"frames of {len(labels)} labels have shape {Q.shape}: ({len(labels)}, {d}, {d}) is needed")
        if not np.abs(Q @ Q.transpose(0, 2, 1) - np.eye(d)).max() < _ORTHOGONAL:
            raise fail("frames are not orthogonal: Q Qᵀ = 1 is needed")
        check_alone(frames, Q, labels)
        return Q

    def checked_bias(xi: FloatArray, zeta: FloatArray) -> FloatArray:
        assert bias is not None
        b, shape = bias(xi, zeta), (len(xi), len(zeta))
        if b.shape != shape:
            raise fail(f"bias of {shape[0]} and {shape[1]} labels has shape {b.shape}: {shape} is needed")
        if not np.isfinite(b).all():
            raise fail("bias is not finite")
        if not np.allclose(b, bias(zeta, xi).T, rtol=1e-10, atol=1e-12):
            raise fail("bias is not symmetric: b(ξ, ζ) = b(ζ, ξ) is needed")
        check_alone(bias, b, xi, zeta)
        return b

    return LabelKernel(checked_frames if frames else None, checked_bias if bias else None)


LABEL_KERNELS: dict[str, Callable[[Case], LabelKernel]] = {
    "usa": lambda case: LabelKernel(),
    "rope": _rope,
    "rope_general": _rope_general,
    "prefix": _prefix,
    "toeplitz": _toeplitz,
    "distance_bias": _distance_bias,
}
