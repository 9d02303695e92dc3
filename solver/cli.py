"""The console script: ``turnpike COMMAND``, each the same as its ``python -m`` form."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from mpi4py import MPI

from solver import __version__

__all__ = ["main"]

_COMMANDS = {
    "run": ("solver.run", "solve a case and write a results folder"),
    "particles": ("solver.particles.run", "train N tokens, or run them under a given control"),
    "verify": ("solver.verify", "check gradients, transposes and invariants on a case"),
    "theory": ("solver.theory.run", "spectra, rates, barriers and bounds of a case"),
    "pruning": ("solver.pruning", "set W to 0 in windows of depth; the loss against their position"),
    "doctor": ("solver.doctor", "what is installed, what is missing, how to get it"),
    "figures": ("postprocess.figures", "draw the figures of a run"),
    "compare": ("postprocess.compare", "a run of the PDE beside a run of particles"),
    "tables": ("postprocess.tables", "P1's experiments as a page, from the folders `make paper` fills"),
    "two-optima": ("postprocess.two_optima", "the two families of optima as a page"),
    "joined": ("postprocess.joined", "labels in the continuum, and training with labels, as a page"),
    "auxiliary": ("postprocess.auxiliary", "P2's experiments with labels as a page"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Dispatch to a command; returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] in _COMMANDS:
        code: int = importlib.import_module(_COMMANDS[words[0]][0]).main(words[1:])
        return code
    asked = bool(words) and words[0] in {"-h", "--help", "--version"}
    if MPI.COMM_WORLD.rank == 0:
        if words and words[0] == "--version":
            print(f"turnpike {__version__}")
        else:
            if words and not asked:
                sys.stderr.write(f"turnpike: {words[0]!r} is not a command\n")
            print(_usage(), file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


def _usage() -> str:
    lines = [f"  {name:<10} {text}" for name, (_, text) in _COMMANDS.items()]
    return "\n".join(["usage: turnpike COMMAND ...", "", *lines, "", "turnpike COMMAND --help says more."])


if __name__ == "__main__":
    sys.exit(main())
