"""Members of sweeps as numbers for tables and figures: summaries of runs and of tokens, theory.json beside them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from postprocess.load import Run, RunError, load_run

__all__ = ["Member", "Sample", "read_members"]


@dataclass(frozen=True)
class Sample:
    """Values of one quantity: one for a density, one a seed for tokens.

    Attributes:
        values: Those that are defined.
        count: How many there could be.
    """

    values: tuple[float, ...]
    count: int

    @property
    def mean(self) -> float:
        """nan if none is defined."""
        return float(np.mean(self.values)) if self.values else float("nan")

    @property
    def sd(self) -> float | None:
        """Standard deviation (n − 1); None for a single value."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None

    def text(self, digits: str = ".3f") -> str:
        """``mean ± sd``; – where nothing is defined."""
        if not self.values:
            return "–"
        spread = "" if self.sd is None else f" ± {self.sd:{digits}}"
        return f"{self.mean:{digits}}{spread}"


@dataclass(frozen=True)
class Member:
    """One finished run of a sweep.

    Attributes:
        directory: Its folder.
        case: Its case.toml, resolved.
        summary: Its summary.json.
        theory: theory.json beside it; {} without.
    """

    directory: Path
    case: dict[str, Any]
    summary: dict[str, Any]
    theory: dict[str, Any]

    @property
    def particles(self) -> bool:
        """Whether tokens were run, not a density."""
        return self.summary.get("kind") == "particles"

    def key(self, name: str) -> Any:
        """A key of the case, ``section.key``."""
        section, _, key = name.partition(".")
        return self.case[section].get(key)

    @property
    def second(self) -> float:
        """λ₂ of attention."""
        A = self.key("attention.matrix")
        values = self.key("attention.eigenvalues") if A is None else np.linalg.eigvalsh(np.array(A))[::-1]
        return float(values[1])

    def sample(self, name: str) -> Sample:
        """A quantity at T of every seed or of the density: a key of objective, phases or optimizer, or `dispersion`."""
        if self.particles:
            found = [row.get(name) for row in self.summary["seeds"]]
        elif name == "dispersion":
            found = [self.run().trajectory[name][-1]]
        else:
            sections = ("objective", "phases", "optimizer")
            found = [next((self.summary[s][name] for s in sections if name in self.summary[s]), None)]
        return Sample(tuple(float(value) for value in found if value is not None), len(found))

    def successes(self, names: Sequence[str] = ("clustered", "plateau", "escaped")) -> tuple[int, int]:
        """How many systems show all of these phases, and how many there are."""
        rows = self.summary["seeds"] if self.particles else [self.summary["phases"]]
        return sum(all(row[name] for name in names) for row in rows), len(rows)

    def theory_value(self, name: str, which: str = "value") -> float | None:
        """A quantity of theory.json: its value on the mesh, `extrapolated`, or `closed_form`."""
        row = self.theory.get("quantities", {}).get(name)
        return None if row is None else row[which]

    def run(self) -> Run:
        """Its columns along depth and its control."""
        return load_run(self.directory)


def read_members(sweep: Path) -> list[Member]:
    """The finished members of a sweep's folder, by name; [] where there is none.

    Raises:
        RunError: A file is damaged; the message names it.
    """
    return [_member(summary.parent) for summary in sorted(sweep.glob("*/summary.json"))]


def _member(folder: Path) -> Member:
    summary = _content(folder / "summary.json", json.loads, ("objective", "optimizer", "phases"))
    theory = folder / "theory.json"
    return Member(
        folder,
        _content(folder / "case.toml", tomllib.loads, ("attention", "depth", "objective", "optimizer")),
        summary,
        _content(theory, json.loads, ("quantities",)) if theory.exists() else {},
    )


def _content(path: Path, parse: Callable[[str], Any], tables: Sequence[str]) -> dict[str, Any]:
    """A file's content, which must hold these tables."""
    try:
        content = parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: damaged ({error})") from None
    if not isinstance(content, dict):
        raise RunError(f"{path}: damaged (not a table)")
    for name in tables:
        if not isinstance(content.get(name), dict):
            raise RunError(f"{path}: damaged (no table {name})")
    return content
