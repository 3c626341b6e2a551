"""An upstream server as a process: lines come from its standard output, messages go to its standard input."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from adapter.errors import UpstreamNotStarted
from adapter.settings.servers.server import UpstreamSettings
from adapter.upstream.stdio.failures import LONGEST_LINE, ChildExit, ErrorLines, secrets_of, start_failure
from adapter.upstream.stdio.pipes import LinePipe, MessagePipe
from adapter.upstream.stdio.supervisor import StartRefused, SupervisedProcess, Supervisor
from adapter.wire.line_messages import Line

INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
)
"""Variables that a program needs to find its files, its language and its certificates. None of them is a secret."""

LINGER = 1.0
"""Seconds that output may still come when the process has ended: another may hold on to its pipe."""

_CLOSED_OUTPUT = 1.0
"""Seconds between the end of its output and its stop: nothing can come from it any more."""

_TERM, _KILL = 0.4, 0.8
"""Shares of the grace after which a process that is stopped gets TERM and KILL."""

_OVERDUE = 2.0
"""Seconds after the grace until a stop is over although the system has not reported the end."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A program with all of its environment; see ``child_environment``.

    A command without a slash is looked for on the PATH in there. ``cwd`` of None is the folder of the adapter.
    ``line_bytes`` is the most of a line of its output, ``stop_grace`` are the seconds that a stop takes.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: str | None = None
    line_bytes: int = 16 << 20
    stop_grace: float = 5.0

    @classmethod
    def of(
        cls, settings: UpstreamSettings, line_bytes: int, own: Mapping[str, str] = os.environ
    ) -> ChildSpec:
        """The program of one server; ``own`` are the adapter's variables."""
        assert settings.command is not None, "settings refuse a stdio server without a command"
        return cls(
            (settings.command, *settings.args),
            child_environment(own, settings.inherit_env, settings.env),
            None if settings.cwd is None else str(settings.cwd),
            line_bytes,
            settings.stop_grace_seconds,
        )


class ChildOwner(Protocol):
    """The receiver of a child's output. All calls come from the loop, one after another, never within ``start``."""

    @property
    def outgoing(self) -> MessagePipe:
        """The messages to the child. They may wait there before it is started."""

    def received(self, line: Line) -> None:
        """Take a line of standard output without its line end, or note that it was longer than the limit."""

    def exited(self, child_exit: ChildExit) -> None:
        """Take note of the end, once and last; after it nothing else is called."""


