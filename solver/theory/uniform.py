"""Linear stability of the uniform law for isotropic attention, A = βI.

Harmonics of degree ℓ grow at ℓ(ℓ + d − 2)(Λ_ℓ − ε), Λ_ℓ by Funk and Hecke; the law is stable for ε > Λ₁ (compare Mun
and Rosenzweig, arXiv 2606.05140). For other A the uniform law is not stationary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from solver.attention.separable import SeparableAttention
from solver.theory.closed_forms import funk_hecke, growth_rate
from solver.theory.equilibrium import TheoryError
from solver.theory.linearization import Linearization
from solver.theory.spectrum import slow_modes

if TYPE_CHECKING:
    from solver.problem import Problem

__all__ = ["UniformStability", "uniform_stability"]

_DEGREES = 60  # looked at when the fastest growth is bounded
_MARGIN = 0.5


@dataclass(frozen=True)
class UniformStability:
    """Growth rates around the uniform law.

    Attributes:
        growth: By degree ℓ = 1, 2, …: the mesh's rate, the mean over the harmonics of that degree.
        spread: Largest distance of a harmonic's rate from that mean, by degree.
        closed_form: By degree, ℓ(ℓ + d − 2)(Λ_ℓ − ε).
        threshold: ε below which the mesh's uniform law is unstable.
        threshold_closed_form: max_ℓ Λ_ℓ = Λ₁.
    """

    growth: list[float]
    spread: list[float]
    closed_form: list[float]
    threshold: float
    threshold_closed_form: float


def uniform_stability(problem: Problem, degrees: int = 3) -> UniformStability:
    """Growth rates of the first degrees, by the same solver as the spectrum of −HΔ_ρ. Collective.

    Raises:
        TheoryError: A is not βI with β > 0.
    """
    A, d = np.array(problem.case.matrix), problem.case.dimension
    beta = float(A[0, 0])
    if beta <= 0.0 or np.abs(A - beta * np.eye(d)).max() > 1e-12 * beta:
        raise TheoryError("A is not βI with β > 0: the uniform law is not stationary")
    attention, epsilon, space = problem.attention, problem.epsilon, problem.space
    assert isinstance(attention, SeparableAttention)
    flow = Linearization(space, attention, np.zeros(len(space.x)), epsilon)
    predicted = np.array([growth_rate(beta, epsilon, degree, d) for degree in range(1, _DEGREES)])
    slowest = predicted[:degrees].min()
    sizes = np.array([_multiplicity(degree, d) for degree in range(1, _DEGREES)])
    count = int(sizes[predicted >= slowest - 0.1 * abs(slowest) - epsilon].sum()) + 4
    shift = max(1.1 * float(predicted.max()), 0.0) + _MARGIN * max(epsilon, abs(float(slowest)))
    modes = slow_modes(flow, count, shift, np.eye(d)[0])
    laplace = np.array([float(flow.dot(mode.z, mode.z) / flow.dot(mode.u, mode.z)) for mode in modes])
    found = np.round(0.5 * (2 - d) + np.sqrt(0.25 * (d - 2) ** 2 + laplace))  # ℓ from ℓ(ℓ + d − 2)
    growth, spread = [], []
    for degree in range(1, degrees + 1):
        rates = np.array([-mode.rate for mode, of in zip(modes, found, strict=True) if of == degree])
        if len(rates) != _multiplicity(degree, d):
            raise TheoryError(f"{len(rates)} modes of degree {degree} were found, not {_multiplicity(degree, d)}")
        growth.append(float(rates.mean()))
        spread.append(float(np.abs(rates - rates.mean()).max()))
    return UniformStability(
        growth=growth,
        spread=spread,
        closed_form=[float(rate) for rate in predicted[:degrees]],
        threshold=float(epsilon - flow.curvatures[0]),
        threshold_closed_form=funk_hecke(beta, 1, d),
    )


def _multiplicity(degree: int, dimension: int) -> int:
    """Number of harmonics of one degree on the circle or the sphere."""
    return 2 if dimension == 2 else 2 * degree + 1
