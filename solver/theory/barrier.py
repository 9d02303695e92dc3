"""The barrier between the clusters at ±e₁, by the string method.

For a positive semidefinite kernel E(μ) = min_c F(μ, c), F(μ, c) = ε ∫ μ log μ − ⟨c, c[μ]⟩ + ½|c|², and F is convex in μ
and in c separately, so that E and

    𝓔(c) = min_μ F(μ, c) = ½|c|² − ε log ∫ e^{Ψc/ε}

have the same stationary states and the same mountain passes between them: the string lives in the space of moments,
of as many dimensions as attention has terms, with ∇𝓔(c) = c − c[G(c)], G(c) ∝ e^{Ψc/ε}. An image moves by one descent
step of length one, the Gibbs map, and the images are spread evenly in arc length again (simplified string method of E,
Ren and Vanden-Eijnden). The highest point starts Newton's method, which ends at a stationary state of the mesh's E.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mpi4py import MPI

import numpy as np
from scipy.optimize import minimize_scalar

from solver.attention.separable import SeparableAttention
from solver.parallel import allreduce
from solver.theory.energy import slope
from solver.theory.equilibrium import Equilibrium, TheoryError, critical_point
from solver.theory.stationary import gibbs_density
from solver.types import FloatArray

if TYPE_CHECKING:
    from solver.problem import Problem

__all__ = ["Barrier", "EnergyPath", "find_barrier"]

_IMAGES = 41
_ITERATIONS = 3000
_STILL = 1e-7  # largest move of an image in one iteration, relative to the length of the string
_FINE = 16  # points between two images, when the highest one is looked for
_ONE_STATE = 1e-3  # distance of the two ends, relative to their size, below which they are the same state
_ENERGY = 1e-6  # by which a saddle must lie above both ends, relative to |E|


@dataclass(frozen=True)
class EnergyPath:
    """A path of least energy from the cluster at e₁ to that at −e₁.

    Attributes:
        name: ``rotate`` or ``split``: the path it started from.
        s: Arc length in moments, 0 to 1, (images,).
        energy: 𝓔 along it, (images,): equal to E at both ends and at the saddle, above E(G(c)) in between.
        iterations: Of the string method.
        change: Last move, relative to the length of the string.
        saddle: The stationary state at its top.
        slope: ‖∇δE/δμ‖_{L²(μ)} there.
        height: E(saddle) − E(cluster at e₁).
    """

    name: str
    s: FloatArray
    energy: FloatArray
    iterations: int
    change: float
    saddle: Equilibrium
    slope: float
    height: float

    @property
    def index(self) -> int:
        """Number of directions in which E falls at the saddle; a mountain pass has one."""
        return self.saddle.flow.index()


@dataclass(frozen=True)
class Barrier:
    """Both paths.

    Attributes:
        paths: By name.
        reasons: Why a path is missing, by name.
    """

    paths: dict[str, EnergyPath]
    reasons: dict[str, str]

    @property
    def lowest(self) -> EnergyPath:
        """The lower path: its height is Δ₀."""
        return min(self.paths.values(), key=lambda path: path.height)


def find_barrier(start: Equilibrium, end: Equilibrium, across: FloatArray) -> Barrier:
    """Δ₀ from the rotating and from the splitting path. Collective.

    Args:
        start: The cluster at e₁.
        end: The cluster at −e₁.
        across: e₂, (d,): the rotating path starts out through it.

    Raises:
        TheoryError: The kernel is not positive semidefinite, there is only one state, or neither path has a saddle.
    """
    attention = start.attention
    if attention.signs.min() < 0:
        raise TheoryError("the string method here needs a positive semidefinite kernel")
    ends = [attention.moments(state.state.mu) for state in (start, end)]
    if np.linalg.norm(ends[1] - ends[0]) < _ONE_STATE * np.linalg.norm(ends[0]):
        raise TheoryError("the states near e₁ and −e₁ are one and the same: there is nothing to climb over")
    s = np.linspace(0.0, 1.0, _IMAGES)
    strings = {
        "rotate": np.array([_turned(start, across, np.pi * angle) for angle in s]),
        "split": (1.0 - s)[:, None] * ends[0] + s[:, None] * ends[1],
    }
    paths: dict[str, EnergyPath] = {}
    reasons: dict[str, str] = {}
    for name, string in strings.items():
        string[0], string[-1] = ends
        try:
            paths[name] = _relax(start, end, name, string)
        except TheoryError as error:
            reasons[name] = str(error)
    if not paths:
        raise TheoryError("; ".join(f"{name}: {reason}" for name, reason in reasons.items()))
    return Barrier(paths, reasons)


def _turned(start: Equilibrium, across: FloatArray, angle: float) -> FloatArray:
    """Moments of the cluster turned by an angle towards `across`: a von Mises–Fisher law of its mean length."""
    space = start.problem.space
    direction = np.cos(angle) * start.pole + np.sin(angle) * across
    variance = start.thermal_variance(across)
    law = gibbs_density(space, (space.x @ direction)[None] / variance, 1.0)
    return start.attention.moments(law)


def _relax(start: Equilibrium, end: Equilibrium, name: str, string: FloatArray) -> EnergyPath:
    problem, attention = start.problem, start.attention
    change, iterations = np.inf, 0
    while change > _STILL and iterations < _ITERATIONS:
        moved = string.copy()
        moved[1:-1] = _gibbs_moments(problem, attention, string[1:-1])
        moved = _evenly(moved)
        length = np.linalg.norm(np.diff(moved, axis=0), axis=1).sum()
        change = float(np.linalg.norm(moved - string, axis=1).max() / length)
        string = moved
        iterations += 1
    saddle = critical_point(problem, _highest(problem, attention, string), start.pole)
    height = saddle.state.energy - start.state.energy
    higher = max(start.state.energy, end.state.energy)
    if saddle.state.energy <= higher + _ENERGY * abs(higher):
        raise TheoryError("Newton's method slid from the top of the path back to a cluster")
    return EnergyPath(
        name=name,
        s=np.linspace(0.0, 1.0, len(string)),
        energy=_dual_energy(problem, attention, string),
        iterations=iterations,
        change=change,
        saddle=saddle,
        slope=slope(problem.space, attention, problem.epsilon, saddle.state.mu[0]),
        height=height,
    )


def _evenly(string: FloatArray) -> FloatArray:
    """The same curve (images, rank) with its images spread evenly in arc length."""
    lengths = np.linalg.norm(np.diff(string, axis=0), axis=1)
    along = np.concatenate([[0.0], np.cumsum(lengths)])
    wanted = np.linspace(0.0, along[-1], len(string))
    return _between(string, along, wanted)


def _between(string: FloatArray, along: FloatArray, positions: FloatArray) -> FloatArray:
    """Points of the polygon through the images, which lie at `along`; (positions, rank)."""
    points: FloatArray = np.stack([np.interp(positions, along, column) for column in string.T], axis=1)
    return points


def _gibbs_moments(problem: Problem, attention: SeparableAttention, string: FloatArray) -> FloatArray:
    """c[G(c)] for every image, (images, rank). Collective."""
    space = problem.space
    owned = slice(0, space.owned)
    densities = gibbs_density(space, string @ attention.psi.T, problem.epsilon)
    return allreduce(space.comm, (densities[:, owned] * space.mass[owned]) @ attention.psi[owned])


def _dual_energy(problem: Problem, attention: SeparableAttention, string: FloatArray) -> FloatArray:
    """𝓔(c) for every row, (rows,). Collective."""
    space, epsilon = problem.space, problem.epsilon
    potential = string @ attention.psi.T
    highest = allreduce(space.comm, potential.max(axis=1, initial=-np.inf), MPI.MAX)
    partition = space.integrate(np.exp((potential - highest[:, None]) / epsilon))
    result: FloatArray = 0.5 * (string**2).sum(axis=1) - highest - epsilon * np.log(partition)
    return result


def _highest(problem: Problem, attention: SeparableAttention, string: FloatArray) -> FloatArray:
    """The point of the string (straight between images) where 𝓔 is largest, (rank,). Collective."""
    images = np.arange(len(string), dtype=np.float64)
    along = np.linspace(0.0, len(string) - 1.0, _FINE * (len(string) - 1) + 1)
    energies = _dual_energy(problem, attention, _between(string, images, along))
    highest = int(np.clip(np.argmax(energies), 1, len(along) - 2))
    found = minimize_scalar(
        lambda p: -float(_dual_energy(problem, attention, _between(string, images, np.array([p])))[0]),
        bounds=(along[highest - 1], along[highest + 1]),
        method="bounded",
        options={"xatol": 1e-10},
    )
    top: FloatArray = _between(string, images, np.array([float(found.x)]))[0]
    return top
