"""Tokens with labels, read back: where they are relative to the maximisers of their kernel and to a target law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from postprocess.distances import sliced_distance
from postprocess.load import RunError
from postprocess.members import read_members
from solver.auxiliary.kernels import create_label_kernel
from solver.auxiliary.labels import label_law
from solver.auxiliary.maximisers import Maximisers, create_maximisers
from solver.case import Case, load_case
from solver.case.fields import unit

__all__ = ["LAWS", "Series", "TokenState", "universality"]

FloatArray = NDArray[np.float64]

LAWS = {
    "rope": "latitude circle",
    "uniform": "uniform on the sphere",
    "mixture": "mixture of von Mises–Fisher laws",
    "spiral": "spiral",
    "points": "five weighted points",
}
_LAW_POINTS = 2**16
_DRAWS = 10


class TokenState:
    """A finished run of labelled tokens.

    Args:
        directory: Its folder.

    Raises:
        RunError: A file is missing or damaged.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @cached_property
    def case(self) -> Case:
        """Its case."""
        return load_case(self.directory / "case.toml")

    @cached_property
    def arrays(self) -> dict[str, Any]:
        """Content of particles.npz."""
        try:
            with np.load(self.directory / "particles.npz", allow_pickle=False) as data:
                return {name: data[name] for name in data.files}
        except FileNotFoundError:
            raise RunError(f"{self.directory / 'particles.npz'}: there is no such file") from None
        except (OSError, ValueError) as error:
            raise RunError(f"{self.directory / 'particles.npz'}: damaged ({error})") from None

    def tokens(self, seed: int) -> FloatArray:
        """Positions at T of the seed in this place, (N, d)."""
        positions: FloatArray = self.arrays["positions"][seed, -1]
        return positions

    @property
    def labels(self) -> FloatArray:
        """Of the tokens, (N,)."""
        labels: FloatArray = self.arrays["labels"]
        return labels

    @cached_property
    def maximisers(self) -> Maximisers | None:
        """Of its kernel; None where they are not known."""
        return create_maximisers(self.case, self.labels)

    @property
    def u(self) -> FloatArray:
        """What a start concentrated around it selects: the mean of the initial law of u, or the prefix's u."""
        if self.case.auxiliary.start == "u":
            return np.array(self.case.initial_mean)
        return np.array(unit(self.case.auxiliary.u or (1.0, *[0.0] * (self.case.dimension - 1))))

    def reached(self, seed: int) -> FloatArray:
        """v: the direction of the mean of u = Q_ξ x, (d,)."""
        frames = create_label_kernel(self.case).frames
        x = self.tokens(seed)
        mean = (x if frames is None else np.einsum("nij,nj->ni", frames(self.labels), x)).mean(axis=0)
        direction: FloatArray = mean / np.linalg.norm(mean)
        return direction

    def law_points(
        self, v: FloatArray, random: np.random.Generator | None = None, count: int = _LAW_POINTS
    ) -> FloatArray:
        """Points of the law (Q_ξᵀ v)_#ρ of infinitely many labels, (count, d): spread evenly, or random ones."""
        table = self.case.auxiliary
        if random is not None or table.law == "random":
            labels = (np.arange(count) + 0.5) / count if random is None else random.random(count)
        else:
            labels, _ = label_law(
                self.case.model_copy(update={"auxiliary": table.model_copy(update={"labels": count})}), count
            )
        frames = create_label_kernel(self.case).frames
        return np.broadcast_to(v, (count, len(v))) if frames is None else np.einsum("nji,j->ni", frames(labels), v)

    def distance(self, seed: int, v: FloatArray) -> float:
        """Sliced W₁ between the tokens at T and the law (Q_ξᵀ v)_#ρ."""
        return _equal_masses(self.tokens(seed), self.law_points(v))


def _equal_masses(x: FloatArray, y: FloatArray) -> float:
    return sliced_distance(x, np.full(len(x), 1.0 / len(x)), y, np.full(len(y), 1.0 / len(y)))


@dataclass(frozen=True)
class Series:
    """Distances to a target law against n.

    Attributes:
        kernel: Of the labels.
        law: Of the labels.
        counts: n.
        off: Angle of the reached v to u, mean over seeds, rad.
        reached: W₁ of the tokens to the law, mean over seeds.
        sampled: W₁ of n independent samples of the law to it, mean.
    """

    kernel: str
    law: str
    counts: list[int]
    off: list[float]
    reached: list[float]
    sampled: list[float]

    def exponent(self, values: Sequence[float]) -> float:
        """Of n in a fit of a power of n."""
        return float(np.polyfit(np.log(self.counts), np.log(values), 1)[0])


@cache  # the table and the figure show the same
def universality(sweep: Path) -> list[Series]:
    """How fast the tokens' marginal tends to its target with n, for each law of labels among a sweep's members."""
    members, found = read_members(sweep), []
    for law in sorted({member.key("auxiliary.law") for member in members}):
        group = [m for m in members if m.key("auxiliary.law") == law]
        series = Series(group[0].key("auxiliary.kernel"), law, [], [], [], [])
        for n in sorted({m.summary["n"] for m in group}):
            states = [TokenState(m.directory) for m in group if m.summary["n"] == n]
            u = states[0].u
            target = states[0].law_points(u)
            runs = [(state, k) for state in states for k in range(len(state.arrays["positions"]))]
            draws = [states[0].law_points(u, np.random.default_rng([n, k]), n) for k in range(_DRAWS)]
            cosines = [float(np.clip(state.reached(k) @ u, -1.0, 1.0)) for state, k in runs]
            series.counts.append(n)
            series.off.append(float(np.mean(np.arccos(cosines))))
            series.reached.append(float(np.mean([_equal_masses(state.tokens(k), target) for state, k in runs])))
            series.sampled.append(float(np.mean([_equal_masses(draw, target) for draw in draws])))
        found.append(series)
    return found
