"""Optimisers. To add one: write its generator function in a module here and enter it in `OPTIMISERS`."""

from __future__ import annotations

from solver.optimisers.driver import Optimisation
from solver.optimisers.gradient import gradient
from solver.optimisers.lbfgs import lbfgs
from solver.optimisers.protocol import Iterate, Optimiser, Outcome, Proposals, Settings
from solver.optimisers.sweep import sweep

__all__ = ["OPTIMISERS", "Iterate", "Optimisation", "Optimiser", "Outcome", "Proposals", "Settings"]

OPTIMISERS: dict[str, Optimiser] = {"lbfgs": lbfgs, "sweep": sweep, "gradient": gradient}
