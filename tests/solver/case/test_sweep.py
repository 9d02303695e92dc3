"""The members of a sweep, read from a case."""

from __future__ import annotations

from pathlib import Path

import pytest
from casefiles import GOOD, Write

from solver.case import CaseError, load_case
from solver.case.sweep import is_sweep, load_members, moved

pytestmark = pytest.mark.serial

PRODUCT = GOOD + '[sweep]\n"depth.T" = [4.0, 6.0]\n"noise.epsilon" = [0.05, 0.1, 0.2]\n'


def test_product_has_every_combination(write: Write) -> None:
    """Catches a combination left out or done twice, and values that do not reach the case."""
    members, warm = load_members(write(PRODUCT))
    found = [(member.case.depth.T, member.case.noise.epsilon) for member in members]
    assert found == [(T, epsilon) for T in (4.0, 6.0) for epsilon in (0.05, 0.1, 0.2)]
    assert [member.values for member in members][1] == {"depth.T": 4.0, "noise.epsilon": 0.1}
    assert not warm
    assert [member.name for member in members][:2] == ["T=4.0_epsilon=0.05", "T=4.0_epsilon=0.1"]


def test_folders_lie_in_that_of_the_sweep(write: Write, tmp_path: Path) -> None:
    """Catches members that overwrite each other or land beside the sweep's folder."""
    members, _ = load_members(write(PRODUCT), {"output.directory": str(tmp_path / "here")})
    folders = [member.case.output.directory for member in members]
    assert folders[0] == tmp_path / "here" / "T=4.0_epsilon=0.05"
    assert len(set(folders)) == len(members)
    assert moved(members, tmp_path)[0].case.output.directory == tmp_path / "T=4.0_epsilon=0.05"


def test_zip_and_warm_start(write: Write) -> None:
    """Catches a product where pairs were asked for, also with keys written without quotes, and with overrides."""
    text = GOOD + "[sweep]\ncombine = 'zip'\nwarm_start = true\ndepth.T = [4.0, 6.0]\nnoise.epsilon = [0.05, 0.1]\n"
    members, warm = load_members(write(text))
    assert warm
    assert [(m.case.depth.T, m.case.noise.epsilon) for m in members] == [(4.0, 0.05), (6.0, 0.1)]
    members, _ = load_members(write(text), {"sweep.depth.T": [1.0, 2.0], "objective.regularization": 0.5})
    assert [m.case.depth.T for m in members] == [1.0, 2.0]
    assert {m.case.objective.regularization for m in members} == {0.5}


def test_names_stay_usable(write: Write) -> None:
    """Catches folder names with slashes, names that clash, and names too long for a file system."""
    text = GOOD + '[sweep]\n"initial.seed" = [0, 1]\n"ffn.seed" = [0]\n"objective.target" = [[1, 0, 0], [0, 1, 0]]\n'
    names = [member.name for member in load_members(write(text))[0]]
    assert names[0] == "initial.seed=0_ffn.seed=0_target=1,0,0"
    assert len(set(names)) == 4
    text = GOOD + f'[sweep]\n"title" = 1\n"petsc.ksp_type" = ["{"a/" * 100}", "bcgs"]\n'
    with pytest.raises(CaseError, match="unknown"):
        load_members(write(text))
    long = GOOD + f'[sweep]\n"petsc.note" = ["{"a/" * 100}", "b"]\n'
    assert [member.name for member in load_members(write(long))[0]] == ["member_0000", "member_0001"]


def test_paths_are_relative_to_the_case(write: Write) -> None:
    """Catches swept paths looked up in the working folder."""
    path = write(GOOD + '[sweep]\n"optimizer.start" = ["one.npz", "two.npz"]\n')
    for name in ("one.npz", "two.npz"):
        (path.parent / name).touch()
    assert load_members(path)[0][1].case.optimizer.start == str(path.parent / "two.npz")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("", "it names no key"),
        ('"depth.T" = 4', '"depth.T": 4 is not allowed: a list of at least one value'),
        ('"depth.T" = []', "a list of at least one value"),
        ("combine = 'all'\n\"depth.T\" = [1]", "sweep.combine: 'all' is not allowed"),
        ('warm_start = 1\n"depth.T" = [1]', "sweep.warm_start: 1 is not allowed"),
        ("T = [1, 2]", "sweep.T: unknown"),
        ('combine = \'zip\'\n"depth.T" = [1]\n"noise.epsilon" = [1, 2]', 'lists of equal length: "depth.T" 1'),
        (f'"depth.T" = {list(range(1, 200))}\n"noise.epsilon" = {list(range(1, 200))}', "members: at most 10000"),
        ('"depth.T" = [4, -1]', "a number above 0 (1e-9 to 1e9) (T=-1)"),
        ('"depth.depth" = [4, 5]', "depth.depth: unknown key"),
        ('"depth.T" = [4.0, 4]', "sweep: depth.T = 4.0 appears more than once"),
        ('"depth.T" = [4.0]\ndepth.T = [6.0]', 'sweep: "depth.T" and depth.T are the same key, written twice'),
        ('"output.directory" = ["a", "b"]', "sweep.output.directory: not allowed: every member gets a folder"),
    ],
)
def test_mistakes_are_named(table: str, message: str, write: Write) -> None:
    """Catches a sweep that starts although one of its members, or the table, is wrong."""
    with pytest.raises(CaseError) as caught:
        load_members(write(f"{GOOD}[sweep]\n{table}\n"))
    assert message in str(caught.value)
    assert len(caught.value.lines) == 1


def test_key_swept_and_set_is_refused(write: Write) -> None:
    """Catches --set of a swept key being ignored without a word."""
    with pytest.raises(CaseError, match=r"depth\.T: it is swept; replace its values by --set 'sweep\.depth\.T="):
        load_members(write(PRODUCT), {"depth.T": 5.0})


def test_equal_pairs_are_members_once_but_equal_values_may_be_zipped(write: Write) -> None:
    text = GOOD + '[sweep]\ncombine = "zip"\n"depth.T" = [4.0, 6.0, 8.0]\n"noise.epsilon" = [0.05, 0.05, 0.1]\n'
    assert len(load_members(write(text))[0]) == 3


def test_without_a_sweep(write: Write) -> None:
    """Catches a plain case taken for a sweep, and a sweep that other commands cannot read."""
    assert not is_sweep(write(GOOD))
    assert is_sweep(write(GOOD), {"sweep.depth.T": [1, 2]})
    assert is_sweep(write(PRODUCT))
    assert load_case(write(PRODUCT)).depth.T == 8.0
