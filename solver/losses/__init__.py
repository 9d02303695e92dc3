"""Losses. To add one: write its class in a module here and enter its constructor in `LOSSES`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from solver.attention.expansion import sample_points
from solver.case.factories import is_factory
from solver.case.load import CaseError
from solver.case.schema import Case
from solver.losses.align import Align
from solver.losses.bag_of_words import bag_of_words
from solver.losses.protocol import Loss, Reading, SmoothStatistics
from solver.parts import build_part

__all__ = ["LOSSES", "Loss", "Reading", "SmoothStatistics", "create_loss"]

LOSSES: dict[str, Callable[[Case], Loss]] = {
    "align": lambda case: Align(np.array(case.target)),
    "bag_of_words": bag_of_words,
}


def create_loss(case: Case) -> Loss:
    """The loss a case names: one of `LOSSES` or the user's ``module:factory``.

    Raises:
        CaseError: It cannot be built, or is not what `Loss` asks for.
    """
    name = case.objective.loss
    if not is_factory(name):
        return LOSSES[name](case)
    loss: Loss = build_part("objective.loss", name, case, case.objective.parameters or {})
    try:
        _try_out(loss, case.dimension)
    except Exception as error:
        raise CaseError([f"objective.loss: {name} is no loss: {type(error).__name__}: {error}"]) from error
    return loss


def _try_out(loss: Loss, dimension: int) -> None:
    """Shapes and finiteness on a few points."""
    x = sample_points(dimension, 50)
    s = np.asarray(loss.statistics(x))
    if s.ndim != 2 or len(s) != len(x):
        raise ValueError(f"statistics of {x.shape} points has shape {s.shape}: (points, k) is needed")
    S = s.mean(axis=0)
    value, derivative = loss.value(S), np.asarray(loss.derivative(S))
    if np.ndim(value) != 0:
        raise ValueError(f"value has shape {np.shape(value)}: a number is needed")
    if derivative.shape != S.shape:
        raise ValueError(f"derivative has shape {derivative.shape}: (k,) = {S.shape} is needed")
    if not (np.isfinite(s).all() and np.isfinite(value) and np.isfinite(derivative).all()):
        raise ValueError("it is not finite for tokens spread over the sphere")
