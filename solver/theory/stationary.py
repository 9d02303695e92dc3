"""Stationary states of the untrained flow: μ ∝ e^{V[μ]/ε}."""

from __future__ import annotations

from dataclasses import dataclass

from mpi4py import MPI

import numpy as np

from solver.attention.protocol import Attention
from solver.attention.separable import SeparableAttention
from solver.parallel import allreduce
from solver.space import Space
from solver.theory.energy import free_energy
from solver.types import FloatArray

__all__ = ["Stationary", "gibbs_density", "newton_state", "stationary_state"]

_TOLERANCE = 1e-13
_MAX_ITERATIONS = 20_000
_CONVERGED = 1e-10
_SMALL_RESIDUAL = 1e-12  # below it, growth is round-off
_SMALLEST_RELAXATION = 1 / 64
_WINDOW, _CREEPING = 500, 1e-3  # iterations in which a residual below the latter must halve to arrive at all
_MAX_NEWTON_ITERATIONS = 50


@dataclass(frozen=True)
class Stationary:
    """A self-consistent Gibbs state of the discrete flow.

    Attributes:
        mu: Density, (labels, local nodes).
        energy: Its free energy E.
        iterations: Fixed-point iterations used.
        residual: Last relative change of the moments.
        creeping: Whether it was given up because it turns almost freely; its energy then is good to about the residual.
    """

    mu: FloatArray
    energy: float
    iterations: int
    residual: float
    creeping: bool = False

    @property
    def converged(self) -> bool:
        """Whether the moments reproduce themselves to ten digits."""
        return self.residual <= _CONVERGED


def gibbs_density(space: Space, potential: FloatArray, epsilon: float) -> FloatArray:
    """e^{V/ε} / Σ m e^{V/ε} for V of shape (labels, local nodes). Collective."""
    highest = allreduce(space.comm, potential.max(axis=-1, initial=-np.inf), MPI.MAX)
    density = np.exp((potential - highest[:, None]) / epsilon)
    result: FloatArray = density / space.integrate(density)[:, None]
    return result


def stationary_state(
    space: Space, attention: Attention, label_weights: FloatArray, epsilon: float, start: FloatArray
) -> Stationary:
    """The Gibbs state in whose well `start` lies, by fixed-point iteration on the moments. Collective.

    For a positive semidefinite kernel each iteration minimises a majorant of E (the concave interaction replaced by its
    tangent), so E falls all the way and full steps converge. For others they may jump to and fro: steps are shortened
    where the residual grows. A state that may turn almost freely (isotropic attention) creeps: it is given up once its
    residual changes by less than a factor of two in 500 iterations.

    Args:
        space: P1 space.
        attention: With a potential.
        label_weights: ρ_ℓ, (labels,).
        epsilon: ε > 0.
        start: Density to start from, (labels, local nodes).

    Returns:
        The state; `residual` tells whether it was reached (`Stationary.converged`).

    Raises:
        ValueError: ε = 0 or attention without a potential.
    """
    if epsilon <= 0.0:
        raise ValueError("stationary densities need ε > 0; at ε = 0 they are Diracs")
    mu, c = start, attention.moments(start)
    residual, relaxation, earlier = np.inf, 1.0, np.inf
    iterations, creeping = 0, False
    while residual > _TOLERANCE and iterations < _MAX_ITERATIONS and not creeping:
        if iterations % _WINDOW == 0:
            creeping = _CONVERGED < residual < _CREEPING and 0.5 * earlier < residual < 2.0 * earlier
            earlier = residual
        potential = attention.potential(c)
        if potential is None:
            raise ValueError("this attention has no potential")
        mu = gibbs_density(space, potential, epsilon)
        change = attention.moments(mu) - c
        previous, residual = residual, float(np.linalg.norm(change)) / max(float(np.linalg.norm(c + change)), 1e-300)
        if residual > max(previous, _SMALL_RESIDUAL):
            relaxation = max(0.5 * relaxation, _SMALLEST_RELAXATION)
        c = c + relaxation * change
        iterations += 1
    energy = free_energy(space, attention, label_weights, epsilon, mu)
    return Stationary(mu, np.nan if energy is None else energy, iterations, residual, creeping)


def newton_state(space: Space, attention: SeparableAttention, epsilon: float, moments: FloatArray) -> Stationary:
    """The stationary state near these moments, a minimum of E or not, by Newton's method. Collective.

    A state is a zero of F(c) = c − c[G(c)], G(c) ∝ e^{Ψsc/ε}, in as many unknowns as attention has moments; with C the
    covariance of ψ under G(c), F′ = 1 − C s/ε. One label.

    Args:
        space: P1 space.
        attention: Linear in the density.
        epsilon: ε > 0.
        moments: Start, (rank,).

    Returns:
        The state; `residual` tells whether it was reached (`Stationary.converged`).
    """
    c = np.array(moments)
    owned = slice(0, space.owned)
    psi, one = attention.psi[owned], np.ones(1)
    residual, iterations = np.inf, 0
    while residual > _TOLERANCE and iterations < _MAX_NEWTON_ITERATIONS:
        mu = gibbs_density(space, attention.potential(c), epsilon)
        weighted = (space.mass * mu[0])[owned, None] * psi
        sums = allreduce(space.comm, np.vstack([weighted.T @ psi, weighted.sum(axis=0)]))
        second, first = sums[:-1], sums[-1]
        covariance = second - np.outer(first, first)
        residual = float(np.linalg.norm(c - first)) / max(float(np.linalg.norm(first)), 1e-300)
        c = c - np.linalg.solve(np.eye(len(c)) - covariance * attention.signs / epsilon, c - first)
        iterations += 1
    energy = free_energy(space, attention, one, epsilon, mu)
    return Stationary(mu, np.nan if energy is None else energy, iterations, residual)
