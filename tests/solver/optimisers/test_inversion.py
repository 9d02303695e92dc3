"""Callback style turned inside out."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from solver.optimisers.inversion import inside_out

pytestmark = pytest.mark.serial  # nothing here knows of ranks

ROOT = Path(__file__).resolve().parents[3]


def total(ask: Callable[[str], int]) -> int:
    return sum(ask(word) for word in ("one", "two", "three"))


def test_questions_and_result_pass_through() -> None:
    """Catches answers given to the wrong question, or a result that is lost."""
    generator = inside_out(total)
    assert next(generator) == "one"
    assert generator.send(1) == "two"
    assert generator.send(20) == "three"
    with pytest.raises(StopIteration) as end:
        generator.send(300)
    assert end.value.value == 321


def test_error_in_the_function_is_raised_here() -> None:
    """Catches an error that dies with the thread: the caller would wait for ever."""

    def fails(ask: Callable[[str], int]) -> int:
        if ask("word") == 0:
            raise ZeroDivisionError("in the thread")
        return 0

    generator = inside_out(fails)
    next(generator)
    with pytest.raises(ZeroDivisionError, match="in the thread"):
        generator.send(0)


def test_function_that_goes_on_after_being_abandoned() -> None:
    """Catches a hang on closing when the function catches everything and asks once more."""

    def stubborn(ask: Callable[[str], int]) -> int:
        for _ in range(3):
            try:
                ask("word")
            except BaseException:
                continue
        return 0

    generator = inside_out(stubborn)
    next(generator)
    generator.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "inside-out stubborn"]


@pytest.mark.serial
def test_process_ends_with_an_optimisation_open() -> None:
    """Catches an interpreter that hangs or complains at exit because the thread is still waiting."""
    program = (
        "import numpy as np\nfrom solver.optimisers import OPTIMISERS, Optimisation, Settings\n"
        "left = Optimisation(OPTIMISERS['lbfgs'], np.zeros(3), Settings(9, 0.0))\n"
        "left.tell(1.0, np.ones(3))\nassert left.ask() is not None\n"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")
