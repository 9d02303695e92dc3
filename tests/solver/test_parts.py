"""Parts of the user's own, ``module:factory``: found beside the case, built on every rank, refused with a reason."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from mpi4py import MPI

import numpy as np
import pytest
from casefiles import GOOD, error_lines

from solver.attention.create import create_expansion
from solver.case import Case, CaseError, dump_case, load_case
from solver.ffn import create_features
from solver.losses import create_loss
from solver.parallel import on_root
from solver.problem import Problem

PARTS = '''
import numpy as np

import neighbour


class Nearness:
    """1 − mean of e^{κ(⟨x, goal⟩ − 1)}."""

    def __init__(self, goal, kappa):
        self.goal, self.kappa = np.array(goal), kappa

    def statistics(self, x):
        return np.exp(self.kappa * (x @ self.goal - 1))[:, None]

    def value(self, S):
        return 1 - float(S[0])

    def derivative(self, S):
        return -np.ones(1)


def nearness(case, goal, kappa=neighbour.KAPPA):
    return Nearness(goal, kappa)


def indefinite(case, frequency=2.0):
    A = np.diag([1.0, 0.5, 0.2][: case.dimension])
    return lambda x, y: np.sin(frequency * x @ A @ y.T) + 0.2


def swish(case):
    return lambda x: x / (1 + np.exp(-x))


def not_symmetric(case):
    return lambda x, y: np.exp(x[:, :1] + 0 * y[:, 0])


def no_kernel(case):
    return 3


def nan_kernel(case):
    return lambda x, y: np.full((len(x), len(y)), np.nan)


def wrong_shape(case):
    return lambda x: x.sum(axis=-1)


class Flat(Nearness):
    def statistics(self, x):
        return x[:, 0]


def flat(case):
    return Flat([1.0, 0.0, 0.0], 1.0)


class Clashing(Nearness):
    def readings(self, S, mean):
        return {"mass": 1.0}


def clashing(case):
    return Clashing([1.0, 0.0, 0.0], 1.0)


class Batchwise(Nearness):
    def statistics(self, x):
        return x - x.mean(axis=0)


def batchwise(case):
    return Batchwise([1.0, 0.0, 0.0], 1.0)


class Textual(Nearness):
    def value(self, S):
        return "low"


def textual(case):
    return Textual([1.0, 0.0, 0.0], 1.0)


def leaves(case):
    raise SystemExit(0)


def complex_kernel(case):
    return lambda x, y: np.exp(1j * x @ y.T)


def scalar_kernel(case):
    import math

    return lambda x, y: math.exp(x @ y.T)


def kinked(case):
    return lambda x, y: np.maximum(x @ y.T, 0.0)


def nan_somewhere(case):
    return lambda x, y: np.where(np.abs(x[:, :1] - 0.31) < 0.01, np.nan, 1.0) * np.exp(x @ y.T)


def centred(case):
    return lambda x: x - x.mean()


def in_place(case):
    def relu(x):
        x[x < 0] = 0
        return x

    return relu


def growing(case, goal):
    goal.append(0.0)
    return Nearness(goal[:3], 1.0)


def fails(case):
    raise RuntimeError("out of luck")
'''
OWN = {
    "attention.kernel": "my_parts:indefinite",
    "attention.parameters": {"frequency": 1.5},
    "ffn.activation": "my_parts:swish",
    "objective.loss": "my_parts:nearness",
    "objective.parameters": {"goal": [0.0, 1.0, 0.0]},
}


@pytest.fixture
def folder(shared_path: Path, comm: MPI.Comm) -> Path:
    """A case, and the user's modules beside it."""

    def write() -> None:
        (shared_path / "case.toml").write_text(GOOD)
        (shared_path / "my_parts.py").write_text(PARTS)
        (shared_path / "neighbour.py").write_text("KAPPA = 2.0\n")
        (shared_path / "broken.py").write_text("def loss(case):\n    return 1 +\n")

    on_root(comm, write)
    return shared_path


def test_parts_are_found_beside_the_case_and_used(folder: Path, comm: MPI.Comm) -> None:
    """Catches a lookup in the working directory, parameters that do not arrive, and names instead of parts used."""
    case = load_case(folder / "case.toml", OWN)
    problem = Problem(case, comm)
    x = np.array([[0.6, 0.8, 0.0], [0.0, 0.0, 1.0]])
    assert problem.features(x) == pytest.approx(x / (1 + np.exp(-x)))
    assert problem.loss.statistics(x)[:, 0] == pytest.approx(np.exp(2.0 * (x[:, 1] - 1)))
    h = np.sin(1.5 * x @ np.diag([1.0, 0.5, 0.2]) @ x.T) + 0.2
    expansion = problem.expansion
    assert (expansion.features(x) * expansion.signs) @ expansion.features(x).T == pytest.approx(h, abs=1e-9)
    assert expansion.signs.min() == -1


