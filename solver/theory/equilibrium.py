"""A stationary state of a case's untrained flow, and what its neighbourhood is measured by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from solver.attention.separable import SeparableAttention
from solver.theory.closed_forms import principal_axes, token_rate
from solver.theory.linearization import Linearization
from solver.theory.spectrum import Mode, slow_modes
from solver.theory.stationary import Stationary, gibbs_density, newton_state, stationary_state
from solver.types import FloatArray

if TYPE_CHECKING:
    from solver.problem import Problem

__all__ = ["Equilibrium", "TheoryError", "critical_point", "equilibrium_from", "equilibrium_near", "rayleigh_quotient"]

_SPARE_MODES = (8, 40, 160)  # where ε is so large that the slower modes of the hilltop cannot be left out
_SHIFT = 0.05  # σ of the eigenvalue solver, relative to the rates looked for


class TheoryError(RuntimeError):
    """A quantity that does not exist for this case, or that was not found; says why."""


@dataclass(frozen=True)
class Equilibrium:
    """A self-consistent Gibbs state ρ on the mesh of a problem.

    Attributes:
        problem: Mesh, attention and loss; one label.
        state: The state.
        pole: Unit vector, (d,): the place of its cluster.
    """

    problem: Problem
    state: Stationary
    pole: FloatArray

    @property
    def attention(self) -> SeparableAttention:
        """The problem's attention."""
        attention = self.problem.attention
        assert isinstance(attention, SeparableAttention)
        return attention

    @cached_property
    def potential(self) -> FloatArray:
        """V[ρ], (local nodes,). First use is collective."""
        return self.attention.node_potential(self.attention.moments(self.state.mu))

    @cached_property
    def flow(self) -> Linearization:
        """−HΔ_ρ. First use is collective."""
        return Linearization(self.problem.space, self.attention, self.potential / self.problem.epsilon, self._epsilon)

    @cached_property
    def frozen_flow(self) -> Linearization:
        """The same with the potential frozen: one token among the others. First use is collective."""
        return Linearization(self.problem.space, None, self.potential / self.problem.epsilon, self._epsilon)

    @property
    def _epsilon(self) -> float:
        return self.problem.epsilon

    @property
    def _first(self) -> float:
        """λ₁."""
        return float(np.linalg.eigvalsh(np.array(self.problem.case.matrix)).max())

    @cached_property
    def mean(self) -> FloatArray:
        """∫ x dρ, (d,). First use is collective."""
        space = self.problem.space
        return space.integrate(self.state.mu[0] * space.x.T)

    def second_moment(self, axis: FloatArray) -> float:
        """∫ ⟨x, axis⟩² dρ. Collective."""
        space = self.problem.space
        return float(space.integrate(self.state.mu[0] * (space.x @ axis) ** 2))

    def thermal_variance(self, axis: FloatArray) -> float:
        """Mean square angle to the pole in the direction of an axis across it, rad². Collective."""
        space = self.problem.space
        across = space.x - np.outer(space.x @ self.pole, self.pole)
        length = np.linalg.norm(across, axis=1)
        angle = np.arctan2(length, space.x @ self.pole)
        share = np.divide(across @ axis, length, out=np.zeros_like(length), where=length > 0)
        return float(space.integrate(self.state.mu[0] * (angle * share) ** 2))

    def slow_modes(self, count: int) -> list[Mode]:
        """The `count` slowest modes of −HΔ_ρ, see `solver.theory.spectrum.slow_modes`. Collective."""
        return slow_modes(self.flow, count, self._shift(self._first * np.exp(-self._first)), self.pole)

    def cluster_modes(self, count: int, frozen: bool = False) -> list[Mode]:
        """At most `count` of the slowest modes that live at the cluster. Collective.

        Args:
            count: Number of modes.
            frozen: Whether to freeze the potential, which gives the rates of one token among the others.
        """
        flow = self.frozen_flow if frozen else self.flow
        found: list[Mode] = []
        for spare in _SPARE_MODES:
            modes = slow_modes(flow, count + spare, self._shift(token_rate(self._first)), self.pole, core=True)
            found = [mode for mode in modes if mode.place == "cluster"][:count]
            if len(found) == count:
                break
        return found

    def _shift(self, rate: float) -> float:
        """σ for modes whose rates are about `rate`, or about ε where noise is what moves them."""
        return _SHIFT * max(rate, self._epsilon)


