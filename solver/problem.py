"""The control problem on one mesh: min_W J(W) = loss(μ̄_T) + (λ_reg/2) ∫₀ᵀ ‖W_t‖²_F dt."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from mpi4py import MPI

import numpy as np

from solver.attention.create import create_attention, create_expansion
from solver.attention.separable import SeparableAttention
from solver.auxiliary.coupling import Coupling, create_coupling
from solver.auxiliary.maximisers import Maximisers, create_maximisers
from solver.case.load import CaseError
from solver.case.schema import Case
from solver.conditional import ConditionalLaws
from solver.depth import graded_grid, uniform_grid
from solver.diagnostics import DepthDiagnostics, diagnose
from solver.dynamics import Dynamics
from solver.ffn import FeatureMap, create_features, edge_integrals
from solver.geometry import build_space
from solver.initial import initial_densities
from solver.label_solver import create_solver
from solver.log import LOG
from solver.losses import Loss, Reading, create_loss
from solver.operator import EdgeAveragedOperator
from solver.parallel import allreduce, everywhere
from solver.schemes import SCHEMES, Step
from solver.sweeps import SweepError, backward_sweep, forward_sweep
from solver.theory.stationary import stationary_state
from solver.types import FloatArray

if TYPE_CHECKING:
    from solver.training import Result

__all__ = ["Evaluation", "Problem", "SweepCounts", "Trajectory"]


@dataclass
class SweepCounts:
    """Sweeps done and the seconds they took."""

    forward: int = 0
    adjoint: int = 0
    forward_seconds: float = 0.0
    adjoint_seconds: float = 0.0


@dataclass(frozen=True)
class Evaluation:
    """J and its parts at one control; the same on every rank.

    Attributes:
        J: loss + regularization.
        loss: loss(μ̄_T).
        regularization: (λ_reg/2) Σ_n Δt_n ‖W_n‖²_F.
        gradient: L²(0,T) representative g_n, (steps, d, m).
    """

    J: float
    loss: float
    regularization: float
    gradient: FloatArray


@dataclass(frozen=True)
class Trajectory:
    """Densities along depth under one control, with their diagnostics.

    Attributes:
        t: Depth grid, (steps + 1,).
        W: Control, (steps, d, m).
        densities: At every depth, (labels, local nodes) each.
        diagnostics: See `DepthDiagnostics`.
        readings: ``loss``, loss(μ̄_t), and what else the loss has to say along depth, (steps + 1,) each.
    """

    t: FloatArray
    W: FloatArray
    densities: list[FloatArray] = field(repr=False)
    diagnostics: DepthDiagnostics
    readings: dict[str, FloatArray]
    owned: int

    @property
    def energy(self) -> FloatArray:
        """Free energy along depth, (steps + 1,)."""
        return self.diagnostics.energy

    @property
    def mean(self) -> FloatArray:
        """∫x dμ̄ along depth, (steps + 1, d)."""
        return self.diagnostics.mean

    def density(self, n: int) -> FloatArray:
        """μ at depth t_n on the nodes this rank owns, (labels, owned nodes)."""
        return self.densities[n][:, : self.owned]


class Problem:
    """Everything that does not change with the control. Creating one is collective, and so is every method.

    Args:
        case: Resolved case; its finest mesh is used (continuation is the business of `solve`).
        comm: Communicator.

    Raises:
        CaseError: A file or a part of the user's own cannot be used, the expansion of the kernel is not accurate
            enough, or the mesh cannot carry the initial law.
    """

    def __init__(self, case: Case, comm: MPI.Comm = MPI.COMM_WORLD) -> None:
        started = time.perf_counter()
        if case.geometry.manifold == "hypersphere":
            raise CaseError(
                ["geometry.manifold: 'hypersphere' is for solver.particles; the PDE needs 'circle' or 'sphere'"]
            )
        self.case = case
        self.comm = comm
        # What can be wrong with the user's own parts and files is found before the mesh is built.
        self.loss = everywhere(comm, lambda: create_loss(case))
        self.features: FeatureMap = everywhere(comm, lambda: create_features(case))
        self.coupling: Coupling = everywhere(comm, lambda: create_coupling(case))
        self.expansion = create_expansion(case, comm, self.coupling.content)
        self.space = build_space(case, comm)
        self.t = _depth_grid(case)
        self.dt: FloatArray = np.diff(self.t)
        self.label_weights = self.coupling.weights
        self.epsilon = case.noise.epsilon
        self.attention = create_attention(self.space, self.expansion, self.coupling, case.attention.normalized)
        ends = self.space.x[self.space.edges]
        G = everywhere(comm, lambda: edge_integrals(self.features, ends[:, 0], ends[:, 1]))
        self.dynamics = Dynamics(
            self.space,
            self.attention,
            G,
            EdgeAveragedOperator(self.space, self.epsilon),
            create_solver(self.space, case.petsc, len(self.label_weights)),
        )
        self.scheme = SCHEMES[case.depth.scheme]
        self._statistics = everywhere(comm, lambda: _finite_statistics(self.loss, self.space.x))
        self.initial = initial_densities(self.space, case, self.coupling)
        self.counts = SweepCounts()
        self.setup_seconds = time.perf_counter() - started

    @property
    def control_shape(self) -> tuple[int, int, int]:
        """(steps, d, m)."""
        return len(self.dt), self.case.dimension, self.features.size

    def zero_control(self) -> FloatArray:
        """W = 0, of `control_shape`."""
        return np.zeros(self.control_shape)

    def steps(self, W: FloatArray | None, progress: Callable[[int], None] | None = None) -> list[Step]:
        """One forward sweep. Collective.

        Args:
            W: Control of `control_shape`; None is W = 0.
            progress: Called with the number of steps done.

        Raises:
            ValueError: W has another shape or is not finite.
            SweepError: A linear solve failed.
        """
        started = time.perf_counter()
        control = self._checked(W)
        taken = []
        for step in forward_sweep(self.dynamics, self.scheme, self.initial, self.t, control):
            taken.append(step)
            if progress is not None:
                progress(len(taken))
        self.counts.forward += 1
        self.counts.forward_seconds += time.perf_counter() - started
        return taken

    def forward(self, W: FloatArray | None = None) -> Trajectory:
        """Densities and diagnostics along depth under W (None: untrained). Collective."""
        steps = self.steps(W)
        return self.trajectory(steps, self._checked(W))

    def trajectory(self, steps: list[Step], W: FloatArray) -> Trajectory:
        """Diagnostics of a forward sweep. Collective."""
        densities = [self.initial, *(step.after for step in steps)]
        diagnostics = diagnose(self.space, self.attention, self.label_weights, self.epsilon, densities)
        rows = [self._readings(mu, mean) for mu, mean in zip(densities, diagnostics.mean, strict=True)]
        readings = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        return Trajectory(self.t, W, densities, diagnostics, readings, self.space.owned)

    def _readings(self, mu: FloatArray, mean: FloatArray) -> dict[str, float]:
        S = self.averages(mu)
        more = self.loss.readings(S, mean) if isinstance(self.loss, Reading) else {}
        return {"loss": float(self.loss.value(S)), **more}

    def gradient(self, W: FloatArray | None) -> tuple[float, FloatArray]:
        """J(W) and its L²(0,T) gradient (steps, d, m), by one forward and one adjoint sweep. Collective."""
        evaluation = self.evaluate(W)
        return evaluation.J, evaluation.gradient

    def evaluate(self, W: FloatArray | None) -> Evaluation:
        """J, its parts and its gradient. A pure function of W. Collective."""
        control = self._checked(W)
        steps = self.steps(control)
        gradient, _ = self.adjoint(steps, control)
        loss, regularization = self.objective(steps[-1].after, control)
        return Evaluation(loss + regularization, loss, regularization, gradient)

    def objective(self, final: FloatArray, W: FloatArray) -> tuple[float, float]:
        """loss(μ̄_T) and the regularisation of W. Collective.

        Raises:
            SweepError: One of them is not finite.
        """
        loss = self.terminal_loss(final)
        penalty = 0.5 * self.case.objective.regularization * self.squared_norm(W)
        if not np.isfinite(loss + penalty):
            raise SweepError(
                f"J is not finite: loss {loss:g}, regularization {penalty:g} (largest |W| {np.abs(W).max():g})"
            )
        return loss, penalty

    def terminal_loss(self, final: FloatArray) -> float:
        """loss(μ̄) of a density (labels, local nodes). Collective."""
        return float(self.loss.value(self.averages(final)))

    def adjoint(self, steps: list[Step], W: FloatArray, keep: bool = False) -> tuple[FloatArray, list[FloatArray]]:
        """Backward sweep through the steps of W. Collective.

        Args:
            steps: From `steps(W)`.
            W: The same control.
            keep: Whether to return the adjoint states.

        Returns:
            The L²(0,T) gradient (steps, d, m), the same on every rank; and φ at every depth, (labels, local nodes)
            each, ghosts valid, or an empty list. φ is paired with densities by Σ_ℓ ρ_ℓ ∫ φ_ℓ δμ_ℓ.
        """
        started = time.perf_counter()
        weights = self.label_weights[:, None] * self.space.mass
        variation = self.first_variation(steps[-1].after)
        phi = [variation] if keep else []
        W_bar = np.zeros(self.control_shape)
        for n, cotangents in backward_sweep(self.dynamics, self.scheme, steps, weights * variation):
            W_bar[n] = cotangents.W
            if keep:
                phi.append(cotangents.mu / weights)
                self.space.update_ghosts(phi[-1])
        total = allreduce(self.comm, W_bar)
        gradient = self.case.objective.regularization * W + total / self.dt[:, None, None]
        self.counts.adjoint += 1
        self.counts.adjoint_seconds += time.perf_counter() - started
        return gradient, phi[::-1]

    def first_variation(self, mu: FloatArray) -> FloatArray:
        """δloss/δμ̄ at the nodes, the same for every label, (labels, local nodes). Collective."""
        variation = self._statistics @ self.loss.derivative(self.averages(mu))
        return np.tile(variation, (len(self.label_weights), 1))

    def squared_norm(self, W: FloatArray) -> float:
        """‖W‖² = Σ_n Δt_n ‖W_n‖²_F, the L²(0,T) norm."""
        with np.errstate(over="ignore"):  # a control beyond 1e154 has norm infinity
            return float(self.dt @ (W**2).sum(axis=(1, 2)))

    def minimum_energy(self, untrained_final: FloatArray) -> float | None:
        """E_min: the energy of the stationary state in whose well the untrained tokens end up. Collective.

        Args:
            untrained_final: μ_T of the untrained flow, (labels, local nodes). At ε = 0 the minimum is the energy of a
                Dirac at the best vertex instead.

        Returns:
            None where the flow descends no energy (softmax attention) or no stationary state was found.
        """
        if not self.attention.has_energy:
            return None
        if self.epsilon == 0.0:
            return self._minimum_without_noise()
        state = stationary_state(self.space, self.attention, self.label_weights, self.epsilon, untrained_final)
        if state.creeping:
            LOG.info("the stationary state turns almost freely: energy.minimum to about %.0e of it", state.residual)
        elif not state.converged:
            LOG.warning("no stationary state found (residual %.1e): energy.minimum is left open", state.residual)
            return None
        return state.energy

    def _minimum_without_noise(self) -> float | None:
        if isinstance(self.attention, SeparableAttention):
            return -self.attention.dirac_interaction_energy()
        return None if self.maximisers is None else -self.maximisers.energy

    def conditional_laws(self, trajectory: Trajectory) -> ConditionalLaws | None:
        """The labels' densities along a trajectory; None where tokens carry none."""
        if not self.case.auxiliary.labelled:
            return None
        return ConditionalLaws(self.coupling, trajectory.diagnostics, self.maximisers)

    @cached_property
    def maximisers(self) -> Maximisers | None:
        """Of the interaction energy, for the labels and their weights; None where they are not known."""
        return create_maximisers(self.case, self.coupling.labels, self.label_weights)

    def solve(self) -> Result:
        """Train through all meshes of the case and diagnose the outcome: what ``solver.run`` does. Collective."""
        from solver.training import solve

        return solve(self)

    def averages(self, mu: FloatArray) -> FloatArray:
        """S = ∫ s dμ̄, the averages the loss is a function of, shape (k,). Collective."""
        return self.space.integrate((self.label_weights @ mu) * self._statistics.T)

    def _checked(self, W: FloatArray | None) -> FloatArray:
        if W is None:
            return self.zero_control()
        control = np.asarray(W, dtype=np.float64)
        if control.shape != self.control_shape:
            raise ValueError(f"the control has shape {control.shape}: (steps, d, m) = {self.control_shape} is needed")
        if not np.isfinite(control).all():
            raise ValueError("the control is not finite")
        return control


def _depth_grid(case: Case) -> FloatArray:
    depth = case.depth
    if depth.grid == "uniform":
        return uniform_grid(depth.T, depth.steps or 1)
    return graded_grid(depth.T, depth.first_step, depth.layer, depth.growth)


def _finite_statistics(loss: Loss, x: FloatArray) -> FloatArray:
    statistics = loss.statistics(x)
    if not np.isfinite(statistics).all():
        raise CaseError(
            [f"objective.loss: its statistics are not finite at {x[~np.isfinite(statistics).all(axis=1)][0]}"]
        )
    return statistics