def test_own_parts_give_the_same_on_any_number_of_ranks(folder: Path, comm: MPI.Comm) -> None:
    """Catches parts built on rank 0 only, or pickled on the way."""
    case = load_case(folder / "case.toml", {**OWN, "depth.T": 0.5})
    together, alone = Problem(case, comm), Problem(case, MPI.COMM_SELF)
    W = np.full(alone.control_shape, 0.3)
    (J, g), (exact_J, exact_g) = together.gradient(W), alone.gradient(W)
    assert pytest.approx(exact_J, rel=1e-10) == J
    assert np.abs(g - exact_g).max() <= 1e-10 * np.abs(exact_g).max()


@pytest.mark.serial
def test_gradient_with_own_parts(folder: Path, comm: MPI.Comm) -> None:
    """Catches signs of the expansion lost in the adjoint: Taylor order 2 with an indefinite kernel and an own loss."""
    from solver.verify import checks

    case = load_case(folder / "case.toml", {**OWN, "depth.T": 0.5, "depth.scheme": "euler"})
    found = {check.name: check for check in checks(Problem(case, comm))}
    assert found["Taylor order of the gradient"].passed is True
    assert found["Taylor order of the loss"].passed is None  # it is linear in its averages
    assert found["largest rise of the energy, W = 0"].passed is None  # not promised for an indefinite kernel


@pytest.mark.serial
def test_verify_fails_on_a_wrong_derivative(folder: Path, comm: MPI.Comm) -> None:
    """Catches a check of the user's loss that cannot fail."""
    from solver.verify import checks

    wrong = PARTS.replace("1 - float(S[0])", "float(-np.log(S[0]))").replace("-np.ones(1)", "-1.02 / S")
    on_root(comm, lambda: (folder / "wrong.py").write_text(wrong))
    changes = {"objective.loss": "wrong:nearness", "objective.parameters": {"goal": [0.0, 1.0, 0.0]}, "depth.T": 0.5}
    failed = [
        check.name for check in checks(Problem(load_case(folder / "case.toml", changes), comm)) if not check.passed
    ]
    assert "Taylor order of the loss" in failed
    assert "Taylor order of the gradient" in failed


@pytest.mark.serial
def test_resolved_case_runs_from_anywhere(folder: Path, tmp_path: Path) -> None:
    """Catches a case.toml in the results that still looks for the module beside itself."""
    case = load_case(folder / "case.toml", OWN)
    elsewhere = tmp_path / "results"
    elsewhere.mkdir()
    (elsewhere / "case.toml").write_text(dump_case(case), encoding="utf-8")
    assert load_case(elsewhere / "case.toml") == case.model_copy(update={"title": "case"})


@pytest.mark.serial
def test_run_from_another_directory_under_mpirun(folder: Path, tmp_path: Path) -> None:
    """Catches modules looked up in the working directory, from the command line, on two ranks."""
    mpirun = Path(sys.executable).parent / "mpirun"
    quoted = [f'--set={key}="{value}"' for key, value in OWN.items() if isinstance(value, str)]
    quoted += ["--set=attention.parameters={frequency = 1.5}", "--set=objective.parameters={goal = [0.0, 1.0, 0.0]}"]
    command = [str(mpirun), "-n", "2", sys.executable, "-m", "solver.run", str(folder / "case.toml"), "-o", "out"]
    command += [*quoted, "--set=depth.T=0.5", "--set=output.figures=false", "--set=optimizer.max_iterations=2"]
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    run = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert (tmp_path / "out" / "summary.json").is_file()


Create = Callable[[Case], object]
REFUSED: list[tuple[str, str, str]] = [
    ("objective.loss", "broken:loss", r"cannot be imported: SyntaxError: .*broken\.py, line 2"),
    ("objective.loss", "my_parts:nothing", "there is no function 'nothing' in that module"),
    ("objective.loss", "my_parts:leaves", r"failed: SystemExit: 0 \(my_parts\.py, line \d+\)"),
    ("objective.loss", "my_parts:clashing", "readings named mass are the program's own"),
    ("objective.loss", "my_parts:batchwise", "the value at a point changes with the other points"),
    ("objective.loss", "my_parts:textual", "failed: TypeError: it returns str"),
    ("objective.loss", "my_parts:fails", r"failed: RuntimeError: out of luck \(my_parts\.py, line \d+\)"),
    ("objective.loss", "my_parts:nearness", "failed: TypeError: .*goal"),
    ("objective.loss", "my_parts:flat", r"is no loss: statistics of \(60, 3\) points has shape \(60,\)"),
    ("objective.loss", "my_parts:no_kernel", "returned int, which has no statistics, value, derivative"),
    ("attention.kernel", "my_parts:no_kernel", r"returned int: a function h\(x, y\) is needed"),
    ("attention.kernel", "my_parts:not_symmetric", "not symmetric"),
    ("attention.kernel", "my_parts:nan_kernel", "not finite"),
    ("attention.kernel", "my_parts:complex_kernel", "complex numbers: real ones are needed"),
    ("attention.kernel", "my_parts:scalar_kernel", "failed: TypeError"),
    ("attention.kernel", "my_parts:kinked", "the attention kernel's expansion reaches"),
    ("attention.kernel", "my_parts:nan_somewhere", "not finite|expansion reaches"),
    ("ffn.activation", "my_parts:centred", "the value at a point changes"),
    ("ffn.activation", "my_parts:wrong_shape", r"maps shape \(6, 2\) to \(6,\)"),
]


