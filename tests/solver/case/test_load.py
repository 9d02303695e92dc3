"""Reading cases: every mistake named, all at once, and overrides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solver.case import CaseError, load_case
from solver.case.load import parse_override

pytestmark = pytest.mark.serial  # nothing here knows of ranks

GOOD = """
[geometry]
manifold = "sphere"
h = 0.3
[attention]
eigenvalues = [1.0, 0.65, 0.3]
[noise]
epsilon = 0.02
[depth]
T = 8.0
"""

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A case file with this text."""

    def make(text: str) -> Path:
        path = tmp_path / "some.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return make


def _lines(path: Path, overrides: dict[str, Any] | None = None) -> list[str]:
    with pytest.raises(CaseError) as caught:
        load_case(path, overrides)
    assert str(caught.value) == "\n".join(caught.value.lines)
    assert all("\n" not in line for line in caught.value.lines)
    return caught.value.lines


def test_good_case_and_its_defaults(write: Write) -> None:
    """Catches defaults that differ from the documented ones."""
    case = load_case(write(GOOD))
    assert case.title == "some"
    assert case.dimension == 3
    assert np.array_equal(case.matrix, np.diag([1.0, 0.65, 0.3]))
    assert case.initial_mean == pytest.approx([2**-0.5, 2**-0.5, 0])
    assert case.target == (0.0, 1.0, 0.0)
    assert (case.initial.law, case.initial.kappa) == ("von_mises_fisher", 3.0)
    assert (case.attention.normalized, case.attention.tolerance) == (False, 1e-10)
    assert (case.ffn.activation, case.ffn.bias, case.ffn.width, case.ffn.seed) == ("identity", False, 0, 0)
    depth = case.depth
    assert (depth.grid, depth.first_step, depth.layer, depth.growth) == ("graded", 0.05, 4.0, 1.3)
    assert (depth.scheme, depth.steps) == ("mprk2", None)
    assert (case.objective.loss, case.objective.regularization) == ("align", 0.01)
    optimizer = case.optimizer
    assert (optimizer.method, optimizer.start) == ("lbfgs", "zero")
    assert (optimizer.max_iterations, optimizer.gradient_tolerance) == (200, 1e-3)
    assert (case.output.frames, case.output.formats, case.output.figures) == (81, ("vtx", "vtk"), True)
    assert case.output.directory == Path.cwd() / "results" / "some"
    assert case.geometry.continuation == ()
    assert case.petsc == {}


@pytest.mark.parametrize(("manifold", "d", "h"), [("sphere", 3, 0.1), ("circle", 2, 0.02)])
def test_default_edge_length_depends_on_the_manifold(manifold: str, d: int, h: float, write: Write) -> None:
    """Catches one default for both: 0.1 on the sphere, 0.02 on the circle."""
    text = GOOD.replace("h = 0.3\n", "").replace('"sphere"', f'"{manifold}"')
    case = load_case(write(text), {"attention.eigenvalues": [1.0, 0.65, 0.3][:d]})
    assert case.geometry.h == h
    assert len(case.target) == len(case.initial_mean) == d


