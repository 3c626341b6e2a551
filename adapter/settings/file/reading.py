"""Reading of the settings by a child process, which takes with it what only reading needs.

YAML, pydantic-settings, the validators of all sections and the checks between them are 7 MiB, and an adapter that
serves never needs them again. The values arrive pickled: the classes of sections are loaded in both processes.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import NamedTuple

from adapter.settings.file.forked_call import ForkedCall
from adapter.settings.root import Settings
from adapter.settings.section import Problem, SettingsError


class ReadSettings(NamedTuple):
    """The settings, and the warnings that their reader has about them."""

    settings: Settings
    cautions: tuple[Problem, ...]


class SettingsLoad:
    """A reading that is under way: it begins at once, so that this process can load its code meanwhile.

    ``read`` is called in the child process. Begin before the first thread or event loop of this process, as for every
    fork.
    """

    def __init__(self, read: Callable[[], ReadSettings]) -> None:
        self._call = ForkedCall(lambda: pickle.dumps(_outcome(read)))

    def result(self) -> ReadSettings:
        """Wait for the settings. May be called once.

        Raises SettingsError, and ChildProcessError after any other failure, which the child has written to stderr.
        """
        answer = self._call.result()
        if not answer:
            raise ChildProcessError("the settings were not read: the process that reads them has failed")
        outcome = pickle.loads(answer)  # noqa: S301 - it comes from this program, over a pipe of its own
        if isinstance(outcome, SettingsError):
            raise outcome
        read: ReadSettings = outcome
        return read


def _outcome(read: Callable[[], ReadSettings]) -> ReadSettings | SettingsError:
    try:
        return read()
    except SettingsError as refused:
        return refused
