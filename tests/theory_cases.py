"""Small cases shared by the tests of the theory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from solver.case import Case, load_case

CASES = Path(__file__).resolve().parents[1] / "cases"


def small_case(manifold: str, h: float, epsilon: float, eigenvalues: Sequence[float], **overrides: object) -> Case:
    """A case with one depth step; `section__key=value` on top."""
    file = "turnpike_circle.toml" if manifold == "circle" else "turnpike.toml"
    settings: dict[str, object] = {
        "geometry.h": h,
        "geometry.continuation": [],
        "noise.epsilon": epsilon,
        "attention.eigenvalues": list(eigenvalues),
        "depth.T": 1.0,
        "depth.layer": 0.5,
    }
    return load_case(CASES / file, settings | {name.replace("__", "."): value for name, value in overrides.items()})
