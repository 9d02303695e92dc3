"""A run of the PDE beside a run of particles of the same case.

python -m postprocess.compare RUN PARTICLE_RUN [-o DIR] [--depths K] [--draws K]

Prints a table; writes compare.json and figures/compare.png into DIR (default: PARTICLE_RUN). Reads files only.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from postprocess.compare_figure import draw_comparison
from postprocess.compare_labels import compare_labels, label_lines
from postprocess.compare_load import ParticleRun, load_pair
from postprocess.densities import DensitySeries, load_densities
from postprocess.distances import distance, frame_distance, sampling_distances
from postprocess.load import Run, RunError
from solver.phases import find_phases

__all__ = ["compare", "depth_indices", "distances_along_depth", "interaction_phases", "main", "quantities"]

FloatArray = NDArray[np.float64]

FORMAT_VERSION = 1
_WIDTHS = ("initial_width", "plateau_width", "final_width", "displacement")


def compare(run: Run, particles: ParticleRun, series: DensitySeries, depths: int, draws: int) -> dict[str, Any]:
    """The content of compare.json (docs/results.md).

    Args:
        run: Of the PDE.
        particles: Of N tokens, of the same case.
        series: The densities of `run`.
        depths: At most so many of the depths at which positions were saved.
        draws: Repetitions of N exact samples at each of them.
    """
    return {
        "format_version": FORMAT_VERSION,
        "case": run.summary["case"],
        "manifold": run.summary["manifold"],
        "run": str(run.directory),
        "particle_run": str(particles.directory),
        "n": particles.positions.shape[2],
        "seeds": len(particles.positions),
        "control_difference": control_difference(run, particles),
        "quantities": quantities(run, particles),
        "distance": distances_along_depth(particles, series, depths, draws),
        "labels": compare_labels(run.directory, particles),
    }


def quantities(run: Run, particles: ParticleRun) -> dict[str, dict[str, Any]]:
    """Every quantity by name: the PDE's value, mean, sd and count over seeds, the difference, also in standard errors.

    Phases are read off minus the interaction energy on both sides, as an empirical measure has no free energy: the
    PDE's differ a little from those of its summary. Angles differ modulo 2π.
    """
    columns, summary, rows = run.trajectory, run.summary, particles.summary["seeds"]
    means = [name for name in columns if name.startswith("mean_")]
    phases = interaction_phases(run)
    found = {
        name: _row(summary["objective"][name], [row[name] for row in rows]) for name in ("J", "loss", "regularization")
    }
    found["interaction_energy"] = _row(columns["interaction_energy"][-1], particles.interaction_energy[:, -1])
    for k, name in enumerate(means):
        found[name] = _row(columns[name][-1], particles.mean[:, -1, k])
    angle = float(columns["angle"][-1])
    turned = np.mod(particles.angle[:, -1] - angle + math.pi, 2 * math.pi) - math.pi
    found["angle"] = _row(angle, angle + turned)
    found["dispersion"] = _row(columns["dispersion"][-1], particles.dispersion[:, -1])
    if "conditional_resultant" in columns and "conditional_resultant" in rows[0]:
        found["conditional_resultant"] = _row(
            columns["conditional_resultant"][-1], [row["conditional_resultant"] for row in rows]
        )
    for name in _WIDTHS:
        found[name] = _row(phases[name], [row[name] for row in rows])
    found["terminal_rate"] = _row(summary["phases"]["terminal_rate"], [row["terminal_rate"] for row in rows])
    return found


def interaction_phases(run: Run) -> dict[str, float | None]:
    """Widths of a run's phases and displacement, read off minus its interaction energy, as those of tokens are."""
    columns, T = run.trajectory, float(run.t[-1])
    phases = find_phases(run.t, -columns["interaction_energy"], columns["resultant"], columns["angle"])
    if phases is None or phases.plateau is None:
        return dict.fromkeys(_WIDTHS)
    start, end = phases.plateau
    return dict(zip(_WIDTHS, (start, end - start, T - end, phases.displacement), strict=True))


def _row(pde: Any, seeds: Any) -> dict[str, Any]:
    """One quantity; None where it is not defined."""
    value = None if pde is None or not math.isfinite(pde) else float(pde)
    defined = np.array([x for x in seeds if x is not None and math.isfinite(x)], float)
    mean = float(defined.mean()) if len(defined) else None
    sd = float(defined.std(ddof=1)) if len(defined) > 1 else None
    difference = None if mean is None or value is None else mean - value
    known = difference is not None and sd is not None and sd > 1e-12 * abs(mean or 0.0)
    error = sd / math.sqrt(len(defined)) if known and sd is not None else None
    return {
        "pde": value,
        "particles": {"mean": mean, "sd": sd, "count": len(defined)},
        "difference": difference,
        "standard_errors": None if error is None or difference is None else difference / error,
    }


def control_difference(run: Run, particles: ParticleRun) -> float | None:
    """‖W − W_PDE‖/‖W_PDE‖ in L²(0, T), W the mean over seeds; both piecewise constant. None if W_PDE = 0."""
    t = np.union1d(run.t, particles.t)
    middle, dt = 0.5 * (t[1:] + t[:-1]), np.diff(t)
    W = particles.W.mean(axis=0)
    if W.shape[1:] != run.W.shape[1:]:
        return None
    one = run.W[np.clip(np.searchsorted(run.t, middle) - 1, 0, len(run.W) - 1)]
    other = W[np.clip(np.searchsorted(particles.t, middle) - 1, 0, len(W) - 1)]
    size = float(dt @ (one**2).sum(axis=(1, 2)))
    return math.sqrt(float(dt @ ((other - one) ** 2).sum(axis=(1, 2))) / size) if size > 0.0 else None


