"""Scripts in a process of their own, in any language: JSON comes in, JSON goes out, and nothing outlives the call."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from structlog.typing import FilteringBoundLogger

from adapter.errors import BadJson
from adapter.hosted.scripts.processes import ProcessOutput
from adapter.hosted.scripts.references import Reference, ScriptFailed, ScriptInvalid, ScriptTimedOut
from adapter.pipeline.call import Tell
from adapter.rules.results.outcomes import Result, ToolUserError
from adapter.rules.text.json_values import MOST_VALUES
from adapter.wire.envelope import dump, parse
from adapter.wire.scan import has_more_values

AT_ONCE = 64
"""Programs that run at the same time. Further calls wait for a place, within the time that they have."""


class Starts:
    """Places for ``at_once`` programs, which begin one in each turn of the loop: to start one takes it several
    milliseconds."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._places = asyncio.Semaphore(at_once)
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place and for a turn to begin; the place is free again when the block ends."""
        async with self._places:
            async with self._turn:
                await asyncio.sleep(0)
            yield


CHILD = Path(__file__).with_name("child.py")


def _own_environment() -> dict[str, str]:
    """Enough to find programs and write UTF-8. The adapter's own variables hold secrets and are not passed on."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}


@dataclass(frozen=True, slots=True)
class Confinement:
    """The limits of a script's process. A limit of None is the adapter's own.

    ``cpu_seconds`` of None means as much as the call may take. ``memory_bytes`` count the data of each process, so that
    runtimes which reserve much and use little can start. ``output_bytes`` hold for standard output and for standard
    error each. ``starts`` are shared by all processes with these limits.
    """

    environment: Mapping[str, str] = field(default_factory=_own_environment)
    cpu_seconds: int | None = None
    memory_bytes: int | None = 1 << 30
    open_files: int | None = 256
    file_bytes: int | None = 1 << 30
    output_bytes: int = 8 << 20
    starts: Starts = field(default_factory=Starts)

    def limits(self, timeout: float | None) -> dict[str, int]:
        """The limits by their names in the ``resource`` module; no process may leave a core dump."""
        derived = math.ceil(timeout) + 1 if timeout is not None else None
        wanted = {
            "RLIMIT_CPU": self.cpu_seconds if self.cpu_seconds is not None else derived,
            "RLIMIT_DATA": self.memory_bytes,
            "RLIMIT_NOFILE": self.open_files,
            "RLIMIT_FSIZE": self.file_bytes,
            "RLIMIT_CORE": 0,
        }
        return {name: value for name, value in wanted.items() if value is not None}


class SubprocessScript:
    """Code that is a program. Raises ScriptInvalid for a file that cannot be run.

    A ``.py`` file runs under the adapter's interpreter, and with a function named it is imported and that function
    called; anything else is executed. The program reads one line of JSON and writes its result as JSON, where nothing
    means null. Its standard error goes to the debug log.
    """

    def __init__(self, reference: Reference, confinement: Confinement, log: FilteringBoundLogger) -> None:
        self.reference = reference.text
        self._path = reference.path
        self._function = reference.function
        self._confinement = confinement
        self._log = log
        self._python = reference.path.suffix == ".py"
        if not self._python and reference.function is not None:
            raise ScriptInvalid(f"{reference.text!r}: a function can only be called in a .py file.")
        if not self._python and not os.access(reference.path, os.X_OK):
            raise ScriptInvalid(f"{reference.text!r} is not executable.")

    async def call(self, payload: Any, context: Any, timeout: float | None, tell: Tell | None = None) -> Any:
        """See Code. A called function gets those members of ``context`` that are JSON, if it is a mapping.

        Raises ScriptTimedOut and ScriptFailed.
        """
        given = payload if self._function is None else {"payload": payload, "context": _sendable(context)}
        talk = ProcessOutput(self._confinement.output_bytes, self._log.bind(script=self.reference))
        scope = asyncio.timeout(timeout)
        try:
            async with (
                scope,
                self._confinement.starts.place(),
                talk.begun(self._command(timeout), self._path.parent, self._confinement.environment),
            ):
                talk.write(dump(given) + b"\n")
                if self._function is None:
                    return _value(await talk.everything(), talk.status)
                return await self._answered(talk, tell)
        except TimeoutError:
            if scope.expired() and timeout is not None:
                raise ScriptTimedOut(timeout) from None
            raise

    def _command(self, timeout: float | None) -> list[str]:
        child, limits = str(CHILD), dump(self._confinement.limits(timeout)).decode()
        begins = (str(os.getpid()), limits, str(self._path))
        if not self._python:
            # Without site-packages this costs a hundredth of a second, and the limits hold before anything runs.
            return [sys.executable, "-I", "-S", child, "exec", *begins]
        if self._function is None:
            return [sys.executable, child, "run", *begins]
        return [sys.executable, child, "call", *begins, self._function]

    async def _answered(self, talk: ProcessOutput, tell: Tell | None) -> Any:
        """The result of a called function, which is its last line; every line before it is a progress."""
        while (line := await talk.line()) is not None:
            said = _value(line, 0)
            if not isinstance(said, dict):
                raise ScriptFailed("the script's process sent an invalid message")
            if "progress" in said:
                if tell is not None:
                    await tell(*said["progress"])
                # Of lines that are there already nothing is waited for, and others shall have their turn.
                await asyncio.sleep(0)
                continue
            if "error" in said:
                raise (ToolUserError if said["user"] else ScriptFailed)(said["error"])
            return Result(**said["outcome"]) if "outcome" in said else said["result"]
        raise ScriptFailed(_ending(talk.status) or "the script ended without a result")


def _value(output: bytes, status: int | None) -> Any:
    if (ending := _ending(status)) is not None:
        raise ScriptFailed(ending)
    if not output.strip():
        return None
    if has_more_values(output, MOST_VALUES):
        raise ScriptFailed(f"the script wrote more than {MOST_VALUES} values")
    try:
        return parse(output)
    except BadJson:
        raise ScriptFailed("the output of the script is not JSON") from None


def _ending(status: int | None) -> str | None:
    """The sentence about an exit status, None for a good one."""
    if status in (0, None):
        return None
    assert status is not None
    if status == -signal.SIGXCPU:
        return "the script used more CPU time than allowed"
    if status < 0:
        return f"the script was ended by signal {-status}"
    return f"the script ended with status {status}"


def _sendable(context: Any) -> dict[str, Any]:
    if not isinstance(context, Mapping):
        return {}
    sent = {}
    for name, value in context.items():
        with contextlib.suppress(TypeError, ValueError):
            dump(value)
            sent[str(name)] = value
    return sent