# key, value, what the message must hold beside key and value
BAD: list[tuple[str, Any, str]] = [
    ("geometry.manifold", "torus", "'circle' or 'sphere'"),
    ("geometry.h", "fine", "above 0 and up to 1"),
    ("geometry.h", 0.0, "above 0 and up to 1"),
    ("geometry.h", -0.1, "above 0 and up to 1"),
    ("geometry.h", 2.0, "up to 1"),
    ("geometry.h", True, "a number"),
    ("geometry.h", 1e-5, "between 0.002 and 1"),
    ("geometry.continuation", [0.2], "above geometry.h"),
    ("geometry.continuation", [0.4, 0.5], "must fall"),
    ("geometry.continuation", "coarse", "a falling list"),
    ("geometry.allow_coarse", 1, "true or false"),
    ("attention.eigenvalues", [1.0, 0.5], "3 on the sphere"),
    ("attention.eigenvalues", [1.0, 0.5, -0.1], "between 0 and 50"),
    ("attention.eigenvalues", [60.0, 0.5, 0.1], "between 0 and 50"),
    ("attention.eigenvalues", "big", "d numbers"),
    ("attention.eigenvalues", [1.0, "x", 0.1], "d numbers"),
    ("attention.tolerance", 1.0, "between 1e-13 and 0.01"),
    ("attention.tolerance", 1e-20, "between 1e-13 and 0.01"),
    ("noise.epsilon", -1e-3, "≥ 0"),
    ("noise.epsilon", "none", "≥ 0"),
    ("ffn.activation", "sigmoid", "'tanh'"),
    ("ffn.bias", "yes", "true or false"),
    ("ffn.width", 1.5, "an integer"),
    ("ffn.width", -1, "an integer ≥ 0"),
    ("ffn.seed", -1, "an integer ≥ 0"),
    ("initial.mean", [0.0, 0.0, 0.0], "other than zero"),
    ("initial.mean", [1.0, 0.0], "3 on the sphere"),
    ("initial.kappa", -1.0, "≥ 0"),
    ("initial.kappa", 1000.0, "at most"),
    ("depth.T", 0.0, "above 0"),
    ("depth.T", "long", "above 0"),
    ("depth.first_step", 0.0, "above 0"),
    ("depth.first_step", 1e-7, "steps: at most"),
    ("depth.growth", 0.9, "between 1 and 10"),
    ("depth.layer", -1.0, "≥ 0"),
    ("depth.steps", 10, "'uniform'"),
    ("depth.grid", "random", "'graded' or 'uniform'"),
    ("depth.scheme", "rk4", "'mprk2' or 'euler'"),
    ("objective.loss", "hinge", "'align'"),
    ("objective.target", [0.0, 0.0, 0.0], "other than zero"),
    ("objective.target", [1.0, 0.0, 0.0, 0.0], "3 on the sphere"),
    ("objective.regularization", -0.1, "≥ 0"),
    ("optimizer.method", "adam", "'lbfgs' or 'none'"),
    ("optimizer.max_iterations", 10.5, "an integer"),
    ("optimizer.gradient_tolerance", 0.0, "above 0"),
    ("output.frames", 1, "≥ 2"),
    ("output.formats", ["pdf"], "'vtx' and 'vtk'"),
    ("output.figures", "yes", "true or false"),
]


@pytest.mark.parametrize(("key", "value", "allowed"), BAD, ids=[f"{key}={value}" for key, value, _ in BAD])
def test_bad_value_is_one_line_with_key_value_and_what_is_allowed(
    key: str, value: Any, allowed: str, write: Write
) -> None:
    """Catches a pydantic dump, a message that hides what was wrong, or a bad value that passes."""
    lines = _lines(write(GOOD), {key: value})
    assert len(lines) == 1
    assert lines[0].startswith(f"some.toml: {key}: ")
    assert allowed in lines[0]


SHOWN = [item for item in BAD if not isinstance(item[1], list) and item[0] != "depth.steps"]  # there the key is wrong


@pytest.mark.parametrize(("key", "value", "allowed"), SHOWN, ids=[f"{key}={value}" for key, value, _ in SHOWN])
def test_bad_scalar_is_quoted(key: str, value: Any, allowed: str, write: Write) -> None:
    """Catches a message that does not repeat the value found: with --set and files one must see which was used."""
    (line,) = _lines(write(GOOD), {key: value})
    shown = [str(value), f"{value:g}"] if isinstance(value, int | float) else [repr(value)]
    assert any(text in line for text in shown), line


@pytest.mark.parametrize(
    ("matrix", "problem"),
    [
        ([[1.0, 0.2, 0.0], [0.1, 1.0, 0.0], [0.0, 0.0, 1.0]], "not symmetric"),
        ([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]], "eigenvalues -1"),
        ([[1.0, 0.0], [0.0, 1.0]], "3 on the sphere"),
        ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], "not square"),
        ([[60.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], "between 0 and 50"),
        ([], "3 on the sphere"),
        ("identity", "symmetric positive semidefinite"),
    ],
)
def test_bad_matrix(matrix: Any, problem: str, write: Write) -> None:
    """Catches an A that is no kernel of a gradient flow, or of another dimension, or a numpy error in its place."""
    lines = _lines(write(GOOD.replace("eigenvalues = [1.0, 0.65, 0.3]", "")), {"attention.matrix": matrix})
    assert len(lines) == 1
    assert lines[0].startswith("some.toml: attention.matrix: ")
    assert problem in lines[0]


def test_good_matrix(write: Write) -> None:
    """Catches a symmetric positive semidefinite matrix refused for round-off in its zero eigenvalue."""
    v = np.array([1.0, 2.0, -1.0]) / np.sqrt(6)
    matrix = (3 * np.outer(v, v)).tolist()
    case = load_case(write(GOOD.replace("eigenvalues = [1.0, 0.65, 0.3]", "")), {"attention.matrix": matrix})
    assert np.array_equal(case.matrix, matrix)


