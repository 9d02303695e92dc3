"""An optimisation driven from outside: ask for a point, tell its objective and gradient."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import numpy as np

from solver.optimisers.protocol import Answer, Iterate, Optimiser, Outcome, Settings
from solver.types import FloatArray

__all__ = ["Optimisation"]


class Optimisation:
    """One run of an optimiser, a step at a time.

        with Optimisation(lbfgs, start, settings) as optimisation:
            while (u := optimisation.ask()) is not None:
                optimisation.tell(*objective(u))
        optimisation.outcome

    Several can be driven side by side, and one can be resumed: the same answers in the same order lead along the same
    path, bit for bit. Nothing here is collective.

    Args:
        optimiser: The method.
        start: First point, flat.
        settings: See `Settings`.
    """

    def __init__(self, optimiser: Optimiser, start: FloatArray, settings: Settings) -> None:
        self.outcome: Outcome | None = None
        self._proposals = optimiser(np.array(start, dtype=np.float64), settings)
        self._asked: FloatArray | None = None
        self._accepted: list[Iterate] = []
        self._advance(None)

    def ask(self) -> FloatArray | None:
        """The point to be evaluated next; None once the optimisation has ended. Asking again gives the same point."""
        return None if self._asked is None else self._asked.copy()

    def tell(self, J: float, gradient: FloatArray) -> None:
        """The objective and gradient at the point asked for; J = ∞ where it cannot be computed.

        Raises:
            RuntimeError: Nothing was asked for.
        """
        if self._asked is None:
            raise RuntimeError("the optimisation has ended: nothing was asked for")
        self._advance((J, np.array(gradient, dtype=np.float64)))

    def accepted(self) -> list[Iterate]:
        """The iterates accepted since this was called last."""
        accepted, self._accepted = self._accepted, []
        return accepted

    def close(self) -> None:
        """Give up: nothing is asked for any more. Whatever the optimiser holds, threads included, is released."""
        self._asked = None
        self._proposals.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def _advance(self, answer: Answer) -> None:
        """Run the optimiser up to its next question."""
        self._asked = None
        try:
            proposal = self._proposals.send(answer)
            while isinstance(proposal, Iterate):
                self._accepted.append(proposal)
                proposal = self._proposals.send(None)
        except StopIteration as end:
            self.outcome = end.value
            return
        self._asked = proposal
