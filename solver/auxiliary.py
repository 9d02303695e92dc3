"""Labels ξ of tokens, which never change, and the frames in which attention compares tokens (P2; design, section 7).

`rope`: h((x, ξ), (y, ζ)) = e^{⟨R_ξ x, A R_ζ y⟩}, R_ξ the rotation by ω_k ξ in the k-th of some planes.
"""

from __future__ import annotations

import numpy as np

from solver.case.schema import Case
from solver.types import FloatArray

__all__ = ["frames", "token_labels"]


def token_labels(case: Case, count: int) -> FloatArray:
    """Labels in [0, 1) of `count` tokens, the same for every seed, (count,); zeros where the case has none.

    Token i has the label number i mod L. Grid: ℓ/L; random: uniform, keyed by ``auxiliary.seed``.
    """
    auxiliary = case.auxiliary
    if auxiliary.kernel == "usa" and auxiliary.labels is None:
        return np.zeros(count)
    number = auxiliary.labels or count
    if auxiliary.law == "grid":
        labels = np.arange(number) / number
    else:
        labels = np.random.Generator(np.random.Philox(key=auxiliary.seed)).random(number)
    return np.resize(labels, count)


def frames(case: Case, labels: FloatArray) -> FloatArray | None:
    """R_ξ for every label, orthogonal (labels, d, d); None where attention ignores labels."""
    auxiliary, d = case.auxiliary, case.dimension
    if auxiliary.kernel == "usa":
        return None
    frequencies = auxiliary.frequencies or (2.0 * np.pi,) * len(auxiliary.planes)
    result = np.broadcast_to(np.eye(d), (len(labels), d, d)).copy()
    for (i, j), frequency in zip(auxiliary.planes, frequencies, strict=True):
        c, s = np.cos(frequency * labels), np.sin(frequency * labels)
        turn = np.broadcast_to(np.eye(d), result.shape).copy()
        turn[:, i - 1, i - 1] = turn[:, j - 1, j - 1] = c
        turn[:, i - 1, j - 1], turn[:, j - 1, i - 1] = -s, s
        result = turn @ result
    return result