@pytest.mark.parametrize("overrides", [{"attention.matrix": np.eye(3).tolist()}, {"attention.eigenvalues": None}])
def test_exactly_one_of_eigenvalues_and_matrix(overrides: dict[str, Any], write: Write) -> None:
    """Catches one silently winning over the other, and A missing altogether."""
    lines = _lines(write(GOOD), overrides)
    assert len(lines) == 1
    assert "either eigenvalues (3 numbers) or matrix (3 × 3)" in lines[0]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("key", ["noise.epsilon", "depth.T", "objective.regularization", "initial.kappa"])
def test_non_finite_numbers(key: str, value: str, write: Write) -> None:
    """Catches TOML's nan and inf, which pass every comparison or become endless runs."""
    lines = _lines(write(GOOD), {key: float(value)})
    assert len(lines) == 1
    assert lines[0].startswith(f"some.toml: {key}: ")


@pytest.mark.parametrize("key", ["initial.mean", "objective.target", "attention.eigenvalues", "geometry.continuation"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_entries(key: str, value: float, write: Write) -> None:
    """Catches nan inside a list."""
    lines = _lines(write(GOOD), {key: [value, 0.5, 0.4]})
    assert [line.split(": ")[1] for line in lines] == [key]


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("geometry.hh", "did you mean 'h'"),
        ("noise.epsilom", "did you mean 'epsilon'"),
        ("depth.Time", "allowed: "),
        ("objectiv.loss", "did you mean 'objective'"),
        ("optimizer.tol", "gradient_tolerance"),
    ],
)
def test_unknown_key(key: str, hint: str, write: Write) -> None:
    """Catches a misspelt key ignored: the run would use the default without a word."""
    lines = _lines(write(GOOD), {key: 1.0})
    assert len(lines) == 1
    assert lines[0].startswith(f"some.toml: {key if 'objectiv.' not in key else 'objectiv'}: unknown")
    assert hint in lines[0]


@pytest.mark.parametrize("section", ["geometry", "attention", "noise", "depth"])
def test_missing_required_section(section: str, write: Write) -> None:
    """Catches a default for what the user must decide, or a KeyError."""
    import tomllib

    import tomli_w

    raw = tomllib.loads(GOOD)
    del raw[section]
    lines = _lines(write(tomli_w.dumps(raw)))
    assert len(lines) == 1
    assert lines[0].startswith(f"some.toml: {section}")
    assert "missing" in lines[0]


@pytest.mark.parametrize("key", ["geometry.manifold", "noise.epsilon", "depth.T"])
def test_missing_required_key(key: str, write: Write) -> None:
    """Catches the same for single keys; the message says what to write."""
    line = {"geometry.manifold": 'manifold = "sphere"\n', "noise.epsilon": "epsilon = 0.02\n", "depth.T": "T = 8.0\n"}
    (message,) = _lines(write(GOOD.replace(line[key], "")))
    assert message.startswith(f"some.toml: {key}: missing, required: ")


def test_section_that_is_no_table(write: Write) -> None:
    """Catches `noise = 0.1` ending in an AttributeError."""
    text = "noise = 0.1\n" + GOOD.replace("[noise]\nepsilon = 0.02\n", "")
    (message,) = _lines(write(text))
    assert message.startswith("some.toml: noise: 0.1 is not allowed")


def test_all_mistakes_at_once(write: Write) -> None:
    """Catches a loader that stops at the first mistake, or whose field errors hide the errors across keys."""
    text = """
[geometry]
manifold = "circle"
h = 0.1
continuation = [0.05]
colour = "red"
[attention]
eigenvalues = [1.0, 0.65, 0.3]
[noise]
epsilon = -1.0
[initial]
kappa = 1e6
[depth]
T = "long"
grid = "uniform"
[objective]
loss = "hinge"
target = [0.0, 0.0]
[optimizer]
method = "newton"
start = "nowhere.npz"
[petsc]
ksp_rtol = [1]
"""
    lines = _lines(write(text))
    keys = sorted(line.split(": ")[1] for line in lines)
    assert keys == sorted(
        [
            "geometry.continuation",
            "geometry.colour",
            "attention.eigenvalues",
            "noise.epsilon",
            "initial.kappa",
            "depth.T",
            "depth.steps",
            "objective.loss",
            "objective.target",
            "optimizer.method",
            "optimizer.start",
            "petsc.ksp_rtol",
        ]
    )


def test_no_consequential_errors_without_a_manifold(write: Write) -> None:
    """Catches one mistake reported many times: with the manifold unknown, lengths mean nothing."""
    lines = _lines(write(GOOD.replace('"sphere"', '"torus"')), {"initial.mean": [1.0, 0.0]})
    assert len(lines) == 1
    assert "geometry.manifold" in lines[0]


