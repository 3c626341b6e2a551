"""Reading of the settings by a child process, a copy of this one, which takes with it what only reading needs.

YAML, the validators of all sections and the checks between them are megabytes, and an adapter that serves never needs
them again. What was read arrives pickled: its classes are loaded in both processes.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NamedTuple, NoReturn, TypeVar

if TYPE_CHECKING:
    # A supervisor does not load the classes of settings.
    from adapter.settings.root import Settings
    from adapter.settings.section import Problem

T = TypeVar("T")


class ReadSettings(NamedTuple):
    """The settings, and the warnings that their reader has about them."""

    settings: Settings
    cautions: tuple[Problem, ...]


class ForkedRead(Generic[T]):
    """A reading that is under way: it begins at once, so that this process can load its code meanwhile.

    ``read`` is called in the child process, after ``prepare``; nothing else that the child does is seen here. Begin
    before the first thread or event loop of this process, as for every fork.
    """

    def __init__(
        self,
        read: Callable[[], T],
        refusal: type[Exception],
        failure: Exception,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self._failure = failure
        self._answer, answer = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            os.close(self._answer)
            _answer_and_end(read, refusal, answer, prepare)
        os.close(answer)

    def fileno(self) -> int:
        """A descriptor that can be read once the reading has ended."""
        return self._answer

    def result(self) -> T:
        """Wait for what was read. May be called once.

        Raises the ``refusal`` that the reading has raised, and the ``failure`` after any other error, which the child
        has written to stderr.
        """
        with os.fdopen(self._answer, "rb") as pipe:
            answer = pipe.read()
        # A process that reaps all its children may have been first.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._child, 0)
        if not answer:
            raise self._failure
        outcome = pickle.loads(answer)  # noqa: S301 - it comes from this program, over a pipe of its own
        if isinstance(outcome, Exception):
            raise outcome
        found: T = outcome
        return found


def _answer_and_end(
    read: Callable[[], T], refusal: type[Exception], answer: int, prepare: Callable[[], None] | None
) -> NoReturn:
    """Write what was read to the pipe, and end this process without what the parent does at its end."""
    status = 1
    try:
        if prepare is not None:
            prepare()
        try:
            outcome: object = read()
        except refusal as refused:
            outcome = refused
        with os.fdopen(answer, "wb") as pipe:
            pipe.write(pickle.dumps(outcome))
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(status)
