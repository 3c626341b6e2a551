"""The work that a replica does again and again while it shares files with others: leases, and words on what is used."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from structlog.typing import FilteringBoundLogger

from adapter.errors import StorageFailed, StoreUnavailable

Task = Callable[[], Awaitable[None]]


class ReplicaKeeper:
    """Does ``often`` every ``pause`` seconds, and ``seldom`` every ``rounds`` times that often. A task that fails is
    tried again the next time."""

    def __init__(
        self, often: list[Task], seldom: list[Task], pause: float, rounds: int, log: FilteringBoundLogger
    ) -> None:
        self._often = often
        self._seldom = seldom
        self._pause = pause
        self._rounds = rounds
        self._log = log
        self._end = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<ReplicaKeeper: {'idle' if self._running is None else 'running'}>"

    def start(self) -> None:
        self._running = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End when what is under way has ended. Harmless when it was not started."""
        self._end.set()
        if self._running is not None:
            await self._running

    async def do_all(self) -> None:
        """Do every task once. Raises what the first one raises that fails."""
        for task in [*self._often, *self._seldom]:
            await task()

    async def _run(self) -> None:
        number = 0
        while not self._end.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause):
                    await self._end.wait()
                    return
            number += 1
            for task in [*self._often, *(self._seldom if number % self._rounds == 0 else ())]:
                try:
                    await task()
                except (StoreUnavailable, StorageFailed) as error:
                    self._log.warning("what other replicas are to know of files is late", why=error.code)
                except Exception:
                    self._log.exception("what other replicas are to know of files is late")
