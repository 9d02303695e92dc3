"""Callback style turned inside out: the questions a function asks through a callback, as a generator's."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from queue import SimpleQueue

__all__ = ["inside_out"]


class _AbandonedError(BaseException):
    """Raised in the function when nobody waits for it any more; no Exception, so that nothing on the way catches it."""


def inside_out[Question, Answer, Result](
    function: Callable[[Callable[[Question], Answer]], Result],
) -> Generator[Question, Answer, Result]:
    """Run ``function(ask)``, yield what it asks, send it the answers, return what it returns.

    The function runs in a thread of its own, but never at the same time as the caller: each waits while the other
    works. It must not call MPI or PETSc. What it raises is raised here. A generator that is closed or collected ends
    the thread: the question still open raises in it.
    """
    questions: SimpleQueue[tuple[str, object]] = SimpleQueue()
    answers: SimpleQueue[tuple[bool, object]] = SimpleQueue()

    def ask(question: Question) -> Answer:
        questions.put(("question", question))
        abandoned, answer = answers.get()
        if abandoned:
            answers.put((True, None))  # for any further question
            raise _AbandonedError
        return answer  # type: ignore[return-value]

    def run() -> None:
        try:
            questions.put(("result", function(ask)))
        except _AbandonedError:
            pass
        except BaseException as error:
            questions.put(("error", error))

    thread = threading.Thread(target=run, name=f"inside-out {getattr(function, '__name__', '')}", daemon=True)
    exiting = sys.is_finalizing  # at exit module globals may be gone, and daemon threads no longer run
    thread.start()
    try:
        while True:
            kind, content = questions.get()
            if kind == "result":
                return content  # type: ignore[return-value]
            if kind == "error":
                raise content  # type: ignore[misc]
            answers.put((False, (yield content)))  # type: ignore[misc]
    finally:
        answers.put((True, None))
        if not exiting():
            thread.join()
