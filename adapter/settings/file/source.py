"""The settings of a process that serves, read again in a process of its own."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adapter.settings.file.changed import FileWatch
    from adapter.settings.file.reading import ReadSettings

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
        if not answer:
            raise ChildProcessError("the process that reads the settings has failed")
        outcome = pickle.loads(answer)  # noqa: S301 - it comes from this program, over a pipe of its own
        if isinstance(outcome, Exception):
            raise outcome
        read: ReadSettings = outcome
        return read
