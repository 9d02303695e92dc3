"""Diagnostics of N tokens along depth, the same quantities as those of a density (docs/model.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.auxiliary.maximisers import Maximisers
from solver.case.load import CaseError
from solver.losses import Reading
from solver.particles.problem import ParticleProblem
from solver.particles.readings import TokenReadings
from solver.types import FloatArray

__all__ = ["TokenDiagnostics", "diagnose_tokens"]


@dataclass(frozen=True)
class TokenDiagnostics:
    """One value per seed and depth, shape (batch, steps + 1) unless noted.

    Attributes:
        interaction_energy: ½ (1/N²) Σ_ij h(x_i, x_j), i = j included. N points have no entropy, so no free energy.
        mean: (1/N) Σ x_i, (batch, steps + 1, d).
        angle: atan2(m₂, m₁), unwrapped, rad.
        resultant: |m|.
        dispersion: Root mean square angle to m, rad (nan where m = 0).
        readings: ``loss``, what else the loss has to say, and `TokenReadings`, by name.
        frames: Positions at chosen depths, (batch, frames, N, d).
    """

    interaction_energy: FloatArray
    mean: FloatArray
    angle: FloatArray
    resultant: FloatArray
    dispersion: FloatArray
    readings: dict[str, FloatArray]
    frames: FloatArray


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def diagnose_tokens(
    problem: ParticleProblem, W: FloatArray, frames: list[int], maximisers: Maximisers | None
) -> TokenDiagnostics:
    """Run the tokens under controls W (batch, steps, d, m) and measure them at every depth.

    Args:
        problem: A batch of seeds.
        W: One control each.
        frames: Depth indices at which positions are kept.
        maximisers: Of the interaction energy, if they are known.

    Raises:
        CaseError: Tokens are not finite.
    """
    kept, energies, means, dispersions = [], [], [], []
    readings: list[dict[str, FloatArray]] = []
    further = TokenReadings(problem.labels, maximisers)
    for n, (x, force) in enumerate(problem.walk(W)):
        if not np.isfinite(x).all():
            raise CaseError(
                [f"attention: tokens are not finite at depth {problem.t[n]:.4g}: its force, with that of labels and "
                 "control, is too large"]
            )  # fmt: skip
        mean, energy = x.mean(axis=1), problem.interaction_energy(x, force)
        energies.append(energy)
        means.append(mean)
        dispersions.append(_dispersion(x, mean))
        readings.append({**_loss_readings(problem, x, mean), **further(x, energy)})
        if n in frames:
            kept.append(x)
    path = np.stack(means, axis=1)
    return TokenDiagnostics(
        interaction_energy=np.stack(energies, axis=1),
        mean=path,
        angle=np.unwrap(np.arctan2(path[..., 1], path[..., 0]), axis=1),
        resultant=np.linalg.norm(path, axis=-1),
        dispersion=np.stack(dispersions, axis=1),
        readings={name: np.stack([row[name] for row in readings], axis=1) for name in readings[0]},
        frames=np.stack(kept, axis=1),
    )


def _dispersion(x: FloatArray, mean: FloatArray) -> FloatArray:
    resultant = np.linalg.norm(mean, axis=-1)
    direction = mean / np.maximum(resultant, 1e-300)[:, None]
    angle = np.arccos(np.clip(np.einsum("bnd,bd->bn", x, direction), -1.0, 1.0))
    return np.where(resultant > 1e-12, np.sqrt((angle**2).mean(axis=1)), np.nan)


def _loss_readings(problem: ParticleProblem, x: FloatArray, mean: FloatArray) -> dict[str, FloatArray]:
    loss, rows = problem.loss, []
    for S, m in zip(problem.averages(x), mean, strict=True):
        more = loss.readings(S, m) if isinstance(loss, Reading) else {}
        rows.append({"loss": float(loss.value(S)), **more})
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}
