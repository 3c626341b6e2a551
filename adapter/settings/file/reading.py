"""Reading of the settings by a child process, which takes with it what only reading needs.

YAML, pydantic-settings, the validators of all sections and the checks between them are 7 MiB, and an adapter that
serves never needs them again. The values arrive pickled: the classes of sections are loaded in both processes.
"""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from adapter.settings.root import Settings
from adapter.settings.section import Problem, SettingsError


class ReadSettings(NamedTuple):
    """The settings, and the warnings that their reader has about them."""

    settings: Settings
    cautions: tuple[Problem, ...]


class SettingsReading:
    """A reading that is under way: it begins at once, so that this process can load its code meanwhile.

    ``read`` is called in the child process, a copy of this one. Nothing else that it does is seen here. Begin before
    the first thread or event loop of this process, as for every fork.
    """

    def __init__(self, read: Callable[[], ReadSettings]) -> None:
        self._answer, answer = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            os.close(self._answer)
            _answer_and_end(read, answer)
        os.close(answer)

    def result(self) -> ReadSettings:
        """Wait for the settings. May be called once.

        Raises SettingsError, and ChildProcessError after any other failure, which the child has written to stderr.
        """
        with os.fdopen(self._answer, "rb") as pipe:
            answer = pipe.read()
        os.waitpid(self._child, 0)
        if not answer:
            raise ChildProcessError("the settings were not read: the process that reads them has failed")
        outcome = pickle.loads(answer)  # noqa: S301 - it comes from this program, over a pipe of its own
        if isinstance(outcome, SettingsError):
            raise outcome
        read: ReadSettings = outcome
        return read


def _answer_and_end(read: Callable[[], ReadSettings], answer: int) -> NoReturn:
    """Call ``read``, write the pickled outcome to the pipe, and end this process without what the parent does at its
    end.
    """
    status = 1
    try:
        with os.fdopen(answer, "wb") as pipe:
            pipe.write(pickle.dumps(_outcome(read)))
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(status)


def _outcome(read: Callable[[], ReadSettings]) -> ReadSettings | SettingsError:
    try:
        return read()
    except SettingsError as refused:
        return refused
