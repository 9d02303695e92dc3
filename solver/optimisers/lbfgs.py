"""Limited-memory BFGS with a Moré–Thuente line search, by SciPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from solver.optimisers.inversion import inside_out
from solver.optimisers.linesearch import NO_LOWER_POINT
from solver.optimisers.protocol import Outcome, Proposals, Settings, ending, evaluate, iterate_at
from solver.types import FloatArray

__all__ = ["lbfgs"]

_MEMORY = 30
_LINE_SEARCH_STEPS = 30

_Question = tuple[str, FloatArray]
_Answer = tuple[float, FloatArray] | bool


def lbfgs(start: FloatArray, settings: Settings) -> Proposals:
    """See `Optimiser`. Stops on the gradient norm alone; SciPy's own criteria are switched off."""
    known = yield from evaluate(start)
    last = iterate_at(known)
    yield last
    if outcome := ending(last, settings):
        return outcome
    seen = {start.tobytes(): known}  # the last iterate and the trial points since
    scipy = inside_out(_minimize(start))
    answer: _Answer | None = None
    try:
        while True:
            question, u = scipy.send(answer)  # type: ignore[arg-type]
            if question == "evaluate":
                if u.tobytes() not in seen:  # SciPy begins with the start
                    seen[u.tobytes()] = yield from evaluate(u)
                point = seen[u.tobytes()]
                if not math.isfinite(point.J):
                    return Outcome(last, False, "J is not finite at a trial point of the line search")
                answer = point.J, point.gradient
            else:
                point = seen[u.tobytes()]
                seen = {u.tobytes(): point}
                last = iterate_at(point, last)
                yield last
                if outcome := ending(last, settings):
                    return outcome
                answer = True
    except StopIteration:
        return Outcome(last, False, NO_LOWER_POINT)
    finally:
        scipy.close()


def _minimize(start: FloatArray) -> Callable[[Callable[[_Question], _Answer]], None]:
    """SciPy's L-BFGS-B as a function of the callback it asks through: ("evaluate", u) and ("accepted", u)."""

    def run(ask: Callable[[_Question], _Answer]) -> None:
        def objective(u: FloatArray) -> Any:
            return ask(("evaluate", np.array(u)))

        def accept(intermediate_result: OptimizeResult) -> None:
            ask(("accepted", np.array(intermediate_result.x)))

        options = {"maxcor": _MEMORY, "maxls": _LINE_SEARCH_STEPS, "ftol": 0.0, "gtol": 0.0}
        limits = {"maxiter": 2**31 - 1, "maxfun": 2**31 - 1}  # `ending` counts
        minimize(objective, start, jac=True, method="L-BFGS-B", callback=accept, options={**options, **limits})

    return run
