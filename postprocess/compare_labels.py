"""Labels of a run of the PDE beside those of tokens: conditional means and widths, and conditional laws at T."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from postprocess.compare_load import ParticleRun
from postprocess.densities import load_densities
from postprocess.distances import distance, sampling_distances
from postprocess.load import RunError, load_labels

__all__ = ["compare_labels", "label_lines"]

FloatArray = NDArray[np.float64]

_MOST_LAWS = 16  # labels whose laws are compared


def compare_labels(directory: Path, particles: ParticleRun) -> dict[str, Any] | None:
    """The block `labels` of compare.json; None where the run of the PDE has none.

    Per label: the angle between the density's mean and that of its tokens, all seeds together; widths (root mean
    square angle to the own mean) with their standard deviation over seeds. `standard_errors`: root mean square, over
    labels and components, of the difference of the means in standard errors over seeds. `distance`: W₁ between a
    label's tokens and its density, mean over seeds and at most 16 labels, beside that of as many exact samples.

    Args:
        directory: Results folder of the PDE.
        particles: Of the same case.

    Raises:
        RunError: A file is missing or damaged, or both have other labels.
    """
    arrays = load_labels(directory)
    if arrays is None:
        return None
    if particles.labels is None:
        raise RunError(f"{particles.directory}: its particles.npz holds no labels; run it again with this version")
    members = [np.flatnonzero(particles.labels == label) for label in arrays["labels"]]
    if not all(len(mine) for mine in members) or sum(map(len, members)) != len(particles.labels):
        raise RunError(
            f"{directory} has {len(members)} labels, {particles.directory} "
            f"{len(np.unique(particles.labels))} others: give their number as auxiliary.labels"
        )
    tokens = particles.positions[:, -1]  # (seeds, N, d)
    rows = [_row(arrays, number, tokens[:, mine]) for number, mine in enumerate(members)]
    standard = [row.pop("squared_errors") for row in rows]
    defined = [value for value in standard if value is not None]
    return {
        "conditional": rows,
        "standard_errors": math.sqrt(float(np.mean(defined))) if defined else None,
        "distance": _distances(directory, tokens, members),
    }


def _row(arrays: dict[str, FloatArray], number: int, tokens: FloatArray) -> dict[str, Any]:
    """One label: tokens (seeds, n, d)."""
    seeds, mean = len(tokens), arrays["mean"][-1, number]
    means = tokens.mean(axis=1)
    widths = np.array([_width(one, centre) for one, centre in zip(tokens, means, strict=True)])
    error = means.std(axis=0, ddof=1) / math.sqrt(seeds) if seeds > 2 else np.zeros(len(mean))
    squared = ((means.mean(axis=0) - mean) / error) ** 2 if error.min() > 0.0 else None
    return {
        "label": float(arrays["labels"][number]),
        "weight": float(arrays["weights"][number]),
        "tokens": tokens.shape[1],
        "angle": _angle(mean, means.mean(axis=0)),
        "dispersion": {
            "pde": float(arrays["dispersion"][-1, number]),
            "mean": float(widths.mean()),
            "sd": float(widths.std(ddof=1)) if seeds > 1 else None,
        },
        "squared_errors": None if squared is None else float(squared.mean()),
    }


def _width(tokens: FloatArray, centre: FloatArray) -> float:
    cosines = tokens @ centre / np.linalg.norm(centre)
    return float(np.sqrt((np.arccos(np.clip(cosines, -1.0, 1.0)) ** 2).mean()))


def _angle(one: FloatArray, other: FloatArray) -> float:
    chord = np.linalg.norm(one / np.linalg.norm(one) - other / np.linalg.norm(other))
    return float(2.0 * np.arcsin(min(0.5 * float(chord), 1.0)))


def _distances(directory: Path, tokens: FloatArray, members: list[NDArray[np.int64]]) -> dict[str, float]:
    """Of conditional laws at T."""
    chosen = np.unique(np.linspace(0, len(members) - 1, _MOST_LAWS).astype(np.int64))
    reached, exact = [], []
    for number in chosen:
        field = f"mu_{number}" if len(members) > 1 else "mu"
        law = load_densities(directory, tokens.shape[-1], field, last_only=True).frame(-1)
        mine = members[number]
        reached.append(np.mean([distance(law, one[mine]) for one in tokens]))
        exact.append(sampling_distances(law, len(mine), len(tokens), [int(number)]).mean())
    return {"labels": len(chosen), "mean": float(np.mean(reached)), "exact_samples": float(np.mean(exact))}


def label_lines(found: dict[str, Any], unit: str) -> list[str]:
    """The comparison of labels as text."""
    rows, error = found["conditional"], found["standard_errors"]
    widths = np.array([[row["dispersion"]["pde"], row["dispersion"]["mean"]] for row in rows])
    off = "" if error is None else f", {error:.2g} standard errors"
    reached, apart = found["distance"], max(row["angle"] for row in rows)
    return [
        f"{len(rows)} labels: means of densities and tokens up to {apart:.2g} rad apart{off}; "
        f"mean width {widths[:, 0].mean():.4g} rad (PDE), {widths[:, 1].mean():.4g} (particles)",
        f"W₁ between a label's tokens and its density: {reached['mean']:.4g} {unit}; of as many exact samples "
        f"{reached['exact_samples']:.4g}",
    ]
