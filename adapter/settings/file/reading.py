"""Reading of the settings by a child process, a copy of this one, which takes with it what only reading needs.

YAML, the validators of all sections and the checks between them are megabytes, and an adapter that serves never needs
them again. What was read arrives pickled: its classes are loaded in both processes.

The settings of a process that serves, read again in a process of its own.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, TypeVar

if TYPE_CHECKING:
    from adapter.settings.file.changed import FileWatch
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
        found: T = _found(answer, self._failure)
        return found


def _found(answer: bytes, failure: Exception) -> Any:
    """Return what a child process has read; its refusal is raised, and ``failure`` where it gave no answer."""
    if not answer:
        raise failure
    outcome = pickle.loads(answer)  # noqa: S301 - it comes from this program, over a pipe of its own
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


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


GIVEN = frozenset(
    {"HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "PYTHONHOME", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV"}
)
"""Variables that the process which reads has from the start. Others may be secrets, which programs of this user could
read in its environment; it is told of them over a pipe, once its memory is hidden.
"""

READ_SECONDS = 120.0
"""Time that the process which reads the settings may take."""


class SettingsSource:
    """Reads the settings that the arguments ``argv`` of ``mcp-adapter`` mean, in a process of its own: this one has not
    loaded what reading needs. ``watch`` is the file; ``heeds`` is False where SIGHUP has been ignored from the start.

    ``restarts``: settings that need a new process get one. Then this one is ``outdated``, and ends.
    """

    def __init__(
        self, argv: Sequence[str], watch: FileWatch, *, heeds: bool = True, restarts: bool = False
    ) -> None:
        self._argv = argv
        self.watch = watch
        self.heeds = heeds
        self.restarts = restarts
        self.outdated = False

    def __repr__(self) -> str:
        return f"<SettingsSource {self.watch!r}>"

    async def read(self) -> ReadSettings:
        """The settings of now, and the warnings about them. Raises SettingsError, and ChildProcessError for a process
        that could not read them, which has said why.
        """
        # A supervisor loads this module too, and runs no event loop.
        import asyncio

        pipe, given = asyncio.subprocess.PIPE, {name: os.environ[name] for name in GIVEN & os.environ.keys()}
        process = await asyncio.create_subprocess_exec(
            sys.executable, *self._argv, stdin=pipe, stdout=pipe, env=given
        )
        try:
            async with asyncio.timeout(READ_SECONDS):
                answer, _ = await process.communicate(pickle.dumps(dict(os.environ)))
        except TimeoutError:
            answer = b""
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        read: ReadSettings = _found(
            answer, ChildProcessError("the process that reads the settings has failed")
        )
        return read
