"""The console is built at the first request for it, once, whoever asks and whoever leaves."""

from __future__ import annotations

import asyncio
import threading

from adapter.app.base import Base
from adapter.app.console import BuiltConsole, LazyConsole
from adapter.edge.http.request import LateBranches
from adapter.settings.root import Settings
from adapter.state.sqlite import MemoryStore
from adapter.state.watched import WatchedStore


async def test_a_client_that_leaves_does_not_have_the_console_built_twice() -> None:
    """Only one console is tidied and closed, so the sessions of another would stay for good."""
    begun, may_end = threading.Semaphore(0), threading.Event()

    def build() -> BuiltConsole:
        begun.release()
        may_end.wait(10)
        return BuiltConsole()

    base = Base(Settings.model_validate({"console": {"enabled": True}}), WatchedStore(MemoryStore()))
    console = LazyConsole(base, build)
    (late,) = base.branches
    assert isinstance(late, LateBranches)
    first = asyncio.ensure_future(late.load())
    await asyncio.to_thread(begun.acquire)
    first.cancel()
    await asyncio.wait([first])
    second = asyncio.ensure_future(late.load())
    built_again = await asyncio.to_thread(begun.acquire, timeout=0.2)
    may_end.set()
    assert (built_again, await second) == (False, console.branches)
