"""Softmax attention, V = log ∫ h dμ̄."""

from __future__ import annotations

from collections.abc import Callable

from mpi4py import MPI

import numpy as np
import pytest

from solver.attention.create import create_expansion
from solver.attention.softmax import SoftmaxAttention
from solver.case import Case, CaseError
from solver.parallel import allreduce
from solver.problem import Problem

MakeCase = Callable[..., Case]
MakeProblem = Callable[..., Problem]
NORMALIZED = {"attention.normalized": True}


@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_potential_is_the_logarithm_of_the_mean_field(manifold: str, make_problem: MakeProblem) -> None:
    """Catches a missing logarithm, a mass left out, and an expansion too coarse for it: against the double sum."""
    problem = make_problem(manifold, {**NORMALIZED, "geometry.h": 0.2 if manifold == "sphere" else 0.1})
    space, attention = problem.space, problem.attention
    # Nearly a Dirac at −e₁: there Z falls to e^{−λ₁} at e₁, where errors of the expansion weigh most.
    mu = np.exp(20.0 * (-space.x[:, 0] - 1))[None]
    mu = mu / space.integrate(mu)[:, None]
    points = np.concatenate(space.comm.allgather(space.x[: space.owned]))
    weights = np.concatenate(space.comm.allgather((space.mass * mu[0])[: space.owned]))
    Z = np.exp(space.x @ np.array(problem.case.matrix) @ points.T) @ weights
    V = attention.potential(attention.moments(mu))
    assert V.shape == mu.shape
    assert np.abs(V[0] - np.log(Z)).max(initial=0.0) <= 2 * problem.case.attention.tolerance


@pytest.mark.ranks
@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_transposes(manifold: str, make_problem: MakeProblem) -> None:
    """Catches a transpose without the 1/Z, or with Z(x) of the wrong point: ⟨d̄, ∂d/∂μ δμ⟩ = ⟨μ̄, δμ⟩, by differences."""
    problem = make_problem(manifold, NORMALIZED)
    space, attention = problem.space, problem.attention
    mu = problem.initial
    delta = mu * np.sin(3 * space.x[:, 0] + 1)
    i, j = space.edges.T
    d_bar = np.cos(2 * space.x[i, 1] + space.x[j, 0])[None]
    c = attention.moments(mu)
    mu_bar = attention.moments_vjp(attention.drift_vjp(c, d_bar))
    exact = float(allreduce(space.comm, (mu_bar * delta)[:, : space.owned].sum()))

    def value(s: float) -> float:
        drift = attention.drift(attention.moments(mu + s * delta))
        return float(allreduce(space.comm, (d_bar * drift).sum()))

    s = 1e-3
    difference = (value(-2 * s) - 8 * value(-s) + 8 * value(s) - value(2 * s)) / (12 * s)
    assert abs(exact) > 1e-3
    assert difference == pytest.approx(exact, rel=1e-8)


def test_no_energy_is_claimed(make_problem: MakeProblem) -> None:
    """Catches E_min, phases or an energy reported for a flow that descends none."""
    problem = make_problem("circle", {**NORMALIZED, "depth.T": 1.0, "noise.epsilon": 0.1})
    result = problem.solve()
    assert isinstance(problem.attention, SoftmaxAttention)
    assert np.isnan(result.trajectory.energy).all()
    assert set(result.summary["energy"].values()) == {None}
    assert result.summary["invariants"]["energy_increase"] is None
    phases = result.summary["phases"]
    assert {phases[key] for key in ("clustered", "plateau", "escaped", "plateau_width", "displacement")} == {None}
    assert result.summary["optimizer"]["converged"] is True


def test_constant_kernel_has_no_drift(make_problem: MakeProblem) -> None:
    """Catches a division by something else than Z: with A = 0, log Z = log 1 = 0 for any density."""
    problem = make_problem("circle", {**NORMALIZED, "attention.eigenvalues": [0.0, 0.0]})
    V = problem.attention.potential(problem.attention.moments(problem.initial))
    assert np.abs(V).max(initial=0.0) <= 1e-13


REFUSED = [
    ({"attention.eigenvalues": [4.0, 2.0]}, r"attention\.tolerance: 1e-10 is not reached .*3\.0e-10 at best"),
    (
        {"attention.eigenvalues": [20.0, 2.0], "attention.tolerance": 1e-2},
        r"attention\.normalized: .*smaller eigenvalues",
    ),
]


@pytest.mark.serial
@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_expansion_too_coarse_for_the_logarithm_is_refused(
    settings: dict[str, object], message: str, make_case: MakeCase, comm: MPI.Comm
) -> None:
    """Catches log Z of noise: where Z is smallest, e^{−λ₁}, the expansion's error must still be small against it."""
    with pytest.raises(CaseError, match=message):
        create_expansion(make_case("circle", {**NORMALIZED, **settings}), comm)


@pytest.mark.serial
def test_looser_tolerance_reaches_larger_eigenvalues(make_case: MakeCase, comm: MPI.Comm) -> None:
    """Catches a refusal of what can be had: λ₁ = 4 at a tolerance of 1e-8, relative to the smallest value."""
    case = make_case("circle", {**NORMALIZED, "attention.eigenvalues": [4.0, 2.0], "attention.tolerance": 1e-8})
    expansion = create_expansion(case, comm)
    angle = np.linspace(0, 2 * np.pi, 181)
    x = np.column_stack([np.cos(angle), np.sin(angle)])
    series = (expansion.features(x) * expansion.signs) @ expansion.features(x).T
    exact = expansion.kernel(x, x)
    assert np.abs(series / exact - 1).max() <= 1e-8
    assert expansion.error <= 1e-8
