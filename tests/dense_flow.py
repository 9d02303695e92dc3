"""The linearised flow as dense matrices, from a mesh's nodes and cells alone, for comparison with `solver.theory`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.problem import Problem
from solver.types import FloatArray

__all__ = ["DenseFlow"]


@dataclass(frozen=True)
class DenseFlow:
    """S and Q around a Gibbs state; on one rank, or of a problem on `MPI.COMM_SELF`.

    Attributes:
        q: √(mρ), (nodes,).
        S: Scaled conductances, (nodes, nodes).
        kernel: √(mρ) e^{⟨x,Ay⟩} √(mρ), (nodes, nodes).
        epsilon: ε.
    """

    q: FloatArray
    S: FloatArray
    kernel: FloatArray
    epsilon: float

    @classmethod
    def create(cls, problem: Problem, mu: FloatArray) -> DenseFlow:
        """Around the density μ (nodes,); log-densities are those of the potential of μ."""
        x, cells, epsilon = problem.space.x, problem.space.cells, problem.epsilon
        mass, w = _mass_and_conductances(x, cells)
        kernel = np.exp(x @ np.array(problem.case.matrix) @ x.T)
        log_rho = kernel @ (mass * mu) / epsilon
        log_rho -= log_rho.max()
        log_rho -= np.log(mass @ np.exp(log_rho))
        half = 0.5 * (log_rho[None, :] - log_rho[:, None])
        ratio = np.divide(half, np.sinh(np.clip(half, -700, 700)), out=np.ones_like(half), where=half != 0.0)
        S = -w * ratio / np.sqrt(np.outer(mass, mass))
        # what leaves node i: w β(−d)/ε of the potential's difference, over its mass
        leaving = np.where(half == 0.0, 1.0, 2 * half / -np.expm1(-2 * np.where(half == 0.0, 1.0, half)))
        np.fill_diagonal(S, (w * leaving).sum(axis=1) / mass)
        q = np.sqrt(mass) * np.exp(0.5 * log_rho)
        return cls(q, S, q[:, None] * kernel * q, epsilon)

    @property
    def Q(self) -> FloatArray:
        """H in symmetrised variables, on the complement of q; it maps q to zero."""
        P = np.eye(len(self.q)) - np.outer(self.q, self.q)
        Q: FloatArray = P @ (self.epsilon * np.eye(len(self.q)) - self.kernel) @ P
        return Q

    def rates(self, response: float = 1.0) -> FloatArray:
        """All rates of −HΔ_ρ but that of mass, ascending, (nodes − 1,); response 0 freezes the potential."""
        values, vectors = np.linalg.eigh(self.S)
        root = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, 1:]  # the first is q
        variation = self.epsilon * np.eye(len(self.q)) - response * self.kernel
        return np.linalg.eigvalsh(root.T @ variation @ root)


def _mass_and_conductances(x: FloatArray, cells: np.ndarray) -> tuple[FloatArray, FloatArray]:
    """Lumped masses, and half the cotangents opposite every edge (circle: 1/length), (nodes, nodes)."""
    nodes = len(x)
    mass, w = np.zeros(nodes), np.zeros((nodes, nodes))
    for cell in cells:
        if len(cell) == 2:
            size = np.linalg.norm(x[cell[1]] - x[cell[0]])
            w[cell[0], cell[1]] += 1 / size
            w[cell[1], cell[0]] += 1 / size
        else:
            size = 0.5 * np.linalg.norm(np.cross(x[cell[1]] - x[cell[0]], x[cell[2]] - x[cell[0]]))
            for a in range(3):
                b, c = cell[(a + 1) % 3], cell[(a + 2) % 3]
                cotangent = (x[b] - x[cell[a]]) @ (x[c] - x[cell[a]]) / (2 * size)
                w[b, c] += 0.5 * cotangent
                w[c, b] += 0.5 * cotangent
        mass[cell] += size / len(cell)
    return mass, w
