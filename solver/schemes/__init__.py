"""Depth steps. To add one: write its class in a module here and enter it in `SCHEMES`."""

from __future__ import annotations

from solver.schemes.euler import Euler
from solver.schemes.mprk2 import MPRK2
from solver.schemes.protocol import Cotangents, Scheme, Step

__all__ = ["SCHEMES", "Cotangents", "Scheme", "Step"]

SCHEMES: dict[str, Scheme] = {"mprk2": MPRK2(), "euler": Euler()}
