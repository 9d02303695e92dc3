"""solver.run as users start it: results folder, exit codes, messages, also on three ranks."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

from postprocess.load import load_run
from solver.case import load_case

pytestmark = pytest.mark.serial

MPIRUN = str(Path(sys.executable).parent / "mpirun")
SMALL = {
    "geometry.h": 0.2,
    "geometry.continuation": "[]",
    "noise.epsilon": 0.1,
    "depth.T": 4.0,
    "depth.first_step": 0.25,
    "depth.layer": 1.0,
    "optimizer.gradient_tolerance": 1e-2,
}


def run(
    *arguments: str, ranks: int = 1, cwd: Path | None = None, module: str = "solver.run"
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *arguments]
    if ranks > 1:
        command = [MPIRUN, "-n", str(ranks), *command]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PMI", "MPI", "HYDRA"))}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd or ROOT, env=environment)


def sets(overrides: dict[str, object]) -> list[str]:
    return [word for key, value in overrides.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("run") / "out"
    return folder, run("cases/turnpike_circle.toml", "-o", str(folder), *sets(SMALL), ranks=3)


def test_everything_is_written(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Would catch a missing file, a missing key of summary.json, or a non-zero exit."""
    folder, process = finished
    assert process.returncode == 0, process.stderr
    assert process.stderr == ""
    names = {"case.toml", "run.log", "summary.json", "trajectory.csv", "history.csv", "control.npz", "density.pvd"}
    assert names | {"density.bp", "density", "figures"} == {entry.name for entry in folder.iterdir()}
    assert (folder / "figures" / "phases.png").stat().st_size > 10_000
    summary = json.loads((folder / "summary.json").read_text())
    keys = {
        "objective": {"J", "loss", "regularization"},
        "optimizer": {
            "method", "iterations", "converged", "gradient_norm", "gradient_norm_initial", "forward_solves",
            "adjoint_solves",
        },
        "invariants": {"mass_error", "min_density", "energy_increase"},
        "energy": {"initial", "minimum", "plateau", "final"},
        "phases": {
            "clustered", "plateau", "escaped", "initial_width", "plateau_width", "final_width", "plateau_variation",
            "displacement", "terminal_rate",
        },
        "timing": {"setup", "forward", "adjoint", "total"},
    }  # fmt: skip
    assert {"format_version", "case", "manifold", "ranks", "dofs", "steps", "software"} <= set(summary)
    for section, wanted in keys.items():
        assert wanted <= set(summary[section]), section
    assert summary["ranks"] == 3
    assert summary["invariants"]["energy_increase"] is None
    assert summary["optimizer"]["converged"] is True


