"""theory.json and the table on the screen."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from solver.results import finite
from solver.software import software
from solver.theory.equilibrium import Equilibrium
from solver.theory.inequality import PLSamples
from solver.theory.quantities import Measured, closed_form_values
from solver.theory.spectrum import Mode
from solver.types import FloatArray, Json

__all__ = ["FORMAT_VERSION", "Row", "content", "extrapolated", "rows", "table"]

FORMAT_VERSION = 1  # of theory.json
_ORDER = 2  # of every quantity in h

_TEXTS = {
    "minimum_energy": "E_min",
    "first_moment": "first moment |∫x dρ|",
    "thermal_variance": "thermal variance along e_{k} [rad²]",
    "slowest_rate": "a₁, slowest rate of −HΔ_ρ",
    "c_PL": "c_PL = 2a₁",
    "cluster_rate": "cluster rate {k}",
    "hilltop_rate": "hilltop rate {k}",
    "token_rate": "one token's rate (frozen potential)",
    "R_rho": "R_ρ of the loss",
    "barrier": "Δ₀, barrier",
    "barrier_rotate": "  rotating path",
    "barrier_split": "  splitting path",
    "antipodal_rate": "equal clusters at ±e₁, towards e_{k}",
    "uniform_threshold": "uniform law: critical ε",
    "uniform_growth": "uniform law: growth of degree {k}",
}


@dataclass(frozen=True)
class Row:
    """One quantity.

    Attributes:
        name: Key in theory.json.
        text: What it is.
        value: On the case's mesh.
        extrapolated: To h → 0; None without a second mesh.
        closed_form: Small-ε limit (of the uniform law: exact); None where there is none.
    """

    name: str
    text: str
    value: float
    extrapolated: float | None
    closed_form: float | None

    @property
    def difference(self) -> float | None:
        """Best value minus closed form."""
        if self.closed_form is None:
            return None
        return (self.value if self.extrapolated is None else self.extrapolated) - self.closed_form


def extrapolated(coarse: Measured, fine: Measured) -> dict[str, float]:
    """Richardson's limit h → 0 of every quantity both meshes have, taken to be of order 2."""
    ratio = (coarse.problem.space.h / fine.problem.space.h) ** _ORDER
    shared = coarse.values.keys() & fine.values.keys()
    return {name: fine.values[name] + (fine.values[name] - coarse.values[name]) / (ratio - 1.0) for name in shared}


def rows(measured: Measured, limits: dict[str, float]) -> list[Row]:
    """A row for every quantity measured, in the order of measurement."""
    closed = closed_form_values(measured)
    return [
        Row(name, _text(name), value, limits.get(name), closed.get(name)) for name, value in measured.values.items()
    ]


def _text(name: str) -> str:
    match = re.fullmatch(r"(.*)_(\d+)", name)
    return _TEXTS[match[1]].format(k=match[2]) if match else _TEXTS[name]


def table(measured: Measured, found: list[Row]) -> str:
    """The rows as text, then what is undefined and why."""
    width = max([len(row.text) for row in found], default=0)
    head = f"{'':<{width}}  {'this mesh':>13}  {'h → 0':>13}  {'closed form':>13}  {'difference':>11}"
    lines = [head] if found else []
    for row in found:
        numbers = [_number(value, ".6g") for value in (row.value, row.extrapolated, row.closed_form)]
        lines.append(f"{row.text:<{width}}  {numbers[0]:>13}  {numbers[1]:>13}  {numbers[2]:>13}  "
                     f"{_number(row.difference, '+.1e'):>11}")  # fmt: skip
    lines.append("closed forms: limits ε → 0; those of the uniform law are exact; differences are of h → 0 where known")
    lines += [f"undefined ({name}): {reason}" for name, reason in measured.reasons.items()]
    return "\n".join(lines)


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def content(
    measured: Measured, found: list[Row], fine: Measured | None, samples: list[PLSamples], ratios: dict[str, Json]
) -> Json:
    """theory.json. Undefined values are None, with the reason in ``reasons``. Collective.

    Args:
        measured: On the case's mesh.
        found: Its rows.
        fine: On the finer mesh, for the rates of the modes.
        samples: Tests of the PL inequality.
        ratios: D/Δ along the slowest modes, by place.
    """
    case, space = measured.problem.case, measured.problem.space
    best = measured.barrier.lowest if measured.barrier else None
    result: Json = finite({
        "format_version": FORMAT_VERSION,
        "case": case.title,
        "manifold": case.geometry.manifold,
        "epsilon": case.noise.epsilon,
        "eigenvalues": [float(value) for value in measured.eigenvalues],
        "ranks": space.comm.size,
        "mesh": {"nodes": space.nodes, "h": space.h},
        "fine_mesh": None if fine is None else {"nodes": fine.problem.space.nodes, "h": fine.problem.space.h},
        "quantities": {
            row.name: {
                "text": row.text.strip(),
                "value": row.value,
                "extrapolated": row.extrapolated,
                "closed_form": row.closed_form,
                "difference": row.difference,
            }
            for row in found
        },
        "stationary": {name: _state(state) for name, state in measured.states.items()},
        "modes": [_mode(mode) for mode in measured.modes],
        "barrier": None if best is None or measured.barrier is None else {
            "height": measured.values["barrier"],
            "path": best.name if measured.values["barrier"] > 0.0 else "rotate",
            "paths": {
                name: {
                    "height": path.height,
                    "index": path.index,
                    "slope": path.slope,
                    "saddle_mean": _numbers(path.saddle.mean),
                    "iterations": path.iterations,
                    "change": path.change,
                    "s": _numbers(path.s),
                    "energy": _numbers(path.energy),
                }
                for name, path in measured.barrier.paths.items()
            },
            "reasons": measured.barrier.reasons,
        },
        "inequality": {sample.family: _samples(sample) for sample in samples} or None,
        "inequality_along_modes": ratios or None,
        "reasons": measured.reasons,
        "software": software(),
    })  # fmt: skip
    return result


def _state(state: Equilibrium) -> Json:
    """A stationary state in numbers. Collective."""
    return {
        "energy": state.state.energy,
        "mean": _numbers(state.mean),
        "index": state.flow.index() if state.problem.attention.has_energy else None,
        "iterations": state.state.iterations,
        "residual": state.state.residual,
    }


def _mode(mode: Mode) -> Json:
    return {"rate": mode.rate, "place": mode.place, "weight": mode.weight, "residual": mode.residual}


def _samples(sample: PLSamples) -> Json:
    return {
        "c_PL": sample.constant,
        "largest_gap_allowed": sample.limit,
        "largest_gap": float(sample.gaps.max()),
        "samples": len(sample.gaps),
        "smallest_ratio": sample.smallest,
        "violations": sample.violations,
    }


def _numbers(values: FloatArray) -> list[float]:
    return [float(value) for value in np.asarray(values)]
