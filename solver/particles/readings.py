"""What else is measured of tokens at a depth: clusters, and the distance to the maximisers of their kernel."""

from __future__ import annotations

import numpy as np

from solver.auxiliary.maximisers import Maximisers, angles_between
from solver.types import FloatArray

__all__ = ["CLUSTER_RADIUS", "TokenReadings", "count_clusters"]

CLUSTER_RADIUS = 0.3  # rad
_LOOKED_AT = 1000  # tokens among which clusters are counted


class TokenReadings:
    """Numbers read off tokens of given labels.

    Args:
        labels: Of the tokens, (N,).
        maximisers: Of the interaction energy, if they are known.
    """

    def __init__(self, labels: FloatArray, maximisers: Maximisers | None) -> None:
        self._maximisers = maximisers
        _, self._numbers, self._counts = np.unique(labels, return_inverse=True, return_counts=True)

    def __call__(self, x: FloatArray, interaction_energy: FloatArray) -> dict[str, FloatArray]:
        """Readings by name, (batch,) each, of tokens x (batch, N, d) and their interaction energy.

        `clusters`: see `count_clusters`. `conditional_resultant`: Σ_ℓ ρ_ℓ |mean of the tokens of label ℓ|, where
        tokens share labels. `interaction_gap`: the maximum of the interaction energy less that of the tokens;
        `maximiser_angle`, `maximiser_angle_max`: root mean square and largest angle between the tokens and the nearest
        maximiser, rad; where maximisers are known.
        """
        found = {"clusters": count_clusters(x)}
        if 1 < len(self._counts) < x.shape[1]:
            found["conditional_resultant"] = np.array([self._conditional_resultant(tokens) for tokens in x])
        if self._maximisers is not None:
            found["interaction_gap"] = self._maximisers.energy - interaction_energy
            angles = np.stack([angles_between(tokens, self._maximisers.nearest(tokens)) for tokens in x])
            found["maximiser_angle"] = np.sqrt((angles**2).mean(axis=1))
            found["maximiser_angle_max"] = angles.max(axis=1)
        return found

    def _conditional_resultant(self, x: FloatArray) -> float:
        sums = np.stack([np.bincount(self._numbers, column, len(self._counts)) for column in x.T], axis=1)
        return float(np.linalg.norm(sums, axis=1).sum()) / len(x)


def count_clusters(x: FloatArray, radius: float = CLUSTER_RADIUS) -> FloatArray:
    """Number of clusters among tokens (batch, N, d), (batch,), as floats.

    The first token and all within `radius` of it are one cluster, the first of the others and all within `radius` of
    that the next, and so on: tight clusters are counted, spread tokens give about their covering number. Of more than
    1000 tokens as many are looked at, spread evenly over their order.
    """
    some = x[:, :: -(-x.shape[1] // _LOOKED_AT)]
    near = some @ some.transpose(0, 2, 1) >= np.cos(radius)
    left = np.ones(some.shape[:2], dtype=bool)
    count = np.zeros(len(some))
    while left.any():
        count += left.any(axis=1)
        leader = left.argmax(axis=1)
        left &= ~np.take_along_axis(near, leader[:, None, None], axis=1)[:, 0]
        left[np.arange(len(left)), leader] = False  # nan is near to nothing
    return count
