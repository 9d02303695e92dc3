"""Reading cases: every mistake named, all at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from casefiles import GOOD, Write, error_lines

from solver.case import load_case

pytestmark = pytest.mark.serial  # nothing here knows of ranks


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
    assert (optimizer.step, optimizer.relaxation, optimizer.anderson) == ("armijo", 0.5, 5)
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
    ("geometry.manifold", "torus", "'circle', 'sphere' or, for particles, 'hypersphere'"),
    ("geometry.h", "fine", "above 0 and up to 1"),
    ("geometry.h", 0.0, "above 0 and up to 1"),
    ("geometry.h", -0.1, "above 0 and up to 1"),
    ("geometry.h", 2.0, "up to 1"),
    ("geometry.h", True, "a number"),
    ("geometry.h", 1e-5, "between 0.002 and 1"),
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
    ("noise.epsilon", -1e-3, "between 0 and 1e6"),
    ("noise.epsilon", "none", "between 0 and 1e6"),
    ("ffn.activation", "sigmoid", "'tanh'"),
    ("ffn.bias", "yes", "true or false"),
    ("ffn.width", 1.5, "an integer"),
    ("ffn.width", -1, "an integer between 0 and 4096"),
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
    ("optimizer.method", "adam", "'sweep', 'gradient' or 'none'"),
    ("optimizer.step", 0.0, "above 0 or 'armijo'"),
    ("optimizer.step", -1, "above 0 or 'armijo'"),
    ("optimizer.step", "wolfe", "above 0 or 'armijo'"),
    ("optimizer.step", True, "above 0 or 'armijo'"),
    ("optimizer.relaxation", 0.0, "above 0 and up to 1"),
    ("optimizer.relaxation", 1.5, "above 0 and up to 1"),
    ("optimizer.relaxation", "half", "above 0 and up to 1"),
    ("optimizer.anderson", -1, "between 0 and 50"),
    ("optimizer.anderson", 2.5, "between 0 and 50"),
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
    lines = error_lines(write(GOOD), {key: value})
    assert len(lines) == 1
    assert lines[0].startswith(f"some.toml: {key}: ")
    assert allowed in lines[0]


SHOWN = [item for item in BAD if not isinstance(item[1], list) and item[0] != "depth.steps"]  # there the key is wrong


@pytest.mark.parametrize(("key", "value", "allowed"), SHOWN, ids=[f"{key}={value}" for key, value, _ in SHOWN])
def test_bad_scalar_is_quoted(key: str, value: Any, allowed: str, write: Write) -> None:
    """Catches a message that does not repeat the value found: with --set and files one must see which was used."""
    (line,) = error_lines(write(GOOD), {key: value})
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
    lines = error_lines(write(GOOD.replace("eigenvalues = [1.0, 0.65, 0.3]", "")), {"attention.matrix": matrix})
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
    lines = error_lines(write(GOOD), overrides)
    assert len(lines) == 1
    assert "either eigenvalues (3 numbers) or matrix (3 × 3)" in lines[0]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("key", ["noise.epsilon", "depth.T", "objective.regularization", "initial.kappa"])
def test_non_finite_numbers(key: str, value: str, write: Write) -> None:
    """Catches TOML's nan and inf, which pass every comparison or become endless runs."""
    lines = error_lines(write(GOOD), {key: float(value)})
    assert len(lines) == 1
    assert lines[0].startswith(f"some.toml: {key}: ")


@pytest.mark.parametrize("key", ["initial.mean", "objective.target", "attention.eigenvalues", "geometry.continuation"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_entries(key: str, value: float, write: Write) -> None:
    """Catches nan inside a list."""
    lines = error_lines(write(GOOD), {key: [value, 0.5, 0.4]})
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
    lines = error_lines(write(GOOD), {key: 1.0})
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
    lines = error_lines(write(tomli_w.dumps(raw)))
    assert len(lines) == 1
    assert lines[0].startswith(f"some.toml: {section}")
    assert "missing" in lines[0]


@pytest.mark.parametrize("key", ["geometry.manifold", "noise.epsilon", "depth.T"])
def test_missing_required_key(key: str, write: Write) -> None:
    """Catches the same for single keys; the message says what to write."""
    line = {"geometry.manifold": 'manifold = "sphere"\n', "noise.epsilon": "epsilon = 0.02\n", "depth.T": "T = 8.0\n"}
    (message,) = error_lines(write(GOOD.replace(line[key], "")))
    assert message.startswith(f"some.toml: {key}: missing, required: ")


def test_section_that_is_no_table(write: Write) -> None:
    """Catches `noise = 0.1` ending in an AttributeError."""
    text = "noise = 0.1\n" + GOOD.replace("[noise]\nepsilon = 0.02\n", "")
    (message,) = error_lines(write(text))
    assert message.startswith("some.toml: noise: 0.1 is not allowed")


def test_all_mistakes_at_once(write: Write) -> None:
    """Catches a loader that stops at the first mistake, or whose field errors hide the errors across keys."""
    text = """
[geometry]
manifold = "circle"
h = 0.1
continuation = [0.2, 0.5]
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
    lines = error_lines(write(text))
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
    lines = error_lines(write(GOOD.replace('"sphere"', '"torus"')), {"initial.mean": [1.0, 0.0]})
    assert len(lines) == 1
    assert "geometry.manifold" in lines[0]


LATER: list[tuple[str, Any]] = [
    ("geometry.adapt", True),
    ("geometry.tolerance", 0.1),
    ("geometry.max_nodes", 100),
    ("depth.grid", "adaptive"),
    ("optimizer.method", "newton"),
    ("output.memory", "low"),
]


@pytest.mark.parametrize(("key", "value"), LATER, ids=[f"{key}={value}" for key, value in LATER])
def test_later_keys_say_not_yet(key: str, value: Any, write: Write) -> None:
    """Catches a reserved key called unknown or a typo, or worse: accepted and ignored."""
    lines = error_lines(write(GOOD), {key: value})
    assert len(lines) == 1
    assert lines[0].startswith(f"some.toml: {key}: ")
    assert "not available yet" in lines[0]


def test_normalized_false_is_available(write: Write) -> None:
    """Catches a key refused at its default."""
    assert load_case(write(GOOD), {"attention.normalized": False}).attention.normalized is False
