"""The settings of a case's optimiser."""

from __future__ import annotations

from solver.case.schema import Case
from solver.optimisers.protocol import Settings

__all__ = ["optimiser_settings"]

_GRADIENT_FLOOR = 1e-10


def optimiser_settings(case: Case, tolerance: float, untrained_norm: float) -> Settings:
    """Settings for a relative tolerance, ‖g‖ at W = 0 being `untrained_norm`."""
    optimizer = case.optimizer
    return Settings(
        max_iterations=optimizer.max_iterations,
        gradient_norm=max(tolerance * untrained_norm, _GRADIENT_FLOOR),
        step=optimizer.step,
        relaxation=optimizer.relaxation,
        anderson=optimizer.anderson,
        regularization=case.objective.regularization,
    )
