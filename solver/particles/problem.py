"""The control problem for N tokens: min_W J(W) = loss(μ^N_T) + (λ_reg/2) ∫₀ᵀ ‖W_t‖²_F dt, for a batch of seeds.

A seed fixes initial tokens and noise; then J is a function of W, and its gradient that of the scheme's steps as taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from solver.auxiliary.kernels import create_label_kernel
from solver.auxiliary.labels import token_labels
from solver.case.schema import Case
from solver.depth import uniform_grid
from solver.ffn import create_features
from solver.losses import Loss, SmoothStatistics, create_loss
from solver.particles.initial import draw_tokens
from solver.particles.mean_field import Force, MeanField
from solver.particles.noise import normals
from solver.particles.step import TokenDynamics, pullback, step
from solver.types import FloatArray

__all__ = ["BatchEvaluation", "ParticleProblem"]

_DIFFERENCE = 1e-3
_NOISE_KEPT = _STATES_KEPT = 2**28  # bytes


@dataclass(frozen=True)
class BatchEvaluation:
    """J, its parts and its gradient for every seed of a batch.

    Attributes:
        J: loss + regularization, (batch,).
        loss: loss(μ^N_T), (batch,).
        regularization: (λ_reg/2) Σ_n Δt_n ‖W_n‖²_F, (batch,).
        gradient: L²(0,T) representative, (batch, steps, d, m).
    """

    J: FloatArray
    loss: FloatArray
    regularization: FloatArray
    gradient: FloatArray


class ParticleProblem:
    """N tokens under the drift of a case, for several seeds at once. Nothing here is collective.

    Args:
        case: Resolved case.
        field: Its attention (`create_field`).
        seeds: One system each.

    Raises:
        CaseError: A part or a file of the user's cannot be used.
    """

    def __init__(self, case: Case, field: MeanField | None, seeds: Sequence[int]) -> None:
        self.case = case
        self.seeds = list(seeds)
        self.t = uniform_grid(case.depth.T, max(1, round(case.depth.T * case.particles.steps)))
        self.dt = float(self.t[1])
        self.loss: Loss = create_loss(case)
        features = create_features(case)
        self.dynamics = TokenDynamics(field, features, case.noise.epsilon)
        count = case.particles.n
        self.labels = token_labels(case, count)
        self.initial = np.stack([draw_tokens(case, seed, self.labels) for seed in self.seeds])
        if case.auxiliary.start == "u":
            frames = create_label_kernel(case).frames
            if frames is not None:
                self.initial = np.einsum("nji,bnj->bni", frames(self.labels), self.initial)
        self.control_shape = (len(self.t) - 1, case.dimension, features.size)
        self._noise: dict[int, FloatArray] = {}

    def states(self, W: FloatArray, members: Sequence[int] | None = None) -> Iterator[FloatArray]:
        """Tokens at every depth from 0 to T, (batch, N, d) each, under controls W (batch, steps, d, m).

        Args:
            W: One control for each member.
            members: Positions in `seeds`; None is all of them.
        """
        for x, _ in self.walk(W, members):
            yield x

    def walk(self, W: FloatArray, members: Sequence[int] | None = None) -> Iterator[tuple[FloatArray, Force | None]]:
        """The same with the force of attention on the tokens at every depth (None: it is switched off)."""
        chosen = self._members(members)
        x = self.initial[chosen]
        for n in range(len(self.t) - 1):
            force = self.dynamics.force(x)
            yield x, force
            x = self._after(x, W, chosen, n, force)
        yield x, self.dynamics.force(x)

    def _after(self, x: FloatArray, W: FloatArray, members: list[int], n: int, force: Force | None) -> FloatArray:
        """Tokens after step n."""
        return step(self.dynamics, x, W[:, n], self.dt, self.step_noise(n, members), force)

    def evaluate(self, W: FloatArray, members: Sequence[int] | None = None) -> BatchEvaluation:
        """J and its gradient for controls W (batch, steps, d, m). A pure function of W.

        Tokens and forces of every depth are kept for the way back while that is cheap; else the tokens of every
        √steps-th depth, and what lies between is computed again: one more forward sweep, memory for 2√steps depths.
        """
        chosen = self._members(members)
        x, steps = self.initial[chosen], len(self.t) - 1
        size = steps if 2 * x.nbytes * steps <= _STATES_KEPT else math.isqrt(steps - 1) + 1
        segments = [range(first, min(first + size, steps)) for first in range(0, steps, size)]
        starts = []
        for segment in segments:
            starts.append(x)
            taken, x = self._taken(x, W, chosen, segment)
        loss, x_bar = self._terminal(x)
        W_bar = np.empty_like(W)
        for start, segment in zip(reversed(starts), reversed(segments), strict=True):
            if segment is not segments[-1]:
                taken, _ = self._taken(start, W, chosen, segment)
            for n, (x, force) in zip(reversed(segment), reversed(taken), strict=True):
                noise = self.step_noise(n, chosen)
                x_bar, W_bar[:, n] = pullback(self.dynamics, x, W[:, n], self.dt, noise, x_bar, force)
        strength = self.case.objective.regularization
        penalty = 0.5 * strength * self.dt * (W**2).sum(axis=(1, 2, 3))
        return BatchEvaluation(loss + penalty, loss, penalty, strength * W + W_bar / self.dt)

    def _taken(
        self, x: FloatArray, W: FloatArray, members: list[int], steps: range
    ) -> tuple[list[tuple[FloatArray, Force | None]], FloatArray]:
        """Tokens and the force on them before each of some steps, and the tokens after the last."""
        before = []
        for n in steps:
            force = self.dynamics.force(x)
            before.append((x, force))
            x = self._after(x, W, members, n, force)
        return before, x

    def interaction_energy(self, x: FloatArray, force: Force | None = None) -> FloatArray:
        """½ (1/N²) Σ_ij h(x_i, x_j) of tokens (batch, N, d), i = j included; shape (batch,).

        Args:
            x: Tokens.
            force: Of attention on them, if it is known.
        """
        if force is None:
            force = self.dynamics.force(x)
        if force is None:  # h = 1
            return np.full(len(x), 0.5)
        return 0.5 * force.Z.mean(axis=1)

    def averages(self, x: FloatArray) -> FloatArray:
        """S = mean of s over the tokens x (batch, N, d), shape (batch, k)."""
        return np.stack([self.loss.statistics(tokens).mean(axis=0) for tokens in x])

    def losses(self, x: FloatArray) -> FloatArray:
        """loss(μ^N) of tokens (batch, N, d), shape (batch,)."""
        return np.array([self.loss.value(S) for S in self.averages(x)])

    def _terminal(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Loss, and its sensitivity to the tokens: f′(S)·∇s(x_i)/N."""
        S = self.averages(x)
        x_bar = np.stack(
            [
                _statistics_vjp(self.loss, tokens, np.asarray(self.loss.derivative(s)))
                for tokens, s in zip(x, S, strict=True)
            ]
        )
        return np.array([self.loss.value(s) for s in S]), x_bar / x.shape[1]

    def _members(self, members: Sequence[int] | None) -> list[int]:
        return list(range(len(self.seeds))) if members is None else list(members)

    def step_noise(self, n: int, members: list[int]) -> FloatArray | None:
        """ξ of a step, (members, N, d); kept for all seeds while that is cheap, else drawn again."""
        if self.dynamics.epsilon == 0.0:
            return None
        count, d = self.initial.shape[1:]
        if self.initial.nbytes * (len(self.t) - 1) > _NOISE_KEPT:
            return normals([self.seeds[k] for k in members], n, count, d)
        if n not in self._noise:
            self._noise[n] = normals(self.seeds, n, count, d)
        return self._noise[n][members]


def _statistics_vjp(loss: Loss, x: FloatArray, s_bar: FloatArray) -> FloatArray:
    """Σ_k s_bar_k ∇s_k(x), by differences of fourth order where the loss does not know."""
    if isinstance(loss, SmoothStatistics):
        return loss.statistics_vjp(x, s_bar)
    result = np.empty_like(x)
    for k in range(x.shape[1]):
        shift = _DIFFERENCE * np.eye(x.shape[1])[k]
        values = [loss.statistics(x + j * shift) @ s_bar for j in (-2, -1, 1, 2)]
        result[:, k] = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * _DIFFERENCE)
    return result
