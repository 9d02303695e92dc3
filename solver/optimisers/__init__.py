"""Optimisers. To add one: write its function in a module here and enter it in `OPTIMISERS`."""

from __future__ import annotations

from solver.optimisers.lbfgs import lbfgs
from solver.optimisers.protocol import Iterate, Objective, Optimiser, Outcome, Settings

__all__ = ["OPTIMISERS", "Iterate", "Objective", "Optimiser", "Outcome", "Settings"]

OPTIMISERS: dict[str, Optimiser] = {"lbfgs": lbfgs}