class ChildProcess:
    """A running program, from ``start`` to its end."""

    def __init__(self, spec: ChildSpec, owner: ChildOwner, log: FilteringBoundLogger) -> None:
        """Open the pipes; ``start`` is for everybody else. Raises OSError."""
        self._loop = asyncio.get_running_loop()
        self._spec = spec
        self._owner = owner
        self._log = log
        self._errors = ErrorLines(secrets_of(spec.environment), log, self._loop.time)
        self._process: SupervisedProcess | None = None
        self._status: int | None = None
        self._stopping: asyncio.Task[ChildExit] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._gone: asyncio.Future[ChildExit] = self._loop.create_future()
        ends = _pipes()
        self._theirs = (ends[0], ends[3], ends[5])
        for descriptor in (ends[1], ends[2], ends[4]):
            os.set_blocking(descriptor, False)
        self._stdin = owner.outgoing
        self._stdin.open(ends[1])
        self._stdout = LinePipe(ends[2], spec.line_bytes, owner.received, self._output_ended)
        self._stderr = LinePipe(ends[4], LONGEST_LINE, self._errors.take, self._output_ended)

    def __repr__(self) -> str:
        state = "running" if self.is_running else "starting" if self._process is None else "ended"
        return f"<ChildProcess {Path(self._spec.argv[0]).name!r}: process {self.pid}, {state}>"

    @classmethod
    async def start(
        cls, supervisor: Supervisor, spec: ChildSpec, owner: ChildOwner, log: FilteringBoundLogger
    ) -> ChildProcess:
        """Start a program. Raises UpstreamNotStarted, whose ``reason`` names the setting to change."""
        try:
            cwd = spec.cwd if spec.cwd is not None else str(Path.cwd())
            child = cls(spec, owner, log)
        except OSError as error:
            raise UpstreamNotStarted(
                f"The adapter has no folder or no pipe for the process: {error.strerror}."
            ) from error
        try:
            child._process = await supervisor.start(
                spec.argv, spec.environment, cwd, child._theirs, child._process_ended
            )
        except BaseException as error:
            child._close()
            if isinstance(error, StartRefused):
                reason = start_failure(error, spec.argv[0], spec.environment, cwd)
                raise UpstreamNotStarted(reason) from error
            if isinstance(error, ValueError):
                raise UpstreamNotStarted("upstream.args or upstream.env has a NUL character.") from error
            raise
        finally:
            for descriptor in child._theirs:
                os.close(descriptor)
        child._stdout.resume()
        child._stderr.resume()
        return child

    @property
    def pid(self) -> int | None:
        """Its process id, which is that of its group and of its session too; None before it has started."""
        return self._process.pid if self._process is not None else None

    @property
    def is_running(self) -> bool:
        """True until its end was reported, also while it is being stopped."""
        return self._process is not None and self._status is None

    def pause(self) -> None:
        """Read no further output: the process waits when its pipe is full."""
        if self._stopping is None:
            self._stdout.pause()
            self._linger()

    def resume(self) -> None:
        """Read output again."""
        if not self._gone.done():
            self._stdout.resume()
            self._linger()

    async def stop(self) -> ChildExit:
        """End it: standard input is closed, then its group gets TERM, then KILL, all within the grace.

        The owner gets no line any more, but ``exited``. Returns when it and all of its group are gone. Idempotent.
        """
        if self._stopping is None:
            self._stopping = self._loop.create_task(self._stop())
        return await asyncio.shield(self._stopping)

    # --- its output -------------------------------------------------------------------------------------------

    def _output_ended(self) -> None:
        if self._status is not None:
            self._finish_if_silent()
        elif self._stdout.ended and self._timer is None and self._stopping is None:
            self._timer = self._loop.call_later(_CLOSED_OUTPUT, self._stop_by_itself)

    def _stop_by_itself(self) -> None:
        if self._stopping is None and not self._gone.done():
            self._log.warning("a server closed its standard output and is stopped", pid=self.pid)
            self._stopping = self._loop.create_task(self._stop())

    # --- its end ----------------------------------------------------------------------------------------------

    async def _stop(self) -> ChildExit:
        self._stdout.discard()
        self._stdin.close()
        self._linger()
        grace = self._spec.stop_grace
        for share, which in ((_TERM, signal.SIGTERM), (_KILL - _TERM, signal.SIGKILL)):
            if await self._is_gone_within(grace * share):
                break
            assert self._process is not None
            self._process.signal(which)
        if not await self._is_gone_within(grace * (1 - _KILL) + _OVERDUE):
            self._log.error("the end of a server's process was not reported", pid=self.pid)
            self._status = -signal.SIGKILL
            self._finish()
        return await self._gone

    async def _is_gone_within(self, seconds: float) -> bool:
        await asyncio.wait((self._gone,), timeout=seconds)
        return self._gone.done()

    def _process_ended(self, status: int) -> None:
        """Take note of its end; what its pipes still hold is read first."""
        if self._gone.done():
            return
        self._status = status
        self._stdin.close()
        self._linger()
        self._loop.call_soon(self._finish_if_silent)

    def _linger(self) -> None:
        """Wait for the last output, but not for long, and not while the owner wants none."""
        if self._status is None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._stdout.paused:
            self._timer = self._loop.call_later(LINGER, self._finish)

    def _finish_if_silent(self) -> None:
        if self._stdout.ended and self._stderr.ended:
            self._finish()

    def _finish(self) -> None:
        if self._gone.done():
            return
        self._close()
        assert self._status is not None
        child_exit = ChildExit(self._status, self._errors.last(), self._stopping is not None)
        self._report(child_exit)
        self._gone.set_result(child_exit)
        self._owner.exited(child_exit)

    def _report(self, child_exit: ChildExit) -> None:
        self._errors.report_left_out()
        if child_exit.requested:
            self._log.debug("a server's process was stopped", pid=self.pid, status=child_exit.status)
        else:
            self._log.warning(
                "a server's process ended",
                sentence=child_exit.sentence,
                stderr=child_exit.error_lines,
                pid=self.pid,
            )

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._stdin.close()
        self._stdout.close()
        self._stderr.close()


def _pipes() -> list[int]:
    """Open three pipes: the two ends of each, reading end first. Raises OSError."""
    ends: list[int] = []
    try:
        for _ in range(3):
            ends += os.pipe()
    except OSError:
        for descriptor in ends:
            os.close(descriptor)
        raise
    return ends


def child_environment(
    own: Mapping[str, str], inherit: Iterable[str] = (), given: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the complete environment of a child.

    ``own`` are the adapter's variables. Of these it gets INHERITED and the names in ``inherit``, where a ``*`` at the
    end stands for any characters, and then all of ``given``.
    """
    names = (*INHERITED, *inherit)
    exact = set(names)
    prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
    passed = {name: text for name, text in own.items() if name in exact or name.startswith(prefixes)}
    return {**passed, **(given or {})}
