"""Tables of points that are none."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from solver.points import read_points

pytestmark = pytest.mark.serial


def write_truncated(path: Path) -> None:
    np.savez(path, points=np.eye(3)[:, :2])
    path.write_bytes(path.read_bytes()[:100])


def write_corrupt(path: Path) -> None:
    np.savez(path, points=np.eye(3)[:, :2])
    data = bytearray(path.read_bytes())
    data[90] ^= 255
    path.write_bytes(bytes(data))


def write_renamed(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.eye(2))


def write_complex(path: Path) -> None:
    np.savez(path, points=1j * np.eye(2))


def write_objects(path: Path) -> None:
    np.savez(path, points=np.array([{}, {}], dtype=object))


def write_stranger(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("readme.txt", "nothing")


WRITERS = [write_truncated, write_corrupt, write_renamed, write_complex, write_objects, write_stranger]


@pytest.mark.parametrize("write", [*WRITERS, lambda path: path.write_bytes(b"")])
def test_damaged_file_is_named(write: object, tmp_path: Path) -> None:
    """Catches a traceback of zipfile's or NumPy's own, and data read from half a file."""
    path = tmp_path / "points.npz"
    write(path)  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"^points\.npz"):
        read_points(path, 2, ())


def test_extreme_lengths_are_directions_too(tmp_path: Path) -> None:
    """Catches |x| overflowing or underflowing: 1e300 and 1e-320 have directions."""
    np.savez(tmp_path / "points.npz", points=np.array([[1e300, 1e300], [-1e-310, 0.0]]))
    points, _ = read_points(tmp_path / "points.npz", 2, ())
    assert points == pytest.approx(np.array([[0.5**0.5, 0.5**0.5], [-1.0, 0.0]]))
