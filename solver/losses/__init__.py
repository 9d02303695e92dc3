"""Losses. To add one: write its class in a module here and enter its constructor in `LOSSES`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from solver.case.factories import is_factory
from solver.case.schema import Case
from solver.losses.align import Align
from solver.losses.bag_of_words import bag_of_words
from solver.losses.protocol import Loss, Reading, SmoothStatistics
from solver.losses.user import UserLoss
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
    part = build_part("objective.loss", name, case, case.objective.parameters or {})
    loss = UserLoss(name, part)
    loss.try_out(case.dimension)
    return loss
