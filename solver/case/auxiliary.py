"""The [auxiliary] table: labels that tokens carry, and what attention makes of them (P2), with its checks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator

from solver.case.factories import OWN
from solver.case.fields import (
    Direction,
    Flag,
    Integer,
    Parameters,
    Real,
    Section,
    Shares,
    Unused,
    Vector,
    bounded,
    key,
    one_of,
    unused,
    was_set,
)

__all__ = ["DECAYS", "FUNCTIONS", "MAPS", "OF_LAW", "OF_MAP", "Auxiliary", "auxiliary_mistakes", "unused_labels"]

MAPS = ("points", "latitude_circle", "great_circle", "wave", "spiral", "uniform", "von_mises_fisher")
FUNCTIONS = ("linear", "square", "sine", "cosine")
DECAYS = ("exponential", "gaussian", "cauchy", "triangle", "window", "cosine")
_MAPPED = ("prefix", "rope")
_LARGEST = 1e9  # of labels, frequencies and their products: beyond it angles are round-off
_Numbers = Annotated[Vector, bounded(_LARGEST)]

# Keys that mean something for some laws of labels, or some maps, only.
OF_LAW = {"seed": ("random",), "weights": ("weights", "atoms"), "atoms": ("atoms",)}
OF_MAP = {
    "points": ("points",),
    "file": ("points",),
    "latitude": ("latitude_circle",),
    "amplitude": ("wave",),
    "waves": ("wave",),
    "turns": ("spiral",),
    "means": ("von_mises_fisher",),
    "kappas": ("von_mises_fisher",),
    "shares": ("points", "von_mises_fisher"),
    "map_parameters": (OWN,),
}
_DIMENSIONS = {
    "latitude_circle": (3, 1000),
    "wave": (3, 1000),
    "spiral": (3, 1000),
    "uniform": (2, 14),
    "von_mises_fisher": (2, 14),
}


def _skew(matrices: tuple[tuple[Vector, ...], ...]) -> tuple[tuple[Vector, ...], ...]:
    for rows in matrices:
        if any(len(row) != len(rows) for row in rows):
            raise ValueError("has a generator that is not square")
        S = np.array(rows)
        if np.abs(S + S.T).max(initial=0.0) > 1e-12 * np.abs(S).max(initial=1.0):
            raise ValueError("has a generator that is not skew: S must equal −Sᵀ")
    return matrices


class Auxiliary(Section):
    """Labels ξ that tokens carry and attention sees: h((x,ξ),(y,ζ)) = b(ξ,ζ) f(⟨Q_ξx, A Q_ζy⟩) (P2, auxiliary.md).

    Particles carry a label each; the PDE has a density for each of the labels.
    """

    kernel: Annotated[str, one_of("usa", "rope", "rope_general", "prefix", "toeplitz", "distance_bias")] = key(
        "usa",
        "'usa', 'rope', 'rope_general', 'prefix', 'toeplitz', 'distance_bias' or 'module:factory'",
        "'usa': labels do not matter; 'rope': Q_ξ turns by ω_kξ in some planes; 'rope_general': "
        "Q_ξ = exp(Σ f_k(ξ) S_k); 'prefix': Q_ξ turns f(ξ), a point of a map, to u; 'toeplitz': b = cos ω(ξ−ζ); "
        "'distance_bias': b ≥ 0 decays with |ξ−ζ|",
    )
    parameters: Parameters | None = key(None, "a table", "keyword arguments of your kernel's factory", only=(OWN,))
    labels: Integer | None = key(
        None,
        "an integer between 1 and 1e8",
        "number L of labels (default: particles.n); tokens: at most particles.n",
        ge=1,
        le=100_000_000,
    )
    law: Literal["grid", "random", "weights", "atoms", "orbit"] = key(
        "grid",
        "'grid', 'random', 'weights', 'atoms' or, for 'rope', 'orbit'",
        "'grid': labels ℓ/L, equal shares; 'random': uniform in [0, 1), equal shares; 'weights': ℓ/L with `weights`; "
        "'atoms': `atoms` with `weights`; 'orbit': such that R_ξᵀv runs through the points of `map` (one plane)",
    )
    seed: Integer = key(0, "an integer ≥ 0", "law = random: its seed", ge=0, le=2**63)
    weights: Shares | None = key(
        None, "a number ≥ 0 for each label", "law = weights, atoms: shares ρ_ℓ of the tokens (atoms: default equal)"
    )
    atoms: _Numbers | None = key(
        None, "a list of numbers from -1e9 to 1e9", "law = atoms: the labels; `map` takes them modulo 1"
    )
    start: Literal["x", "u"] = key("x", "'x' or 'u'", "the initial law is that of the tokens x, or of u = Q_ξx")
    planes: tuple[tuple[Integer, Integer], ...] = key(
        ((1, 2),), "a list of pairs of different axes from 1 to d", "planes of rotation", only=("rope",)
    )
    frequencies: _Numbers | None = key(
        None,
        "a number for each of the planes, or of the generators",
        "ω_k (default 2π: a whole turn)",
        "rad",
        ("rope", "rope_general"),
    )
    generators: Annotated[tuple[tuple[Vector, ...], ...], AfterValidator(_skew)] = key(
        (), "a list of skew matrices, d rows of d numbers each", "S_k", only=("rope_general",)
    )
    functions: tuple[Literal["linear", "square", "sine", "cosine"], ...] | None = key(
        None,
        "'linear', 'square', 'sine' or 'cosine' for each of the generators",
        "f_k(ξ) = a_k times ω_kξ, (ω_kξ)², sin ω_kξ or cos ω_kξ (default linear)",
        only=("rope_general",),
    )
    amplitudes: _Numbers | None = key(
        None, "a number for each of the generators", "a_k (default 1)", only=("rope_general",)
    )
    u: Direction | None = key(
        None, "d numbers, not all zero", "direction to which Q_ξ turns f(ξ), normalised (default e₁)", only=("prefix",)
    )
    map: Annotated[str, one_of(*MAPS)] = key(
        "great_circle",
        "'points', 'latitude_circle', 'great_circle', 'wave', 'spiral', 'uniform', 'von_mises_fisher' "
        "or 'module:factory'",
        "target map f from labels, modulo 1, to the sphere; its law is that of f(ξ), ξ uniform. 'points': steps "
        "through `points` or those of `file`; 'wave': a latitude that waves along a circle; 'spiral': from pole to "
        "pole; 'uniform', 'von_mises_fisher' (a mixture): those laws; a factory of yours returns f",
        only=_MAPPED,
    )
    map_parameters: Parameters | None = key(
        None, "a table", "map = module:factory: its keyword arguments", only=_MAPPED
    )
    points: tuple[Direction, ...] | None = key(None, "a list of directions", "map = points: normalised", only=_MAPPED)
    file: Path | None = key(
        None,
        "path of a .npz or .csv file of points, with a column 'weight' if they differ",
        "map = points: instead of `points`; relative to the case file",
        only=_MAPPED,
    )
    shares: Shares | None = key(
        None, "a number ≥ 0 for each point or mean", "map = points, von_mises_fisher: shares (default equal)",
        only=_MAPPED,
    )  # fmt: skip
    latitude: Real = key(
        0.5, "a number between -1.57 and 1.57", "map = latitude_circle: above the plane of e₁, e₂", "rad", _MAPPED,
        ge=-1.57, le=1.57,
    )  # fmt: skip
    amplitude: Real = key(
        0.5, "a number between 0 and 1.57", "map = wave: largest latitude", "rad", _MAPPED, ge=0, le=1.57
    )
    waves: Integer = key(
        3, "an integer between 1 and 1e6", "map = wave: number of waves", only=_MAPPED, ge=1, le=1_000_000
    )
    turns: Real = key(3.0, "a number between 0 and 1e6", "map = spiral: number of turns", only=_MAPPED, ge=0, le=1e6)
    means: tuple[Direction, ...] | None = key(
        None, "a list of directions", "map = von_mises_fisher: means, normalised (default e₁)", only=_MAPPED
    )
    kappas: Vector | None = key(
        None, "a number ≥ 0 for each of the means", "map = von_mises_fisher: concentrations (default 10)", only=_MAPPED
    )
    form: Literal["linear", "exponential"] = key(
        "exponential",
        "'linear' or 'exponential'",
        "cos ω(ξ−ζ) times ⟨x,y⟩ (`linear`, which ignores A, A = 0 as well) or times the attention kernel",
        only=("toeplitz",),
    )
    frequency: Real | None = key(
        None, "a number from -1e9 to 1e9", "ω (default 2π: a whole turn)", "rad", ("toeplitz",), ge=-1e9, le=1e9
    )
    decay: Literal["exponential", "gaussian", "cauchy", "triangle", "window", "cosine"] = key(
        "exponential",
        "'exponential', 'gaussian', 'cauchy', 'triangle', 'window' or 'cosine'",
        "b(r): e^{−r}, e^{−r²/2}, 1/(1+r²), max(1−r, 0), 1 for r ≤ 1 and else 0, ½(1 + cos min(πr, π)); "
        "r = |ξ−ζ|/length",
        only=("distance_bias",),
    )
    length: Real = key(
        0.2, "a number between 1e-9 and 1e9", "length of the decay", only=("distance_bias",), ge=1e-9, le=1e9
    )
    periodic: Flag = key(False, "true or false", "|ξ−ζ| along the circle of circumference 1", only=("distance_bias",))

    @property
    def labelled(self) -> bool:
        """Whether tokens carry labels at all."""
        return self.kernel != "usa" or self.labels is not None or self.law in {"weights", "atoms"}

    @property
    def mapped(self) -> bool:
        """Whether a target map is in use."""
        return self.kernel == "prefix" or self.law == "orbit"


def unused_labels(table: Auxiliary) -> Iterator[Unused]:
    """Keys that were set but mean nothing with the law of labels, or with the map, that there is."""
    yield from unused(table, "law", OF_LAW)
    if table.mapped:
        yield from unused(table, "map", OF_MAP)
    elif table.kernel == "rope":
        for name in ("map", *OF_MAP):
            if was_set(table, name):
                here = f"here kernel = 'rope' and law = {table.law!r}"
                yield name, f"belongs to kernel = 'prefix' or law = 'orbit'; {here}", True


def auxiliary_mistakes(table: Auxiliary, d: int) -> Iterator[tuple[str, str]]:
    """(key, message) for every mistake of the table, less its unused keys, that one key alone does not show, in R^d."""
    yield from _label_mistakes(table)
    yield from _angle_mistakes(table)
    if table.kernel == "rope":
        yield from _plane_mistakes(table, d)
    if table.kernel == "rope_general":
        yield from _generator_mistakes(table, d)
    yield from _map_mistakes(table, d)


def _label_mistakes(table: Auxiliary) -> Iterator[tuple[str, str]]:
    if table.law in {"weights", "atoms"}:
        needed = getattr(table, table.law)
        if not needed:
            yield f"auxiliary.{table.law}", f"missing, required with law = '{table.law}': a list of numbers"
        elif table.law == "atoms" and table.weights is not None and len(table.weights) != len(needed):
            yield "auxiliary.weights", f"has {len(table.weights)} numbers: {len(needed)}, one for each of the atoms"
        if needed and table.labels not in {None, len(needed)}:
            yield "auxiliary.labels", f"{table.labels} is not allowed: {table.law} names {len(needed)} labels"
    if table.law == "orbit" and (table.kernel != "rope" or len(table.planes) != 1):
        yield "auxiliary.law", "'orbit' needs kernel = 'rope' with one plane"


def _angle_mistakes(table: Auxiliary) -> Iterator[tuple[str, str]]:
    """Frequencies times labels: the angles ωξ."""
    used = {"rope": table.frequencies, "rope_general": table.frequencies, "toeplitz": (table.frequency or 0.0,)}
    largest = max(map(abs, used.get(table.kernel) or ()), default=0.0) * max(map(abs, table.atoms or ()), default=1.0)
    if table.law == "atoms" and largest > _LARGEST:
        yield (
            "auxiliary.atoms",
            f"the angles ωξ reach {largest:.3g} rad: at most {_LARGEST:g}, beyond which they are round-off",
        )


def _plane_mistakes(table: Auxiliary, d: int) -> Iterator[tuple[str, str]]:
    if not table.planes:
        yield "auxiliary.planes", "[] is not allowed: at least one pair of axes"
        return
    for plane in table.planes:
        if plane[0] == plane[1] or not set(plane) <= set(range(1, d + 1)):
            yield "auxiliary.planes", f"{list(plane)} is not allowed: two different axes from 1 to {d}"
            return
    if table.frequencies is not None and len(table.frequencies) != len(table.planes):
        yield (
            "auxiliary.frequencies",
            f"has {len(table.frequencies)} numbers: {len(table.planes)}, one for each of the planes",
        )
    if table.law == "orbit" and 0.0 in (table.frequencies or ()):
        yield "auxiliary.frequencies", "[0.0] is not allowed with law = 'orbit': a number other than 0"


def _generator_mistakes(table: Auxiliary, d: int) -> Iterator[tuple[str, str]]:
    count = len(table.generators)
    if count == 0:
        yield "auxiliary.generators", f"missing, required with kernel = 'rope_general': skew {d} × {d} matrices"
        return
    wrong = next((len(S) for S in table.generators if len(S) != d), None)
    if wrong is not None:
        yield "auxiliary.generators", f"has a generator of {wrong} rows: {d} each"
    for name in ("functions", "frequencies", "amplitudes"):
        values = getattr(table, name)
        if values is not None and len(values) != count:
            yield f"auxiliary.{name}", f"has {len(values)} entries: {count}, one for each of the generators"


def _map_mistakes(table: Auxiliary, d: int) -> Iterator[tuple[str, str]]:
    if table.u is not None and len(table.u) != d:
        yield "auxiliary.u", f"has {len(table.u)} numbers: {d}"
    if not table.mapped:
        return
    least, most = _DIMENSIONS.get(table.map, (2, 1000))
    if not least <= d <= most:
        yield "auxiliary.map", f"{table.map!r} is not allowed with d = {d}: d between {least} and {most}"
    for name in ("points", "means"):
        wrong = next((len(point) for point in getattr(table, name) or () if len(point) != d), None)
        if wrong is not None:
            yield f"auxiliary.{name}", f"has a direction of {wrong} numbers: {d} each"
    yield from _map_lengths(table)


def _map_lengths(table: Auxiliary) -> Iterator[tuple[str, str]]:
    if table.map == "points" and (table.points is None) == (table.file is None):
        yield "auxiliary.points", "give either points or file with map = 'points'"
    if table.points == ():
        yield "auxiliary.points", "[] is not allowed: at least one direction"
    if table.file is not None and table.shares is not None:
        yield "auxiliary.shares", "give them as the file's column 'weight'"
    entries = {"points": table.points, "von_mises_fisher": table.means or ((),)}.get(table.map)
    lists = {"shares": table.shares, "kappas": table.kappas if table.map == "von_mises_fisher" else None}
    for name, values in lists.items():
        if entries is not None and values is not None and len(values) != len(entries):
            yield f"auxiliary.{name}", f"has {len(values)} numbers: {len(entries)}, one for each"
    if min(table.kappas or (0.0,)) < 0.0:
        yield "auxiliary.kappas", f"{list(table.kappas or ())} is not allowed: numbers ≥ 0"
