"""Processes that check values too large for the event loop: started when they are needed, ended when they are idle.

They are clean interpreters, not forks; they read from a pipe of the adapter's and end with it, however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from weakref import WeakValueDictionary

from structlog.typing import FilteringBoundLogger

from adapter.errors import LimitReached
from adapter.hosted.validation.process import ProcessFailed, ValidationLimits, ValidationProcess
from adapter.pipeline.schema_checks import CheckOwner, CheckVerdict

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