def depth_indices(count: int, wanted: int) -> list[int]:
    """At most `wanted` of `count` saved depths, first and last among them, evenly."""
    return [int(k) for k in np.unique(np.round(np.linspace(0, count - 1, min(wanted, count))))]


def distances_along_depth(particles: ParticleRun, series: DensitySeries, depths: int, draws: int) -> dict[str, Any]:
    """Distance of every seed's tokens to the density, and of N exact samples of the density, along depth.

    Tokens are taken where they were saved, the density linearly in depth between its two neighbouring frames. Were it
    carried from one to the other along geodesics, this alone would move it by at most 2s(1 − s) times their distance;
    that bound is given for every depth (it is 0 where the saved depths agree, and generous elsewhere).
    """
    circle = particles.positions.shape[-1] == 2
    chosen = depth_indices(len(particles.depths), depths)
    count = particles.positions.shape[2]
    seeds, samples, bounds = [], [], []
    for k in chosen:
        depth = float(particles.depths[k])
        law = series.at(depth)
        seeds.append([distance(law, tokens) for tokens in particles.positions[:, k]])
        samples.append(sampling_distances(law, count, draws, [k]))
        before, after, s = series.bracket(depth)
        bounds.append(2 * s * (1 - s) * frame_distance(series, before, after) if 0.0 < s < 1.0 else 0.0)
    each, exact = np.array(seeds), np.array(samples)
    return {
        "kind": "wasserstein_1" if circle else "sliced_wasserstein_1",
        "unit": "rad" if circle else "chord",
        "depths": particles.depths[chosen].tolist(),
        "mean": each.mean(axis=1).tolist(),
        "sd": each.std(axis=1, ddof=1).tolist() if each.shape[1] > 1 else None,
        "seeds": each.T.tolist(),
        "exact_samples": {
            "draws": draws,
            "mean": exact.mean(axis=1).tolist(),
            "sd": exact.std(axis=1, ddof=1).tolist() if draws > 1 else None,
        },
        "interpolation_bound": bounds,
    }


def table(found: dict[str, Any]) -> str:
    """The comparison as text."""
    head = ("", "PDE", "particles", "± sd", "difference", "in s.e.")
    rows = [head]
    for name, row in found["quantities"].items():
        tokens = row["particles"]
        numbers = (row["pde"], tokens["mean"], tokens["sd"], row["difference"])
        errors = row["standard_errors"]
        rows.append((name, *map(_number, numbers), "–" if errors is None else f"{errors:+.1f}"))
    widths = [max(len(row[k]) for row in rows) for k in range(len(head))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    reached, what = found["distance"], "W₁" if found["distance"]["kind"] == "wasserstein_1" else "sliced W₁"
    at_end = f"{_number(reached['mean'][-1])}" + (f" ± {_number(reached['sd'][-1])}" if reached["sd"] else "")
    difference = found["control_difference"]
    return "\n".join(
        [
            f"{found['case']}: the PDE, and {found['n']} tokens × {found['seeds']} seeds (values at T)",
            *lines,
            f"{what} at T: {at_end} {reached['unit']}; of {found['n']} exact samples of the density "
            f"{_number(reached['exact_samples']['mean'][-1])}",
            *([] if found["labels"] is None else label_lines(found["labels"], reached["unit"])),
            "control: not compared" if difference is None else f"control: ‖W − W_PDE‖ = {difference:.2g} ‖W_PDE‖",
            "Phases are read off minus the interaction energy on both sides.",
        ]
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.5g}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare two runs from the command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m postprocess.compare", description="Compare a run of the PDE with a run of particles."
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="results folder of solver.run")
    parser.add_argument("particle_run", metavar="PARTICLE_RUN", type=Path, help="results folder of solver.particles")
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, help="where to write (default: PARTICLE_RUN)")
    parser.add_argument("--depths", metavar="K", type=_at_least(2), default=41, help="depths of the distance (41)")
    parser.add_argument("--draws", metavar="K", type=_at_least(1), default=8, help="draws of N exact samples (8)")
    options = parser.parse_args(arguments)
    directory = options.output or options.particle_run
    try:
        run, particles = load_pair(options.run, options.particle_run)
        series = load_densities(run.directory, particles.positions.shape[-1])
        found = compare(run, particles, series, options.depths, options.draws)
        (directory / "figures").mkdir(parents=True, exist_ok=True)
        path = directory / "compare.json"
        path.write_text(json.dumps(found, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        print(table(found))
        print(path)
        print(draw_comparison(run, particles, series, found, directory / "figures" / "compare.png"))
    except RunError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{error.filename or directory}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def _at_least(minimum: int) -> Any:
    def integer(text: str) -> int:
        value = int(text)
        if value < minimum:
            raise argparse.ArgumentTypeError(f"{value} is not allowed: an integer ≥ {minimum}")
        return value

    return integer


if __name__ == "__main__":
    sys.exit(main())
