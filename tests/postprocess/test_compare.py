"""The PDE beside particles: distances against known values, cases checked, a comparison from end to end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

from meshes.build import GENERATORS
from postprocess.compare import depth_indices, main
from postprocess.compare_load import case_differences
from postprocess.densities import CircleLaw, DensitySeries, SphereLaw, make_law
from postprocess.distances import circle_distance, distance, frame_distance, sampling_distances, sliced_distance
from solver.results import clear_folder

pytestmark = pytest.mark.serial


def circle_law(mean: float = 0.0, kappa: float = 0.0, nodes: int = 400) -> CircleLaw:
    """A von Mises density on a mesh whose first node is nowhere special."""
    angle = np.linspace(0.0, 2 * np.pi, nodes, endpoint=False) + 0.3
    points = np.column_stack([np.cos(angle), np.sin(angle)])
    law = make_law(points, np.zeros((nodes, 2), np.int64), np.exp(kappa * (np.cos(angle - mean) - 1.0)))
    assert isinstance(law, CircleLaw)
    return law


def sphere_law(mean: tuple[float, float, float] = (0.0, 0.0, 1.0), kappa: float = 20.0) -> SphereLaw:
    mesh = GENERATORS["sphere"](0.15)
    return SphereLaw(mesh.points, mesh.cells, np.exp(kappa * (mesh.points @ np.array(mean) - 1.0)))


def on_circle(*angles: float) -> np.ndarray:
    return np.column_stack([np.cos(angles), np.sin(angles)])


@pytest.mark.parametrize("theta", [0.5, 2.0, 3.0, 5.0, -1.0])
def test_two_points_are_their_angle_apart(theta: float) -> None:
    """Catches the long way round, and a shift that is not optimised: min(θ, 2π − θ), up to the width of the hat."""
    nodes = 20_000
    angle = np.linspace(0.0, 2 * np.pi, nodes, endpoint=False)
    law = make_law(on_circle(*angle), np.zeros((nodes, 2), np.int64), np.eye(nodes)[1000])
    expected = abs(np.mod(theta + np.pi, 2 * np.pi) - np.pi)
    assert distance(law, on_circle(angle[1000] + theta)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("copies", [1, 5])
def test_uniform_law_is_a_right_angle_from_a_point(copies: int) -> None:
    """π/2 to round-off: catches an origin that matters, and equal tokens counted once."""
    assert distance(circle_law(), on_circle(*[0.4] * copies)) == pytest.approx(np.pi / 2, abs=1e-12)


@pytest.mark.parametrize("alpha", [0.05, 0.7, -1.3])
def test_rotated_density_is_as_far_as_it_was_rotated(alpha: float) -> None:
    """Catches a median taken over tokens instead of over the circle. α, up to the 20 000 quantiles' own width."""
    law = circle_law(2.0, 30.0)
    quantiles = law.quantiles((np.arange(20_000) + 0.5) / 20_000)
    assert circle_distance(law, quantiles) < 1e-4
    assert circle_distance(law, quantiles + alpha) == pytest.approx(abs(alpha), abs=1e-4)


def test_distance_on_the_circle_is_that_of_brute_force() -> None:
    """Catches a wrong parabola or crossing between breakpoints: against F − G on two million points."""
    law, angles = circle_law(-2.0, 2.0, 30), np.random.default_rng(1).uniform(0, 2 * np.pi, 40)
    theta = np.linspace(law.angles[0], law.angles[-1], 2_000_001)
    slope = np.interp(theta, law.angles, law.values)
    F = np.concatenate([[0.0], np.cumsum(0.5 * np.diff(theta) * (slope[1:] + slope[:-1]))])
    placed = np.sort(law.angles[0] + np.mod(angles - law.angles[0], 2 * np.pi))
    D = F - np.searchsorted(placed, theta, side="right") / 40
    expected = 2 * np.pi * np.abs(D - np.median(D)).mean()
    assert circle_distance(law, angles) == pytest.approx(expected, rel=1e-5)


def test_sliced_distance_of_points() -> None:
    """Half the chord, 0 for equal sets: catches weights that are not carried along, and uneven directions."""
    x, one = np.random.default_rng(2).standard_normal((2, 50, 3)), np.full(50, 0.02)
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    assert sliced_distance(x[0], one, x[0, ::-1], one) == pytest.approx(0.0, abs=1e-12)
    for a, b in zip(*x, strict=True):
        found = sliced_distance(a[None], np.ones(1), b[None], np.ones(1))
        assert found == pytest.approx(0.5 * np.linalg.norm(a - b), rel=0.05)


