"""Labels in the PDE: gradients, invariants and ranks with every kernel, and what symmetry and theory say exactly."""

from __future__ import annotations

import math
from collections.abc import Callable

from mpi4py import MPI

import numpy as np
import pytest
from conftest import smooth_control
from system import studies

from solver.attention.separable import SeparableAttention
from solver.case import Case
from solver.parallel import allreduce
from solver.problem import Problem

MakeCase = Callable[..., Case]
MakeProblem = Callable[..., Problem]
SKEW = [[0.0, -1.0, 0.3], [1.0, 0.0, 0.5], [-0.3, -0.5, 0.0]]
KERNELS: dict[str, dict[str, object]] = {
    "usa": {},
    "rope": {"kernel": "rope"},
    "rope_general": {"kernel": "rope_general", "generators": [SKEW]},
    "prefix": {"kernel": "prefix", "map": "wave"},
    "toeplitz": {"kernel": "toeplitz"},
    "toeplitz_linear": {"kernel": "toeplitz", "form": "linear"},
    "distance_bias": {"kernel": "distance_bias"},
}
ON_SPHERE = {"rope_general", "prefix"}
CHOICES = [("sphere", name) for name in KERNELS] + [
    pytest.param("circle", name, marks=pytest.mark.serial) for name in KERNELS if name not in ON_SPHERE
]
WEIGHTS = [0.1, 0.2, 0.15, 0.3, 0.25]
SHORT = {"depth.T": 2.0, "depth.layer": 1.0, "noise.epsilon": 0.05, "initial.perturbation": 0.4}


def changes(name: str, **others: object) -> dict[str, object]:
    table = {"law": "weights", "weights": WEIGHTS, **KERNELS[name]}
    return {**SHORT, **{f"auxiliary.{key}": value for key, value in table.items()}, **others}


def uniform_problem(name: str, epsilon: float, dt: float, steps: int, scheme: str = "mprk2") -> Problem:
    table = {"law": "weights", "weights": WEIGHTS, **KERNELS[name]}
    options = {f"auxiliary__{key}": value for key, value in table.items()}
    case = studies.make_case(
        "sphere", 0.35, epsilon, steps * dt, steps, depth__scheme=scheme, initial__perturbation=0.4, **options
    )
    return Problem(case, MPI.COMM_WORLD)


@pytest.mark.parametrize("scheme", ["mprk2", pytest.param("euler", marks=pytest.mark.serial)])
@pytest.mark.parametrize(("manifold", "name"), CHOICES)
def test_gradient_is_exact(manifold: str, name: str, scheme: str, make_problem: MakeProblem) -> None:
    """Taylor order in [1.95, 2.05] at another control than the stored one: catches any part of the transpose amiss."""
    problem = make_problem(manifold, changes(name, **{"depth.scheme": scheme}))
    W, delta = smooth_control(problem, 0.4, 1), smooth_control(problem, 1.0, 2)
    J, gradient = problem.gradient(W)
    slope = float(np.sum(problem.dt[:, None, None] * gradient * delta))
    sizes = np.array([2e-2 * 0.5**k for k in range(4)])
    remainders = [abs(problem.evaluate(W + s * delta).J - J - s * slope) for s in sizes]
    order = np.polyfit(np.log(sizes), np.log(remainders), 1)[0]
    assert 1.95 <= order <= 2.05
    assert abs(slope) > 1e-3


@pytest.mark.ranks
@pytest.mark.parametrize("name", ["rope", "toeplitz", "distance_bias"])
def test_ranks_do_not_matter(name: str, make_case: MakeCase, comm: MPI.Comm) -> None:
    """J, gradient and densities to 1e-10 of one rank's: catches labels exchanged wrongly, or lost."""
    case = make_case("sphere", changes(name))
    alone, together = Problem(case, MPI.COMM_SELF), Problem(case, comm)
    W = smooth_control(alone, 0.5, 3)
    J, gradient = together.gradient(W)
    expected, exact = alone.gradient(W)
    assert pytest.approx(expected, rel=1e-10) == J
    assert np.abs(gradient - exact).max() <= 1e-10 * np.abs(exact).max()
    found, one = together.forward(W), alone.forward(W)
    assert found.density(-1).shape == (5, together.space.owned)
    mine, whole = together.space.gather(found.densities[-1]), alone.space.gather(one.densities[-1])
    if comm.rank == 0:
        assert mine is not None
        assert np.abs(mine - whole).max() <= 1e-10 * whole.max()
    assert np.abs(found.energy - one.energy).max() <= 1e-10
    assert np.abs(found.diagnostics.label_mean - one.diagnostics.label_mean).max() <= 1e-10
    assert np.abs(found.diagnostics.label_dispersion - one.diagnostics.label_dispersion).max() <= 1e-8


