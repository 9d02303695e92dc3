"""Tokens drawn from the initial law."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.special import i0, i1

from solver.case import Case
from solver.initial import smooth_random_field
from solver.particles.initial import draw_tokens

pytestmark = pytest.mark.serial

MakeCase = Callable[..., Case]
MANY = 20_000


@pytest.mark.parametrize("manifold", ["circle", "sphere"])
@pytest.mark.parametrize("kappa", [0.0, 3.0, 60.0])
def test_von_mises_fisher(manifold: str, kappa: float, make_case: MakeCase) -> None:
    """Catches a law of another concentration, or tokens on one side of the mean only."""
    x = draw_tokens(make_case(manifold, {"initial.kappa": kappa, "geometry.h": 0.1}), 3, np.zeros(MANY))
    assert np.abs(np.linalg.norm(x, axis=1) - 1).max() <= 1e-14
    length = i1(kappa) / i0(kappa)
    if manifold == "sphere":
        length = 1 / np.tanh(kappa) - 1 / kappa if kappa > 0 else 0.0
    mean = np.array(make_case(manifold).initial_mean)
    assert np.abs(x.mean(axis=0) - length * mean).max() <= 4 / np.sqrt(MANY)


def test_first_tokens_do_not_depend_on_how_many_there_are(make_case: MakeCase) -> None:
    """Catches a generator read across particles: N = 64 must be the start of N = 6400, under rejection too."""
    for changes in ({}, {"initial.perturbation": 0.9}):
        case = make_case("sphere", changes)
        assert np.array_equal(draw_tokens(case, 5, np.zeros(6400))[:64], draw_tokens(case, 5, np.zeros(64)))
    assert not np.array_equal(draw_tokens(case, 6, np.zeros(64)), draw_tokens(case, 5, np.zeros(64)))


def test_mixture_and_perturbation(make_case: MakeCase) -> None:
    """Catches shares that are ignored, and a perturbation other than the PDE's."""
    mixture = {"initial.law": "mixture", "initial.means": [[1.0, 0.0], [0.0, 1.0]], "initial.kappas": [20.0, 20.0]}
    x = draw_tokens(make_case("circle", {**mixture, "initial.weights": [1.0, 3.0]}), 0, np.zeros(MANY))
    assert x.mean(axis=0) == pytest.approx(i1(20.0) / i0(20.0) * np.array([0.25, 0.75]), abs=0.02)
    case = make_case("circle", {"initial.law": "uniform", "initial.perturbation": 0.5, "initial.seed": 4})
    x = draw_tokens(case, 0, np.zeros(MANY))
    ring = np.linspace(0, 2 * np.pi, 4000, endpoint=False)
    wave = smooth_random_field(np.column_stack([np.cos(ring), np.sin(ring)]), 4)
    density = (1 + 0.5 * wave) / (1 + 0.5 * wave).sum()
    expected = density @ np.column_stack([np.cos(ring), np.sin(ring)])
    assert x.mean(axis=0) == pytest.approx(expected, abs=0.02)


def test_file_laws(make_case: MakeCase, tmp_path: Path) -> None:
    """Catches nodal values taken for weights, and weights that are ignored."""
    ring = np.linspace(0, 2 * np.pi, 100, endpoint=False)
    density = np.exp(4 * np.cos(ring - 1.0))
    np.savez(tmp_path / "d.npz", points=np.column_stack([np.cos(ring), np.sin(ring)]), density=density)
    case = make_case("circle", {"initial.law": "file", "initial.file": str(tmp_path / "d.npz")})
    x = draw_tokens(case, 0, np.zeros(MANY))
    assert x.mean(axis=0) == pytest.approx(i1(4.0) / i0(4.0) * np.array([np.cos(1.0), np.sin(1.0)]), abs=0.02)
    (tmp_path / "w.csv").write_text("x,y,weight\n1,0,3\n0,1,1\n")
    heavy = {"initial.law": "file", "initial.file": str(tmp_path / "w.csv"), "initial.kappa": 90.0}
    x = draw_tokens(make_case("circle", heavy), 0, np.zeros(MANY))
    assert x.mean(axis=0) == pytest.approx(i1(90.0) / i0(90.0) * np.array([0.75, 0.25]), abs=0.02)
