"""Run the members of a sweep one after the other: each in its own folder, all in sweep.csv."""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

from mpi4py import MPI

from solver.case.load import CaseError
from solver.case.schema import Case
from solver.case.sweep import Member
from solver.case.write import dump_case
from solver.linear import LinearSolveError
from solver.log import LOG, close_log_files, format_seconds
from solver.parallel import on_root
from solver.results import is_finished, refuse_to_overwrite, write_csv
from solver.sweeps import SweepError
from solver.types import Json

__all__ = ["run_members"]

_LEFT_OUT = {"software", "case", "format_version"}  # of summary.json


def run_members(
    comm: MPI.Comm, members: Sequence[Member], warm: bool, overwrite: bool, solve: Callable[[Case, bool], None]
) -> bool:
    """Run what is not complete yet, keep sweep.csv up to date. Collective.

    A member is complete if its folder holds the summary of the same resolved case. What a member raises for reasons of
    its own (a mesh, a solve, the disk) is reported, and the others still run.

    Args:
        comm: All of its ranks must call.
        members: From `load_members`.
        warm: Start each from the control of the last one that ended well; results then depend on the order.
        overwrite: Run complete members again, and replace results of other cases.
        solve: Solves a case and writes its folder; the flag says whether it may replace what is there.

    Returns:
        Whether all members ended well.

    Raises:
        CaseError: Some folders hold something else than runs of these cases. Nothing has been touched then.
    """
    on_root(comm, lambda: _refuse(members, overwrite))
    states: list[tuple[str, str]] = [("waiting", "")] * len(members)
    started, previous, done = time.perf_counter(), None, 0
    for number, member in enumerate(members):
        case = _started_from(member.case, previous) if warm and previous is not None else member.case
        folder = _folder(case)
        state = on_root(comm, lambda case=case: "replace" if overwrite else _state(case))  # type: ignore[misc]
        if state == "complete":
            LOG.info("%s: complete already", member.name)
            states[number] = ("done", "")
        else:
            left = len(members) - number
            eta = format_seconds((time.perf_counter() - started) / done * left) if done else "unknown"
            LOG.info("member %d of %d: %s (ETA of all: %s)", number + 1, len(members), member.name, eta)
            try:
                solve(case, state != "other")
                states[number] = ("done", "")
            except (CaseError, SweepError, LinearSolveError, OSError) as error:
                LOG.error("%s: %s", member.name, error)
                states[number] = ("failed", str(error).replace("\n", "; "))
            finally:
                close_log_files()
            done += 1
        if states[number][0] == "done":
            previous = folder / "control.npz"
        on_root(comm, lambda: _write_table(members, states))
    return all(state == "done" for state, _ in states)


def _refuse(members: Sequence[Member], overwrite: bool) -> None:
    """Before the first member runs: are there folders that no run may write to?"""
    sweep = _folder(members[0].case).parent
    if sweep.exists() and not sweep.is_dir():
        raise CaseError([f"output.directory: {sweep} is a file; name a folder"])
    problems: list[str] = []
    for member in members:
        if not overwrite and _state(member.case) == "other":
            try:
                refuse_to_overwrite(_folder(member.case), overwrite)
            except CaseError as error:
                problems += error.lines
    if problems:
        raise CaseError(problems)


def _folder(case: Case) -> Path:
    directory = case.output.directory
    assert directory is not None  # resolved
    return directory


def _started_from(case: Case, control: Path) -> Case:
    return case.model_copy(update={"optimizer": case.optimizer.model_copy(update={"start": str(control)})})


def _state(case: Case) -> str:
    """``complete``, ``unfinished`` (a run of the same case that died), or ``other``: nothing, or something else.

    What is `other` is left to `claim_folder` to refuse. Where the folder lies is no part of the case: it may be copied.
    """
    folder = _folder(case)
    try:
        found = tomllib.loads((folder / "case.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "other"
    wanted = tomllib.loads(dump_case(case))
    for table in (found, wanted):
        table.get("output", {}).pop("directory", None)
    if found != wanted:
        return "other"
    return "complete" if is_finished(folder) and _summary(folder) is not None else "unfinished"


def _summary(folder: Path) -> Json | None:
    """Content of summary.json; None where it is missing or damaged."""
    try:
        content = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _write_table(members: Sequence[Member], states: Sequence[tuple[str, str]]) -> None:
    """sweep.csv: a row a member, swept keys first, then ``summary.…`` for all in its summary.json but lists."""
    rows: list[Json] = []
    for member, (state, message) in zip(members, states, strict=True):
        row: Json = {"member": member.name, **{key: _plain(value) for key, value in member.values.items()}}
        row |= {"state": state, "error": message}
        summary = _summary(_folder(member.case)) if state == "done" else None
        if summary is not None:
            row |= _numbers({key: value for key, value in summary.items() if key not in _LEFT_OUT}, "summary.")
        rows.append(row)
    names = list(dict.fromkeys(name for row in rows for name in row))
    path = _folder(members[0].case).parent / "sweep.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_csv(path, names, rows)


def _plain(value: object) -> object:
    return json.dumps(value) if isinstance(value, list) else value


def _numbers(table: Json, prefix: str = "") -> Json:
    """``section.key`` → value, for everything that is not a list."""
    found: Json = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found |= _numbers(value, f"{prefix}{key}.")
        elif not isinstance(value, list):
            found[prefix + key] = value
    return found
