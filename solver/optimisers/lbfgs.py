"""Limited-memory BFGS with a Moré–Thuente line search, by SciPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from solver.optimisers.protocol import Iterate, Objective, Outcome, Settings
from solver.types import FloatArray

__all__ = ["lbfgs"]

_MEMORY = 30
_LINE_SEARCH_STEPS = 30


def lbfgs(objective: Objective, start: FloatArray, settings: Settings, report: Callable[[Iterate], None]) -> Outcome:
    """See `Optimiser`. Stops on the gradient norm alone; SciPy's own criteria are switched off."""
    gradients: dict[bytes, FloatArray] = {}

    def evaluate(u: FloatArray) -> tuple[float, FloatArray]:
        J, gradient = objective(u)
        gradients[u.tobytes()] = gradient
        return J, gradient

    J, gradient = evaluate(start)
    last = Iterate(0, start, J, float(np.linalg.norm(gradient)), 0.0)
    report(last)
    if last.gradient_norm <= settings.gradient_norm:
        return Outcome(last, True, "the start already meets the tolerance")
    if settings.max_iterations == 0:
        return Outcome(last, False, "no iterations allowed")

    def accept(intermediate_result: OptimizeResult) -> None:
        nonlocal last
        u = np.array(intermediate_result.x)
        gradient = gradients[u.tobytes()]
        gradients.clear()
        gradients[u.tobytes()] = gradient
        norm = float(np.linalg.norm(gradient))
        step = float(np.linalg.norm(u - last.u))
        last = Iterate(last.iteration + 1, u, float(intermediate_result.fun), norm, step)
        report(last)
        if norm <= settings.gradient_norm or last.iteration >= settings.max_iterations:
            raise StopIteration

    options = {"maxcor": _MEMORY, "maxls": _LINE_SEARCH_STEPS, "ftol": 0.0, "gtol": 0.0}
    limits = {"maxiter": 2**31 - 1, "maxfun": 2**31 - 1}  # `accept` counts
    outcome = minimize(evaluate, start, jac=True, method="L-BFGS-B", callback=accept, options={**options, **limits})
    if last.gradient_norm <= settings.gradient_norm:
        return Outcome(last, True, "gradient tolerance met")
    if last.iteration >= settings.max_iterations:
        return Outcome(last, False, f"stopped after {last.iteration} iterations")
    return Outcome(last, False, f"the line search found no lower point ({str(outcome.message).strip()})")