LATER: list[tuple[str, Any]] = [
    ("geometry.manifold", "hypersphere"),
    ("geometry.adapt", True),
    ("geometry.tolerance", 0.1),
    ("geometry.max_nodes", 100),
    ("geometry.dimension", 5),
    ("attention.normalized", True),
    ("initial.law", "mixture"),
    ("initial.law", "uniform"),
    ("initial.perturbation", 0.1),
    ("depth.grid", "adaptive"),
    ("objective.loss", "bag_of_words"),
    ("objective.loss", "mine:loss"),
    ("objective.candidates", 8),
    ("objective.temperature", 1.0),
    ("optimizer.method", "sweep"),
    ("optimizer.method", "gradient"),
    ("optimizer.method", "newton"),
    ("optimizer.start", "steer"),
    ("optimizer.anderson", 5),
    ("output.memory", "low"),
    ("particles.n", 64),
    ("auxiliary.kernel", "rope"),
    ("sweep.depth", [40, 80]),
]


@pytest.mark.parametrize(("key", "value"), LATER, ids=[f"{key}={value}" for key, value in LATER])
def test_later_keys_say_not_yet(key: str, value: Any, write: Write) -> None:
    """Catches a reserved key called unknown or a typo, or worse: accepted and ignored."""
    lines = _lines(write(GOOD), {key: value})
    assert len(lines) == 1
    section = key.partition(".")[0]
    named = section if section in {"particles", "auxiliary", "sweep"} else key
    assert lines[0].startswith(f"some.toml: {named}: ")
    assert "not available yet" in lines[0]


def test_normalized_false_is_available(write: Write) -> None:
    """Catches a key refused at its default."""
    assert load_case(write(GOOD), {"attention.normalized": False}).attention.normalized is False


@pytest.mark.parametrize(
    ("text", "message"),
    [("[geometry\n", "not valid TOML"), ("a = 1\na = 2\n", "not valid TOML"), ("", "missing")],
)
def test_broken_files(text: str, message: str, write: Write) -> None:
    """Catches a parser's traceback."""
    assert message in _lines(write(text))[0]


def test_missing_directory_and_binary_files(tmp_path: Path) -> None:
    """Catches OSError and UnicodeDecodeError reaching the user."""
    assert "there is no such file" in _lines(tmp_path / "none.toml")[0]
    assert _lines(tmp_path)[0].startswith(f"{tmp_path}: cannot be read")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in _lines(binary)[0]


def test_byte_order_mark_is_said_or_ignored(tmp_path: Path) -> None:
    """Catches a file saved by Windows editors ending in an exception that is no CaseError."""
    path = tmp_path / "bom.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert "not valid TOML" in _lines(path)[0]


