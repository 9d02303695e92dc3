"""A loss of the user's, guarded: its errors are bad input, and what it returns is checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from solver.attention.expansion import sample_points
from solver.case.load import CaseError
from solver.parts import Guarded, check_pointwise
from solver.types import FloatArray

__all__ = ["UserLoss"]

_KEY = "objective.loss"
_POINTS = 60
# Columns of trajectory.csv and keys of summary.json's objective that are the program's own.
_TAKEN = {
    "t", "energy", "energy_gap", "interaction_energy", "angle", "resultant", "dispersion", "control_norm",
    "adjoint_norm", "mass", "min_density", "max_density", "loss", "J", "regularization", "untrained_loss",
}  # fmt: skip


class UserLoss:
    """See `Loss`; `readings` and `statistics_vjp` are there if the user's object has them.

    Args:
        name: ``module:factory``, for messages.
        part: What the factory returned.
    """

    def __init__(self, name: str, part: Any) -> None:
        self._name = name
        missing = [method for method in ("statistics", "value", "derivative") if not hasattr(part, method)]
        if missing:
            raise CaseError([f"{_KEY}: {name} returned {type(part).__name__}, which has no {', '.join(missing)}"])
        self.statistics = Guarded(_KEY, name, part.statistics)
        self.derivative = Guarded(_KEY, name, part.derivative)
        self._value = Guarded(_KEY, name, part.value)
        if hasattr(part, "statistics_vjp"):
            self.statistics_vjp = Guarded(_KEY, name, part.statistics_vjp)
        if hasattr(part, "readings"):
            self._part = part
            self.readings = self._readings

    def value(self, S: FloatArray) -> float:
        """f(S)."""
        value = self._value(S)
        if value.ndim != 0:
            raise CaseError([f"{_KEY}: {self._name}: value has shape {value.shape}: a number is needed"])
        return float(value)

    def _readings(self, S: FloatArray, mean: FloatArray) -> dict[str, float]:
        def read() -> dict[str, float]:
            found = {str(name): float(value) for name, value in self._part.readings(S.copy(), mean.copy()).items()}
            taken = sorted(name for name in found if name in _TAKEN or name.startswith("mean_"))
            if taken:
                raise ValueError(f"readings named {', '.join(taken)} are the program's own: take other names")
            return found

        return Guarded(_KEY, self._name, self._part.readings).call(read)

    def try_out(self, dimension: int) -> None:
        """Shapes and finiteness on a few points.

        Raises:
            CaseError: It is not what `Loss` asks for.
        """
        x = sample_points(dimension, _POINTS)
        s = self.statistics(x)
        if s.ndim != 2 or len(s) != len(x) or s.shape[1] == 0:
            raise self._no_loss(f"statistics of {x.shape} points has shape {s.shape}: (points, k) is needed")
        check_pointwise(self.statistics, x)
        S = s.mean(axis=0)
        value, derivative = self.value(S), self.derivative(S)
        if derivative.shape != S.shape:
            raise self._no_loss(f"derivative has shape {derivative.shape}: (k,) = {S.shape} is needed")
        if not (np.isfinite(s).all() and np.isfinite(value) and np.isfinite(derivative).all()):
            raise self._no_loss("it is not finite for tokens spread over the sphere")
        if hasattr(self, "readings"):
            self.readings(S, x.mean(axis=0))

    def _no_loss(self, why: str) -> CaseError:
        return CaseError([f"{_KEY}: {self._name} is no loss: {why}"])