@pytest.mark.ranks
@pytest.mark.parametrize("dt", [0.1, 10.0])
@pytest.mark.parametrize("name", ["rope", "prefix", "toeplitz", "distance_bias"])
def test_mass_and_positivity_of_every_label(name: str, dt: float) -> None:
    """Mass of every label to 1e-11, densities ≥ −1e-13 of the maximum, at any Δt and W."""
    problem = uniform_problem(name, 0.01, dt, 6)
    densities = problem.forward(smooth_control(problem, 1.0, 4)).densities
    for mu in densities:
        assert np.abs(problem.space.integrate(mu) - 1.0).max() <= 1e-11
        largest = allreduce(problem.comm, mu.max(axis=1, initial=0.0), MPI.MAX)
        assert (mu.min(axis=1, initial=1.0) >= -1e-13 * largest).all()


@pytest.mark.serial
@pytest.mark.parametrize("epsilon", [0.0, 0.02])
@pytest.mark.parametrize("dt", [0.1, 30.0])
@pytest.mark.parametrize("name", ["rope", "prefix", "toeplitz_linear", "toeplitz", "distance_bias"])
def test_energy_never_rises(name: str, dt: float, epsilon: float) -> None:
    """`euler`, W = 0, kernels without negative signs: at any Δt, labels and ε = 0 included."""
    problem = uniform_problem(name, epsilon, dt, 8, "euler")
    assert problem.attention.signs.min() > 0.0
    energy = problem.forward(None).energy
    assert np.diff(energy).max() <= 1e-11 * np.abs(energy).max()
    assert energy[-1] < energy[0]