def test_tables_and_control_fit_together(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Would catch columns out of order, rows missing, or a control that is not the one of the trajectory."""
    folder, _ = finished
    loaded = load_run(folder)
    with (folder / "trajectory.csv").open() as file:
        header = next(csv.reader(file))
    assert header == [
        "t", "energy", "energy_gap", "interaction_energy", "mean_1", "mean_2", "angle", "resultant", "dispersion",
        "control_norm", "adjoint_norm", "mass", "min_density", "max_density", "loss",
    ]  # fmt: skip
    with (folder / "history.csv").open() as file:
        header = next(csv.reader(file))
    assert header == [
        "nodes", "iteration", "J", "loss", "regularization", "gradient_norm", "step", "forward_solves",
        "adjoint_solves", "seconds",
    ]  # fmt: skip
    norms = np.linalg.norm(loaded.W.reshape(len(loaded.W), -1), axis=1)
    np.testing.assert_allclose(loaded.trajectory["control_norm"], [*norms, norms[-1]], rtol=1e-14)
    np.testing.assert_array_equal(loaded.trajectory["t"], loaded.t)
    assert loaded.history["J"][-1] == pytest.approx(loaded.summary["objective"]["J"], rel=1e-12)
    J = loaded.summary["objective"]
    penalty = 0.5 * 0.01 * np.diff(loaded.t) @ norms**2
    assert J["regularization"] == pytest.approx(penalty, rel=1e-12)


def test_resolved_case_runs_again_to_the_same_bits(
    finished: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """Would catch a default that is not written out, or a path that only works in one folder."""
    folder, _ = finished
    process = run(str(folder / "case.toml"), "-o", str(tmp_path / "again"), ranks=3, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert (tmp_path / "again" / "control.npz").read_bytes() == (folder / "control.npz").read_bytes()
    assert load_case(folder / "case.toml").title == "Turnpike on the circle"


def test_log_has_progress_and_closing_summary(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Would catch a run that says nothing, says it once per rank, or whose run.log is not what was shown."""
    folder, process = finished
    assert process.stdout.count("converged on") == 1
    assert process.stdout.count("invariants") == 1
    assert (folder / "run.log").read_text() in process.stdout
    assert "ETA" in process.stdout


def test_folder_of_another_run_is_kept(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Would catch results overwritten without being asked to."""
    folder, _ = finished
    before = (folder / "summary.json").read_bytes()
    process = run("cases/turnpike_circle.toml", "-o", str(folder), *sets(SMALL))
    assert process.returncode == 2
    assert "--overwrite" in process.stderr
    assert (folder / "summary.json").read_bytes() == before


def test_overwrite_never_empties_a_folder_of_something_else(tmp_path: Path) -> None:
    """Would catch --overwrite pointed at the wrong folder deleting a user's files."""
    (tmp_path / "thesis.tex").write_text("years of work")
    process = run("cases/turnpike_circle.toml", "-o", str(tmp_path), "--overwrite", *sets(SMALL))
    assert process.returncode == 2
    assert "thesis.tex" in process.stderr
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_default_folder_is_results_below_the_working_folder(tmp_path: Path) -> None:
    """Would catch results landing beside the case file or in the package."""
    fast = {**SMALL, "optimizer.method": "none", "output.formats": "[]", "output.figures": "false"}
    process = run(str(ROOT / "cases" / "untrained.toml"), *sets({**fast, "geometry.h": 0.5}), cwd=tmp_path)
    assert process.returncode == 0, process.stderr + process.stdout
    summary = json.loads((tmp_path / "results" / "untrained" / "summary.json").read_text())
    assert summary["invariants"]["energy_increase"] <= 1e-11
    assert summary["optimizer"]["converged"] is None


def test_strict_and_quiet(tmp_path: Path) -> None:
    """Would catch an unmet tolerance that only a reader of summary.json would notice."""
    arguments = ["cases/turnpike_circle.toml", *sets({**SMALL, "optimizer.max_iterations": 1}), "--quiet"]
    relaxed = run(*arguments, "-o", str(tmp_path / "a"))
    no_files = sets({"output.formats": "[]", "output.figures": "false"})
    strict = run(*arguments, *no_files, "-o", str(tmp_path / "b"), "--strict")
    assert (relaxed.returncode, strict.returncode) == (0, 1)
    lines = relaxed.stdout.splitlines()
    assert lines
    assert all("warning" in line for line in lines)


BAD = {
    "unknown key": ({"noise.epsilonn": 1}, "noise.epsilonn: unknown key: did you mean 'epsilon'?"),
    "wrong type": ({"depth.T": "'long'"}, "depth.T: 'long' is not allowed: a number above 0"),
    "not symmetric": ({"attention.matrix": "[[1,0],[1,1]]"}, "attention.matrix: not symmetric"),
    "negative eigenvalue": ({"attention.eigenvalues": "[1,-1]"}, "attention.eigenvalues: -1 is not allowed"),
    "wrong length": ({"objective.target": "[1,0,0]"}, "objective.target: has 3 numbers: 2 on the circle"),
    "kappa too sharp": (
        {"initial.kappa": 1e7},
        "initial.kappa: 1e+07 is too sharp for geometry.continuation = 0.04: at most 625",
    ),
    "missing file": ({"geometry.file": "nowhere.msh"}, "geometry.file: there is no file"),
    "unknown loss": ({"objective.loss": "likes"}, "objective.loss: 'likes' is not allowed"),
}


@pytest.mark.parametrize("ranks", [1, 3])
def test_bad_input_is_reported_once_and_fast(tmp_path: Path, ranks: int) -> None:
    """Would catch a traceback, a message per rank, or only the first mistake."""
    settings = [("geometry.continuation", "[]")] + [item for bad, _ in BAD.values() for item in bad.items()]
    words = [word for key, value in settings for word in ("--set", f"{key}={value}")]
    process = run("cases/turnpike_circle.toml", "-o", str(tmp_path / "out"), *words, ranks=ranks)
    assert process.returncode == 2
    lines = process.stderr.splitlines()
    for _, message in BAD.values():
        if "kappa" in message or "negative" in message:
            continue
        assert sum(message in line for line in lines) == 1, (message, lines)
    assert all(line.startswith("turnpike_circle.toml: ") for line in lines)
    assert process.stdout == ""
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("module", ["run", "particles.run"])
def test_bad_input_is_reported_before_anything_heavy_is_imported(module: str) -> None:
    """Would catch seconds of imports before a message."""
    heavy = ("dolfinx", "gmsh", "petsc4py", "pyvista", "slepc4py", "matplotlib")
    program = (
        f"import sys\nfrom solver.{module} import main\n"
        "code = main(['cases/untrained.toml', '--set', 'geometry.h=-1'])\n"
        f"print(code, [name for name in {heavy} if name in sys.modules])\n"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert process.stdout.strip() == "2 []", process.stderr


@pytest.mark.parametrize("name", BAD)
def test_each_mistake_alone(tmp_path: Path, name: str) -> None:
    """Would catch a mistake that is only found next to others."""
    overrides, message = BAD[name]
    process = run("cases/turnpike_circle.toml", "-o", str(tmp_path / "out"), *sets(overrides))
    assert process.returncode == 2
    assert message in process.stderr


def test_missing_case_and_bad_options(tmp_path: Path) -> None:
    """Would catch a traceback for a mistyped path or option."""
    missing = run("nowhere.toml", ranks=3)
    assert (missing.returncode, missing.stderr.strip()) == (2, "nowhere.toml: there is no such file")
    unknown = run("cases/untrained.toml", "--fast", ranks=3)
    assert unknown.returncode == 2
    assert unknown.stderr.count("--fast") == 1
    later = run("cases/untrained.toml", "--resume")
    assert (later.returncode, "not available yet" in later.stderr) == (2, True)
    blocked = tmp_path / "file"
    blocked.write_text("")
    process = run("cases/untrained.toml", "-o", str(blocked))
    assert (process.returncode, "is a file" in process.stderr) == (2, True)


def test_exception_on_one_rank_ends_all(tmp_path: Path) -> None:
    """Would catch the other ranks waiting forever for one that died."""
    script = tmp_path / "fault.py"
    script.write_text(
        "import sys, time\n"
        "from mpi4py import MPI\n"
        "import solver.problem as problem\n"
        "real = problem.Problem.steps\n"
        "def steps(self, W, progress=None):\n"
        "    if MPI.COMM_WORLD.rank == 1:\n"
        "        open(sys.argv[1], 'w').write(repr(time.time()))\n"
        "        raise ZeroDivisionError('injected fault')\n"
        "    return real(self, W, progress)\n"
        "problem.Problem.steps = steps\n"
        "from solver.run import main\n"
        "sys.exit(main(sys.argv[2:]))\n"
    )
    stamp = tmp_path / "stamp"
    command = [MPIRUN, "-n", "3", sys.executable, str(script), str(stamp), "cases/turnpike_circle.toml"]
    command += ["-o", str(tmp_path / "out"), *sets(SMALL)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    lasted = time.time() - float(stamp.read_text())
    assert process.returncode not in (0, 2)
    assert "injected fault" in process.stderr
    assert "Traceback" in process.stderr
    assert "[rank 1 of 3]" in process.stderr
    assert lasted < 2.0


def test_wrong_launcher_is_refused() -> None:
    """Would catch N copies that each believe to be alone and write into one folder."""
    command = [sys.executable, "-m", "solver.run", "cases/untrained.toml"]
    environment = {**os.environ, "OMPI_COMM_WORLD_SIZE": "4"}
    process = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, env=environment)
    assert process.returncode == 2
    assert "another MPI" in process.stderr


def test_console_script_and_verify(tmp_path: Path) -> None:
    """Would catch a console script that does not reach its commands, and checks that fail on a shipped case."""
    turnpike = str(Path(sys.executable).parent / "turnpike")
    version = subprocess.run([turnpike, "--version"], capture_output=True, text=True, timeout=60)
    assert version.stdout.startswith("turnpike 0.")
    unknown = subprocess.run([turnpike, "fly"], capture_output=True, text=True, timeout=60)
    assert (unknown.returncode, "'fly' is not a command" in unknown.stderr) == (2, True)
    verify = run("cases/turnpike_circle.toml", *sets({**SMALL, "depth.scheme": "euler"}), module="solver.verify")
    assert verify.returncode == 0, verify.stdout
    assert "all checks passed" in verify.stdout
    assert "FAILED" not in verify.stdout


def test_mesh_file_instead_of_h(tmp_path: Path) -> None:
    """Would catch a mesh file that is ignored, or one that loses positivity being accepted."""
    mesh = tmp_path / "mine.msh"
    made = run("--h", "0.4", "-o", str(mesh), module="meshes.sphere")
    assert made.returncode == 0, made.stderr
    case = tmp_path / "case.toml"
    text = (ROOT / "cases" / "untrained.toml").read_text().replace("h = 0.1", 'file = "mine.msh"')
    case.write_text(text)
    short = sets({"depth.T": 2, "output.formats": "[]", "output.figures": "false"})
    process = run("case.toml", *short, cwd=tmp_path, ranks=3)
    assert process.returncode == 0, process.stderr
    summary = json.loads((tmp_path / "results" / "case" / "summary.json").read_text())
    assert f"{summary['dofs']} vertices" in made.stdout


def test_failed_overwrite_keeps_the_old_results(
    finished: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """Would catch results deleted before the new ones exist: a pinned mesh, a bad start, a start in that folder."""
    folder, _ = finished
    before = {name: (folder / name).read_bytes() for name in ("summary.json", "control.npz", "case.toml", "run.log")}
    (tmp_path / "control.npz").write_bytes(b"nonsense")
    broken = run(
        "cases/turnpike_circle.toml", "-o", str(folder), "--overwrite",
        *sets({**SMALL, "optimizer.start": tmp_path / "control.npz"}),
    )  # fmt: skip
    assert broken.returncode == 2
    assert broken.stderr.startswith("turnpike_circle.toml: optimizer.start: ")
    pinned = run(
        "cases/turnpike_circle.toml", "-o", str(folder), "--overwrite",
        *sets({**SMALL, "geometry.h": 0.5, "noise.epsilon": 1e-4, "depth.T": 20, "initial.kappa": 1}),
    )  # fmt: skip
    assert pinned.returncode == 2
    assert "turnpike_circle.toml: geometry.h: pinned: refine" in pinned.stderr
    assert {name: (folder / name).read_bytes() for name in before} == before


def test_folder_of_a_run_that_died_while_writing(
    finished: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """Would catch a half-written folder that --overwrite refuses for ever, and a user's own files taken for one."""
    from mpi4py import MPI

    from solver.case import CaseError
    from solver.results import PARTIAL_LOG, claim_folder

    half = tmp_path / "half"
    half.mkdir()
    (half / "case.toml").write_text("")
    with pytest.raises(CaseError, match=r"holds case\.toml, but no finished run"):
        claim_folder(MPI.COMM_SELF, half, overwrite=True)
    (half / PARTIAL_LOG).write_text("")
    claim_folder(MPI.COMM_SELF, half, overwrite=True)
    (half / "thesis.tex").write_text("")
    with pytest.raises(CaseError, match=r"holds thesis\.tex"):
        claim_folder(MPI.COMM_SELF, half, overwrite=True)


def test_start_in_the_folder_that_is_overwritten(tmp_path: Path) -> None:
    """Would catch the control being deleted that the run was asked to start from."""
    folder, fast = tmp_path / "out", {**SMALL, "output.formats": "[]", "output.figures": "false"}
    assert run("cases/turnpike_circle.toml", "-o", str(folder), *sets(fast)).returncode == 0
    again = {**fast, "optimizer.start": folder / "control.npz"}
    process = run("cases/turnpike_circle.toml", "-o", str(folder), "--overwrite", *sets(again))
    assert process.returncode == 0, process.stderr
    assert json.loads((folder / "summary.json").read_text())["optimizer"]["iterations"] == 0


def test_fields_that_cannot_be_written_do_not_lose_the_numbers(tmp_path: Path) -> None:
    """Would catch a missing pyvista, or a full disk, taking summary and control with it."""
    script = tmp_path / "fault.py"
    script.write_text(
        "import sys\nsys.modules['pyvista'] = None\nfrom solver.run import main\nsys.exit(main(sys.argv[1:]))\n"
    )
    command = [sys.executable, str(script), "cases/turnpike_circle.toml", "-o", str(tmp_path / "out")]
    command += sets({**SMALL, "output.formats": "['vtk']"})
    process = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert process.returncode == 1
    assert process.stderr.count("\n") == 1
    assert "density.pvd could not be written" in process.stderr
    assert load_run(tmp_path / "out").summary["optimizer"]["converged"] is True


def test_wrong_petsc_options(tmp_path: Path) -> None:
    """Would catch a traceback for an unknown solver, and options from the environment changing the result."""
    unknown = run("cases/turnpike_circle.toml", "-o", str(tmp_path / "a"), *sets({**SMALL, "petsc.ksp_type": "wild"}))
    assert unknown.returncode == 2
    assert unknown.stderr.startswith("turnpike_circle.toml: petsc: PETSc refuses ksp_type = 'wild'")
    fast = [*sets({**SMALL, "output.formats": "[]", "output.figures": "false", "optimizer.method": "none"})]
    values = []
    for name, extra in (("plain", []), ("loose", sets({"petsc.ksp_rtol": 0.5}))):
        process = run("cases/turnpike_circle.toml", "-o", str(tmp_path / name), *fast, *extra)
        assert process.returncode == 0, process.stderr
        values.append(json.loads((tmp_path / name / "summary.json").read_text())["objective"]["J"])
    assert values[1] == pytest.approx(values[0], rel=1e-11)
