"""Does the mesh resolve the cluster? An under-resolved cluster sticks to nodes, and its adjoint dies.

The last-step gradient of the untrained run is known without the scheme: ∫ P_x∇(δloss/δμ̄) σᵀ dμ_T. A mesh that pins
the cluster has far less of it; training there would "converge" at W = 0.
"""

from __future__ import annotations

import numpy as np

from solver.case.load import CaseError
from solver.log import LOG
from solver.parallel import allreduce
from solver.problem import Problem
from solver.types import FloatArray

__all__ = ["check_resolution", "gradient_ratio"]

WARN_BELOW = 0.7
STOP_BELOW = 0.1
_NEGLIGIBLE = 1e-9


def gradient_ratio(problem: Problem, final: FloatArray, gradient: FloatArray) -> float | None:
    """‖g_last‖ over the norm of its direct value; None where the latter vanishes. Collective.

    Args:
        problem: On the mesh in question.
        final: μ_T of the untrained run, (labels, local nodes).
        gradient: Its gradient at W = 0, (steps, d, m).
    """
    space = problem.space
    slope = space.gradient(problem.first_variation(final)[0])  # (cells, d)
    mean_density = problem.label_weights @ final
    features = problem.features(space.x) * mean_density[:, None]
    cell_features = features[space.cells].mean(axis=1)  # (cells, m)
    local = np.einsum("c,cd,cm->dm", space.cell_size, slope, cell_features)
    direct = float(np.linalg.norm(allreduce(space.comm, local)))
    return float(np.linalg.norm(gradient[-1])) / direct if direct > _NEGLIGIBLE else None


def check_resolution(problem: Problem, final: FloatArray, gradient: FloatArray, is_final_mesh: bool) -> None:
    """Stop on a mesh that pins the cluster, warn on a coarse final mesh. Collective.

    Raises:
        CaseError: Less than a tenth of the direct value is left, and ``geometry.allow_coarse`` is not set.
    """
    ratio = gradient_ratio(problem, final, gradient)
    if ratio is None:
        return
    h = problem.space.h
    found = f"only {ratio:.2g} of the last-step gradient at W = 0 survives on the mesh with h = {h:.3g}"
    if ratio < STOP_BELOW and not problem.case.geometry.allow_coarse:
        raise CaseError(
            [
                f"geometry.h: pinned: refine: {found} (at least {STOP_BELOW} needed, {WARN_BELOW} advised); "
                "geometry.allow_coarse = true trains all the same"
            ]
        )
    if ratio < WARN_BELOW and is_final_mesh:
        LOG.warning("geometry.h: %s (%.1g advised): results depend on the mesh, refine", found, WARN_BELOW)