def test_sliced_distance_grows_as_a_density_turns() -> None:
    """Catches a quadrature with wrong weights: zero to itself, and half the chord for small turns."""
    series = [sphere_law((np.sin(a), 0.0, np.cos(a))) for a in (0.0, 0.2, 0.4, 0.8)]
    tokens = series[0].samples(np.random.default_rng(0), 20_000)
    found = [distance(law, tokens) for law in series]
    assert found[0] < 0.01
    assert np.all(np.diff(found) > 0.05 * np.array([1, 1, 2]))
    mean = np.linalg.norm(tokens.mean(axis=0))  # of the chord's length, as all of the density turns
    assert found[2] == pytest.approx(mean * np.sin(0.2), rel=0.05)


@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_exact_samples_follow_their_law_and_are_reproducible(manifold: str) -> None:
    """N^{−1/2} and the same numbers twice: catches a sampler that is off, which would never show beside tokens."""
    law = circle_law(1.0, 20.0) if manifold == "circle" else sphere_law((0.6, 0.0, 0.8))
    few, many = (sampling_distances(law, n, 8, [3]) for n in (400, 25_600))
    np.testing.assert_array_equal(few, sampling_distances(law, 400, 8, [3]))
    assert not np.array_equal(few, sampling_distances(law, 400, 8, [4]))
    assert few.mean() / many.mean() == pytest.approx(8.0, rel=0.35)
    np.testing.assert_allclose(np.linalg.norm(law.samples(np.random.default_rng(0), 100), axis=1), 1.0, atol=1e-12)


def test_densities_between_frames() -> None:
    """Catches a frame taken for its neighbour: ends exact, the middle half of each."""
    angle = np.linspace(0.0, 2 * np.pi, 100, endpoint=False)
    values = np.stack([np.exp(20 * (np.cos(angle - a) - 1)) for a in (1.0, 1.2, 2.0)])
    series = DensitySeries(np.array([0.0, 1.0, 4.0]), on_circle(*angle), np.zeros((100, 2), np.int64), values)
    assert series.bracket(0.0) == (0, 1, 0.0)
    assert series.bracket(4.0) == (1, 2, 1.0)
    assert series.bracket(3.25) == (1, 2, 0.75)
    assert frame_distance(series, 0, 1) == pytest.approx(0.2, abs=1e-3)
    law = series.at(2.5)
    assert isinstance(law, CircleLaw)
    order = np.argsort(np.arctan2(*on_circle(*angle).T[::-1]))
    halves = 0.5 * (values[1] + values[2])[order]
    np.testing.assert_allclose(law.values[:-1] / law.values.max(), halves / halves.max(), rtol=1e-12)


def test_depths_are_thinned_evenly() -> None:
    """Catches the last depth, the one that matters most, being left out."""
    assert depth_indices(81, 5) == [0, 20, 40, 60, 80]
    assert depth_indices(3, 41) == [0, 1, 2]


def test_only_what_defines_the_problem_must_agree() -> None:
    """Catches runs refused for their mesh, and runs of another noise or another default compared."""
    one = {
        "geometry": {"manifold": "circle", "h": 0.1},
        "depth": {"T": 4.0, "grid": "graded"},
        "noise": {"epsilon": 0.1},
    }
    other = {"geometry": {"manifold": "circle", "h": 0.2}, "depth": {"T": 4.0, "steps": 3}, "noise": {"epsilon": 0.1}}
    assert case_differences(one, other) == []
    other["noise"] = {"epsilon": 0.2}
    other["initial"] = {"kappa": 3.0}
    assert case_differences(one, other) == [
        ("noise.epsilon", "0.1", "0.2"),
        ("initial.kappa", "not set", "3.0"),
    ]


SETTINGS = {
    "geometry.h": 0.1,
    "geometry.continuation": "[]",
    "noise.epsilon": 0.1,
    "depth.T": 2.0,
    "depth.first_step": 0.2,
    "depth.layer": 1.0,
    "output.frames": 6,
    "output.formats": "['vtk']",
    "optimizer.gradient_tolerance": 1e-2,
    "particles.n": 200,
    "particles.seeds": 3,
}


