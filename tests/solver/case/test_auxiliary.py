"""The [auxiliary] table: every mistake is named, in a line of its own."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from casefiles import GOOD, Write, error_lines

from solver.case import load_case

pytestmark = pytest.mark.serial  # nothing here knows of ranks

Table = dict[str, Any]
TURN = [[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
ROPE: Table = {"kernel": "rope"}
GENERAL: Table = {"kernel": "rope_general", "generators": [TURN]}
PREFIX: Table = {"kernel": "prefix"}
ORBIT: Table = {"kernel": "rope", "law": "orbit"}
POINTS: Table = {"kernel": "prefix", "map": "points", "points": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]}
VMF: Table = {"kernel": "prefix", "map": "von_mises_fisher"}
NAMES = "'usa', 'rope', 'rope_general', 'prefix', 'toeplitz', 'distance_bias'"
MAPS = "'points', 'latitude_circle', 'great_circle', 'wave', 'spiral', 'uniform', 'von_mises_fisher'"
SHARES = "numbers ≥ 0, not all zero, with a finite sum"
ZERO = "is zero: a direction needs a vector other than zero"

# One key alone: what else is set, the key, its value, the message.
FIELDS: list[tuple[Table, str, Any, str]] = [
    ({}, "kernel", "alibi", f"'alibi' is not allowed: {NAMES} or 'module:factory'"),
    ({"kernel": "operator:itemgetter"}, "parameters", 3, "3 is not allowed: a table [auxiliary]"),
    (ROPE, "labels", 0, "0 is not allowed: an integer between 1 and 1e8"),
    (ROPE, "labels", 1.5, "1.5 is not allowed: an integer between 1 and 1e8"),
    (ROPE, "labels", 10**9, "1000000000 is not allowed: an integer between 1 and 1e8"),
    (ROPE, "law", "normal", "'normal' is not allowed: 'grid', 'random', 'weights', 'atoms' or, for 'rope', 'orbit'"),
    ({**ROPE, "law": "random"}, "seed", -1, "-1 is not allowed: an integer ≥ 0"),
    ({**ROPE, "law": "weights"}, "weights", [1.0, -1.0], f"[1.0, -1.0] is not allowed: {SHARES}"),
    ({**ROPE, "law": "weights"}, "weights", [0.0, 0.0], f"[0.0, 0.0] is not allowed: {SHARES}"),
    ({**ROPE, "law": "weights"}, "weights", [], f"[] is not allowed: {SHARES}"),
    ({**ROPE, "law": "weights"}, "weights", "equal", "'equal' is not allowed: a number ≥ 0 for each label"),
    ({**ROPE, "law": "atoms"}, "atoms", 0.5, "0.5 is not allowed: a list of numbers from -1e9 to 1e9"),
    (ROPE, "start", "y", "'y' is not allowed: 'x' or 'u'"),
    ({**ROPE, "law": "atoms"}, "atoms", [0.0, -1e308], "-1e+308 is not allowed: numbers from -1e+09 to 1e+09"),
    (ROPE, "frequencies", [1e300], "1e+300 is not allowed: numbers from -1e+09 to 1e+09"),
    (GENERAL, "amplitudes", [1e300], "1e+300 is not allowed: numbers from -1e+09 to 1e+09"),
    ({**PREFIX, "map": "spiral"}, "turns", 1e308, "1e+308 is not allowed: a number between 0 and 1e6"),
    ({**PREFIX, "map": "wave"}, "waves", 10**21, f"{10**21} is not allowed: an integer between 1 and 1e6"),
    ({"kernel": "toeplitz"}, "frequency", 1e300, "1e+300 is not allowed: a number from -1e9 to 1e9"),
    ({"kernel": "distance_bias"}, "length", 1e-300, "1e-300 is not allowed: a number between 1e-9 and 1e9"),
    (ROPE, "planes", [[1]], "[1] is not allowed: a list of pairs of different axes from 1 to d"),
    (ROPE, "planes", [1, 2], "1 is not allowed: a list of pairs of different axes from 1 to d"),
    (ROPE, "frequencies", 2.0, "2.0 is not allowed: a number for each of the planes, or of the generators"),
    (GENERAL, "generators", [TURN[:2]], "has a generator that is not square"),
    (GENERAL, "generators", [[[0.0, 1.0], [1.0, 0.0]]], "has a generator that is not skew: S must equal −Sᵀ"),
    (GENERAL, "generators", TURN, "0.0 is not allowed: a list of skew matrices, d rows of d numbers each"),
    (
        GENERAL,
        "functions",
        ["tan"],
        "'tan' is not allowed: 'linear', 'square', 'sine' or 'cosine' for each of the generators",
    ),
    (GENERAL, "amplitudes", ["big"], "'big' is not allowed: a number for each of the generators"),
    (PREFIX, "u", [0.0, 0.0, 0.0], ZERO),
    (PREFIX, "u", 1.0, "1.0 is not allowed: d numbers, not all zero"),
    (PREFIX, "map", "square", f"'square' is not allowed: {MAPS} or 'module:factory'"),
    ({**PREFIX, "map": "operator:itemgetter"}, "map_parameters", 3, "3 is not allowed: a table [auxiliary]"),
    (POINTS, "points", [[0.0, 0.0, 0.0]], ZERO),
    (POINTS, "points", [1.0, 0.0, 0.0], "1.0 is not allowed: a list of directions"),
    (
        POINTS,
        "file",
        3,
        "3 is not allowed: path of a .npz or .csv file of points, with a column 'weight' if they differ",
    ),
    (POINTS, "shares", [-1.0, 2.0], f"[-1.0, 2.0] is not allowed: {SHARES}"),
    ({**PREFIX, "map": "latitude_circle"}, "latitude", 1.6, "1.6 is not allowed: a number between -1.57 and 1.57"),
    ({**PREFIX, "map": "wave"}, "amplitude", -0.1, "-0.1 is not allowed: a number between 0 and 1.57"),
    ({**PREFIX, "map": "wave"}, "waves", 0, "0 is not allowed: an integer between 1 and 1e6"),
    ({**PREFIX, "map": "spiral"}, "turns", -1.0, "-1.0 is not allowed: a number between 0 and 1e6"),
    (VMF, "means", [[0.0, 0.0, 0.0]], ZERO),
    (VMF, "kappas", "sharp", "'sharp' is not allowed: a number ≥ 0 for each of the means"),
    ({"kernel": "toeplitz"}, "form", "quadratic", "'quadratic' is not allowed: 'linear' or 'exponential'"),
    ({"kernel": "toeplitz"}, "frequency", "high", "'high' is not allowed: a number from -1e9 to 1e9"),
    (
        {"kernel": "distance_bias"},
        "decay",
        "alibi",
        "'alibi' is not allowed: 'exponential', 'gaussian', 'cauchy', 'triangle', 'window' or 'cosine'",
    ),
    ({"kernel": "distance_bias"}, "length", 0.0, "0.0 is not allowed: a number between 1e-9 and 1e9"),
    ({"kernel": "distance_bias"}, "periodic", 1, "1 is not allowed: true or false"),
]

# Keys that do not fit together: all that is set, the key named, the message.
ACROSS: list[tuple[Table, str, str]] = [
    ({"parameters": {"a": 1}}, "parameters", "belongs to kernel = 'module:factory'; here kernel = 'usa'"),
    ({"planes": [[1, 3]]}, "planes", "belongs to kernel = 'rope'; here kernel = 'usa'"),
    (
        {"frequencies": [1.0]},
        "frequencies",
        "belongs to kernel = 'rope' or kernel = 'rope_general'; here kernel = 'usa'",
    ),
    ({"generators": [TURN]}, "generators", "belongs to kernel = 'rope_general'; here kernel = 'usa'"),
    ({"u": [0.0, 1.0, 0.0]}, "u", "belongs to kernel = 'prefix'; here kernel = 'usa'"),
    ({"map": "wave"}, "map", "belongs to kernel = 'prefix' or kernel = 'rope'; here kernel = 'usa'"),
    ({"form": "linear"}, "form", "belongs to kernel = 'toeplitz'; here kernel = 'usa'"),
    ({"decay": "window"}, "decay", "belongs to kernel = 'distance_bias'; here kernel = 'usa'"),
    # laws
    ({**ROPE, "seed": 3}, "seed", "belongs to law = 'random'; here law = 'grid'"),
    ({**ROPE, "law": "weights"}, "weights", "missing, required with law = 'weights': a list of numbers"),
    ({**ROPE, "law": "atoms"}, "atoms", "missing, required with law = 'atoms': a list of numbers"),
    ({**ROPE, "law": "atoms", "atoms": []}, "atoms", "missing, required with law = 'atoms': a list of numbers"),
    (
        {**ROPE, "law": "atoms", "atoms": [0.0, 0.5], "weights": [1.0]},
        "weights",
        "has 1 numbers: 2, one for each of the atoms",
    ),
    ({**ROPE, "law": "atoms", "atoms": [0.5], "labels": 2}, "labels", "2 is not allowed: atoms names 1 labels"),
    (
        {**ROPE, "law": "weights", "weights": [1.0, 2.0], "labels": 3},
        "labels",
        "3 is not allowed: weights names 2 labels",
    ),
    (
        {**ROPE, "law": "atoms", "atoms": [0.0, -1e6], "frequencies": [1e9]},
        "atoms",
        "the angles ωξ reach 1e+15 rad: at most 1e+09, beyond which they are round-off",
    ),
    ({**PREFIX, "law": "orbit"}, "law", "'orbit' needs kernel = 'rope' with one plane"),
    ({**ORBIT, "planes": [[1, 2], [1, 3]]}, "law", "'orbit' needs kernel = 'rope' with one plane"),
    # rope
    ({**ROPE, "planes": []}, "planes", "[] is not allowed: at least one pair of axes"),
    ({**ROPE, "planes": [[1, 2], [3, 3]]}, "planes", "[3, 3] is not allowed: two different axes from 1 to 3"),
    ({**ROPE, "planes": [[1, 4]]}, "planes", "[1, 4] is not allowed: two different axes from 1 to 3"),
    ({**ROPE, "planes": [[0, 1]]}, "planes", "[0, 1] is not allowed: two different axes from 1 to 3"),
    ({**ROPE, "frequencies": [1.0, 2.0]}, "frequencies", "has 2 numbers: 1, one for each of the planes"),
    ({**ORBIT, "frequencies": [0.0]}, "frequencies", "[0.0] is not allowed with law = 'orbit': a number other than 0"),
    # rope_general
    (
        {"kernel": "rope_general"},
        "generators",
        "missing, required with kernel = 'rope_general': skew 3 × 3 matrices",
    ),
    ({**GENERAL, "generators": [TURN, [[0.0, 1.0], [-1.0, 0.0]]]}, "generators", "has a generator of 2 rows: 3 each"),
    ({**GENERAL, "functions": []}, "functions", "has 0 entries: 1, one for each of the generators"),
    ({**GENERAL, "frequencies": [1.0, 2.0]}, "frequencies", "has 2 entries: 1, one for each of the generators"),
    ({**GENERAL, "amplitudes": [1.0, 2.0]}, "amplitudes", "has 2 entries: 1, one for each of the generators"),
    # maps
    ({**PREFIX, "u": [1.0, 0.0]}, "u", "has 2 numbers: 3"),
    ({**PREFIX, "points": [[1.0, 0.0, 0.0]]}, "points", "belongs to map = 'points'; here map = 'great_circle'"),
    ({**PREFIX, "latitude": 0.3}, "latitude", "belongs to map = 'latitude_circle'; here map = 'great_circle'"),
    ({**PREFIX, "amplitude": 0.3}, "amplitude", "belongs to map = 'wave'; here map = 'great_circle'"),
    ({**PREFIX, "waves": 2}, "waves", "belongs to map = 'wave'; here map = 'great_circle'"),
    ({**PREFIX, "turns": 2.0}, "turns", "belongs to map = 'spiral'; here map = 'great_circle'"),
    (
        {**PREFIX, "shares": [1.0]},
        "shares",
        "belongs to map = 'points' or map = 'von_mises_fisher'; here map = 'great_circle'",
    ),
    ({**POINTS, "points": [[1.0, 0.0]]}, "points", "has a direction of 2 numbers: 3 each"),
    ({**VMF, "means": [[1.0, 0.0, 0.0, 0.0]]}, "means", "has a direction of 4 numbers: 3 each"),
    ({**PREFIX, "map": "points"}, "points", "give either points or file with map = 'points'"),
    ({**POINTS, "file": __file__}, "points", "give either points or file with map = 'points'"),
    ({**POINTS, "points": []}, "points", "[] is not allowed: at least one direction"),
    (
        {**PREFIX, "map": "points", "file": __file__, "shares": [1.0]},
        "shares",
        "give them as the file's column 'weight'",
    ),
    ({**POINTS, "shares": [1.0]}, "shares", "has 1 numbers: 2, one for each"),
    ({**VMF, "shares": [1.0, 2.0]}, "shares", "has 2 numbers: 1, one for each"),
    ({**VMF, "kappas": [1.0, 2.0]}, "kappas", "has 2 numbers: 1, one for each"),
    ({**VMF, "means": [[1.0, 0.0, 0.0]] * 2, "kappas": [1.0]}, "kappas", "has 1 numbers: 2, one for each"),
    ({**VMF, "kappas": [-1.0]}, "kappas", "[-1.0] is not allowed: numbers ≥ 0"),
    ({**PREFIX, "map": "points", "file": "/nowhere.csv"}, "file", "there is no file /nowhere.csv"),
]


def lines_of(write: Write, table: Table, others: Table | None = None) -> list[str]:
    return error_lines(write(GOOD), {f"auxiliary.{key}": value for key, value in table.items()} | (others or {}))


@pytest.mark.parametrize(("table", "key", "value", "message"), FIELDS, ids=[f"{key}={v}" for _, key, v, _ in FIELDS])
def test_bad_value(table: Table, key: str, value: Any, message: str, write: Write) -> None:
    """Catches a pydantic dump, a value that passes, and a second line for the same mistake."""
    load_case(write(GOOD))
    assert lines_of(write, {**table, key: value}) == [f"some.toml: auxiliary.{key}: {message}"]


@pytest.mark.parametrize(("table", "key", "message"), ACROSS, ids=[f"{key}: {text}" for _, key, text in ACROSS])
def test_keys_that_do_not_fit_together(table: Table, key: str, message: str, write: Write) -> None:
    """Catches an index error, a key that is ignored, and a second line for the same mistake."""
    assert lines_of(write, table) == [f"some.toml: auxiliary.{key}: {message}"]


GOOD_TABLES: list[Table] = [
    {"labels": 4},
    ROPE,
    GENERAL,
    PREFIX,
    ORBIT,
    POINTS,
    VMF,
    {**ROPE, "planes": [[3, 1], [2, 3]], "frequencies": [1.0, 0.0]},
    {**GENERAL, "functions": ["sine"], "frequencies": [3.0], "amplitudes": [0.5]},
    {**ORBIT, "map": "latitude_circle", "latitude": 0.2, "labels": 5, "frequencies": [-1.0]},
    {**POINTS, "shares": [1.0, 0.0], "u": [0.0, 2.0, 0.0], "start": "u"},
    {**VMF, "means": [[1.0, 0.0, 0.0]] * 2, "kappas": [1.0, 0.0], "shares": [1.0, 3.0]},
    {**VMF, "kappas": [4.0]},
    {"kernel": "distance_bias", "law": "atoms", "atoms": [0.0, 2.0], "weights": [1.0, 2.0], "labels": 2},
    {"kernel": "toeplitz", "form": "linear", "frequency": -3.0, "law": "weights", "weights": [1.0, 2.0]},
]


@pytest.mark.parametrize("table", GOOD_TABLES, ids=range(len(GOOD_TABLES)))
def test_good_tables(table: Table, write: Write, caplog: pytest.LogCaptureFixture) -> None:
    """Catches a check that refuses, resets or complains of what is right."""
    with caplog.at_level(logging.WARNING, "turnpike"):
        case = load_case(write(GOOD), {f"auxiliary.{key}": value for key, value in table.items()})
    assert not caplog.records
    for key, value in table.items():
        found = getattr(case.auxiliary, key)
        assert (found if isinstance(found, str | float) else _listed(found)) == value


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, tuple) else value


# A key of an alternative that was not chosen, where one was: the table, the key, why it is not used.
NOT_MAPPED = "belongs to kernel = 'prefix' or law = 'orbit'; here kernel = 'rope' and law = 'grid'"
UNUSED: list[tuple[Table, str, str]] = [
    (
        {"kernel": "toeplitz", "decay": "window"},
        "decay",
        "belongs to kernel = 'distance_bias'; here kernel = 'toeplitz'",
    ),
    ({"kernel": "toeplitz", "u": [1.0]}, "u", "belongs to kernel = 'prefix'; here kernel = 'toeplitz'"),
    (
        {**ROPE, "law": "random", "weights": [1.0], "labels": 2},
        "weights",
        "belongs to law = 'weights' or law = 'atoms'; here law = 'random'",
    ),
    (
        {**ROPE, "law": "weights", "weights": [1.0], "atoms": [1.0, 2.0]},
        "atoms",
        "belongs to law = 'atoms'; here law = 'weights'",
    ),
    ({**ORBIT, "seed": 3}, "seed", "belongs to law = 'random'; here law = 'orbit'"),
    ({**ROPE, "map": "wave"}, "map", NOT_MAPPED),
    ({**ROPE, "law": "grid", "map": "uniform"}, "map", NOT_MAPPED),
    ({**ROPE, "latitude": 0.3}, "latitude", NOT_MAPPED),
    ({**ROPE, "file": "/nowhere.csv"}, "file", NOT_MAPPED),
    ({**POINTS, "latitude": 0.3}, "latitude", "belongs to map = 'latitude_circle'; here map = 'points'"),
    ({**POINTS, "means": [[1.0]]}, "means", "belongs to map = 'von_mises_fisher'; here map = 'points'"),
    ({**POINTS, "kappas": [-1.0]}, "kappas", "belongs to map = 'von_mises_fisher'; here map = 'points'"),
    ({**VMF, "file": "/nowhere.csv"}, "file", "belongs to map = 'points'; here map = 'von_mises_fisher'"),
    (
        {**VMF, "map_parameters": {}},
        "map_parameters",
        "belongs to map = 'module:factory'; here map = 'von_mises_fisher'",
    ),
    (
        {**PREFIX, "map": "operator:itemgetter", "turns": 2.0},
        "turns",
        "belongs to map = 'spiral'; here map = 'operator:itemgetter'",
    ),
    (
        {**ORBIT, "map": "spiral", "latitude": 0.3},
        "latitude",
        "belongs to map = 'latitude_circle'; here map = 'spiral'",
    ),
]


@pytest.mark.parametrize(("table", "key", "why"), UNUSED, ids=[f"{key}: {why}" for _, key, why in UNUSED])
def test_key_of_another_alternative_is_ignored(
    table: Table, key: str, why: str, write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    """Catches an error where the alternative was chosen in so many words, a value that is kept, and checks of it."""
    with caplog.at_level(logging.WARNING, "turnpike"):
        case = load_case(write(GOOD), {f"auxiliary.{name}": value for name, value in table.items()})
    assert [record.getMessage() for record in caplog.records] == [f"auxiliary.{key} is not used: it {why}"]
    assert getattr(case.auxiliary, key) == type(case.auxiliary).model_fields[key].default


BAD_SELECTORS: list[tuple[Table, str]] = [
    ({"kernel": "ropee", "planes": [[1, 3]], "frequencies": [1.0], "law": "orbit"}, "kernel"),
    ({"kernel": "prefixe", "u": [1.0], "map": "points", "points": [[1.0]], "shares": [1.0, 2.0]}, "kernel"),
    ({"kernal": "rope", "planes": [[1, 3]], "law": "orbit"}, "kernal"),
    ({**ROPE, "law": "atom", "atoms": [0.5], "weights": [1.0, 2.0]}, "law"),
    ({**ROPE, "law": "orbits", "map": "wave", "amplitude": 0.3}, "law"),
    ({**PREFIX, "map": "point", "points": [[1.0]], "shares": [1.0, 2.0]}, "map"),
    ({**PREFIX, "map": "vmf", "means": [[1.0]], "kappas": [1.0, 2.0]}, "map"),
    ({**ROPE, "planes": [[1]], "frequencies": [1.0, 2.0]}, "planes"),
    ({**VMF, "means": [[0.0, 0.0, 0.0]], "kappas": [1.0, 2.0], "shares": [1.0, 2.0]}, "means"),
    ({**PREFIX, "map": "points", "file": 3}, "file"),
]


@pytest.mark.parametrize(("table", "key"), BAD_SELECTORS, ids=[f"{key}={table[key]}" for table, key in BAD_SELECTORS])
def test_a_typo_has_no_false_consequences(table: Table, key: str, write: Write) -> None:
    """Catches keys that "belong to kernel = 'rope'; here kernel = 'usa'" for kernel = ropee, and their checks."""
    (line,) = lines_of(write, table)
    assert line.startswith(f"some.toml: auxiliary.{key}: ")


@pytest.mark.parametrize(
    ("name", "dimensions"),
    [
        ("latitude_circle", (3, 1000)),
        ("wave", (3, 1000)),
        ("spiral", (3, 1000)),
        ("uniform", (2, 14)),
        ("von_mises_fisher", (2, 14)),
        ("great_circle", (2, 1000)),
    ],
)
def test_dimensions_of_maps(name: str, dimensions: tuple[int, int], write: Write) -> None:
    """Catches a map without a third axis on the circle, and digits that do not suffice for many axes."""
    for d in (2, 3, 14, 15):
        space: Table = {"geometry.manifold": "hypersphere", "geometry.dimension": d, "geometry.h": None}
        space["attention.eigenvalues"] = [1.0] * d
        if dimensions[0] <= d <= dimensions[1]:
            load_case(write(GOOD), {**space, "auxiliary.kernel": "prefix", "auxiliary.map": name})
            continue
        allowed = f"{name!r} is not allowed with d = {d}: d between {dimensions[0]} and {dimensions[1]}"
        assert lines_of(write, {**PREFIX, "map": name}, space) == [f"some.toml: auxiliary.map: {allowed}"]


def test_all_mistakes_at_once(write: Write) -> None:
    """Catches a check that ends at the first mistake."""
    table = {**ROPE, "planes": [[1, 4]], "seed": 3, "start": "y"}
    keys = [line.split(": ")[1] for line in lines_of(write, table)]
    assert sorted(keys) == [f"auxiliary.{key}" for key in ("planes", "seed", "start")]
    table = {**ORBIT, "planes": [[1, 4]], "map": "von_mises_fisher", "means": [[1.0]], "kappas": [-1.0]}
    keys = [line.split(": ")[1] for line in lines_of(write, table)]
    assert sorted(keys) == [f"auxiliary.{key}" for key in ("kappas", "means", "planes")]


def test_no_consequential_errors_without_a_manifold(write: Write) -> None:
    """Catches lengths compared with a dimension that is not known."""
    planes = {"auxiliary.kernel": "rope", "auxiliary.planes": [[1, 4]]}
    u = {"auxiliary.kernel": "prefix", "auxiliary.u": [1.0], "auxiliary.map": "wave"}
    for changes in (planes, u):
        (line,) = error_lines(write(GOOD.replace('"sphere"', '"torus"')), changes)
        assert line.startswith("some.toml: geometry.manifold: ")


def test_what_other_tables_must_not_ask_for(write: Write) -> None:
    """Catches the logarithm of negative values, and a way to steer that knows no labels."""
    (line,) = lines_of(write, {"kernel": "toeplitz"}, {"attention.normalized": True})
    assert line == (
        "some.toml: attention.normalized: true is not allowed with kernel = 'toeplitz', which has negative values"
    )
    (line,) = lines_of(write, ROPE, {"optimizer.start": "steer"})
    assert line.startswith("some.toml: optimizer.start: 'steer' knows no labels, auxiliary.kernel = 'rope' has")
