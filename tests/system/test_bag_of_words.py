"""Bag of words on the circle: training takes from the loss what the histogram and the candidates allow."""

from __future__ import annotations

import itertools
import math

import pytest
from system.word_studies import train

pytestmark = pytest.mark.serial

# At a small price of control (λ_reg = 1e-4) this much of the gap between untrained and attainable loss is closed.
CLOSED = {2.0: 0.99, 10.0: 0.8}
QUICK = [("token", 2.0, 0), ("pooled", 10.0, 2)]
DRAWS = [
    pytest.param(*draw, marks=() if draw in QUICK else pytest.mark.slow)
    for draw in itertools.product(("token", "pooled"), CLOSED, range(3))
]


@pytest.mark.parametrize(("readout", "kappa", "seed"), DRAWS)
def test_training_closes_the_gap(readout: str, kappa: float, seed: int) -> None:
    """Catches a loss lower than any law of tokens can have, and training that stops at a single direction."""
    found = train(readout, kappa, 0.3, seed, regularization=1e-4, T=8.0, h=0.08, iterations=50)
    assert found.entropy == pytest.approx(math.log(8))
    assert found.entropy - 1e-9 <= found.attainable <= found.loss + 1e-9
    assert found.loss < found.untrained
    assert (found.untrained - found.loss) / (found.untrained - found.attainable) >= CLOSED[kappa]
    assert found.coverage[1] == 8
    if kappa < 5.0:
        assert found.coverage[0] < 8


@pytest.mark.parametrize("readout", ["token", "pooled"])
def test_words_close_together_leave_little_to_gain(readout: str) -> None:
    """Catches spreading that does not pay: at κ = 10 and λ_reg = 0.01 tokens turn to the words and stay together."""
    found = train(readout, 10.0, 0.3, 2)
    assert found.converged
    assert found.loss < found.untrained
    assert found.dispersion < 0.1
    assert found.displacement == pytest.approx(-0.212, abs=0.01)
