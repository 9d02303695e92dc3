"""The closing summary a person can read."""

from __future__ import annotations

from solver.log import format_seconds
from solver.types import Json

__all__ = ["closing_lines"]


def closing_lines(summary: Json) -> list[str]:
    """What a run found, in a few lines, from the content of summary.json."""
    objective, optimizer, invariants = summary["objective"], summary["optimizer"], summary["invariants"]
    energy, phases, timing = summary["energy"], summary["phases"], summary["timing"]
    return [
        f"{summary['case']}: {summary['dofs']} nodes on the {summary['manifold']}, {summary['steps']} depth steps, "
        f"{summary['ranks']} rank{'s' if summary['ranks'] > 1 else ''}",
        f"  objective   J = {objective['J']:.6g} = loss {objective['loss']:.6g} "
        f"+ regularization {objective['regularization']:.6g}; loss untrained {objective['untrained_loss']:.6g}",
        f"  optimiser   {_optimiser(optimizer)}",
        f"  energy      {_number(energy['initial'])} at 0, plateau {_number(energy['plateau'])}, "
        f"end {_number(energy['final'])}; minimum {_number(energy['minimum'])}",
        *([] if summary["auxiliary"] is None else [f"  labels      {_labels(summary['auxiliary'])}"]),
        f"  phases      {_phases(phases)}",
        f"  invariants  mass off by {invariants['mass_error']:.1e}, smallest density {invariants['min_density']:.1e}"
        + ("" if invariants["energy_increase"] is None else f", energy rises {invariants['energy_increase']:.1e}"),
        f"  time        {format_seconds(timing['total'])}; a sweep on this mesh: forward {timing['forward']:.3f} s, "
        f"adjoint {timing['adjoint']:.3f} s",
    ]


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.5g}"


def _optimiser(optimizer: Json) -> str:
    sweeps = f"{optimizer['forward_solves']} forward and {optimizer['adjoint_solves']} adjoint sweeps"
    if optimizer["method"] == "none":
        return f"none: the control was run as given ({sweeps})"
    start, count = optimizer["gradient_norm_initial"], optimizer["iterations"]
    iterations = f"{count} iteration{'' if count == 1 else 's'}"
    relative = f"{optimizer['gradient_norm'] / start:.2e} of its value at W = 0" if start else "0"
    verdict = "converged" if optimizer["converged"] else f"NOT converged ({optimizer['reason']})"
    return f"{optimizer['method']} {verdict}: gradient {relative}, {iterations}, {sweeps}"


def _labels(labels: Json) -> str:
    text = (
        f"{labels['labels']} of kernel {labels['kernel']}: conditional resultant "
        f"{_number(labels['conditional_resultant'])}, width {_number(labels['conditional_dispersion'])} rad"
    )
    if labels["maximum"] is None:
        return text
    return (
        f"{text}; {_number(labels['interaction_gap'])} below the {'' if labels['exact'] else 'known '}maximum, means "
        f"within {_number(labels['conditional_angle_max'])} rad of a maximiser"
    )


def _phases(phases: Json) -> str:
    if phases["clustered"] is None:
        parts = ["not defined: this attention descends no energy"]
    elif phases["plateau_width"] is None:
        parts = ["no plateau around T/2"]
    else:
        parts = [
            f"{'clustered' if phases['clustered'] else 'not clustered'} in {phases['initial_width']:.3g}",
            f"plateau {phases['plateau_width']:.4g} (variation {phases['plateau_variation']:.1e})",
            f"escaped in {phases['final_width']:.3g}" if phases["escaped"] else "no escape",
            f"turned by {phases['displacement']:.4g} rad",
        ]
    if phases["terminal_rate"] is not None:
        parts.append(f"control grows at rate {phases['terminal_rate']:.4g}")
    if phases["untrained_gradient_rate"] is not None:
        parts.append(f"gradient at W = 0 at {phases['untrained_gradient_rate']:.4g}")
    return ", ".join(parts)
