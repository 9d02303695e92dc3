"""Exact maximisers of the interaction energy ½∬h dμdμ with labels, A and ε = 0 in hand (P2; docs/auxiliary.md).

For h = b(ξ, ζ) e^{⟨Q_ξ x, A Q_ζ y⟩} with b ≥ 0 every value of the exponential is at most e^{λ₁}, so the maximum is
½ e^{λ₁} ∬b, reached where Q_ξ x = v for all tokens that b connects, v a unit vector of A's first eigenspace.

For b = cos ω(ξ − ζ) and ⟨x, y⟩ the energy is ½ |Σ ρ_ξ a_ξ x_ξᵀ|²_F, a_ξ = (cos ωξ, sin ωξ); with |Z|_F the largest
⟨M, Z⟩, |M|_F = 1, the maximum over x is ½ max_G (Σ ρ_ξ (a_ξᵀ G a_ξ)^½)² over G = M Mᵀ ≥ 0 of trace 1: concave.
Labels uniform on a whole period: G = ½, and the maximum is ¼. All maximisers are x_ξ = V b_ξ, b_ξ the direction of
G^½ a_ξ and V any isometry of the plane into R^d; save where all a_ξ lie on two perpendicular lines (a grid of 4), which
do not interact: then x_ξ = ±y on either line, any two y, and the maximum is ½(s² + (1 − s)²), s the share of one line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.optimize import NonlinearConstraint, minimize
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from solver.attention.kernels import ExponentialKernel, create_kernel
from solver.auxiliary.coupling import expand_bias
from solver.auxiliary.kernels import LabelKernel, create_label_kernel
from solver.case.load import CaseError
from solver.case.schema import Case
from solver.types import FloatArray

__all__ = ["FramedMaximisers", "Maximisers", "PlaneMaximisers", "angles_between", "create_maximisers"]

_EQUAL = 1e-9  # eigenvalues closer than this, relative to λ₁, count as equal
_CONNECTED = 1e-12  # a bias above this, relative to the largest, connects labels
_ALL_PAIRS = 5_000  # different labels whose bias is looked at pair by pair
_SAMPLED = 1_000  # of more labels, looked at for b < 0
_BLOCK = 500


class Maximisers(Protocol):
    """The set of states of largest interaction energy for given labels of the tokens."""

    @property
    def energy(self) -> float:
        """Theirs."""

    @property
    def exact(self) -> bool:
        """Whether no state has more; False: states of that energy are known, others may have more."""

    @property
    def symmetry(self) -> str:
        """The group that maps the set onto itself, in words."""

    def nearest(self, x: FloatArray) -> FloatArray:
        """The member of the set that is nearest to the tokens x (N, d) in mean square distance, (N, d)."""


@dataclass(frozen=True)
class FramedMaximisers:
    """x*(ξ) = Q_ξᵀ v, v in the first eigenspace of A, one for each component of labels that b connects.

    Attributes:
        energy: ½ e^{λ₁} ∬b.
        exact: Yes.
        symmetry: In words.
        frames: Q of every token, (N, d, d); None: Q = 1.
        components: Number of the component of every token, (N,).
        weights: Of the tokens, of sum 1, (N,).
        eigenspace: Orthonormal columns, (d, k).
    """

    energy: float
    symmetry: str
    frames: FloatArray | None
    components: FloatArray
    weights: FloatArray
    eigenspace: FloatArray
    exact: bool = True

    def nearest(self, x: FloatArray) -> FloatArray:
        """See `Maximisers`."""
        u = x if self.frames is None else np.einsum("nij,nj->ni", self.frames, x)
        for number in range(int(self.components.max()) + 1):
            mine = self.components == number
            u = np.where(mine[:, None], self._direction(self.weights[mine] @ u[mine]), u)
        return u if self.frames is None else np.einsum("nji,nj->ni", self.frames, u)

    def _direction(self, total: FloatArray) -> FloatArray:
        """The unit vector of the eigenspace nearest to a weighted sum."""
        inside = self.eigenspace.T @ total
        norm = float(np.linalg.norm(inside))
        direction: FloatArray = self.eigenspace @ inside / norm if norm > 0.0 else self.eigenspace[:, 0]
        return direction


@dataclass(frozen=True)
class PlaneMaximisers:
    """x*(ξ) = V b_ξ, V any isometry of the plane into R^d.

    Attributes:
        energy: Theirs.
        exact: Whether it is the maximum.
        symmetry: In words.
        plane: b of every token, unit vectors (N, 2).
        weights: Of the tokens, of sum 1, (N,).
    """

    energy: float
    symmetry: str
    plane: FloatArray
    weights: FloatArray
    exact: bool

    def nearest(self, x: FloatArray) -> FloatArray:
        """See `Maximisers`: V is the polar factor of Σ ρ_i x_i b_iᵀ."""
        left, _, right = np.linalg.svd((self.weights * x.T) @ self.plane, full_matrices=False)
        V = left @ right
        nearest: FloatArray = self.plane @ V.T
        return nearest


def angles_between(x: FloatArray, y: FloatArray) -> FloatArray:
    """Angles between unit vectors (..., d), (...,), rad; from the chord, which keeps small ones exact."""
    angles: FloatArray = 2.0 * np.arcsin(np.minimum(0.5 * np.linalg.norm(x - y, axis=-1), 1.0))
    return angles


def create_maximisers(case: Case, labels: FloatArray, weights: FloatArray | None = None) -> Maximisers | None:
    """The maximisers of a case for tokens of these labels (N,); None where they are not known.

    `weights` (N,), of sum 1, are those of the tokens, or of the densities of the labels; None is equal ones.

    They are known for e^{⟨x,Ay⟩} with frames and a bias b ≥ 0, and for cos ω(ξ − ζ) ⟨x, y⟩; for
    cos ω(ξ − ζ) e^{β⟨x,y⟩} the great circle is reported, which P2 gives as a lower bound.

    Raises:
        CaseError: A part of the user's fails.
    """
    content, kernel = create_kernel(case), create_label_kernel(case)
    if weights is None:
        weights = np.full(len(labels), 1.0 / len(labels))
    if case.auxiliary.kernel == "toeplitz" and case.auxiliary.form == "linear":
        return _of_linear_toeplitz(case, labels, weights)
    if not isinstance(content, ExponentialKernel) or not content.matrix.any():
        return None
    if case.auxiliary.kernel == "toeplitz":
        return _of_exponential_toeplitz(case, content, labels, weights)
    spread = _pairs(kernel, labels, weights, case.attention.tolerance)
    if spread is None:
        return None
    mean_bias, components = spread
    values, vectors = np.linalg.eigh(content.matrix)
    first = values > values[-1] * (1.0 - _EQUAL)
    count, k = int(components.max()) + 1, int(first.sum())
    what = "±v₁" if k == 1 else f"any v of the unit sphere in {k} dimensions"
    return FramedMaximisers(
        energy=0.5 * float(np.exp(values[-1])) * mean_bias,
        symmetry=what if count == 1 else f"{what}, for each of {count} groups of labels",
        frames=None if kernel.frames is None else kernel.frames(labels),
        components=components,
        weights=weights,
        eigenspace=vectors[:, first],
    )


def _pairs(
    kernel: LabelKernel, labels: FloatArray, weights: FloatArray, tolerance: float
) -> tuple[float, FloatArray] | None:
    """Mean of b over all pairs of tokens, and the component of every token that b connects; None if b < 0 somewhere."""
    if kernel.bias is None:
        return 1.0, np.zeros(len(labels), dtype=np.int64)
    different, number = np.unique(labels, return_inverse=True)
    if len(different) > _ALL_PAIRS:  # neighbours decide what is connected: right for a bias that falls with distance
        sample = different[:: -(-len(different) // _SAMPLED)]
        b = _along(kernel.bias, different, np.roll(different, -1))
        if min(b.min(), kernel.bias(sample, sample).min()) < 0.0:
            return None
        places = np.arange(len(different))
        linked = coo_array((b > _CONNECTED * b.max(), (places, np.roll(places, -1))), shape=(len(b), len(b)))
        mean = _mean_of_many(kernel.bias, labels, weights, tolerance)
        return mean, connected_components(linked, directed=False)[1][number]
    b = kernel.bias(different, different)
    if b.min() < 0.0:
        return None
    shares = np.bincount(number, weights)
    return float(shares @ b @ shares), connected_components(b > _CONNECTED * b.max(), directed=False)[1][number]


def _mean_of_many(
    bias: Callable[[FloatArray, FloatArray], FloatArray], labels: FloatArray, weights: FloatArray, tolerance: float
) -> float:
    """Mean of b over all pairs of tokens; pair by pair, by blocks, where its expansion is not accurate enough."""
    try:
        expanded = expand_bias(bias, labels, tolerance)
    except CaseError:
        blocks = [slice(k, k + _BLOCK) for k in range(0, len(labels), _BLOCK)]
        return float(np.sum([weights[block] @ bias(labels[block], labels) @ weights for block in blocks]))
    return float((expanded.signs * (weights @ expanded.factors) ** 2).sum())


def _along(bias: Callable[[FloatArray, FloatArray], FloatArray], labels: FloatArray, others: FloatArray) -> FloatArray:
    """b(labels_k, others_k), (n,), by blocks."""
    blocks = [slice(k, k + _BLOCK) for k in range(0, len(labels), _BLOCK)]
    return np.concatenate([np.diagonal(bias(labels[block], others[block])) for block in blocks])


def _on_circle(case: Case, labels: FloatArray) -> tuple[FloatArray, str]:
    """a_ξ = (cos ωξ, sin ωξ), (N, 2), and the symmetry of x_ξ = V b_ξ in words."""
    frequency = 2.0 * np.pi if case.auxiliary.frequency is None else case.auxiliary.frequency
    a = np.column_stack([np.cos(frequency * labels), np.sin(frequency * labels)])
    return a, f"O({case.dimension}): a plane, and a rotation or reflection in it"


def _of_linear_toeplitz(case: Case, labels: FloatArray, weights: FloatArray) -> Maximisers:
    a, symmetry = _on_circle(case, labels)
    lines = _perpendicular_lines(a)
    if lines is not None:
        return _of_lines(*lines, weights, case.dimension)
    stretched = a @ _best_root(a, weights)
    sizes = np.linalg.norm(stretched, axis=1)
    plane = np.where(sizes[:, None] > 0.0, stretched / np.maximum(sizes, 1e-300)[:, None], np.eye(2)[0])
    return PlaneMaximisers(0.5 * float(weights @ sizes) ** 2, symmetry, plane, weights, exact=True)


def _of_exponential_toeplitz(
    case: Case, content: ExponentialKernel, labels: FloatArray, weights: FloatArray
) -> Maximisers | None:
    (a, symmetry), d = _on_circle(case, labels), case.dimension
    beta = float(content.matrix[0, 0])
    if np.abs(content.matrix - beta * np.eye(d)).max() > _EQUAL * beta:
        return None
    energy = 0.5 * _pair_mean(lambda cosines: cosines * np.exp(beta * cosines), a, weights)
    return PlaneMaximisers(energy, symmetry, a, weights, exact=False)


def _perpendicular_lines(a: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """Which of two perpendicular lines each unit vector a (N, 2) lies on, 0 or 1, and its sign there; None: not all do.

    The first line is that of the first vector.
    """
    along, across = a @ a[0], a @ np.array([-a[0, 1], a[0, 0]])
    if np.abs(along * across).max() > _EQUAL:
        return None
    second = np.abs(across) > np.abs(along)
    return second.astype(np.int64), np.sign(np.where(second, across, along))


def _of_lines(lines: FloatArray, signs: FloatArray, weights: FloatArray, d: int) -> FramedMaximisers:
    """x_ξ = ±y, one y for each of the lines."""
    share = float(weights @ lines)
    what = f"any v of the unit sphere in {d} dimensions"
    return FramedMaximisers(
        energy=0.5 * (share**2 + (1.0 - share) ** 2),
        symmetry=f"{what}, for each of 2 groups of labels" if share > 0.0 else what,
        frames=signs[:, None, None] * np.eye(d),
        components=lines,
        weights=weights,
        eigenspace=np.eye(d),
    )


def _pair_mean(function: Callable[[FloatArray], FloatArray], a: FloatArray, weights: FloatArray) -> float:
    """Mean over all pairs of f(⟨a_i, a_j⟩), from at most 5000 of the a (N, 2), spread evenly over their order."""
    spread = slice(None, None, -(-len(a) // _ALL_PAIRS))
    some, shares = a[spread], weights[spread] / weights[spread].sum()
    blocks = [slice(k, k + _BLOCK) for k in range(0, len(some), _BLOCK)]
    return float(np.sum([shares[block] @ function(some[block] @ some.T) @ shares for block in blocks]))


def _best_root(a: FloatArray, weights: FloatArray) -> FloatArray:
    """G^½ of the G ≥ 0 of trace 1 that maximises Σ ρ (aᵀ G a)^½, (2, 2), for unit vectors a (N, 2).

    G = ½ (1 + [[p, q], [q, −p]]), p² + q² ≤ 1.
    """
    doubled = np.column_stack([a[:, 0] ** 2 - a[:, 1] ** 2, 2.0 * a[:, 0] * a[:, 1]])  # of twice the angle

    def value(pq: FloatArray) -> float:
        return -float(np.sqrt(np.maximum(0.5 + 0.5 * doubled @ pq, 0.0)) @ weights)

    def slope(pq: FloatArray) -> FloatArray:
        roots = np.sqrt(np.maximum(0.5 + 0.5 * doubled @ pq, 1e-24))
        result: FloatArray = -0.25 * ((weights / roots) @ doubled)
        return result

    best = np.zeros(2)
    if np.linalg.norm(slope(best)) > 1e-13:
        disk = NonlinearConstraint(lambda pq: pq @ pq, -np.inf, 1.0, jac=lambda pq: 2.0 * pq)
        found = minimize(
            value, best, jac=slope, constraints=[disk], method="SLSQP", options={"ftol": 1e-15, "maxiter": 500}
        )
        direction = weights @ doubled
        edge = direction / np.linalg.norm(direction)  # all in one line: exact where the labels allow it
        inside = found.x / max(1.0, float(np.linalg.norm(found.x)))
        best = min((inside, edge), key=value)
    p, q = best
    values, vectors = np.linalg.eigh(0.5 * (np.eye(2) + np.array([[p, q], [q, -p]])))
    root: FloatArray = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return root
