"""figures/tokens.png: what it says of itself, and a curve of maximisers that stays on the sphere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from postprocess.load import load_run
from postprocess.token_figure import curve_pieces, tokens_figure
from solver.particles.run import main as run_particles

pytestmark = pytest.mark.serial

CASES = Path(__file__).resolve().parents[2] / "cases" / "auxiliary"


def circle(angles: list[float]) -> np.ndarray:
    return np.column_stack([np.cos(angles), np.sin(angles)])


def test_closed_curve_is_one_piece() -> None:
    """Catches a gap between the last label and the first."""
    points = circle([0.4 * k for k in range(15)])  # the last is 0.68 rad before the first
    assert len(curve_pieces(points)) == 1
    assert len(curve_pieces(points)[0]) == 15
    points = circle([2 * np.pi * k / 16 for k in range(16)])
    (piece,) = curve_pieces(points)
    np.testing.assert_array_equal(piece, [*points, points[0]])


def test_jumps_are_not_drawn_as_chords() -> None:
    """Catches lines through the ball where a map jumps, pieces lost, and a cut at the first label, which is none."""
    points = circle([0.1, 0.2, 0.3, 1.0, 1.1, 3.0, 3.0, 3.0, -0.1, 0.0])
    pieces = curve_pieces(points)
    found = [np.arctan2(piece[:, 1], piece[:, 0]).round(9).tolist() for piece in pieces]
    assert sorted(found) == [[-0.1, 0.0, 0.1, 0.2, 0.3], [1.0, 1.1], [3.0]]


def test_one_place_is_one_point() -> None:
    """Catches a line of length zero, which is not seen, for a kernel whose maximisers are one point."""
    (piece,) = curve_pieces(np.tile([[0.0, 0.6, 0.8]], (5, 1)))
    np.testing.assert_array_equal(piece, [[0.0, 0.6, 0.8]])


@pytest.mark.parametrize("name", ["rope", "usa"])
def test_picture_says_what_it_shows(name: str, tmp_path: Path) -> None:
    """Catches colours without a key, spheres without a seed, means that look like one seed, and clusters off zero."""
    text, _, _ = (CASES / f"{name}.toml").read_text(encoding="utf-8").partition("[sweep]")
    (tmp_path / "case.toml").write_text(text, encoding="utf-8")
    small = ["--set=particles.n=40", "--set=particles.seeds=2", "--set=particles.seed=7", "--set=depth.T=0.5"]
    assert run_particles([str(tmp_path / "case.toml"), *small, "-o", str(tmp_path / "out"), "--quiet"]) == 0
    figure = tokens_figure(tmp_path / "out", load_run(tmp_path / "out").trajectory, 3)
    assert figure is not None
    figure.canvas.draw()
    top, bottom = figure.subfigs
    titles = [axes.get_title() for axes in top.axes if axes.name == "3d"]
    assert titles == ["seed 7, $t$ = 0.5", "seed 8, $t$ = 0.5"]
    assert "single seeds" in top.get_suptitle()
    assert "means over 2 seeds" in bottom.get_suptitle()
    keys = [axes.get_ylabel() for axes in top.axes if axes.name != "3d"]
    assert keys == (["label $ξ$ of a token"] if name == "rope" else [])
    (clusters,) = (axes for axes in bottom.axes if axes.get_ylabel().startswith("clusters"))
    assert clusters.get_ylim()[0] == 0.0
    tokens = [sum(len(dots.get_offsets()) for dots in axes.collections[1:]) for axes in top.axes if axes.name == "3d"]
    assert tokens == [40, 40]
