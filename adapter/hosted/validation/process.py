"""One process that checks values, from the adapter's side: it can be ended at any time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from adapter.hosted.validation.worker import LENGTH, LENGTHS, OUT_OF_MEMORY, READY
from adapter.pipeline.schema_checks import CheckVerdict
from adapter.rules.schema.checker import read_fault
from adapter.rules.schema.cost import PARTS
from adapter.wire.envelope import dump, parse

STARTING = 15.0
"""Seconds that a process may take to be ready."""

LONGEST_ANSWER = 4 << 20
"""Bytes that a process may answer."""

_GRACE = 1.0
"""Seconds until a process ends a check by itself, where the adapter has not: it was killed."""

# Libraries that are not written in Python end a process when there is no memory left for them.
_WITHOUT_MEMORY = (OUT_OF_MEMORY, -signal.SIGSEGV, -signal.SIGABRT)

_COMMAND = (sys.executable, "-P", "-m", "adapter.hosted.validation.worker")


@dataclass(frozen=True, slots=True)
class ValidationLimits:
    """The limits of one check, the number of processes, and the number of checks of one owner that may wait.

    ``seconds`` are of the wall clock, ``memory`` is in bytes of a process. A process that has been idle for ``idle``
    seconds is ended.
    """

    seconds: float = 2.0
    memory: int = 512 << 20
    workers: int = 2
    queue: int = 8
    idle: float = 30.0


class ProcessFailed(Exception):
    """A process that did not start, or ended by itself."""


class ValidationProcess:
    """A process that ``start`` has started."""

    def __init__(self, limits: ValidationLimits, process: asyncio.subprocess.Process) -> None:
        self._limits = limits
        self._process = process
        self._is_ready = False
        self.usable = True

    @classmethod
    async def start(cls, limits: ValidationLimits) -> Self:
        """A process that begins to load. Raises ProcessFailed."""
        try:
            process = await asyncio.create_subprocess_exec(
                *(*_COMMAND, str(limits.memory), str(limits.seconds + _GRACE)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(),
                cwd=os.sep,
            )
        except OSError as error:
            raise ProcessFailed(f"a process for validation cannot be started: {error.strerror}") from error
        return cls(limits, process)

    async def wait_until_ready(self) -> None:
        """Wait until it has begun to answer. Raises ProcessFailed when it does not start."""
        if self._is_ready:
            return
        async with self._ended_unless_done():
            try:
                async with asyncio.timeout(STARTING):
                    await self._out.readexactly(len(READY))
            except (TimeoutError, asyncio.IncompleteReadError) as error:
                raise ProcessFailed("a process for validation did not start") from error
        self._is_ready = True

    async def verdict(self, schema: bytes, value: bytes, *, strict: bool) -> CheckVerdict:
        """The verdict on a value by a schema, both JSON. A process that has ended is not ``usable`` any more, nor one
        whose caller was cancelled. Raises ProcessFailed.
        """
        options = dump({"strict": strict})
        lengths = LENGTHS.pack(len(options), len(schema), len(value))
        async with self._ended_unless_done():
            try:
                async with asyncio.timeout(self._limits.seconds):
                    answer = await self._answer(lengths, options, schema, value)
            except TimeoutError:
                await self.end()
                return CheckVerdict(exceeded=_exceeded("seconds", self._limits))
            except (asyncio.IncompleteReadError, ConnectionError):
                await self.end()
                if self._process.returncode in _WITHOUT_MEMORY:
                    return CheckVerdict(exceeded=_exceeded("memory", self._limits))
                raise ProcessFailed(f"its process ended with status {self._process.returncode}") from None
            return await asyncio.to_thread(_verdict, answer, self._limits)

    def kill(self) -> None:
        """End the process soon, also in the midst of a check."""
        # Not by ``Process.kill``: in Python 3.11 that reaps it, and then the loop does not find it any more.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Kill it, and wait until nothing of it is left. Nobody else may wait for its answer."""
        self.usable = False
        self.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._out.read()
        await self._process.wait()

    @property
    def _out(self) -> asyncio.StreamReader:
        assert self._process.stdout is not None
        return self._process.stdout

    async def _answer(self, *request: bytes) -> bytes:
        assert self._process.stdin is not None
        self._process.stdin.writelines(request)
        await self._process.stdin.drain()
        (length,) = LENGTH.unpack(await self._out.readexactly(LENGTH.size))
        if length > LONGEST_ANSWER:
            raise ProcessFailed(f"its process answers {length} bytes")
        return await self._out.readexactly(length)

    @contextlib.asynccontextmanager
    async def _ended_unless_done(self) -> AsyncIterator[None]:
        try:
            yield
        except BaseException:
            await self.end()
            raise


def _verdict(written: bytes, limits: ValidationLimits) -> CheckVerdict:
    answer = parse(written)
    if "exceeded" in answer:
        return CheckVerdict(exceeded=_exceeded(answer["exceeded"], limits))
    if "invalid" in answer:
        return CheckVerdict(invalid=answer["invalid"])
    return CheckVerdict([read_fault(fault) for fault in answer["faults"]], answer["unjudged"])


def _exceeded(what: str, limits: ValidationLimits) -> str:
    match what:
        case "seconds":
            return f"Checking the value needs more than {limits.seconds:g} s."
        case "memory":
            return f"Checking the value needs more than {limits.memory} bytes of memory."
    return f"The schema has more than {PARTS} parts."


def _environment() -> dict[str, str]:
    """The variables that are needed to find this package. The adapter's own hold secrets and are not passed on."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(Path(__file__).parents[3]),
    }
