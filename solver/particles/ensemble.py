"""An ensemble of N-token systems, one for each seed, spread over the ranks."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path

from mpi4py import MPI

import numpy as np

from solver.auxiliary.maximisers import Maximisers, create_maximisers
from solver.case.factories import is_factory
from solver.case.schema import Case
from solver.control import control_on_grid
from solver.log import LOG
from solver.parallel import everywhere
from solver.particles.create import create_field
from solver.particles.diagnostics import TokenDiagnostics, diagnose_tokens
from solver.particles.problem import ParticleProblem
from solver.particles.steer import steer_tokens
from solver.particles.training import SeedRow, train
from solver.results import frame_indices
from solver.types import FloatArray

__all__ = ["Ensemble", "SeedResult", "solve_ensemble"]


@dataclass(frozen=True)
class SeedResult:
    """What became of one seed.

    Attributes:
        seed: Of its initial tokens and noise.
        W: Control, (steps, d, m).
        J: loss + regularization at it.
        loss: loss(μ^N_T).
        regularization: (λ_reg/2) Σ_n Δt_n ‖W_n‖²_F.
        untrained_loss: At W = 0.
        gradient_norm: ‖g‖ at the control; None if nothing was trained and no control given.
        gradient_norm_initial: ‖g‖ at W = 0; None likewise.
        converged: Whether the tolerance was met; None if nothing was to be optimised.
        reason: In words.
        iterations: Of the optimiser.
        evaluations: Of J and its gradient.
    """

    seed: int
    W: FloatArray
    J: float
    loss: float
    regularization: float
    untrained_loss: float
    gradient_norm: float | None
    gradient_norm_initial: float | None
    converged: bool | None
    reason: str
    iterations: int
    evaluations: int


@dataclass(frozen=True)
class Ensemble:
    """All seeds, in order.

    Attributes:
        t: Depth grid, (steps + 1,).
        labels: Of the tokens, (N,); zeros where the case has none.
        maximisers: Of the interaction energy; None where they are not known.
        seeds: One result each.
        diagnostics: Along depth, for all seeds.
        history: Accepted iterates.
        frames: Depth indices of the positions kept.
        ranks: That took part.
        seconds: Of the whole.
    """

    t: FloatArray
    labels: FloatArray
    maximisers: Maximisers | None
    seeds: list[SeedResult]
    diagnostics: TokenDiagnostics
    history: list[SeedRow]
    frames: list[int]
    ranks: int
    seconds: float

    @property
    def converged(self) -> bool:
        """Whether every optimisation met its tolerance (True if there was none)."""
        return all(result.converged is not False for result in self.seeds)


def solve_ensemble(case: Case, comm: MPI.Comm, control: Path | None = None) -> Ensemble | None:
    """Train every seed of a case, or run it under a given control. Collective.

    Args:
        case: Resolved case.
        comm: Seeds are dealt out to its ranks; the results do not depend on how many there are.
        control: A control.npz to be run as it is, averaged onto the particles' depth grid.

    Returns:
        On rank 0; None on the others.

    Raises:
        CaseError: A part, a file or the control does not fit.
    """
    started = time.perf_counter()
    _warn_of_long_steps(case)
    field = create_field(case, comm)
    here = [case.particles.seed + k for k in range(case.particles.seeds)[comm.rank :: comm.size]]

    def solve() -> _Part | None:  # needs no other rank
        return _solve(ParticleProblem(case, field, here), control) if here else None

    parts = comm.gather(everywhere(comm, solve), root=0)
    if parts is None:
        return None
    return _joined([part for part in parts if part is not None], comm.size, time.perf_counter() - started)


def _warn_of_long_steps(case: Case) -> None:
    """Explicit steps must resolve the fastest relaxation of a token in a cluster, λ₁ e^{λ₁} (softmax: λ₁)."""
    if is_factory(case.attention.kernel) or (case.auxiliary.kernel == "toeplitz" and case.auxiliary.form == "linear"):
        return
    first = float(np.linalg.eigvalsh(np.array(case.matrix))[-1])
    rate = first if case.attention.normalized else first * math.exp(first)
    if rate > case.particles.steps:
        LOG.warning(
            "particles.steps: %g equal steps per unit of depth are too few for attention, which pulls tokens together "
            "at the rate %.4g: they overshoot, and results mean little; take at least %d",
            case.particles.steps, rate, math.ceil(rate),
        )  # fmt: skip


@dataclass(frozen=True)
class _Part:
    """What one rank found."""

    t: FloatArray
    labels: FloatArray
    maximisers: Maximisers | None
    seeds: list[SeedResult]
    diagnostics: TokenDiagnostics
    history: list[SeedRow]
    frames: list[int]


def _solve(problem: ParticleProblem, control: Path | None) -> _Part:
    """Train or run this rank's seeds, and measure them."""
    case = problem.case
    start = _start(problem, control)
    count = len(problem.seeds)
    if control is None and case.optimizer.method != "none":
        trained = train(problem, start)
        W, outcomes, evaluations, history = trained.W, trained.outcomes, trained.evaluations, trained.history
    else:
        W, outcomes, evaluations, history = start, [None] * count, [0] * count, []
    frames = frame_indices(len(problem.t) - 1, case.output.frames)
    maximisers = create_maximisers(case, problem.labels)
    diagnostics = diagnose_tokens(problem, W, frames, maximisers)
    losses = diagnostics.readings["loss"][:, -1]
    penalties = 0.5 * case.objective.regularization * problem.dt * (W**2).sum(axis=(1, 2, 3))
    norms: FloatArray | None = None
    untrained = losses
    if W.any():
        final, zero = problem.evaluate(W), problem.evaluate(np.zeros_like(W))
        norms = np.stack([np.sqrt(problem.dt * (found.gradient**2).sum(axis=(1, 2, 3))) for found in (final, zero)])
        untrained = zero.loss
    results = [
        SeedResult(
            seed=problem.seeds[k],
            W=W[k],
            J=float(losses[k] + penalties[k]),
            loss=float(losses[k]),
            regularization=float(penalties[k]),
            untrained_loss=float(untrained[k]),
            gradient_norm=None if norms is None else float(norms[0, k]),
            gradient_norm_initial=None if norms is None else float(norms[1, k]),
            converged=None if outcome is None else outcome.converged,
            reason="nothing to optimise" if outcome is None else outcome.reason,
            iterations=0 if outcome is None else outcome.last.iteration,
            evaluations=evaluations[k],
        )
        for k, outcome in enumerate(outcomes)
    ]
    return _Part(problem.t, problem.labels, maximisers, results, diagnostics, history, frames)


