"""The right-hand side of the PDE: attention and FFN drifts, and the transport operator they drive.

m dμ/dt = −L(d(μ, W)) μ,     d_ij = (attention along the edge) + W : G_ij
"""

from __future__ import annotations

from dataclasses import dataclass

from solver.attention.protocol import Attention
from solver.label_solver import LabelParallelSolver
from solver.linear import ImplicitSolver
from solver.operator import EdgeAveragedOperator
from solver.space import Space
from solver.types import FloatArray

__all__ = ["Dynamics"]


@dataclass(frozen=True)
class Dynamics:
    """What a depth step needs.

    Attributes:
        space: P1 space.
        attention: The mean field.
        G: Edge integrals of t ⊗ σ, shape (d, m, edges).
        operator: Transport operator.
        solver: Solver of the implicit systems.
    """

    space: Space
    attention: Attention
    G: FloatArray
    operator: EdgeAveragedOperator
    solver: ImplicitSolver | LabelParallelSolver

    def drift(self, c: FloatArray, W: FloatArray) -> FloatArray:
        """d_ij of attention with moments c and FFN with weights W (d, m), shape (labels, edges)."""
        d, m, edges = self.G.shape
        return self.attention.drift(c) + W.reshape(-1) @ self.G.reshape(d * m, edges)

    def drift_vjp(self, c: FloatArray, d_bar: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sensitivities of μ (labels, local nodes) and of W (d, m) from that of the drift.

        The former is complete on owned nodes; the latter is this rank's share, to be summed over ranks. Collective.
        """
        d, m, edges = self.G.shape
        W_bar = self.G.reshape(d * m, edges) @ d_bar.sum(axis=0)
        return self.attention.moments_vjp(self.attention.drift_vjp(c, d_bar)), W_bar.reshape(d, m)