def equilibrium_near(problem: Problem, pole: FloatArray) -> Equilibrium:
    """The state in whose well a sharp cluster at `pole` lies. Collective.

    Raises:
        TheoryError: None was found.
    """
    first = float(np.linalg.eigvalsh(np.array(problem.case.matrix)).max())
    kappa = max(token_rate(first) / problem.epsilon, 3.0)
    start = gibbs_density(problem.space, kappa * (problem.space.x @ pole)[None], 1.0)
    return equilibrium_from(problem, start, pole)


def equilibrium_from(problem: Problem, start: FloatArray, pole: FloatArray | None = None) -> Equilibrium:
    """The state in whose well `start` (1, local nodes) lies; its pole is the direction of its mean. Collective.

    Raises:
        TheoryError: None was found.
    """
    state = stationary_state(problem.space, problem.attention, problem.label_weights, problem.epsilon, start)
    if not state.converged and problem.attention.has_energy:  # a cluster that turns almost freely creeps
        attention = problem.attention
        assert isinstance(attention, SeparableAttention)
        state = newton_state(problem.space, attention, problem.epsilon, attention.moments(state.mu))
    if not state.converged:
        raise TheoryError(
            f"no stationary state was found in {state.iterations} iterations (residual {state.residual:.1e})"
        )
    return _with_pole(problem, state, pole)


def critical_point(problem: Problem, moments: FloatArray, pole: FloatArray | None = None) -> Equilibrium:
    """The stationary state, stable or not, that Newton's method reaches from these moments (rank,). Collective.

    Raises:
        TheoryError: It reached none.
    """
    attention = problem.attention
    assert isinstance(attention, SeparableAttention)
    state = newton_state(problem.space, attention, problem.epsilon, moments)
    if not state.converged:
        raise TheoryError(f"Newton's method found no stationary state (residual {state.residual:.1e})")
    return _with_pole(problem, state, pole)


def _with_pole(problem: Problem, state: Stationary, pole: FloatArray | None) -> Equilibrium:
    if pole is None:
        mean = problem.space.integrate(state.mu[0] * problem.space.x.T)
        size = float(np.linalg.norm(mean))
        pole = mean / size if size > 1e-6 else principal_axes(problem.case.matrix)[1][:, 0]
    return Equilibrium(problem, state, pole)


def rayleigh_quotient(equilibrium: Equilibrium, g: FloatArray) -> float:
    """R_ρ(g) = ‖∇g‖²_{L²(ρ)} / ‖g‖²_{H⁻¹}, ‖g‖²_{H⁻¹} = ∫ g h with H h = g + const, ∫h = 0 (P1). Collective.

    Args:
        equilibrium: A minimum of E: elsewhere H is indefinite and this is no norm.
        g: (local nodes,), ghosts valid; constants do not matter.

    Raises:
        TheoryError: H is not positive at this state, or g does not vary over it.
    """
    flow = equilibrium.flow
    if not flow.symmetric:
        raise TheoryError("softmax attention descends no energy: there is no ‖·‖_{H⁻¹}")
    if flow.index() > 0:
        raise TheoryError("H is not positive at this stationary state, so ‖·‖_{H⁻¹} is no norm")
    space = flow.space
    centred = g[: space.owned] - float(space.integrate(np.exp(flow.log_density) * g))
    u = flow.q * centred
    norm, slope = float(flow.dot(u, flow.solve_variation(u))), flow.dirichlet(g)
    if norm <= 0.0 or slope <= 0.0:
        raise TheoryError(
            "g does not vary over the cluster: it is constant, or the cluster sits on one node of the mesh"
        )
    return slope / norm