def _start(problem: ParticleProblem, control: Path | None) -> FloatArray:
    """The controls to start from or to run, on the particles' depth grid, (batch, steps, d, m)."""
    start = problem.case.optimizer.start
    if control is None and start == "steer":
        return steer_tokens(problem)
    shape = (len(problem.seeds), *problem.control_shape)
    if control is None and start == "zero":
        return np.zeros(shape)
    path, key = (control, "--control") if control is not None else (Path(start), "optimizer.start")
    return np.array(np.broadcast_to(control_on_grid(path, problem.t, shape[2:], key), shape))


def _joined(parts: list[_Part], ranks: int, seconds: float) -> Ensemble:
    """All ranks' seeds in order."""
    seeds = [result for part in parts for result in part.seeds]
    order = sorted(range(len(seeds)), key=lambda k: seeds[k].seed)
    each = [part.diagnostics for part in parts]
    diagnostics = TokenDiagnostics(
        **{
            name: np.concatenate([getattr(found, name) for found in each])[order]
            for name in ("interaction_energy", "mean", "angle", "resultant", "dispersion", "frames")
        },
        readings={name: np.concatenate([found.readings[name] for found in each])[order] for name in each[0].readings},
    )
    history = sorted((row for part in parts for row in part.history), key=lambda row: (row.seed, row.iteration))
    return Ensemble(
        t=parts[0].t,
        labels=parts[0].labels,
        maximisers=parts[0].maximisers,
        seeds=[seeds[k] for k in order],
        diagnostics=diagnostics,
        history=history,
        frames=parts[0].frames,
        ranks=ranks,
        seconds=seconds,
    )
