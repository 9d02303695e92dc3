"""Case files that cannot be read, paths in them, and overrides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from casefiles import GOOD, Write, error_lines

from solver.case import CaseError, load_case
from solver.case.load import parse_override

pytestmark = pytest.mark.serial  # nothing here knows of ranks


@pytest.mark.parametrize(
    ("text", "message"),
    [("[geometry\n", "not valid TOML"), ("a = 1\na = 2\n", "not valid TOML"), ("", "missing")],
)
def test_broken_files(text: str, message: str, write: Write) -> None:
    """Catches a parser's traceback."""
    assert message in error_lines(write(text))[0]


def test_missing_directory_and_binary_files(tmp_path: Path) -> None:
    """Catches OSError and UnicodeDecodeError reaching the user."""
    assert "there is no such file" in error_lines(tmp_path / "none.toml")[0]
    assert error_lines(tmp_path)[0].startswith(f"{tmp_path}: cannot be read")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in error_lines(binary)[0]


def test_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    """Catches a file saved by Windows editors being refused for a character nobody sees."""
    path = tmp_path / "bom.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load_case(path).title == "bom"


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
    (line,) = error_lines(write(text), {key: "nowhere/x"})
    assert line.startswith(f"some.toml: {key}: there is no file ")
    assert str(Path.cwd() / "nowhere" / "x") in line


def test_file_and_h_exclude_each_other(tmp_path: Path, write: Write) -> None:
    """Catches one of the two silently ignored."""
    (tmp_path / "ball.msh").write_bytes(b"")
    (line,) = error_lines(write(GOOD), {"geometry.file": str(tmp_path / "ball.msh")})
    assert "either h or file" in line


@pytest.mark.parametrize("key", ["first_step", "layer", "growth"])
def test_key_of_another_alternative_is_said_to_be_unused(
    key: str, write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    """Catches a first_step that has no effect, without a word; and an error for `--set depth.grid=uniform` on a case
    that has one.
    """
    with caplog.at_level("WARNING", logger="turnpike"):
        case = load_case(write(GOOD), {"depth.grid": "uniform", "depth.steps": 4, f"depth.{key}": 2.0})
    assert [record.getMessage() for record in caplog.records] == [
        f"depth.{key} is not used: it belongs to grid = 'graded'; here grid = 'uniform'"
    ]
    assert getattr(case.depth, key) == type(case.depth).model_fields[key].default


MISPLACED: list[tuple[str, Any, str]] = [
    ("depth.steps", 4, "grid = 'uniform'; here grid = 'graded'"),
    ("initial.means", [[1.0, 0.0, 0.0]], "law = 'mixture'; here law = 'von_mises_fisher'"),
    ("initial.file", "points.csv", "law = 'file'; here"),
    ("objective.candidates", 9, "loss = 'bag_of_words'; here loss = 'align'"),
    ("objective.histogram", [1.0, 2.0], "loss = 'bag_of_words'"),
    ("objective.parameters", {"a": 1}, "loss = 'module:factory'"),
    ("attention.parameters", {"a": 1}, "kernel = 'module:factory'"),
    ("ffn.parameters", {"a": 1}, "activation = 'module:factory'"),
]


@pytest.mark.parametrize(("key", "value", "belongs"), MISPLACED, ids=[key for key, _, _ in MISPLACED])
def test_key_of_an_alternative_that_was_not_chosen(key: str, value: Any, belongs: str, write: Write) -> None:
    """Catches keys that would do nothing because the key they belong to was forgotten: there is no choice to read."""
    (line,) = error_lines(write(GOOD), {key: value})
    assert line.startswith(f"some.toml: {key}: belongs to {belongs}")


TYPOS: list[tuple[str, str, dict[str, Any]]] = [
    ("geometry.manifold", "hypersfere", {"geometry.dimension": 5, "attention.eigenvalues": [1.0] * 5}),
    ("attention.kernel", "exponentail", {"attention.parameters": {"a": 1}, "attention.eigenvalues": None}),
    ("ffn.activation", "swish", {"ffn.parameters": {"a": 1}}),
    ("initial.law", "mixed", {"initial.means": [[1.0]], "initial.kappas": [1.0, 2.0], "initial.weights": [1.0]}),
    ("initial.law", "files", {"initial.file": "nowhere.csv"}),
    ("depth.grid", "unifrom", {"depth.steps": 10**8}),
    ("objective.loss", "bag_of_word", {"objective.candidates": 3, "objective.mean": [1.0], "objective.file": "x.csv"}),
    ("optimizer.method", "sweeps", {"optimizer.relaxation": 0.3, "objective.regularization": 0.0}),
    ("depth.gird", "uniform", {"depth.steps": 20}),
]


@pytest.mark.parametrize(("selector", "value", "others"), TYPOS, ids=[f"{key}={value}" for key, value, _ in TYPOS])
def test_a_typo_in_a_selector_is_its_own_mistake_only(
    selector: str, value: str, others: dict[str, Any], write: Write
) -> None:
    """Catches keys called misplaced, or checked, against the default that stands in for what was meant."""
    (line,) = error_lines(write(GOOD), {selector: value, **others})
    assert line.startswith(f"some.toml: {selector}: ")


def test_a_typo_in_a_selector_hides_no_other_mistake(write: Write) -> None:
    """Catches a true mistake held back because its section has another one."""
    overrides = {
        "objective.loss": "alingn",
        "objective.target": [1.0, 0.0],
        "initial.law": "vmf",
        "initial.mean": [1.0],
    }
    keys = [line.split(": ")[1] for line in error_lines(write(GOOD), overrides)]
    assert sorted(keys) == ["initial.law", "initial.mean", "objective.loss", "objective.target"]


def test_coarsest_continuation_mesh_must_carry_kappa_too(write: Write) -> None:
    """Catches a law that only the finest mesh carries: the first mesh of the continuation is solved too."""
    assert load_case(write(GOOD), {"initial.kappa": 10.0}).initial.kappa == 10.0
    (line,) = error_lines(write(GOOD), {"initial.kappa": 10.0, "geometry.continuation": [0.5]})
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
    assert error_lines(path, {"depth.T": "x", "noise.epsilon": -1.0, "a.b": 1})[2:]


def test_title_that_is_no_text(write: Write) -> None:
    """Catches a top-level key that escapes validation."""
    (line,) = error_lines(write(GOOD), {"title": 3})
    assert line.startswith("some.toml: title: 3 is not allowed: text")


def test_unknown_top_level_key(write: Write) -> None:
    """Catches a key written before its section, thus at top level, ignored."""
    (line,) = error_lines(write("epsilon = 0.1\n" + GOOD))
    assert line.startswith("some.toml: epsilon: unknown section or key")
