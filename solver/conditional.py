"""Conditional laws of the labels: means and widths along depth, and where they are relative to the maximisers x*(ξ)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.auxiliary.coupling import Coupling
from solver.auxiliary.maximisers import Maximisers, angles_between
from solver.diagnostics import DepthDiagnostics
from solver.types import FloatArray, Json

__all__ = ["ConditionalLaws"]


@dataclass(frozen=True)
class ConditionalLaws:
    """What is measured of the labels' densities μ_ℓ along depth.

    Attributes:
        coupling: The labels.
        diagnostics: Of the whole run; its `label_mean` and `label_dispersion` are read.
        maximisers: Of the interaction energy, for the labels and their weights; None where they are not known.
    """

    coupling: Coupling
    diagnostics: DepthDiagnostics
    maximisers: Maximisers | None

    def columns(self) -> dict[str, FloatArray]:
        """Columns of trajectory.csv, (steps + 1,) each.

        `conditional_resultant`: Σ ρ_ℓ |∫x dμ_ℓ|. `conditional_dispersion`: root of Σ ρ_ℓ (width of μ_ℓ)², the width
        being the root mean square angle to the mean of μ_ℓ, rad. Where maximisers are known, `interaction_gap`: the
        maximum less the interaction energy; `conditional_angle`, `conditional_angle_max`: root mean square and largest
        angle between the mean of μ_ℓ and x*(ξ_ℓ), of the maximiser that is nearest to the means, rad.
        """
        found, rho = self.diagnostics, self.coupling.weights
        columns = {
            "conditional_resultant": found.conditional_resultant,
            "conditional_dispersion": np.sqrt(found.label_dispersion**2 @ rho),
        }
        if self.maximisers is not None:
            angles = np.stack([self._angles(means, self.maximisers) for means in found.label_mean])
            columns["interaction_gap"] = self.maximisers.energy - found.interaction_energy
            columns["conditional_angle"] = np.sqrt(angles**2 @ rho)
            columns["conditional_angle_max"] = angles.max(axis=1)
        return columns

    def _angles(self, means: FloatArray, maximisers: Maximisers) -> FloatArray:
        """Angles between the labels' means (labels, d) and the nearest maximiser, (labels,); nan for a mean of 0."""
        sizes = np.linalg.norm(means, axis=1, keepdims=True)
        directions = np.divide(means, sizes, out=np.full_like(means, np.nan), where=sizes > 0.0)
        return angles_between(directions, maximisers.nearest(means))

    def arrays(self) -> dict[str, FloatArray]:
        """Content of labels.npz: everything along depth, and x*(ξ_ℓ) nearest to the final means, where known."""
        found = self.diagnostics
        known = {} if self.maximisers is None else {"maximiser": self.maximisers.nearest(found.label_mean[-1])}
        return {
            "labels": self.coupling.labels,
            "weights": self.coupling.weights,
            "mean": found.label_mean,
            "dispersion": found.label_dispersion,
            **known,
        }

    def rows(self) -> list[Json]:
        """Rows of labels.csv: every label at the end."""
        arrays = self.arrays()
        columns: dict[str, FloatArray] = {
            "label": arrays["labels"],
            "weight": arrays["weights"],
            **{f"mean_{k + 1}": column for k, column in enumerate(arrays["mean"][-1].T)},
            "resultant": np.linalg.norm(arrays["mean"][-1], axis=1),
            "dispersion": arrays["dispersion"][-1],
        }
        if self.maximisers is not None:
            columns |= {f"maximiser_{k + 1}": column for k, column in enumerate(arrays["maximiser"].T)}
            columns["angle"] = self._angles(arrays["mean"][-1], self.maximisers)
        return [dict(zip(columns, map(float, row), strict=True)) for row in zip(*columns.values(), strict=True)]

    def summary(self, kernel: str) -> Json:
        """The block `auxiliary` of summary.json, at the end of the run."""
        known = self.maximisers
        return {
            "kernel": kernel,
            "labels": len(self.coupling.labels),
            "maximum": None if known is None else known.energy,
            "exact": None if known is None else known.exact,
            "symmetry": None if known is None else known.symmetry,
            **{name: float(column[-1]) for name, column in self.columns().items()},
        }
