"""Tokens under the PDE's control approach the PDE (docs/mean-field-limit.md)."""

from __future__ import annotations

import numpy as np
import pytest
from system.mean_field_studies import (
    circle_case,
    deviations,
    exponents,
    ladder,
    level,
    limit,
    optimal_control,
    particles,
)

pytestmark = pytest.mark.serial


def test_tokens_approach_the_pde_like_the_square_root_of_their_number() -> None:
    """Catches a force, noise or control that differs between the two: differences would stop falling with N."""
    coarse: dict[str, object] = {"depth.T": 8.0, "depth.layer": 4.0, "optimizer.gradient_tolerance": 1e-2}
    coarse["initial.kappa"] = 10.0  # no tokens near −e₁: a few stragglers of weight 1/N would need many more seeds
    case = circle_case(**coarse, **{"geometry.h": 0.02, "geometry.continuation": []})
    t, W = optimal_control(case)
    reference = limit(circle_case(**coarse, **{"geometry.h": 0.005, "depth.first_step": 0.0125}), t, W)
    levels = [level(particles(case, n, 20), t, W, reference, 32) for n in ladder(64, 1024)]
    loss, energy, distance = exponents(levels, deviations(levels, reference))
    assert -0.6 < distance < -0.4
    # Root mean squares of a few dozen small numbers scatter more: docs/mean-field-limit.md has them from more seeds.
    assert max(loss, energy) < -0.25
    errors = levels[-1].extrapolated[:, :2] - [reference.loss, reference.energy]
    assert np.all(np.abs(errors.mean(axis=0)) < 4 * errors.std(axis=0, ddof=1) / np.sqrt(len(errors)))
