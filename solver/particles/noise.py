"""Random numbers keyed by (seed, particle, step).

A counter-based generator (Philox) keyed by seed and step, read in the order of the particles: the first n particles get
the same numbers for any number of particles, ranks, or seeds in a batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from solver.types import FloatArray

__all__ = ["INITIAL", "generator", "normals"]

INITIAL = 2**63  # the "step" of the initial draw


def generator(seed: int, step: int) -> np.random.Generator:
    """The stream of a seed at a step."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, step], dtype=np.uint64)))


def normals(seeds: Sequence[int], step: int, count: int, dimension: int) -> FloatArray:
    """Standard normal numbers, shape (seeds, count, dimension)."""
    return np.stack([generator(seed, step).standard_normal((count, dimension)) for seed in seeds])
