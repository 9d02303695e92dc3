"""Keys that one optimiser alone knows."""

from __future__ import annotations

import pytest
from casefiles import GOOD, Write, error_lines

from solver.case import load_case

pytestmark = pytest.mark.serial  # nothing here knows of ranks

OWNER = {"step": ("gradient", 0.1), "relaxation": ("sweep", 0.3), "anderson": ("sweep", 2)}


@pytest.mark.parametrize("key", OWNER)
def test_key_of_its_own_method(key: str, write: Write) -> None:
    """Catches a key that is refused, or read and ignored, where it belongs."""
    owner, value = OWNER[key]
    case = load_case(write(GOOD), {"optimizer.method": owner, f"optimizer.{key}": value})
    assert getattr(case.optimizer, key) == value


@pytest.mark.parametrize("key", OWNER)
def test_key_without_its_method_is_refused(key: str, write: Write) -> None:
    """Catches a step length that never was, with the default method."""
    owner, value = OWNER[key]
    (line,) = error_lines(write(GOOD), {f"optimizer.{key}": value})
    assert line == f"some.toml: optimizer.{key}: belongs to method = '{owner}'; here method = 'lbfgs'"


def test_sweep_without_regularisation_is_refused(write: Write) -> None:
    """Catches a division by λ_reg = 0."""
    (line,) = error_lines(write(GOOD), {"optimizer.method": "sweep", "objective.regularization": 0.0})
    assert line.startswith("some.toml: optimizer.method: 'sweep' needs objective.regularization above 0")


@pytest.mark.parametrize("method", ["lbfgs", "gradient", "none"])
def test_other_methods_do_without_regularisation(method: str, write: Write) -> None:
    """Catches the refusal spreading to methods that allow λ_reg = 0."""
    assert load_case(write(GOOD), {"optimizer.method": method, "objective.regularization": 0.0})