def test_paths_are_relative_to_the_case_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches paths relative to wherever the user happens to stand."""
    folder, elsewhere = tmp_path / "cases", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for name in ("ball.msh", "control.npz"):
        (folder / name).write_bytes(b"")
    text = GOOD.replace("h = 0.3", 'file = "ball.msh"')
    (folder / "x.toml").write_text(text + '[optimizer]\nstart = "control.npz"\n[output]\ndirectory = "../out"\n')
    case = load_case(Path("../cases/x.toml"))
    assert case.geometry.file is not None
    assert case.geometry.file.resolve() == (folder / "ball.msh").resolve()
    assert Path(case.optimizer.start).resolve() == (folder / "control.npz").resolve()
    assert case.output.directory is not None
    assert case.output.directory.resolve() == (tmp_path / "out").resolve()
    assert all(Path(p).is_absolute() for p in (case.geometry.file, case.optimizer.start, case.output.directory))
    # Overrides come from the shell, and are relative to it.
    (elsewhere / "other.npz").write_bytes(b"")
    case = load_case("../cases/x.toml", {"optimizer.start": "other.npz"})
    assert Path(case.optimizer.start).resolve() == (elsewhere / "other.npz").resolve()


@pytest.mark.parametrize("key", ["geometry.file", "optimizer.start"])
def test_missing_files_are_named(key: str, tmp_path: Path, write: Write) -> None:
    """Catches a missing file found only after the mesh is built, or named without its folder."""
    text = GOOD.replace("h = 0.3\n", "") if key == "geometry.file" else GOOD
    (line,) = _lines(write(text), {key: "nowhere/x"})
    assert line.startswith(f"some.toml: {key}: there is no file ")
    assert str(Path.cwd() / "nowhere" / "x") in line


def test_file_and_h_exclude_each_other(tmp_path: Path, write: Write) -> None:
    """Catches one of the two silently ignored."""
    (tmp_path / "ball.msh").write_bytes(b"")
    (line,) = _lines(write(GOOD), {"geometry.file": str(tmp_path / "ball.msh")})
    assert "either h or file" in line


@pytest.mark.parametrize("key", ["first_step", "layer", "growth"])
def test_graded_keys_on_a_uniform_grid(key: str, write: Write) -> None:
    """Catches a first_step that has no effect, without a word."""
    lines = _lines(write(GOOD), {"depth.grid": "uniform", "depth.steps": 4, f"depth.{key}": 1.0})
    assert len(lines) == 1
    assert lines[0].startswith(f"some.toml: depth.{key}: belongs to grid = 'graded'")


def test_coarsest_continuation_mesh_must_carry_kappa_too(write: Write) -> None:
    """Catches a law that only the finest mesh carries: the first mesh of the continuation is solved too."""
    assert load_case(write(GOOD), {"initial.kappa": 10.0}).initial.kappa == 10.0
    (line,) = _lines(write(GOOD), {"initial.kappa": 10.0, "geometry.continuation": [0.5]})
    assert line.startswith("some.toml: initial.kappa: 10 is too sharp for geometry.continuation = 0.5: at most 4")


def test_directions_are_normalised(write: Write) -> None:
    """Catches a mean or target used at the length it was written."""
    case = load_case(write(GOOD), {"initial.mean": [3.0, 0.0, 4.0], "objective.target": [0.0, -7.0, 0.0]})
    assert case.initial_mean == pytest.approx([0.6, 0.0, 0.8])
    assert case.target == (0.0, -1.0, 0.0)
    assert case.initial.mean == case.initial_mean


def test_integers_serve_as_numbers(write: Write) -> None:
    """Catches `T = 80` refused because it lacks a point."""
    case = load_case(write(GOOD), {"depth.T": 80, "attention.eigenvalues": [2, 1, 0]})
    assert case.depth.T == 80.0
    assert case.matrix[0][0] == 2.0


def test_case_is_frozen(write: Write) -> None:
    """Catches a case changed after it was validated and written to the results folder."""
    case = load_case(write(GOOD))
    with pytest.raises(ValueError, match="frozen"):
        case.depth.T = 3.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("depth.T=40", "depth.T", 40),
        ("depth.T = 40.5", "depth.T", 40.5),
        ("noise.epsilon=1e-2", "noise.epsilon", 0.01),
        ("depth.scheme=euler", "depth.scheme", "euler"),
        ('depth.scheme="euler"', "depth.scheme", "euler"),
        ("geometry.continuation=[0.3, 0.15]", "geometry.continuation", [0.3, 0.15]),
        ("ffn.bias=true", "ffn.bias", True),
        ("optimizer.start=runs/a=b/control.npz", "optimizer.start", "runs/a=b/control.npz"),
        ("title=", "title", ""),
        ("title=two words", "title", "two words"),
    ],
)
def test_parse_override(text: str, key: str, value: Any) -> None:
    """Catches --set values left as text (T = '40'), or cut at a second =."""
    found = parse_override(text)
    assert found == (key, value)
    assert type(found[1]) is type(value)


def test_override_cannot_smuggle_in_a_second_key() -> None:
    """Catches a value with a line break read as further TOML."""
    key, value = parse_override("depth.scheme=1\nT = 3")
    assert key == "depth.scheme"
    assert value != 1


@pytest.mark.parametrize("text", ["depth.T", "=3", " = 3", ""])
def test_bad_override(text: str) -> None:
    """Catches a --set without = or key that ends in an IndexError or is ignored."""
    with pytest.raises(CaseError, match=r"section\.key=value"):
        parse_override(text)


def test_overrides_win_and_are_validated(write: Write) -> None:
    """Catches overrides applied after validation, or not at all, and a new section that cannot be set."""
    path = write(GOOD)
    case = load_case(path, {"depth.T": 40, "petsc.ksp_rtol": 1e-12, "title": "mine"})
    assert (case.depth.T, case.petsc, case.title) == (40.0, {"ksp_rtol": 1e-12}, "mine")
    assert load_case(path).depth.T == 8.0
    assert _lines(path, {"depth.T": "x", "noise.epsilon": -1.0, "a.b": 1})[2:]


def test_title_that_is_no_text(write: Write) -> None:
    """Catches a top-level key that escapes validation."""
    (line,) = _lines(write(GOOD), {"title": 3})
    assert line.startswith("some.toml: title: 3 is not allowed: text")


def test_unknown_top_level_key(write: Write) -> None:
    """Catches a key written before its section, thus at top level, ignored."""
    (line,) = _lines(write("epsilon = 0.1\n" + GOOD))
    assert line.startswith("some.toml: epsilon: unknown section or key")
