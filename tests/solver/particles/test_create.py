"""Which mean field a case's tokens get."""

from __future__ import annotations

from collections.abc import Callable

from mpi4py import MPI

import pytest

from solver.case import Case, CaseError
from solver.particles.create import create_field
from solver.particles.mean_field import DenseField, SeparableField

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
