"""The feed-forward layer: fixed features σ(x) and the drift W σ(x) integrated along edges."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import ndtr

from solver.case.factories import is_factory
from solver.case.load import CaseError
from solver.case.schema import Case
from solver.parts import Guarded, build_part, check_pointwise
from solver.types import FloatArray

__all__ = ["ACTIVATIONS", "DERIVATIVES", "Activation", "FeatureMap", "create_features", "edge_integrals", "feature_map"]

_QUADRATURE_POINTS = 8
_DIFFERENCE = 1e-3

Activation = Callable[[FloatArray], FloatArray]
"""Elementwise, on arrays of any shape."""

ACTIVATIONS: dict[str, Activation] = {
    "identity": lambda x: x,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0.0),
    "gelu": lambda x: x * ndtr(x),
}


@dataclass(frozen=True)
class FeatureMap:
    """σ: S^{d-1} → R^m, σ(x) = act(x) or act(Ux + b), with a constant 1 appended if there is a bias.

    Attributes:
        activation: act.
        U: Random weights, shape (width, d), or None.
        b: Random offsets, shape (width,), or None.
        bias: Whether the last feature is the constant 1.
        dimension: d.
        derivative: act′, which particles need.
    """

    activation: Activation
    U: FloatArray | None
    b: FloatArray | None
    bias: bool
    dimension: int
    derivative: Activation

    @property
    def size(self) -> int:
        """m, the number of features."""
        return (self.dimension if self.U is None else len(self.U)) + int(self.bias)

    def __call__(self, x: FloatArray) -> FloatArray:
        """σ at points x (..., d), shape (..., m)."""
        features = self.activation(self._argument(x))
        if not self.bias:
            return features
        return np.concatenate([features, np.ones((*x.shape[:-1], 1))], axis=-1)

    def vjp(self, x: FloatArray, sigma_bar: FloatArray) -> FloatArray:
        """Sensitivity of x (.., d) from that of σ(x) (.., m), x being free to leave the sphere."""
        inner = sigma_bar[..., :-1] if self.bias else sigma_bar
        result: FloatArray = inner * self.derivative(self._argument(x))
        return result if self.U is None else result @ self.U

    def _argument(self, x: FloatArray) -> FloatArray:
        """x, or Ux + b."""
        return x if self.U is None or self.b is None else x @ self.U.T + self.b


_ROOT_TWO_PI = math.sqrt(2.0 * math.pi)
DERIVATIVES: dict[str, Activation] = {
    "identity": np.ones_like,
    "tanh": lambda x: 1.0 - np.tanh(x) ** 2,
    "relu": lambda x: np.where(x > 0.0, 1.0, 0.0),
    "gelu": lambda x: ndtr(x) + x * np.exp(-0.5 * x**2) / _ROOT_TWO_PI,
}
"""act′ of `ACTIVATIONS`; relu: 0 at its kink."""


def create_features(case: Case) -> FeatureMap:
    """The features of a case's [ffn], with an activation of `ACTIVATIONS` or the user's ``module:factory``.

    Raises:
        CaseError: The user's activation cannot be built, or does not map arrays to arrays of the same shape.
    """
    ffn = case.ffn
    if not is_factory(ffn.activation):
        activation, derivative = ACTIVATIONS[ffn.activation], DERIVATIVES[ffn.activation]
        return feature_map(activation, ffn.bias, ffn.width, ffn.seed, case.dimension, derivative)
    part = build_part("ffn.activation", ffn.activation, case, ffn.parameters or {})
    activation = Guarded("ffn.activation", ffn.activation, part)
    sample = np.linspace(-1.0, 1.0, 12).reshape(6, 2)
    values = activation(sample)
    if values.shape != sample.shape or not np.isfinite(values).all():
        raise CaseError(
            [
                f"ffn.activation: {ffn.activation} is no activation: it maps shape {sample.shape} to {values.shape}: "
                "finite values of the same shape are needed"
            ]
        )
    check_pointwise(activation, sample)
    check_pointwise(activation, sample.ravel())
    return feature_map(activation, ffn.bias, ffn.width, ffn.seed, case.dimension)


def feature_map(
    activation: Activation, bias: bool, width: int, seed: int, dimension: int, derivative: Activation | None = None
) -> FeatureMap:
    """σ; random features (width > 0) have standard normal U and b drawn from the seed.

    Without a derivative it is taken by differences of fourth order, to about twelve digits.
    """
    if derivative is None:
        derivative = partial(_slope, activation)
    if width == 0:
        return FeatureMap(activation, None, None, bias, dimension, derivative)
    generator = np.random.default_rng(seed)
    U = generator.standard_normal((width, dimension))
    b = generator.standard_normal(width)
    return FeatureMap(activation, U, b, bias, dimension, derivative)


def _slope(function: Activation, x: FloatArray) -> FloatArray:
    """f′ by central differences of fourth order."""
    s = _DIFFERENCE
    return (function(x - 2 * s) - 8 * function(x - s) + 8 * function(x + s) - function(x + 2 * s)) / (12 * s)


def edge_integrals(features: FeatureMap, start: FloatArray, end: FloatArray) -> FloatArray:
    """G_ij = ∫ t ⊗ σ ds along the great-circle arc from x_i to x_j (t its unit tangent), by Gauss–Legendre.

    W : G_ij is then the work of the drift P_x W σ(x) along the arc. Exchanging the ends changes the sign.

    Args:
        features: σ.
        start: x_i, shape (edges, d).
        end: x_j, shape (edges, d).

    Returns:
        Shape (d, m, edges).
    """
    chord = np.linalg.norm(end - start, axis=1)
    length = 2.0 * np.arcsin(0.5 * chord)
    nodes, weights = np.polynomial.legendre.leggauss(_QUADRATURE_POINTS)
    G = np.zeros((start.shape[1], features.size, len(start)))
    sine = np.sin(length)[:, None]
    for node, weight in zip(nodes, weights, strict=True):
        s = (0.5 * (1.0 + node) * length)[:, None]
        rest = length[:, None] - s
        x = (np.sin(rest) * start + np.sin(s) * end) / sine
        t = (np.cos(s) * end - np.cos(rest) * start) / sine
        G += (0.5 * weight) * np.einsum("ed,em,e->dme", t, features(x), length, optimize=True)
    if not math.isfinite(float(np.abs(G).max(initial=0.0))):
        raise CaseError(["ffn.activation: the features are not finite on the sphere"])
    return G
