"""The console is built at the first request for it, once, whoever asks and whoever leaves."""

from __future__ import annotations

import asyncio
import threading
from typing import cast

from adapter.app.console import BuiltConsole, ConsoleParts, ConsoleSurroundings
from adapter.app.edge import Observation
from adapter.settings.root import Settings


class SlowConsole(ConsoleParts):
    """A console that is built when ``may_end`` is set. ``begun`` is released by each building that begins."""

    def __init__(self) -> None:
        settings = Settings.model_validate({"console": {"enabled": True}})
        super().__init__(settings, Observation(None, None, None), cast(ConsoleSurroundings, None))
        self.begun, self.may_end = threading.Semaphore(0), threading.Event()

    def build(self) -> BuiltConsole:
        if self._built is None:
            self.begun.release()
            self.may_end.wait(10)
            self._built = BuiltConsole()
        return self._built


async def test_a_client_that_leaves_does_not_have_the_console_built_twice() -> None:
    """Only one console is tidied and closed, so the sessions of another would stay for good."""
    console = SlowConsole()
    (late,) = console.late_branches()
    first = asyncio.ensure_future(late.load())
    await asyncio.to_thread(console.begun.acquire)
    first.cancel()
    await asyncio.wait([first])
    second = asyncio.ensure_future(late.load())
    built_again = await asyncio.to_thread(console.begun.acquire, timeout=0.2)
    console.may_end.set()
    assert (built_again, await second) == (False, console.branches)
