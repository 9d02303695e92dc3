"""The Polyak–Łojasiewicz inequality near a minimum of E: D(μ) ≥ c_PL Δ(μ), c_PL = 2a₁.

a₁ is the smallest rate of −HΔ_ρ. By P1 it holds for densities close to ρ *relative to ρ*; here it is tested on random
relative perturbations of a size fixed beforehand, and D/Δ → 2a along a single mode.
"""

from __future__ import annotations

from dataclasses import dataclass

from mpi4py import MPI

import numpy as np

from solver.initial import smooth_random_field
from solver.log import Progress
from solver.parallel import allreduce
from solver.theory.energy import dissipation, energy_gap
from solver.theory.equilibrium import Equilibrium, TheoryError
from solver.theory.spectrum import Mode
from solver.types import FloatArray

__all__ = ["NEIGHBOURHOOD", "PLSamples", "along_mode", "sample_inequality"]

NEIGHBOURHOOD = 0.1  # largest gap of a perturbation, relative to the barrier Δ₀
_BATCH = 50
_BISECTIONS = 16
_LARGEST = {"relative": 0.99, "tilted": 1e4}  # factor of a random field between −1 and 1


@dataclass(frozen=True)
class PLSamples:
    """D/Δ of random densities around ρ.

    Attributes:
        family: `relative`: μ = ρ(1 + sf), |sf| < 1, the neighbourhood of the inequality. `tilted`: μ ∝ ρe^{sf} with s
            as large as the gap allows: may carry mass to where ρ has none, and nothing is promised there.
        constant: c_PL = 2a₁.
        limit: Largest gap Δ allowed.
        gaps: Δ, (samples,).
        ratios: D/Δ, (samples,).
    """

    family: str
    constant: float
    limit: float
    gaps: FloatArray
    ratios: FloatArray

    @property
    def smallest(self) -> float:
        """min D/Δ."""
        return float(self.ratios.min())

    @property
    def violations(self) -> int:
        """How many samples have D < c_PL Δ."""
        return int(np.count_nonzero(self.ratios < self.constant))


def sample_inequality(
    equilibrium: Equilibrium, family: str, constant: float, limit: float, samples: int, seed: int = 0
) -> PLSamples:
    """D/Δ of random densities with gaps spread evenly up to the limit, or to what the family reaches. Collective.

    Args:
        equilibrium: A minimum of E.
        family: `relative` or `tilted`, see `PLSamples`.
        constant: c_PL.
        limit: Largest gap.
        samples: Number of densities; they are the same for any number of ranks.
        seed: Of the random numbers.
    """
    share = np.arange(1, samples + 1) / samples
    gaps, dissipated = np.empty(samples), np.empty(samples)
    progress = Progress(f"D ≥ c_PL Δ, {family} densities", samples)
    for first in range(0, samples, _BATCH):
        batch = slice(first, min(first + _BATCH, samples))
        numbers = range(batch.start, batch.stop)
        fields = np.array([smooth_random_field(equilibrium.problem.space.x, seed + 1 + n) for n in numbers])
        g = _at_gap(equilibrium, family, fields, share[batch], limit)
        gaps[batch], dissipated[batch] = _gap(equilibrium, g), _dissipation(equilibrium, g)
        progress(batch.stop)
    return PLSamples(family, constant, limit, gaps, dissipated / gaps)


def _at_gap(equilibrium: Equilibrium, family: str, fields: FloatArray, share: FloatArray, limit: float) -> FloatArray:
    """g = log(μ/ρ) of a family's densities whose gaps are this share of the limit, or of the largest they reach."""
    move = {"relative": _relative, "tilted": _tilted}[family]
    low, high = np.full(len(fields), np.log(1e-8)), np.full(len(fields), np.log(_LARGEST[family]))
    largest = _gap(equilibrium, move(equilibrium, np.exp(high)[:, None] * fields))
    targets = share * np.minimum(largest, limit)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        below = _gap(equilibrium, move(equilibrium, np.exp(middle)[:, None] * fields)) <= targets
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return move(equilibrium, np.exp(low)[:, None] * fields)


def _relative(equilibrium: Equilibrium, f: FloatArray) -> FloatArray:
    """g = log(1 + f) − log ∫ρ(1 + f), for f > −1, (samples, local nodes). Collective."""
    excess = equilibrium.problem.space.integrate(np.exp(equilibrium.flow.log_density) * f)
    result: FloatArray = np.log1p(f) - np.log1p(excess)[:, None]
    return result


def _tilted(equilibrium: Equilibrium, f: FloatArray) -> FloatArray:
    """g = f − log ∫ρe^f, for f (samples, local nodes). Collective."""
    space, log_rho = equilibrium.problem.space, equilibrium.flow.log_density
    highest = allreduce(space.comm, (log_rho + f).max(axis=1, initial=-np.inf), MPI.MAX)
    logarithm = highest + np.log(space.integrate(np.exp(log_rho + f - highest[:, None])))
    size = allreduce(space.comm, np.abs(f).max(axis=1, initial=0.0), MPI.MAX)
    small = np.where(size[:, None] < 1.0, f, 0.0)  # ∫ρe^f − 1 = ∫ρ(e^f − 1) keeps small tilts accurate
    accurate = np.log1p(space.integrate(np.exp(log_rho) * np.expm1(small)))
    result: FloatArray = f - np.where(size < 1.0, accurate, logarithm)[:, None]
    return result


def _gap(equilibrium: Equilibrium, g: FloatArray) -> FloatArray:
    problem, log_rho = equilibrium.problem, equilibrium.flow.log_density
    return energy_gap(problem.space, equilibrium.attention, problem.epsilon, log_rho, g)


def _dissipation(equilibrium: Equilibrium, g: FloatArray) -> FloatArray:
    problem, log_rho = equilibrium.problem, equilibrium.flow.log_density
    return dissipation(problem.space, equilibrium.attention, problem.epsilon, log_rho, g)


def along_mode(equilibrium: Equilibrium, mode: Mode, sizes: FloatArray) -> FloatArray:
    """D/Δ of ρ(1 + η) with η along a mode and max |η| = each of the sizes < 1; tends to 2a as they fall. Collective.

    Raises:
        TheoryError: ρ underflows where the mode lives.
    """
    space, flow = equilibrium.problem.space, equilibrium.flow
    smallest = float(allreduce(space.comm, flow.q.min(initial=np.inf), MPI.MIN))
    if smallest < 1e-120:
        raise TheoryError(f"the density falls to {smallest**2:.0e}: perturbations relative to it are below round-off")
    shape = np.zeros(len(space.x))
    shape[: space.owned] = mode.z / flow.q
    space.update_ghosts(shape[None])
    shape /= float(allreduce(space.comm, np.abs(shape).max(initial=0.0), MPI.MAX))
    g = np.log1p(np.multiply.outer(np.asarray(sizes), shape))
    ratios: FloatArray = _dissipation(equilibrium, g) / _gap(equilibrium, g)
    return ratios
