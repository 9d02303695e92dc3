"""The untrained flow around a stationary density ρ: ∂_t f = −HΔ_ρ f, discretised by the scheme's own conductances.

Δ_ρ f = div(ρ∇f) and H h = ε h/ρ − ∫ k(x, y) h(y) dy, the second variation of E, on mean-zero h. With the conductances
c_ij = w_ij β(−d_ij) ρ_i/ε of the scheme (symmetric at a Gibbs state) the flow linearised is M δμ′ = −B H δμ, where
(B f)_i = Σ_j c_ij (f_i − f_j). In the symmetrised variables z = δμ √(m/ρ) and u = √(mρ) f, f = H δμ,

    z′ = −S Q z,   S_ij = −w_ij γ(s_ij)/√(m_i m_j),   γ(s) = (s/2)/sinh(s/2),   s_ij = log ρ_j − log ρ_i,
    Q = ε − Φ s Φᵀ,   Φ = √(mρ) Ψ,

S sparse, Φ of low rank: never nodes × nodes. Entries are ratios of densities at neighbours, so that no region
underflows. Everything lives on the complement of q = √(mρ), the direction of mass; below Φ is projected onto it.
Softmax attention has Q = ε − Φ_Z s Φᵀ, Φ_Z = √(mρ) Ψ/Z: not symmetric.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from mpi4py import MPI
from petsc4py import PETSc

import numpy as np

from solver.attention.separable import SeparableAttention
from solver.linear import edge_matrix, set_edge_values
from solver.operator import bernoulli
from solver.parallel import allreduce
from solver.space import Space
from solver.types import FloatArray

__all__ = ["Linearization"]


class Linearization:
    """−HΔ_ρ around one density, in symmetrised variables. Vectors are this rank's owned part. Creating is collective.

    Args:
        space: P1 space.
        attention: The attention whose potential follows the perturbation; None freezes the potential, which gives the
            rates of a single token in the field of the others.
        log_density: log ρ up to a constant, (local nodes,), ghosts valid. ρ is normalised to mass one.
        epsilon: ε > 0.
    """

    def __init__(
        self, space: Space, attention: SeparableAttention | None, log_density: FloatArray, epsilon: float
    ) -> None:
        self.space, self.epsilon = space, epsilon
        owned = slice(0, space.owned)
        self._mass = space.mass
        log_q2 = log_density + np.log(space.mass)
        highest = float(allreduce(space.comm, log_q2[owned].max(initial=-np.inf), MPI.MAX))
        total = float(allreduce(space.comm, float(np.exp(log_q2[owned] - highest).sum())))
        self.log_density: FloatArray = log_density - highest - np.log(total)
        self.q: FloatArray = np.exp(0.5 * (self.log_density[owned] + np.log(space.mass[owned])))
        self.symmetric = attention is None or attention.has_energy
        if attention is None:
            self.phi, self.signs = np.empty((space.owned, 0)), np.empty(0)
            self.weighted_phi = self.phi
        else:
            self.phi = self.project(self.q[:, None] * attention.psi[owned])
            self.signs = attention.signs
            self.weighted_phi = self.phi
            if not self.symmetric:
                weight = attention.variation_weight(attention.moments(np.exp(self.log_density)[None]))
                self.weighted_phi = self.project((weight[owned] * self.q)[:, None] * attention.psi[owned])

    def dot(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """aᵀb over all ranks. Collective."""
        return allreduce(self.space.comm, a.T @ b)

    def project(self, v: FloatArray) -> FloatArray:
        """v − q qᵀv, for v of shape (owned nodes, ...). Collective."""
        result: FloatArray = v - np.multiply.outer(self.q, self.dot(self.q, v))
        return result

    @cached_property
    def gram(self) -> FloatArray:
        """ΦᵀΦ, the covariance of ψ under ρ, (rank, rank). First use is collective."""
        return self.dot(self.phi, self.phi)

    @cached_property
    def curvatures(self) -> FloatArray:
        """Eigenvalues of Q below ε, ascending (rank,): negative ones are directions in which E falls. Collective.

        Only where there is an energy: elsewhere Q is not symmetric.
        """
        values, vectors = np.linalg.eigh(self.gram)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return np.sort(self.epsilon - np.linalg.eigvalsh((root.T * self.signs) @ root))

    def index(self, tolerance: float = 1e-9) -> int:
        """Number of independent directions in which E falls: 0 at a minimum. As many modes grow. Collective."""
        return int(np.count_nonzero(self.curvatures < -tolerance))

    def solve_variation(self, r: FloatArray) -> FloatArray:
        """Q⁻¹ r on the complement of q. Collective.

        Q⁻¹ = (1 + Φ (ε s − ΦᵀΦ)⁻¹ Φᵀ)/ε; symmetric Q only.
        """
        r = self.project(r)
        inner = np.diag(self.epsilon * self.signs) - self.gram
        correction = self.phi @ np.linalg.solve(inner, self.dot(self.phi, r)) if len(self.signs) else 0.0
        result: FloatArray = (r + correction) / self.epsilon
        return result

    def apply_variation(self, z: FloatArray) -> FloatArray:
        """Q z on the complement of q. Collective."""
        z = self.project(z)
        result: FloatArray = self.epsilon * z - self.weighted_phi @ (self.signs * self.dot(self.phi, z))
        return result

    def dirichlet(self, f: FloatArray) -> float:
        """‖∇f‖²_{L²(ρ)} = Σ_edges c_ij (f_i − f_j)² of f (local nodes,), ghosts valid. Collective."""
        i, j = self.space.edges.T
        forward, backward = bernoulli(self.log_density[j] - self.log_density[i], 1.0)
        middle = np.exp(0.5 * (self.log_density[i] + self.log_density[j]))
        c = self.space.w * np.sqrt(forward * backward) * middle
        return float(allreduce(self.space.comm, float(c @ (f[i] - f[j]) ** 2)))

    def diffuse(self, u: FloatArray) -> FloatArray:
        """S u. Collective."""
        x, y = self._vectors
        x.array[:] = u
        self._S.mult(x, y)
        return np.array(y.array_r)

    def conductance_diagonal(self) -> FloatArray:
        """The diagonal of S, (owned nodes,). Collective."""
        _, y = self._vectors
        self._S.getDiagonal(y)
        return np.array(y.array_r)

    @cached_property
    def _S(self) -> Any:
        return self.conductance_matrix(1.0, np.zeros(self.space.owned))

    @cached_property
    def _vectors(self) -> Any:
        return self._S.createVecs()

    def conductance_matrix(self, factor: float, diagonal: FloatArray) -> Any:
        """factor·S + diag(diagonal), a new symmetric PETSc matrix. Collective."""
        space = self.space
        i, j = space.edges.T
        forward, backward = bernoulli(self.log_density[j] - self.log_density[i], 1.0)
        w = factor * space.w
        off = -w * np.sqrt(forward * backward / (self._mass[i] * self._mass[j]))
        A = edge_matrix(space)
        set_edge_values(A, w * forward / self._mass[i], w * backward / self._mass[j], off, off, diagonal)
        A.setOption(PETSc.Mat.Option.SYMMETRIC, True)
        return A
