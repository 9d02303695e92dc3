"""Spaces shared by the tests of the solver's parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from mpi4py import MPI

import pytest

from meshes.build import GENERATORS
from solver.parallel import on_root
from solver.space import Space, create_space

DIMENSIONS = {"circle": 2, "sphere": 3}


@cache  # kept for the whole session: matrices built on a collected mesh lose their communicator
def _space(manifold: str, h: float) -> Space:
    comm = MPI.COMM_WORLD
    mesh = on_root(comm, lambda: GENERATORS[manifold](h), share=False)
    return create_space(comm, mesh, DIMENSIONS[manifold])


@pytest.fixture
def make_space() -> Callable[[str, float], Space]:
    """A manifold's space of edge length h; the same object for equal arguments."""
    return _space
