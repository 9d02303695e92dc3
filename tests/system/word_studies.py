"""Studies of the loss `bag_of_words`: what training reaches, and what no law of tokens could beat."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from system.studies import make_case

from solver.losses.bag_of_words import PooledBagOfWords, TokenBagOfWords
from solver.problem import Problem
from solver.types import FloatArray

_POINTS = 1440


@dataclass(frozen=True)
class Trained:
    """A trained case, with what bounds its loss.

    Attributes:
        untrained: loss(μ̄_T) at W = 0.
        loss: After training.
        J: Its objective.
        attainable: The smallest loss of any law of tokens on the circle.
        entropy: −Σ q log q.
        coverage: Words with half their share, untrained and trained.
        divergence: Angular divergence Δθ, trained.
        dispersion: Root mean square angle to the mean, trained.
        displacement: Angle at T minus the plateau's.
        rate: Growth of the control (None where no window is left).
        converged: Whether the tolerance was met.
    """

    untrained: float
    loss: float
    J: float
    attainable: float
    entropy: float
    coverage: tuple[int, int]
    divergence: float
    dispersion: float
    displacement: float | None
    rate: float | None
    converged: bool


def attainable(loss: TokenBagOfWords | PooledBagOfWords) -> float:
    """The smallest loss over all laws on the circle, a convex problem.

    Token read-out: maximum-likelihood weights of a mixture, by expectation–maximisation on a fine ring. Pooled: over
    all means in the disc.
    """
    if isinstance(loss, PooledBagOfWords):
        disc = {"type": "ineq", "fun": lambda m: 1.0 - m @ m, "jac": lambda m: -2.0 * m}
        found = minimize(loss.value, np.zeros(2), jac=loss.derivative, constraints=disc, method="SLSQP", tol=1e-14)
        return float(found.fun)
    theta = 2 * np.pi * np.arange(_POINTS) / _POINTS
    s = loss.statistics(np.column_stack([np.cos(theta), np.sin(theta)]))
    weights: FloatArray = np.full(_POINTS, 1.0 / _POINTS)
    for _ in range(3000):
        weights = weights * (s @ (loss.histogram / (weights @ s)))
    return loss.value(weights @ s)


def train(
    readout: str,
    kappa: float,
    temperature: float,
    seed: int,
    regularization: float = 0.01,
    T: float = 20.0,
    h: float = 0.04,
    iterations: int = 200,
) -> Trained:
    """Circle, ε = 0.01, λ = (1, 0.65), start at 0.6 rad; 8 candidates about e₁, uniform histogram."""
    words: dict[str, object] = {
        "loss": "bag_of_words",
        "readout": readout,
        "kappa": kappa,
        "temperature": temperature,
        "seed": seed,
    }
    words["regularization"] = regularization
    graded = {"depth__grid": "graded", "depth__layer": 4.0, "depth__first_step": 0.1, "depth__steps": None}
    limit = {"optimizer__max_iterations": iterations}
    case = make_case(
        "circle", h, 0.01, T, 1, **{f"objective__{key}": value for key, value in words.items()}, **graded, **limit
    )
    problem = Problem(case)
    loss = problem.loss
    assert isinstance(loss, TokenBagOfWords | PooledBagOfWords)
    before = problem.forward(None)
    result = problem.solve()
    objective, phases = result.summary["objective"], result.summary["phases"]
    return Trained(
        untrained=objective["untrained_loss"],
        loss=objective["loss"],
        J=objective["J"],
        attainable=attainable(loss),
        entropy=float(-(loss.histogram * np.log(loss.histogram)).sum()),
        coverage=(round(before.readings["coverage"][-1]), round(objective["coverage"])),
        divergence=objective["angular_divergence"],
        dispersion=float(result.trajectory.diagnostics.dispersion[-1]),
        displacement=phases["displacement"],
        rate=phases["terminal_rate"],
        converged=bool(result.summary["optimizer"]["converged"]),
    )


# P1's public summary (arXiv 2605.07772): terminal angular divergence, fitted rate, R_ρ.
REPORTED = {2.0: ("0.763 ± 0.343", "2.10", "2.15"), 10.0: ("0.169 ± 0.006", "0.35", "0.38")}


def rows(draws: int = 4) -> Iterator[list[str]]:
    """Mean ± standard deviation over draws of the candidates, P1's depth T = 80."""
    for readout, kappa, temperature in itertools.product(("token", "pooled"), REPORTED, (1.0, 0.3)):
        found = [train(readout, kappa, temperature, seed, T=80.0, iterations=100) for seed in range(draws)]
        reported, rate, _ = REPORTED[kappa]
        yield [
            readout,
            f"{kappa:g}",
            f"{temperature:g}",
            _spread([run.untrained for run in found]),
            _spread([run.loss for run in found]),
            _spread([run.attainable for run in found]),
            _spread([run.coverage[1] for run in found], 1),
            _spread([run.divergence for run in found]),
            _spread([run.dispersion for run in found]),
            _spread([abs(run.displacement) for run in found if run.displacement is not None]),
            _spread([run.rate for run in found if run.rate is not None], 2),
            f"{sum(run.converged for run in found)}/{draws}",
            reported,
            rate,
        ]


def _spread(values: Sequence[float], digits: int = 3) -> str:
    return f"{np.mean(values):.{digits}f} ± {np.std(values):.{digits}f}" if values else "–"
