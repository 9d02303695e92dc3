"""The mean-field limit under the PDE's optimal control, shared by its test and by `mean_field_study.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mpi4py import MPI

import numpy as np

from postprocess.densities import CircleLaw, SphereLaw, make_law
from postprocess.distances import distance, sampling_distances, sliced_law_distance
from solver.case import Case, load_case
from solver.control import transfer
from solver.particles.create import create_field
from solver.particles.noise import normals
from solver.particles.problem import ParticleProblem
from solver.particles.step import step
from solver.problem import Problem
from solver.types import FloatArray

ROOT = Path(__file__).resolve().parents[2]
DRAWS = 16


@dataclass(frozen=True)
class Limit:
    """The PDE at T under a given control.

    Attributes:
        loss: loss(μ_T).
        energy: Interaction energy of μ_T.
        law: μ_T.
        nodes: Of the mesh.
        steps: In depth.
    """

    loss: float
    energy: float
    law: CircleLaw | SphereLaw
    nodes: int
    steps: int


@dataclass(frozen=True)
class Level:
    """N tokens at T, several seeds, measured as they are and extrapolated to Δt → 0.

    Attributes:
        n: N.
        plain: Loss, interaction energy, and distance to the PDE's density of the tokens with Δt/2, (seeds, 3).
        extrapolated: The same, extrapolated to second order in Δt from Δt and Δt/2, (seeds, 3).
        samples: The distance that N exact samples of that density have, (draws,).
    """

    n: int
    plain: FloatArray
    extrapolated: FloatArray
    samples: FloatArray

    @property
    def seeds(self) -> int:
        """Number of them."""
        return len(self.plain)


def optimal_control(case: Case) -> tuple[FloatArray, FloatArray]:
    """Depth grid (steps + 1,) and optimal control (steps, d, m) of a case."""
    problem = Problem(case)
    return problem.t, problem.solve().W


def limit(case: Case, t: FloatArray, W: FloatArray) -> Limit:
    """The PDE of a case under a control given on another depth grid."""
    problem = Problem(case)
    trajectory = problem.forward(transfer(t, W, problem.t))
    mesh = problem.space.input_mesh
    values = problem.space.gather(trajectory.densities[-1])
    assert mesh is not None
    assert values is not None
    return Limit(
        float(trajectory.readings["loss"][-1]),
        float(trajectory.diagnostics.interaction_energy[-1]),
        make_law(np.asarray(mesh.points), np.asarray(mesh.cells), values[0]),
        problem.space.nodes,
        len(problem.dt),
    )


def particles(case: Case, n: int, steps: float) -> Case:
    """The case with N tokens and `steps` equal depth steps per unit of depth."""
    return case.model_copy(update={"particles": case.particles.model_copy(update={"n": n, "steps": steps})})


def final_tokens(case: Case, t: FloatArray, W: FloatArray, seeds: list[int]) -> tuple[FloatArray, FloatArray]:
    """Tokens at T, x with the case's Δt and y with Δt/2, (seeds, N, d), along the same Brownian paths.

    A step's noise is the sum of its two halves', so the two differ by the bias and next to no sampling error.
    """
    field = create_field(case, MPI.COMM_SELF)
    coarse = ParticleProblem(case, field, seeds)
    fine = ParticleProblem(particles(case, case.particles.n, 2 * case.particles.steps), field, seeds)
    coarse_W, fine_W = (np.tile(transfer(t, W, each.t), (len(seeds), 1, 1, 1)) for each in (coarse, fine))
    x, y = coarse.initial, fine.initial
    for k in range(len(coarse.t) - 1):
        first, second = (normals(seeds, 2 * k + j, *y.shape[1:]) for j in (0, 1))
        x = step(coarse.dynamics, x, coarse_W[:, k], coarse.dt, (first + second) / np.sqrt(2.0))
        y = step(fine.dynamics, y, fine_W[:, 2 * k], fine.dt, first)
        y = step(fine.dynamics, y, fine_W[:, 2 * k + 1], fine.dt, second)
    return x, y


def level(case: Case, t: FloatArray, W: FloatArray, reference: Limit, seeds: int) -> Level:
    """Run a case's tokens under a control, as many seeds at once as 65 536 tokens are, and measure them at T."""
    n = case.particles.n
    one = particles(case, 1, case.particles.steps)
    problem = ParticleProblem(one, create_field(one, MPI.COMM_SELF), [0])
    rows: list[list[list[float]]] = []
    chunk = max(1, 65_536 // n)
    for start in range(0, seeds, chunk):
        # Keys of its own for every level: the tokens of a small N would else be among those of a large one.
        keys = [10_000 * n + k for k in range(start, min(start + chunk, seeds))]
        for x, y in zip(*final_tokens(case, t, W, keys), strict=True):
            at_x, at_y = (_measured(problem, tokens) for tokens in (x, y))
            far = distance(reference.law, y)
            rows.append([[*at_y, far], [*(2.0 * at_y - at_x), _extrapolated_distance(reference.law, x, y)]])
    plain, extrapolated = np.array(rows).transpose(1, 0, 2)
    return Level(n, plain, extrapolated, sampling_distances(reference.law, n, DRAWS, [n]))


def _measured(problem: ParticleProblem, x: FloatArray) -> FloatArray:
    """Loss and interaction energy of tokens (N, d)."""
    return np.array([problem.losses(x[None])[0], problem.interaction_energy(x[None])[0]])


def _extrapolated_distance(law: CircleLaw | SphereLaw, x: FloatArray, y: FloatArray) -> float:
    """W₁ to the law of what tokens x (Δt) and y (Δt/2) tend to, to second order in Δt.

    On the circle noise is additive, so every token's own error is of first order, and (2y − x)/|2y − x| is free of it.
    On the sphere a token's error has a part of order √Δt and mean zero, which would add to the width; there the masses
    are extrapolated: 2/N at every y, −1/N at every x.
    """
    if isinstance(law, SphereLaw):
        mass = np.repeat([2.0 / len(y), -1.0 / len(x)], len(x))
        return sliced_law_distance(law, np.concatenate([y, x]), mass)
    z = 2.0 * y - x
    return distance(law, z / np.linalg.norm(z, axis=1, keepdims=True))


def deviations(levels: list[Level], reference: Limit, extrapolated: bool = True) -> FloatArray:
    """Root mean squares over seeds of the loss and energy differences, and the mean distance, (levels, 3)."""
    rows = []
    for found in levels:
        values = found.extrapolated if extrapolated else found.plain
        differences = values[:, :2] - [reference.loss, reference.energy]
        rows.append([*np.sqrt((differences**2).mean(axis=0)), values[:, 2].mean()])
    return np.array(rows)


def exponents(levels: list[Level], values: FloatArray) -> FloatArray:
    """Slopes of log value against log N, for the columns of values (levels, k)."""
    slopes: FloatArray = np.polyfit(np.log([found.n for found in levels]), np.log(values), 1)[0]
    return slopes


def circle_case(**overrides: object) -> Case:
    """cases/turnpike_circle.toml to T = 20."""
    return load_case(ROOT / "cases" / "turnpike_circle.toml", {"depth.T": 20.0, **overrides})


def sphere_case(**overrides: object) -> Case:
    """cases/turnpike.toml to T = 5, with ε = 0.1: a cluster wide enough for a mesh without error beside N = 16 384."""
    settings = {"depth.T": 5.0, "depth.layer": 2.5, "noise.epsilon": 0.1}
    return load_case(ROOT / "cases" / "turnpike.toml", {**settings, **overrides})


def ladder(first: int, last: int) -> Iterator[int]:
    """first, 4·first, … up to last."""
    n = first
    while n <= last:
        yield n
        n *= 4
