"""The barrier between the clusters at ±e₁."""

from __future__ import annotations

import numpy as np
import pytest
from theory_cases import small_case

from solver.attention.separable import SeparableAttention
from solver.case import Case
from solver.problem import Problem
from solver.theory.barrier import Barrier, find_barrier
from solver.theory.closed_forms import rotating_barrier, splitting_barrier
from solver.theory.equilibrium import Equilibrium, TheoryError, equilibrium_near


def _barrier(case: Case) -> tuple[Barrier, Equilibrium]:
    problem = Problem(case)
    axes = np.eye(problem.space.dimension)
    start, end = (equilibrium_near(problem, side * axes[0]) for side in (1.0, -1.0))
    return find_barrier(start, end, axes[1]), start


@pytest.mark.serial
@pytest.mark.parametrize("second", [0.2, 0.5, 0.8])
def test_heights_tend_to_the_closed_forms(second: float) -> None:
    """Catches a path that misses its saddle: as ε → 0 both tops tend to the formulas, from below, like ε."""
    closed = {"rotate": rotating_barrier(1.0, second), "split": splitting_barrier(1.0)}
    errors = {name: [] for name in closed}
    for epsilon in (0.02, 0.01, 0.005):
        barrier, _ = _barrier(small_case("circle", 0.01, epsilon, (1.0, second)))
        for name, path in barrier.paths.items():
            errors[name].append(closed[name] - path.height)
    for name, error in errors.items():
        assert error[0] > error[1] > error[2] > 0.0, name
        limit = 2 * error[2] - error[1]  # what is left at ε = 0, the linear part gone
        assert abs(limit) < 2e-3 * closed[name], name


@pytest.mark.serial
@pytest.mark.parametrize(("second", "lower"), [(0.2, "split"), (0.65, "rotate")])
def test_lower_path_is_the_barrier(second: float, lower: str) -> None:
    """Catches the wrong path: Δ₀ is the lower of the two, and never above the smaller closed form."""
    barrier, start = _barrier(small_case("circle", 0.01, 0.01, (1.0, second)))
    assert barrier.lowest.name == lower
    assert barrier.lowest.height == min(path.height for path in barrier.paths.values())
    assert barrier.lowest.height <= min(rotating_barrier(1.0, second), splitting_barrier(1.0))
    assert barrier.lowest.height == barrier.lowest.saddle.state.energy - start.state.energy


@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_top_is_a_mountain_pass(manifold: str) -> None:
    """Catches a top that is not stationary, or from which E falls in no direction or in several."""
    lam = (1.0, 0.65) if manifold == "circle" else (1.0, 0.65, 0.3)
    barrier, start = _barrier(small_case(manifold, 0.05 if manifold == "circle" else 0.25, 0.05, lam))
    path = barrier.lowest
    assert path.name == "rotate"
    assert path.slope < 1e-10
    assert path.index == 1
    assert abs(float(path.saddle.mean[1])) > 0.9
    assert path.energy[0] == pytest.approx(start.state.energy, abs=1e-9)
    top = path.saddle.state.energy
    assert path.energy.max() <= top + 1e-6 * abs(top)
    assert path.energy.max() == pytest.approx(top, abs=2e-3)


@pytest.mark.serial
def test_no_random_path_through_densities_stays_below() -> None:
    """Catches a barrier that is too high: E of mixtures and turns on the way must exceed it somewhere."""
    case = small_case("circle", 0.02, 0.05, (1.0, 0.65))
    barrier, start = _barrier(case)
    problem, height = start.problem, barrier.lowest.height
    attention = problem.attention
    assert isinstance(attention, SeparableAttention)
    generator = np.random.default_rng(0)
    from solver.theory.energy import free_energy
    from solver.theory.stationary import gibbs_density

    for _ in range(20):
        bend, width = generator.uniform(0.0, 1.0), generator.uniform(0.02, 0.3)
        energies = []
        for s in np.linspace(0.0, 1.0, 201):
            angle = np.pi * s
            turned = problem.space.x @ np.array([np.cos(angle), np.sin(angle)])
            stretched = problem.space.x @ np.array([np.cos(angle), -np.sin(angle)])
            laws = gibbs_density(problem.space, np.stack([turned, stretched]) / width, 1.0)
            mu = (1.0 - 0.5 * bend) * laws[0] + 0.5 * bend * laws[1]
            energies.append(free_energy(problem.space, attention, np.ones(1), 0.05, mu[None]))
        assert max(energies) - start.state.energy >= height


@pytest.mark.serial
def test_one_state_has_no_barrier() -> None:
    """Catches a barrier invented where noise has merged both clusters into one state."""
    with pytest.raises(TheoryError, match="one and the same"):
        _barrier(small_case("circle", 0.05, 2.0, (1.0, 0.65)))