def start(module: str, *arguments: str) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PMI", "MPI", "HYDRA"))}
    command = [sys.executable, "-m", module, *arguments, "--quiet"]
    for key, value in SETTINGS.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run of the PDE and one of particles under its control."""
    folder = tmp_path_factory.mktemp("runs")
    run, particles = folder / "pde", folder / "particles"
    start("solver.run", "cases/turnpike_circle.toml", "-o", str(run))
    control = str(run / "control.npz")
    start("solver.particles", "cases/turnpike_circle.toml", "-o", str(particles), "--control", control)
    return run, particles


@pytest.fixture
def copies(finished: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """Both, free to be damaged."""
    for folder in finished:
        shutil.copytree(folder, tmp_path / folder.name)
    return tmp_path / "pde", tmp_path / "particles"


def test_comparison_from_end_to_end(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches columns mixed up and frames matched to the wrong depth: differences of the size that 600 tokens make."""
    assert main([*map(str, finished), "-o", str(tmp_path), "--draws", "4"]) == 0
    printed = capsys.readouterr().out
    found = json.loads((tmp_path / "compare.json").read_text())
    assert (found["n"], found["seeds"]) == (200, 3)
    assert found["control_difference"] < 0.1
    summary = json.loads((finished[0] / "summary.json").read_text())
    quantities = found["quantities"]
    assert quantities["loss"]["pde"] == summary["objective"]["loss"]
    for name in ("J", "loss", "regularization", "interaction_energy", "mean_1", "mean_2", "angle", "dispersion"):
        row = quantities[name]
        assert name in printed
        assert row["difference"] == pytest.approx(row["particles"]["mean"] - row["pde"])
        assert abs(row["difference"]) < 0.1
    reached = found["distance"]
    assert reached["kind"] == "wasserstein_1"
    np.testing.assert_allclose(reached["depths"][::5], [0.0, 2.0])
    assert np.array(reached["seeds"]).shape == (3, 6)
    exact = np.array(reached["exact_samples"]["mean"])
    assert np.all(np.array(reached["mean"]) < 6 * exact)
    assert reached["mean"][0] < 3 * exact[0]
    assert (tmp_path / "figures" / "compare.png").stat().st_size > 20_000


def test_a_comparison_goes_with_the_run_it_shows(copies: tuple[Path, Path]) -> None:
    """Catches numbers and a picture of an earlier run beside new results; a user's own picture stays."""
    assert main([*map(str, copies), "--draws", "1", "--depths", "2"]) == 0
    (copies[1] / "figures" / "mine.png").write_bytes(b"")
    clear_folder(copies[1])
    assert [path.name for path in (copies[1] / "figures").iterdir()] == ["mine.png"]
    assert not (copies[1] / "compare.json").exists()


def test_different_cases_are_refused(copies: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2, every key with both values: catches a comparison of two problems."""
    case = copies[1] / "case.toml"
    text = case.read_text().replace("epsilon = 0.1", "epsilon = 0.2").replace("T = 2.0", "T = 3.0")
    case.write_text(text)
    assert main(list(map(str, copies))) == 2
    message = capsys.readouterr().err
    assert "noise.epsilon: 0.1 in" in message
    assert "depth.T: 2.0 in" in message
    assert not (copies[1] / "compare.json").exists()


def test_swapped_and_missing_folders(finished: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a traceback for the most likely slips."""
    run, particles = map(str, finished)
    assert main([particles, run]) == 2
    assert "a run of the PDE is needed" in capsys.readouterr().err
    assert main([run, f"{particles}-not"]) == 2
    assert "there is no such folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name",
    ["pde/case.toml", "pde/density.pvd", "pde/density/density_0003.vtu", "particles/particles.npz",
     "particles/summary.json", "particles/case.toml"],
)  # fmt: skip
def test_damaged_and_missing_files_are_named(
    copies: tuple[Path, Path], name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Exit 2 and the file's name: catches tracebacks of xml, VTK, zipfile or json."""
    path = copies[0].parent / name
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + b"\0\xff")
    assert main(list(map(str, copies))) == 2
    assert path.name in capfd.readouterr().err
    path.unlink()
    assert main(list(map(str, copies))) == 2
    assert path.name in capfd.readouterr().err
