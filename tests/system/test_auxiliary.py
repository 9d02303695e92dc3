"""P2's statements with tokens: exact maxima are reached, laws are realised, clusters live as long as theory says."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from mpi4py import MPI

import numpy as np
import pytest
from scipy.special import iv

from solver.auxiliary.maps import create_map
from solver.case import Case, load_case
from solver.particles.ensemble import Ensemble, solve_ensemble
from solver.particles.metastability import lifetime_integral, lifetime_slope, token_lifetime

pytestmark = pytest.mark.serial

MakeCase = Callable[..., Case]
UNTRAINED = {
    "attention.eigenvalues": [1.0, 1.0, 1.0],
    "noise.epsilon": 0.0,
    "initial.law": "uniform",
    "optimizer.method": "none",
    "particles.n": 24,
    "particles.steps": 10.0,
    "particles.seeds": 3,
    "depth.T": 30.0,
}
GENERATORS = [
    [[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
    [[0.0, 0.0, -1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]],
]


def run(make_case: MakeCase, **changes: object) -> Ensemble:
    table = {f"auxiliary.{key}": value for key, value in changes.items() if "." not in key}
    others = {key: value for key, value in changes.items() if "." in key}
    found = solve_ensemble(make_case("sphere", {**UNTRAINED, **table, **others}), MPI.COMM_SELF)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("kernel", "maximum"),
    [
        ({"kernel": "usa"}, 0.5 * math.e),
        ({"kernel": "rope"}, 0.5 * math.e),
        ({"kernel": "rope_general", "generators": GENERATORS}, 0.5 * math.e),
        ({"kernel": "prefix", "map": "wave"}, 0.5 * math.e),
        ({"kernel": "toeplitz", "form": "linear", "depth.T": 150.0}, 0.25),
    ],
    ids=lambda value: value["kernel"] if isinstance(value, dict) else "",
)
def test_random_starts_reach_the_exact_maximum(kernel: dict[str, object], maximum: float, make_case: MakeCase) -> None:
    """Catches wrong frames, a wrong maximum or a wrong set of maximisers: energies to 1e-6, tokens to 1e-3 rad."""
    found = run(make_case, **kernel).diagnostics
    assert np.abs(found.interaction_energy[:, -1] - maximum).max() <= 1e-6
    assert np.abs(found.readings["interaction_gap"][:, -1]).max() <= 1e-6
    assert found.readings["maximiser_angle_max"][:, -1].max() <= 1e-3
    assert found.readings["maximiser_angle_max"][:, 0].min() > 0.5
    collapsed = found.resultant[:, -1] > 0.99
    # rope's resultant is |v₃|, so a v next to the axis looks collapsed
    assert collapsed.all() if kernel["kernel"] == "usa" else not collapsed.all()


def test_start_in_u_realises_the_target_map(make_case: MakeCase) -> None:
    """Catches a start in x, u mistaken for e₁, or Q for its transpose: every token ends at f of its label."""
    found = run(
        make_case,
        kernel="prefix", map="spiral", start="u", u=[0.0, 0.6, 0.8],
        **{"initial.law": "von_mises_fisher", "initial.mean": [0.0, 0.6, 0.8], "initial.kappa": 5.0,
           "particles.n": 200, "particles.seeds": 1},
    )  # fmt: skip
    x = found.diagnostics.frames[0, -1]
    f = create_map(make_case("sphere", {"auxiliary.kernel": "prefix", "auxiliary.map": "spiral"}))
    off = np.arccos(np.clip((x * f(found.labels)).sum(axis=1), -1.0, 1.0))
    assert np.ptp(off) < 0.2
    assert off.max() < 4.0 / math.sqrt(5.0 * 200.0)  # v is a mean of 200 tokens of width 1/√5


def test_exponential_toeplitz_beats_the_great_circle(make_case: MakeCase) -> None:
    """Catches a great circle reported as the maximum, and energies that do not sum all pairs."""
    changes = {"attention.eigenvalues": [4.0, 4.0, 4.0], "particles.steps": 250.0, "depth.T": 8.0}
    found = run(make_case, kernel="toeplitz", **changes)
    circle = 0.5 * float(iv(1, 4.0))
    gap = found.diagnostics.readings["interaction_gap"]
    assert found.diagnostics.interaction_energy + gap == pytest.approx(circle, rel=1e-9)
    assert gap[:, -1].min() < -0.1 * circle
    x, xi = found.diagnostics.frames[:, -1], found.labels
    best = int(gap[:, -1].argmin())
    h = np.cos(2.0 * np.pi * (xi[:, None] - xi)) * np.exp(4.0 * x[best] @ x[best].T)
    assert 0.5 * h.mean() == pytest.approx(circle - gap[best, -1], rel=1e-12)


@pytest.mark.parametrize(("beta", "degrees"), [(24.0, 75.0), (30.0, 60.0)])
def test_lifetime_where_clusters_hold_tight(beta: float, degrees: float) -> None:
    """Catches a norm whose round-off e^β amplifies: steps so short that the loop never ends."""
    angle = math.radians(degrees)
    assert token_lifetime(beta, angle) == pytest.approx(lifetime_integral(beta, angle), rel=2e-2)


def test_lifetimes_of_two_clusters() -> None:
    """Catches a wrong rate of approach: tokens against the integral to 1 %, its slope in β within 5 % of 1 − cos θ₀."""
    angle, betas = math.pi / 3.0, [8.0, 12.0, 16.0, 20.0]
    lives = [token_lifetime(beta, angle) for beta in betas]
    exact = [lifetime_integral(beta, angle) for beta in betas]
    assert lives == pytest.approx(exact, rel=1e-2)
    assert lifetime_slope(betas, angle, lives) == pytest.approx(0.5, rel=0.05)
    asymptotic = math.exp(-20.0 * math.cos(angle)) / (20.0 * math.sin(angle)) ** 2
    assert exact[-1] == pytest.approx(asymptotic, rel=0.15)


@pytest.mark.parametrize("file", sorted((Path(__file__).resolve().parents[2] / "cases" / "auxiliary").glob("*.toml")))
def test_cases_are_valid(file: Path) -> None:
    """Catches a case that drifted from the schema."""
    assert load_case(file).optimizer.method == "none"


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 3, 5, 8])
def test_many_labelled_tokens_in_any_dimension(d: int, make_case: MakeCase) -> None:
    """Catches work or memory that grows faster than n: 10⁵ tokens, a label each, take a few steps uphill."""
    tolerance = {2: 1e-10, 3: 1e-10, 5: 1e-4, 8: 1e-2}[d]
    changes: dict[str, object] = {
        "geometry.manifold": "hypersphere", "geometry.dimension": d, "attention.eigenvalues": [1.0] * d,
        "geometry.h": None, "attention.tolerance": tolerance, "particles.n": 100_000, "particles.steps": 4.0,
        "particles.seeds": 1, "depth.T": 1.0, "output.frames": 2,
        "initial.mean": [1.0] * d, "objective.target": [1.0] * d,
    }  # fmt: skip
    found = run(make_case, kernel="distance_bias", decay="gaussian", **changes).diagnostics
    energy = found.interaction_energy[0]
    assert (np.diff(energy) > 0.0).all()
    assert found.readings["interaction_gap"][0, -1] > 0.0
