"""The loss `align`, and what any entry of the registry must satisfy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from solver.case import Case
from solver.losses import LOSSES
from solver.losses.align import Align

MakeCase = Callable[..., Case]
UNIT = np.array([0.6, 0.8])


def test_value_is_one_minus_the_cosine() -> None:
    """Catches a wrong sign or a missing 1: 0 at the target, 1 across, 2 opposite, 1 for the uniform law."""
    loss = Align(UNIT)
    assert loss.value(UNIT) == pytest.approx(0.0, abs=1e-15)
    assert loss.value(np.array([-0.8, 0.6])) == pytest.approx(1.0)
    assert loss.value(-UNIT) == pytest.approx(2.0)
    assert loss.value(np.zeros(2)) == 1.0


def test_statistics_are_the_coordinates() -> None:
    """Catches averages of something else than x."""
    x = np.random.default_rng(0).standard_normal((5, 2))
    assert np.array_equal(Align(UNIT).statistics(x), x)


@pytest.mark.parametrize("manifold", ["circle", "sphere"])
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_derivative_against_differences(name: str, manifold: str, make_case: MakeCase) -> None:
    """Catches a first variation of another function than the value: the adjoint starts from it."""
    loss = LOSSES[name](make_case(manifold, {"objective.loss": name}))
    generator = np.random.default_rng(1)
    x = generator.standard_normal((400, 2 if manifold == "circle" else 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    S = loss.statistics(x)[:40].mean(axis=0)
    direction = generator.standard_normal(S.shape)
    s = 1e-5
    difference = (loss.value(S + s * direction) - loss.value(S - s * direction)) / (2 * s)
    assert difference == pytest.approx(float(loss.derivative(S) @ direction), rel=1e-6)


@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_target_of_the_case_is_normalised(manifold: str, make_case: MakeCase) -> None:
    """Catches a target (1, 1, 0) used unnormalised: the best loss would be 1 − √2."""
    case = make_case(manifold)
    target = np.array(case.target)
    assert np.linalg.norm(target) == pytest.approx(1.0, abs=1e-15)
    assert LOSSES["align"](case).value(target) == pytest.approx(0.0, abs=1e-15)
