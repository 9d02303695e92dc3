"""`bag_of_words`: the cross-entropy −Σ_k q_k log p_k of predicted words p against a target histogram q.

K candidate vectors c_k stand for the words. The read-out p comes from each token, or from their mean. P1's own formula
is not public; both are offered.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax, softmax, xlogy
from scipy.stats import uniform_direction, vonmises_fisher

from solver.case.load import CaseError
from solver.case.schema import Case
from solver.losses.protocol import Loss
from solver.points import read_points
from solver.types import FloatArray

__all__ = ["PooledBagOfWords", "TokenBagOfWords", "angular_divergence", "bag_of_words", "draw_candidates"]

_UNIFORM_BELOW = 1e-10  # SciPy's sampler loses all digits there


@dataclass(frozen=True)
class _BagOfWords(ABC):
    """What both read-outs share.

    Attributes:
        candidates: c_k, unit vectors (K, d).
        histogram: q, ≥ 0 with sum 1, (K,).
        temperature: τ.
    """

    candidates: FloatArray
    histogram: FloatArray
    temperature: float

    @abstractmethod
    def probabilities(self, S: FloatArray) -> FloatArray:
        """p, (K,)."""

    def readings(self, S: FloatArray, mean: FloatArray) -> dict[str, float]:
        """Words that receive at least half their target share, and the angular divergence of the tokens."""
        wanted = self.histogram > 0
        covered = self.probabilities(S)[wanted] >= 0.5 * self.histogram[wanted]
        return {"coverage": float(covered.sum()), "angular_divergence": angular_divergence(mean)}


class TokenBagOfWords(_BagOfWords):
    """Read-out of every token: p_k = ∫ softmax_k(⟨c_·, x⟩/τ) dμ̄(x)."""

    def statistics(self, x: FloatArray) -> FloatArray:
        """s_k(x) = softmax_k(⟨c_·, x⟩/τ), (points, K)."""
        result: FloatArray = softmax(x @ self.candidates.T / self.temperature, axis=1)
        return result

    def statistics_vjp(self, x: FloatArray, s_bar: FloatArray) -> FloatArray:
        """Σ_k s_bar_k ∇s_k = Σ_k s_k (s_bar_k − ⟨s, s_bar⟩) c_k/τ."""
        s = self.statistics(x)
        return (s * (s_bar - (s @ s_bar)[:, None])) @ self.candidates / self.temperature

    def probabilities(self, S: FloatArray) -> FloatArray:
        """p = S."""
        return S

    def value(self, S: FloatArray) -> float:
        """−Σ q_k log p_k (0·log 0 = 0)."""
        return -float(xlogy(self.histogram, S).sum())

    def derivative(self, S: FloatArray) -> FloatArray:
        """−q_k/p_k."""
        return -self.histogram / S


class PooledBagOfWords(_BagOfWords):
    """Read-out of the mean token: p = softmax(⟨c_·, ∫x dμ̄⟩/τ)."""

    def statistics(self, x: FloatArray) -> FloatArray:
        """s(x) = x."""
        return x

    def statistics_vjp(self, x: FloatArray, s_bar: FloatArray) -> FloatArray:
        """s_bar at every point."""
        return np.broadcast_to(s_bar, x.shape)

    def probabilities(self, S: FloatArray) -> FloatArray:
        """softmax(⟨c_·, S⟩/τ)."""
        result: FloatArray = softmax(self.candidates @ S / self.temperature)
        return result

    def value(self, S: FloatArray) -> float:
        """−Σ q_k log p_k."""
        return -float(self.histogram @ log_softmax(self.candidates @ S / self.temperature))

    def derivative(self, S: FloatArray) -> FloatArray:
        """Σ_k (p_k − q_k) c_k / τ."""
        return (self.probabilities(S) - self.histogram) @ self.candidates / self.temperature


def angular_divergence(mean: FloatArray) -> float:
    """Δθ = arccos |∫x dμ̄|², rad: the angle whose cosine is the mean cosine between two tokens, E⟨x, y⟩ = |∫x dμ̄|².

    0 for one cluster, π/2 for tokens without a common direction; √2 times the dispersion where that is small.
    """
    return math.acos(min(float(mean @ mean), 1.0))


def draw_candidates(count: int, mean: FloatArray, kappa: float, seed: int) -> FloatArray:
    """Unit vectors (count, d) from the von Mises–Fisher law about `mean`; κ → 0 is the uniform law."""
    generator = np.random.default_rng(seed)
    if kappa < _UNIFORM_BELOW:
        drawn: FloatArray = uniform_direction(len(mean)).rvs(count, random_state=generator)
    else:
        drawn = vonmises_fisher(mean, kappa).rvs(count, random_state=generator)
    return drawn.reshape(count, len(mean))


def bag_of_words(case: Case) -> Loss:
    """The loss of a case's [objective].

    Raises:
        CaseError: The file of candidates cannot be used, or the histogram does not fit them.
    """
    objective = case.objective
    if objective.file is None:
        candidates = draw_candidates(
            objective.candidates, np.array(case.candidates_mean), objective.kappa, objective.seed
        )
    else:
        try:
            candidates, _ = read_points(objective.file, case.dimension, ())
        except ValueError as error:
            raise CaseError([f"objective.file: {error}"]) from None
    histogram = np.array(objective.histogram if objective.histogram is not None else (1.0,) * len(candidates))
    if len(histogram) != len(candidates):
        raise CaseError([f"objective.histogram: has {len(histogram)} numbers: {len(candidates)}, one per candidate"])
    readouts: dict[str, type[TokenBagOfWords] | type[PooledBagOfWords]] = {
        "token": TokenBagOfWords,
        "pooled": PooledBagOfWords,
    }
    return readouts[objective.readout](candidates, histogram / histogram.sum(), objective.temperature)
