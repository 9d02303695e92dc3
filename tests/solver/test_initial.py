"""Initial laws."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mpi4py import MPI

import numpy as np
import pytest
from scipy.special import i0, i1

from solver.case import Case, CaseError
from solver.initial import interpolated, mixture, smooth_random_field, von_mises_fisher
from solver.parallel import on_root
from solver.problem import Problem
from solver.space import Space

MakeSpace = Callable[[str, float], Space]
MakeProblem = Callable[..., Problem]
E1 = {"circle": np.array([0.6, 0.8]), "sphere": np.array([0.48, 0.6, 0.64])}


@pytest.mark.parametrize("manifold", ["circle", "sphere"])
@pytest.mark.parametrize("kappa", [0.0, 3.0, 60.0])
def test_mass_one_and_mean_direction(manifold: str, kappa: float, make_space: MakeSpace) -> None:
    """Catches a wrong normalisation (mass of one rank only) and a wrong spread, against I₁/I₀ or coth κ − 1/κ."""
    space = make_space(manifold, 0.1)
    mu = von_mises_fisher(space, E1[manifold], kappa)
    assert float(space.integrate(mu)) == pytest.approx(1.0, abs=1e-14)
    assert mu.min(initial=np.inf) > 0
    length = i1(kappa) / i0(kappa)
    if manifold == "sphere":
        length = 1 / np.tanh(kappa) - 1 / kappa if kappa > 0 else 0.0
    mean = np.array([float(space.integrate(mu * space.x[:, k])) for k in range(space.dimension)])
    assert np.abs(mean - length * E1[manifold]).max() <= 2e-3


def test_uniform_is_constant(make_space: MakeSpace) -> None:
    """Catches κ = 0 handled as a special case gone wrong: every node has the same density, 1/area."""
    space = make_space("sphere", 0.35)
    mu = von_mises_fisher(space, E1["sphere"], 0.0)
    area = float(space.integrate(np.ones(len(space.x))))
    assert np.abs(mu * area - 1).max(initial=0.0) <= 1e-14


def test_sharp_law_does_not_overflow(make_space: MakeSpace) -> None:
    """Catches e^{κ} computed as it stands: κ = 1000 overflows."""
    space = make_space("circle", 0.02)
    mu = von_mises_fisher(space, np.array([0.0, -1.0]), 1000.0)
    assert np.isfinite(mu).all()
    assert float(space.integrate(mu)) == pytest.approx(1.0, abs=1e-14)
    assert float(space.integrate(mu * space.x[:, 1])) == pytest.approx(-i1(700.0) / i0(700.0), abs=1e-3)


@pytest.mark.ranks
def test_ghosts_hold_their_owners_values(make_space: MakeSpace) -> None:
    """Catches ghosts left unset: the first step on several ranks would start from another density."""
    space = make_space("sphere", 0.35)
    mu = von_mises_fisher(space, E1["sphere"], 5.0)
    copy = mu.copy()
    space.update_ghosts(copy)
    assert np.abs(copy - mu).max(initial=0.0) <= 1e-15 * 10


@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_mixture_is_the_weighted_sum_of_its_laws(manifold: str, make_space: MakeSpace) -> None:
    """Catches weights applied to unnormalised components: a sharp one would lose its share."""
    space = make_space(manifold, 0.1)
    means = np.array([E1[manifold], -E1[manifold]])
    mu = mixture(space, means, np.array([3.0, 60.0]), np.array([1.0, 3.0]))
    parts = [von_mises_fisher(space, mean, kappa) for mean, kappa in zip(means, (3.0, 60.0), strict=True)]
    assert np.abs(mu - 0.25 * parts[0] - 0.75 * parts[1]).max(initial=0.0) <= 1e-13
    assert float(space.integrate(mu)) == pytest.approx(1.0, abs=1e-13)


def test_laws_of_the_case(make_case: Callable[..., Case], make_problem: MakeProblem) -> None:
    """Catches a law that is read but not used: uniform has no mean, the mixture has both."""
    uniform = make_problem("sphere", {"initial.law": "uniform"})
    assert np.ptp(np.concatenate(uniform.comm.allgather(uniform.initial[0]))) <= 1e-15
    pair = {"means": [[2.0, 0.0], [0.0, 5.0]], "kappas": [20.0, 20.0]}
    changes = {f"initial.{key}": value for key, value in pair.items()}
    problem = make_problem("circle", {"initial.law": "mixture", **changes, "initial.weights": [1.0, 3.0]})
    mean = problem.space.integrate(problem.initial * problem.space.x.T)
    length = i1(20.0) / i0(20.0)
    assert mean == pytest.approx(length * np.array([0.25, 0.75]), abs=2e-3)
    assert make_case("circle", {"initial.law": "mixture", **changes}).initial.weights == (1.0, 1.0)


def test_perturbation_varies_with_the_label(make_problem: MakeProblem) -> None:
    """Catches one perturbation for all labels, and one that jumps from a label to the next: nearby labels are alike."""
    atoms = {"auxiliary.law": "atoms", "auxiliary.atoms": [0.0, 0.01, 0.5, 1.0], "initial.law": "uniform"}
    problem = make_problem("circle", {**atoms, "initial.perturbation": 0.5})
    one, near, far, whole = problem.initial
    assert np.abs(far - one).max(initial=0.1) > 0.05
    assert np.abs(near - one).max(initial=0.0) < 0.03
    assert np.abs(whole - one).max(initial=0.0) <= 1e-12  # waves have period 1 in the label
    assert np.abs(problem.space.integrate(problem.initial) - 1.0).max() <= 1e-14


def test_law_of_turned_tokens(make_problem: MakeProblem) -> None:
    """Catches frames transposed: with start = "u" the law of Q_ξ x is that of the case, so x is about Q_ξᵀ mean."""
    table = {"auxiliary.kernel": "rope", "auxiliary.labels": 4, "initial.kappa": 20.0, "initial.mean": [1.0, 0.0]}
    problem = make_problem("circle", {**table, "auxiliary.start": "u"})
    means = np.stack([problem.space.integrate(problem.initial * column) for column in problem.space.x.T], axis=1)
    expected = [[1.0, 0.0], [0.0, -1.0], [-1.0, 0.0], [0.0, 1.0]]
    assert np.abs(means / np.linalg.norm(means, axis=1, keepdims=True) - expected).max() <= 1e-9
    alike = make_problem("circle", {**table, "auxiliary.start": "x"}).initial
    assert np.ptp(alike, axis=0).max(initial=0.0) == 0.0


@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_perturbation_is_relative_smooth_and_independent_of_the_mesh(manifold: str, make_problem: MakeProblem) -> None:
    """Catches noise node by node (it changes with mesh and ranks), an absolute one, and a seed that is ignored."""
    base = {"initial.law": "uniform", "initial.perturbation": 0.5}
    problem = make_problem(manifold, base)
    space, mu = problem.space, problem.initial[0]
    area = float(space.integrate(np.ones(len(space.x))))
    values = np.concatenate(space.comm.allgather(mu)) * area - 1
    assert 0.4 < np.abs(values).max() < 0.75
    assert float(space.integrate(mu)) == pytest.approx(1.0, abs=1e-13)
    wave = smooth_random_field(space.x, 0)
    ratio = mu * area / (1 + 0.5 * wave)
    assert np.abs(ratio - float(space.integrate(ratio)) / area).max(initial=0.0) <= 1e-12
    assert np.abs(wave - smooth_random_field(space.x, 1)).max(initial=0.0) > 0.1 or not len(space.x)
    nudge = space.x + 1e-5
    nudge /= np.linalg.norm(nudge, axis=1, keepdims=True)
    assert np.abs(smooth_random_field(nudge, 0) - wave).max(initial=0.0) <= 1e-3


@pytest.mark.parametrize("suffix", [".npz", ".csv"])
@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_nodal_values_from_another_mesh(
    manifold: str, suffix: str, make_space: MakeSpace, make_problem: MakeProblem, shared_path: Path
) -> None:
    """Catches nearest-node values in place of linear ones (error O(h), not O(h²)), and nodes mixed up."""
    other = make_space(manifold, {"circle": 0.07, "sphere": 0.12}[manifold])
    density = other.gather(von_mises_fisher(other, E1[manifold], 4.0))
    path = shared_path / f"state{suffix}"

    def write() -> None:
        points = other.input_mesh.points
        if suffix == ".npz":
            np.savez(path, points=3.0 * points, density=density)
        else:
            names = ",".join("xyz"[: points.shape[1]])
            np.savetxt(path, np.column_stack([points, density]), delimiter=",", header=f"{names},density", comments="")

    on_root(other.comm, write)
    problem = make_problem(manifold, {"initial.law": "file", "initial.file": str(path)})
    exact = von_mises_fisher(problem.space, E1[manifold], 4.0)
    error = np.abs(problem.initial[0] - exact).max(initial=0.0)
    assert error <= 0.02 * max(problem.comm.allgather(float(exact.max(initial=0.0))))
    assert float(problem.space.integrate(problem.initial[0])) == pytest.approx(1.0, abs=1e-13)


def test_interpolation_is_exact_at_nodes_and_linear_between() -> None:
    """Catches barycentric weights of the wrong cell, on a mesh with long thin cells."""
    generator = np.random.default_rng(0)
    points = generator.standard_normal((60, 3)) * np.array([1.0, 1.0, 4.0])
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    values = generator.uniform(0, 1, 60)
    assert np.abs(interpolated(points, points, values) - values).max() <= 1e-9
    x = generator.standard_normal((500, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    found = interpolated(x, points, values)
    assert found.min() >= values.min()
    assert found.max() <= values.max()
    assert np.abs(interpolated(x, points, np.ones(60)) - 1).max() <= 1e-12


def test_points_with_weights(make_problem: MakeProblem, shared_path: Path, comm: MPI.Comm) -> None:
    """Catches weights that are ignored: two heavy tokens and a light one, each a bump of concentration κ."""
    path = shared_path / "tokens.csv"
    on_root(comm, lambda: path.write_text("x,y,weight\n1,0,2\n0,1,1\n-1,0,1\n"))
    problem = make_problem("circle", {"initial.law": "file", "initial.file": str(path), "initial.kappa": 50.0})
    means = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    exact = mixture(problem.space, means, np.full(3, 50.0), np.array([2.0, 1.0, 1.0]))
    assert np.abs(problem.initial[0] - exact).max(initial=0.0) <= 1e-13


BAD_FILES = [
    ("x,y,density\n1,0,1\n0,1,1\n", "one side|no closed surface"),
    ("x,y,density\n1,0,1\n0,1,-1\n-1,-1,1\n", "≥ 0"),
    ("x,y,density,weight\n1,0,1,1\n0,1,1,1\n-1,-1,1,1\n", "one column"),
    ("x,y,weight\n1,0,nan\n", "weight is not finite"),
    ("x,y,weight\n0,0,1\n", "row 1 is the zero vector"),
    ("x,y,weight\n1,0\n", "line 2 has 2 columns, the header 3"),
    ("x,y,weight\n1,zero,1\n", "cannot be read"),
    ("x\n1\n", r"points \(1, 1\), \(n, 2\) is needed"),
    ("1,0,1\n0,1,2\n", "the first line must be a header"),
    ("x,y,z\n1,0,0\n", "unknown column 'z': 2 coordinates and 'density' and 'weight' are allowed"),
    ("", "a header and at least one row"),
]


@pytest.mark.parametrize(("text", "message"), BAD_FILES)
def test_bad_file_is_bad_input(
    text: str, message: str, make_problem: MakeProblem, shared_path: Path, comm: MPI.Comm
) -> None:
    """Catches a traceback, on one rank or all, from a file that is no table of points."""
    path = shared_path / "points.csv"
    on_root(comm, lambda: path.write_text(text))
    with pytest.raises(CaseError, match=rf"^initial\.file: .*({message})"):
        make_problem("circle", {"initial.law": "file", "initial.file": str(path)})
