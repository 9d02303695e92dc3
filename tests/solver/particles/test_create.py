"""Which mean field a case's tokens get."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mpi4py import MPI

import pytest
from casefiles import GOOD

from solver.case import Case, CaseError, load_case
from solver.particles import create
from solver.particles.create import create_field
from solver.particles.mean_field import DenseField, FramedField, SeparableField

pytestmark = pytest.mark.serial

MakeCase = Callable[..., Case]


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"particles.n": 1000}, SeparableField),
        ({"particles.n": 20}, DenseField),
        ({"particles.n": 20, "particles.attention": "separable"}, SeparableField),
        ({"particles.n": 1000, "particles.attention": "dense"}, DenseField),
        # All pairs need no expansion, so no tolerance is beyond reach.
        ({"particles.n": 1000, "attention.normalized": True, "attention.eigenvalues": [20.0, 1.0]}, DenseField),
        ({"attention.eigenvalues": [0.0, 0.0]}, type(None)),
        ({"attention.eigenvalues": [0.0, 0.0], "auxiliary.kernel": "rope"}, type(None)),
        # A bias is left of attention where A = 0, and all of it where A is ignored.
        ({"attention.eigenvalues": [0.0, 0.0], "auxiliary.kernel": "distance_bias"}, DenseField),
        (
            {"attention.eigenvalues": [0.0, 0.0], "auxiliary.kernel": "toeplitz", "auxiliary.form": "linear"},
            SeparableField,
        ),
        # Sections times terms of the bias: about 8 · 2 of toeplitz, 8 · 30 of labels that decay.
        ({"particles.n": 200, "auxiliary.kernel": "toeplitz"}, SeparableField),
        ({"particles.n": 200, "auxiliary.kernel": "distance_bias", "auxiliary.labels": 30}, DenseField),
        ({"particles.n": 3000, "auxiliary.kernel": "distance_bias", "auxiliary.labels": 30}, SeparableField),
        # Kinks among many labels have no expansion.
        ({"particles.n": 1100, "auxiliary.kernel": "distance_bias"}, DenseField),
        ({"particles.n": 30, "auxiliary.kernel": "rope"}, FramedField),
    ],
)
def test_choice(changes: dict[str, object], kind: type, make_case: MakeCase) -> None:
    """Catches all pairs of many tokens, and a key that is ignored."""
    assert type(create_field(make_case("circle", changes), MPI.COMM_SELF)) is kind


def test_kernel_without_derivatives_is_refused(make_case: MakeCase) -> None:
    """Catches a force from a kernel that offers only values."""
    case = make_case("circle", {"attention.kernel": "operator:methodcaller"})
    with pytest.raises(CaseError, match=r"attention\.kernel: operator:methodcaller"):
        create_field(case, MPI.COMM_SELF)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"particles.attention": "separable", "particles.n": 1150},
            r"auxiliary\.labels: 1150 different labels make more",
        ),
        ({"particles.n": 1300}, r"auxiliary\.labels: 1300 different labels make more"),
        (
            {"particles.attention": "dense", "particles.n": 1300},
            r"particles\.attention: 'dense' keeps the bias of all pairs: at most 1200 tokens",
        ),
    ],
)
def test_bias_of_too_many_tokens_is_refused(
    changes: dict[str, object], message: str, make_case: MakeCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a matrix that does not fit into memory, and an expansion that is not accurate."""
    monkeypatch.setattr(create, "_MOST_DENSE", 1200)
    with pytest.raises(CaseError, match=f"^{message}"):
        create_field(make_case("circle", {"auxiliary.kernel": "distance_bias", **changes}), MPI.COMM_SELF)


def test_softmax_of_a_negative_bias_is_refused(tmp_path: Path) -> None:
    """Catches the logarithm of a negative mean field: a user's bias may have any sign."""
    (tmp_path / "case.toml").write_text(GOOD)
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n\n\nclass Slope:\n    def bias(self, labels, others):\n"
        "        return 0.5 - np.abs(labels[:, None] - others)\n\n\ndef slope(case):\n    return Slope()\n"
    )
    for attention in ("dense", "separable"):
        changes = {"auxiliary.kernel": "mine:slope", "particles.n": 10, "particles.attention": attention}
        assert create_field(load_case(tmp_path / "case.toml", changes), MPI.COMM_SELF) is not None
        case = load_case(tmp_path / "case.toml", {**changes, "attention.normalized": True})
        with pytest.raises(CaseError, match=r"^attention\.normalized: the bias of .*mine\.py:slope falls to -0\.4"):
            create_field(case, MPI.COMM_SELF)


def test_softmax_of_a_label_that_sees_none_is_refused(tmp_path: Path) -> None:
    """Catches 0/0: tokens that become nan without a word."""
    (tmp_path / "case.toml").write_text(GOOD)
    (tmp_path / "mine.py").write_text(
        "class Late:\n    def bias(self, labels, others):\n"
        "        return (labels[:, None] > 0.3) * (others > 0.3)\n\n\ndef late(case):\n    return Late()\n"
    )
    changes: dict[str, object] = {"auxiliary.kernel": "mine:late", "particles.n": 10}
    assert create_field(load_case(tmp_path / "case.toml", changes), MPI.COMM_SELF) is not None
    case = load_case(tmp_path / "case.toml", {**changes, "attention.normalized": True})
    with pytest.raises(CaseError, match=r"^attention\.normalized: the bias of .* between label 0 and all others is 0"):
        create_field(case, MPI.COMM_SELF)
