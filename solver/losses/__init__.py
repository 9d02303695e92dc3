"""Losses. To add one: write its class in a module here and enter its constructor in `LOSSES`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from solver.case.schema import Case
from solver.losses.align import Align
from solver.losses.protocol import Loss

__all__ = ["LOSSES", "Loss"]

LOSSES: dict[str, Callable[[Case], Loss]] = {
    "align": lambda case: Align(np.array(case.target)),
}
