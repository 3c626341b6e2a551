"""Processes that check values too large for the event loop: started when they are needed, ended when they are idle.

They are clean interpreters, not forks; they read from a pipe of the adapter's and end with it, however it ends.

One process that checks values, from the adapter's side: it can be ended at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from weakref import WeakValueDictionary

from structlog.typing import FilteringBoundLogger

from adapter.errors import LimitReached
from adapter.hosted.validation.worker import LENGTH, LENGTHS, OUT_OF_MEMORY, READY
from adapter.pipeline.validation_stage import CheckOwner, CheckVerdict
from adapter.rules.results.refusals import read_fault
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
                return CheckVerdict(
                    exceeded=f"Checking the value needs more than {self._limits.seconds:g} s."
                )
            except (asyncio.IncompleteReadError, ConnectionError):
                await self.end()
                if self._process.returncode in _WITHOUT_MEMORY:
                    needs = f"Checking the value needs more than {self._limits.memory} bytes of memory."
                    return CheckVerdict(exceeded=needs)
                raise ProcessFailed(f"its process ended with status {self._process.returncode}") from None
            return await asyncio.to_thread(_verdict, answer)

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


def _verdict(written: bytes) -> CheckVerdict:
    answer = parse(written)
    return CheckVerdict([*map(read_fault, answer.pop("faults", ()))], **answer)


def _environment() -> dict[str, str]:
    """The variables that are needed to find this package. The adapter's own hold secrets and are not passed on."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(Path(__file__).parents[3]),
    }


FAILED = "The value cannot be checked now: the worker process has failed."


class ValidationWorkers:
    """See Elsewhere. Each server has one check at a time."""

    def __init__(self, limits: ValidationLimits, log: FilteringBoundLogger) -> None:
        self._limits = limits
        self._log = log
        self._asked: Counter[CheckOwner] = Counter()
        self._turns: WeakValueDictionary[CheckOwner | str, asyncio.Lock] = WeakValueDictionary()
        self._places = asyncio.Semaphore(limits.workers)
        self._processes: set[ValidationProcess] = set()
        self._idle: dict[ValidationProcess, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    def __repr__(self) -> str:
        return f"<ValidationWorkers: {len(self._processes)} processes, {self._asked.total()} checks>"

    async def judge(self, owner: CheckOwner, schema: bytes, value: bytes, *, strict: bool) -> CheckVerdict:
        """See Elsewhere. A check that nobody waits for any more ends with its process."""
        waiting = self._asked[owner] - 1
        if self._closed or waiting >= self._limits.queue:
            sentence = f"{waiting} large checks for {owner.server} are waiting already; try again shortly."
            raise LimitReached(sentence, retry_after=self._limits.seconds)
        self._asked[owner] += 1
        try:
            # One check of a caller waits for the server at a time, and so the callers take turns.
            async with self._turn(owner), self._turn(owner.server), self._places:
                return await self._make(owner, schema, value, strict=strict)
        finally:
            self._asked[owner] -= 1
            if not self._asked[owner]:
                del self._asked[owner]

    async def close(self) -> None:
        """End all processes, also in the midst of a check."""
        self._closed = True
        for process in self._processes:
            process.kill()
        # Whoever has a place fails now; those who get one later start nothing.
        for _ in range(self._limits.workers):
            await self._places.acquire()
        while self._idle:
            process, ending = self._idle.popitem()
            ending.cancel()
            await process.end()
        # A process whose time was over may be about to end.
        await asyncio.gather(*self._ending, return_exceptions=True)
        for _ in range(self._limits.workers):
            self._places.release()

    def _turn(self, of: CheckOwner | str) -> asyncio.Lock:
        return self._turns.setdefault(of, asyncio.Lock())

    async def _make(self, owner: CheckOwner, schema: bytes, value: bytes, *, strict: bool) -> CheckVerdict:
        try:
            async with self._process() as process:
                return await process.verdict(schema, value, strict=strict)
        except ProcessFailed as failure:
            if not self._closed:
                self._log.error("a check could not be made", why=str(failure), server=owner.server)
            return CheckVerdict(exceeded=FAILED)

    @contextlib.asynccontextmanager
    async def _process(self) -> AsyncIterator[ValidationProcess]:
        """A process that is ready, for the caller alone. Raises ProcessFailed."""
        if self._closed:
            raise ProcessFailed("the adapter stops")
        if self._idle:
            process, ending = self._idle.popitem()
            ending.cancel()
        else:
            process = await ValidationProcess.start(self._limits)
            self._processes.add(process)
        try:
            if self._closed:
                process.kill()
            await process.wait_until_ready()
            yield process
        finally:
            if process.usable:
                self._idle[process] = ending = asyncio.create_task(self._retire(process))
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)
            else:
                self._processes.discard(process)

    async def _retire(self, process: ValidationProcess) -> None:
        await asyncio.sleep(self._limits.idle)
        del self._idle[process]
        self._processes.discard(process)
        await process.end()
