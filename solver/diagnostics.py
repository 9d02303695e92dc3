"""Diagnostics along depth (docs/model.md): energies, mean, spread, control and adjoint norms, invariants."""

from __future__ import annotations

from dataclasses import dataclass

from mpi4py import MPI

import numpy as np

from solver.attention.protocol import Attention
from solver.parallel import allreduce
from solver.space import Space
from solver.theory.energy import entropy
from solver.types import FloatArray

__all__ = ["DepthDiagnostics", "adjoint_norm", "diagnose"]

_NO_DIRECTION = 1e-12  # length of a mean


@dataclass(frozen=True)
class DepthDiagnostics:
    """One value per depth, shape (steps + 1,) unless noted; the same on every rank.

    Attributes:
        energy: Free energy E (nan where there is none).
        interaction_energy: ½ Σ ρ_ℓ ρ_m ∬ h dμ_ℓ dμ_m.
        mean: m = ∫ x dμ̄, (steps + 1, d).
        angle: atan2(m₂, m₁), unwrapped, rad.
        resultant: |m|.
        conditional_resultant: Σ ρ_ℓ |∫ x dμ_ℓ|; equals the resultant for one label.
        dispersion: Root mean square angle to m, rad (nan where m = 0).
        label_mean: ∫ x dμ_ℓ, (steps + 1, labels, d).
        label_dispersion: Root mean square angle of μ_ℓ to its own mean, (steps + 1, labels), rad.
        mass: Of the label farthest from one.
        min_density: Over nodes and labels.
        max_density: Over nodes and labels.
    """

    energy: FloatArray
    interaction_energy: FloatArray
    mean: FloatArray
    angle: FloatArray
    resultant: FloatArray
    conditional_resultant: FloatArray
    dispersion: FloatArray
    label_mean: FloatArray
    label_dispersion: FloatArray
    mass: FloatArray
    min_density: FloatArray
    max_density: FloatArray


def diagnose(
    space: Space, attention: Attention, label_weights: FloatArray, epsilon: float, densities: list[FloatArray]
) -> DepthDiagnostics:
    """Diagnostics of densities (labels, local nodes) at successive depths. Collective."""
    rows = [_diagnose_one(space, attention, label_weights, epsilon, mu) for mu in densities]
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    angle = np.unwrap(np.arctan2(columns["mean"][:, 1], columns["mean"][:, 0]))
    return DepthDiagnostics(angle=angle, **columns)


def _diagnose_one(
    space: Space, attention: Attention, rho: FloatArray, epsilon: float, mu: FloatArray
) -> dict[str, FloatArray | float]:
    interaction = attention.interaction_energy(attention.moments(mu))
    masses = space.integrate(mu)
    label_mean = np.stack([space.integrate(mu * space.x[:, k]) for k in range(space.dimension)], axis=-1)
    mean = rho @ label_mean
    owned = mu[:, : space.owned]
    return {
        "energy": epsilon * float(rho @ entropy(space, mu)) - interaction if attention.has_energy else np.nan,
        "interaction_energy": interaction,
        "mean": mean,
        "resultant": float(np.linalg.norm(mean)),
        "conditional_resultant": float(rho @ np.linalg.norm(label_mean, axis=1)),
        "dispersion": float(_dispersion(space, (rho @ mu)[None], mean[None])[0]),
        "label_mean": label_mean,
        "label_dispersion": _dispersion(space, mu, label_mean),
        "mass": float(masses[np.argmax(np.abs(masses - 1.0))]),
        "min_density": float(allreduce(space.comm, owned.min(initial=np.inf), MPI.MIN)),
        "max_density": float(allreduce(space.comm, owned.max(initial=-np.inf), MPI.MAX)),
    }


def _dispersion(space: Space, mu: FloatArray, mean: FloatArray) -> FloatArray:
    """Root mean square angle of densities (n, local nodes) to their means (n, d), (n,); nan for a mean of 0."""
    size = np.linalg.norm(mean, axis=1, keepdims=True)
    direction = np.divide(mean, size, out=np.full_like(mean, np.nan), where=size > _NO_DIRECTION)
    angle = np.arccos(np.clip(direction @ space.x.T, -1.0, 1.0))
    spread: FloatArray = np.sqrt(np.maximum(space.integrate(mu * angle**2), 0.0))
    return spread


def adjoint_norm(space: Space, label_weights: FloatArray, mu: FloatArray, phi: FloatArray) -> float:
    """‖∇φ‖_{L²(μ)} = (Σ_ℓ ρ_ℓ ∫ |∇φ_ℓ|² dμ_ℓ)^{1/2} of P1 functions (labels, local nodes). Collective."""
    squared = (space.gradient(phi) ** 2).sum(axis=-1)
    local = float(label_weights @ (squared * mu[:, space.cells].mean(axis=-1) @ space.cell_size))
    return float(np.sqrt(max(float(allreduce(space.comm, local)), 0.0)))