@pytest.mark.parametrize(("key", "name", "message"), REFUSED)
def test_bad_part_is_bad_input(key: str, name: str, message: str, folder: Path, comm: MPI.Comm) -> None:
    """Catches a traceback, or a part that fails only in the middle of a run."""
    case = load_case(folder / "case.toml", {key: name})
    create: dict[str, Create] = {
        "objective.loss": create_loss,
        "attention.kernel": lambda case: create_expansion(case, comm),
        "ffn.activation": create_features,
    }
    with pytest.raises(CaseError, match=rf"^({key}|attention\.tolerance): .*({message})"):
        create[key](case)


def test_activation_in_place_changes_nothing_else(folder: Path, comm: MPI.Comm) -> None:
    """Catches coordinates handed out to be overwritten: relu in place must give what the built-in relu gives."""
    short = {"depth.T": 0.5}
    own = Problem(load_case(folder / "case.toml", {**short, "ffn.activation": "my_parts:in_place"}), comm)
    named = Problem(load_case(folder / "case.toml", {**short, "ffn.activation": "relu"}), comm)
    x = own.space.x.copy()
    W = np.full(own.control_shape, 0.3)
    assert own.gradient(W)[0] == named.gradient(W)[0]
    own.features(own.space.x)
    assert np.array_equal(own.space.x, x)


def test_parameters_are_copies(folder: Path) -> None:
    """Catches a factory that changes the case: every mesh of the continuation would solve another problem."""
    changes = {"objective.loss": "my_parts:growing", "objective.parameters": {"goal": [0.0, 1.0, 0.0]}}
    case = load_case(folder / "case.toml", changes)
    create_loss(case)
    create_loss(case)
    assert case.objective.parameters == {"goal": [0.0, 1.0, 0.0]}


def test_neighbours_of_another_case_are_not_used(folder: Path, comm: MPI.Comm, shared_path: Path) -> None:
    """Catches helpers cached by name: two folders with a neighbour.py each, in one process."""
    other = shared_path / "other"

    def write() -> None:
        other.mkdir()
        (other / "case.toml").write_text(GOOD)
        (other / "my_parts.py").write_text(PARTS)
        (other / "neighbour.py").write_text("KAPPA = 9.0\n")

    on_root(comm, write)
    changes = {"objective.loss": "my_parts:nearness", "objective.parameters": {"goal": [0.0, 1.0, 0.0]}}
    x = np.array([[1.0, 0.0, 0.0]])
    for where, kappa in ((folder, 2.0), (other, 9.0), (folder, 2.0)):
        loss = create_loss(load_case(where / "case.toml", changes))
        assert loss.statistics(x)[0, 0] == pytest.approx(np.exp(-kappa))


def test_parameters_survive_the_resolved_case(folder: Path, comm: MPI.Comm) -> None:
    """Catches nan and inf lost on the way to case.toml, which would lose the results of a whole run at its end."""
    parameters = {"goal": [0.0, 1.0, 0.0], "kappa": float("inf"), "note": "text", "nested": {"a": [1, 2.5, True]}}
    case = load_case(folder / "case.toml", {"objective.loss": "my_parts:nearness", "objective.parameters": parameters})
    on_root(comm, lambda: (folder / "copy.toml").write_text(dump_case(case), encoding="utf-8"))
    assert load_case(folder / "copy.toml").objective.parameters == parameters


def test_softmax_of_a_kernel_that_is_not_positive(folder: Path, comm: MPI.Comm) -> None:
    """Catches the logarithm of a negative mean field."""
    case = load_case(folder / "case.toml", {**OWN, "attention.normalized": True})
    with pytest.raises(CaseError, match=r"attention\.normalized: the kernel falls to -.*needs a positive kernel"):
        create_expansion(case, comm)


MISSING = [
    ("objective.loss", "elsewhere:loss", "there is no elsewhere.py beside the case file, and no installed module"),
    ("objective.loss", "lib/elsewhere.py:loss", "there is no file"),
    ("objective.loss", "my_parts:", "write module:factory"),
    ("objective.loss", "no such loss", "'align', 'bag_of_words' or 'module:factory'"),
    ("attention.kernel", "rope", "'exponential' or 'module:factory'"),
    ("ffn.activation", "sigmoid", "'gelu' or 'module:factory'"),
]


@pytest.mark.serial
@pytest.mark.parametrize(("key", "name", "message"), MISSING)
def test_missing_module_is_said_when_the_case_is_read(key: str, name: str, message: str, folder: Path) -> None:
    """Catches a typo found only after the mesh was built."""
    line = error_lines(folder / "case.toml", {key: name})[0]
    assert line.startswith(f"case.toml: {key}: ")
    assert message in line


def test_installed_module_is_a_part_too(folder: Path, comm: MPI.Comm) -> None:
    """Catches a lookup beside the case only."""
    assert (
        load_case(folder / "case.toml", {"ffn.activation": "operator:itemgetter"}).ffn.activation
        == "operator:itemgetter"
    )
