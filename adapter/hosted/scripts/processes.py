"""A process of a script while it runs: its bounded output, and its end together with all it started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from structlog.typing import FilteringBoundLogger

from adapter.hosted.scripts.references import ScriptFailed

ERRORS_LOGGED = 64 << 10
"""Bytes of standard error that go to the log; the rest is read and forgotten, as long as it may be written."""

LINGER = 0.5
"""Seconds that output may still come when the process has ended: another may hold on to its pipe."""

_cleanups: set[asyncio.Task[None]] = set()


class ProcessOutput(asyncio.SubprocessProtocol):
    """The output of a process, of ``output_bytes`` at most on standard output and on standard error each.

    A protocol of our own, because asyncio's streams give no way to close a pipe that another process still holds.
    """

    def __init__(self, output_bytes: int, log: FilteringBoundLogger) -> None:
        loop = asyncio.get_running_loop()
        self.status: int | None = None
        self._most = output_bytes
        self._log = log
        self._output = bytearray()
        self._sought = 0
        self._written = {1: 0, 2: 0}
        self._logged = 0
        self._failure: ScriptFailed | None = None
        self._news = asyncio.Event()
        self._silent = False
        self._open = {1, 2}
        self._exited: asyncio.Future[None] = loop.create_future()
        self._transport: asyncio.SubprocessTransport | None = None

    @contextlib.asynccontextmanager
    async def begun(
        self, command: Sequence[str], place: Path, environment: Mapping[str, str]
    ) -> AsyncIterator[None]:
        """Start a process that begins a session; at the end of the block all of its group is killed.

        It begins the session by itself: the loop stands still until the program is loaded, and where the kernel groups
        processes by session (autogroups of sched(7)) one of a new session waits for a processor behind all others.
        """
        spawning = asyncio.ensure_future(self._spawn(command, place, environment))
        try:
            await asyncio.shield(spawning)
            yield
        finally:
            # In a task of its own: whoever is cancelled twice leaves, the process must be reaped nevertheless.
            cleanup = asyncio.ensure_future(self._end(spawning))
            _cleanups.add(cleanup)
            cleanup.add_done_callback(_cleanups.discard)
            await asyncio.shield(cleanup)

    def write(self, line: bytes) -> None:
        """Write the one line that its standard input gets, and close it."""
        assert self._transport is not None
        pipe = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
        pipe.write(line)
        pipe.close()

    async def everything(self) -> bytes:
        """All of its output, when it has ended. Raises ScriptFailed above the limit."""
        while not self._silent:
            await self._more()
        self._require_limits()
        return bytes(self._output)

    async def line(self) -> bytes | None:
        """The next line of its output, None at the end. Raises ScriptFailed above the limit."""
        while True:
            end = self._output.find(b"\n", self._sought)
            if end >= 0:
                line = bytes(self._output[:end])
                del self._output[: end + 1]
                self._sought = 0
                return line
            self._sought = len(self._output)
            if self._silent:
                self._require_limits()
                return None
            await self._more()

    async def _more(self) -> None:
        self._news.clear()
        await self._news.wait()
        self._require_limits()

    def _require_limits(self) -> None:
        if self._failure is not None:
            raise self._failure

    # --- the process ------------------------------------------------------------------------------------------

    async def _spawn(self, command: Sequence[str], place: Path, environment: Mapping[str, str]) -> None:
        try:
            await asyncio.get_running_loop().subprocess_exec(
                lambda: self, *command, cwd=place, env=dict(environment)
            )
        except OSError as error:
            raise ScriptFailed(f"the script cannot be started: {error.strerror}") from error

    async def _end(self, spawning: asyncio.Future[None]) -> None:
        await asyncio.wait((spawning,))
        if self._transport is None:
            return
        self._kill()
        # Not closed before it is reaped: a loop that lets go of a process leaves a zombie.
        await self._exited
        self._transport.close()

    def _kill(self) -> None:
        assert self._transport is not None
        pid = self._transport.get_pid()
        # First the process alone: as long as it has begun no session, nothing is in a group of its own. Not by the
        # transport: in Python 3.11 that looks for its end, and then the loop does not find it any more.
        if self._transport.get_returncode() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        # Also after its end, for it may have left others. A group's number is not given away while it has members.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)

    # --- what the loop tells ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._written[fd] += len(data)
        if self._written[fd] > self._most:
            where = "" if fd == 1 else " to standard error"
            self._failure = ScriptFailed(f"the script wrote more than {self._most} bytes{where}")
            self._kill()
        elif fd == 1:
            self._output += data
        else:
            self._log_errors(data)
        self._news.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002  (the protocol's)
        self._open.discard(fd)
        if not self._open and self._exited.done():
            self._fall_silent()

    def process_exited(self) -> None:
        assert self._transport is not None
        self.status = self._transport.get_returncode()
        self._kill()
        if not self._exited.done():
            self._exited.set_result(None)
        if not self._open:
            self._fall_silent()
        else:
            asyncio.get_running_loop().call_later(LINGER, self._fall_silent)

    def _fall_silent(self) -> None:
        self._silent = True
        self._news.set()

    def _log_errors(self, data: bytes) -> None:
        room = ERRORS_LOGGED - self._logged
        if room > 0:
            self._logged += len(data)
            self._log.debug("a script wrote to standard error", text=data[:room].decode(errors="replace"))