@pytest.mark.parametrize("normalized", [False, True])
def test_rope_is_the_base_model_in_rotated_variables(
    normalized: bool, make_case: MakeCase, make_problem: MakeProblem
) -> None:
    """A mesh that the rotations map onto itself: every label's density is the base model's, turned, to 1e-10."""
    count = 6
    others = {**SHORT, "initial.perturbation": 0.0, "geometry.h": 0.105, "attention.normalized": normalized}
    base = make_problem("circle", others)
    labels = {"auxiliary.kernel": "rope", "auxiliary.labels": count, "auxiliary.start": "u"}
    problem = make_problem("circle", {**others, **labels})
    nodes = base.space.nodes
    assert nodes % count == 0
    one, found = base.forward(None), problem.forward(None)
    for n in (0, len(base.dt) // 2, -1):
        plain, turned = base.space.gather(one.densities[n]), problem.space.gather(found.densities[n])
        if plain is None or turned is None:
            continue
        angle = np.round(np.arctan2(*base.space.input_mesh.points[:, ::-1].T) * nodes / (2 * np.pi)).astype(int)
        place = np.empty(nodes, dtype=int)
        place[angle % nodes] = np.arange(nodes)
        for label in range(count):  # μ_ℓ(x) = μ(R_ξ x)
            moved = plain[0][place[(angle + label * nodes // count) % nodes]]
            assert np.abs(turned[label] - moved).max() <= 1e-10 * plain.max()
    interaction = one.diagnostics.interaction_energy
    assert np.abs(found.diagnostics.interaction_energy - interaction).max() <= 1e-10 * interaction.max()
    if not normalized:
        assert np.abs(found.energy - one.energy).max() <= 1e-10 * np.abs(one.energy).max()


def test_equal_labels_are_one_with_their_weights(make_problem: MakeProblem) -> None:
    """Catches weights left out anywhere: labels 0 and 0.3 with shares ¼ and ¾, or 0.3 three times."""
    weighted = {"auxiliary.weights": [1.0, 3.0], "auxiliary.atoms": [0.0, 0.3]}
    repeated = {"auxiliary.atoms": [0.0, 0.3, 0.3, 0.3]}
    found = []
    for table in (weighted, repeated):
        problem = make_problem("sphere", {**SHORT, "auxiliary.kernel": "rope", "auxiliary.law": "atoms", **table})
        W = smooth_control(problem, 0.5, 5)
        J, gradient = problem.gradient(W)
        laws = problem.conditional_laws(problem.forward(W))
        assert laws is not None
        found.append((J, gradient, {name: column[-1] for name, column in laws.columns().items()}))
    (J, gradient, columns), (expected, exact, others) = found
    assert pytest.approx(expected, rel=1e-12) == J
    assert np.abs(gradient - exact).max() <= 1e-11 * np.abs(exact).max()
    assert columns == pytest.approx(others, rel=1e-9)


def test_labels_of_weight_zero_are_left_out(make_problem: MakeProblem) -> None:
    """Catches a division by the weight in the adjoint: nan for one label, and in every mean over labels."""
    table = {"auxiliary.kernel": "rope", "auxiliary.law": "atoms", "auxiliary.atoms": [0.1, 0.5, 0.3]}
    problem = make_problem("circle", {**SHORT, **table, "auxiliary.weights": [1.0, 0.0, 3.0]})
    assert problem.coupling.labels.tolist() == [0.1, 0.3]
    assert problem.label_weights.tolist() == [0.25, 0.75]
    steps = problem.steps(None)
    gradient, phi = problem.adjoint(steps, problem.zero_control(), keep=True)
    assert np.isfinite(gradient).all()
    assert all(np.isfinite(one).all() for one in phi)


def test_labels_that_nothing_sees_are_the_base_model(make_problem: MakeProblem) -> None:
    """Catches a weight counted twice in the mean field, the loss or the gradient."""
    others = {**SHORT, "initial.perturbation": 0.0}
    base, problem = make_problem("sphere", others), make_problem("sphere", {**others, "auxiliary.labels": 4})
    assert isinstance(problem.attention, SeparableAttention)
    W = smooth_control(base, 0.5, 6)
    J, gradient = problem.gradient(W)
    expected, exact = base.gradient(W)
    assert pytest.approx(expected, rel=1e-11) == J
    assert np.abs(gradient - exact).max() <= 1e-10 * np.abs(exact).max()


def test_toeplitz_labels_alike_do_not_feel_attention(make_problem: MakeProblem) -> None:
    """Σ cos ω(ξ − ζ) = 0 on a grid: labels of one law diffuse only, and only a difference between them can grow."""
    table = {"auxiliary.kernel": "toeplitz", "auxiliary.labels": 5, "initial.perturbation": 0.0, "depth.T": 3.0}
    problem = make_problem("sphere", {**SHORT, **table})
    free = make_problem(
        "sphere", {**SHORT, "initial.perturbation": 0.0, "depth.T": 3.0, "attention.eigenvalues": [0.0] * 3}
    )
    mu, heat = problem.forward(None).densities[-1], free.forward(None).densities[-1]
    assert np.abs(mu - heat).max(initial=0.0) <= 1e-9
    perturbed = make_problem("sphere", {**SHORT, **table, "initial.perturbation": 0.4}).forward(None)
    spread = np.ptp(perturbed.diagnostics.label_mean[-1], axis=0).max()
    assert spread > 0.05


def test_linear_toeplitz_separates_labels_along_a_great_circle(make_problem: MakeProblem) -> None:
    """Catches a wrong maximiser or maximum: conditional means on x*(ξ), of resultant r, energy r²/4."""
    table = {"auxiliary.kernel": "toeplitz", "auxiliary.form": "linear", "auxiliary.labels": 6, "depth.T": 60.0}
    problem = make_problem("sphere", {**SHORT, **table, "noise.epsilon": 0.01, "initial.law": "uniform"})
    trajectory = problem.forward(None)
    laws = problem.conditional_laws(trajectory)
    assert laws is not None
    end = {name: column[-1] for name, column in laws.columns().items()}
    r = end["conditional_resultant"]
    assert r > 0.95
    assert trajectory.diagnostics.resultant[-1] < 0.02
    assert trajectory.diagnostics.interaction_energy[-1] == pytest.approx(0.25 * r**2, rel=1e-3)
    assert end["interaction_gap"] == pytest.approx(0.25 * (1.0 - r**2), rel=2e-2)
    assert end["conditional_angle_max"] < math.sqrt(0.01 / 0.5)  # the thermal width: attention pulls with r/2


def test_full_turn_of_rotary_labels_leaves_no_gradient(make_problem: MakeProblem) -> None:
    """Vectors turn once where matrices turn twice or not: with features x the gradient at W = 0 is zero, with 1 not."""
    labels = {"auxiliary.kernel": "rope", "auxiliary.labels": 6, "auxiliary.start": "u", "geometry.h": 0.105}
    others = {**SHORT, "initial.perturbation": 0.0, **labels}
    sizes = []
    for bias in (False, True):
        problem = make_problem("circle", {**others, "ffn.bias": bias})
        assert problem.space.nodes % 6 == 0
        gradient = problem.gradient(None)[1]
        sizes.append(math.sqrt(problem.squared_norm(gradient)))
    assert sizes[0] <= 1e-9 * sizes[1]
    assert sizes[1] > 0.1


@pytest.mark.serial
@pytest.mark.parametrize("table", [{"kernel": "rope"}, {"kernel": "prefix", "map": "wave"}], ids=["rope", "prefix"])
def test_conditional_laws_are_thermal(table: dict[str, object], make_problem: MakeProblem) -> None:
    """Means on x*(ξ) to a tenth of the thermal width, widths √((d − 1)ε/(βe^β)), energy ½(d − 1)ε below the maximum."""
    labels = {f"auxiliary.{key}": value for key, value in {**table, "labels": 5, "start": "u"}.items()}
    gaps = []
    for epsilon in (0.1, 0.05):
        law = {"initial.mean": [1.0, 0.0, 0.0], "attention.eigenvalues": [1.0, 1.0, 1.0], "depth.T": 6.0}
        problem = make_problem("sphere", {**labels, **law, "noise.epsilon": epsilon, "geometry.h": 0.15})
        laws = problem.conditional_laws(problem.forward(None))
        assert laws is not None
        end = {name: column[-1] for name, column in laws.columns().items()}
        width = math.sqrt(epsilon / math.e)
        assert end["conditional_angle_max"] <= 0.1 * width
        assert end["conditional_dispersion"] == pytest.approx(math.sqrt(2.0) * width, rel=0.13)
        gaps.append(end["interaction_gap"] / epsilon)
    assert gaps == pytest.approx([1.0, 1.0], rel=0.13)
    assert abs(gaps[1] - 1.0) < abs(gaps[0] - 1.0)
