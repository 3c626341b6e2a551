"""One stream of what a server says outside of answers, shared by all who listen in the same session."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from adapter.errors import AdapterError
from adapter.relay.http_api.callers import ToolRefused, Who
from adapter.relay.http_api.conversation import Conversation
from adapter.relay.http_api.dialogue import Dialogue, Hear

OPENING = 2.0
"""Seconds that a call waits for the stream: some servers ask there, and lose a question that nobody hears."""


_FOR_CALLS = ("question", "refused")
"""Events that only those take whose call may be the reason."""


class _Hearer(NamedTuple):
    """Somebody who listens."""

    hear: Hear
    answers: bool


class SharedListening:
    """Keeps the stream of one conversation open while anybody listens, or from ``keep`` to ``let_go``."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._hearers: list[_Hearer] = []
        self._opened = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_slow = False
        self.is_kept = False
        """Whether the stream is open for calls of people who listen to nothing."""
        self._is_offered = True

    def __repr__(self) -> str:
        return f"<SharedListening: {len(self._hearers)}>"

    @asynccontextmanager
    async def heard(self, who: Who, hear: Hear, *, answers: bool = False) -> AsyncGenerator[None, None]:
        """Have ``hear`` take the events of the stream within the block, and its questions if it ``answers``."""
        hearer = _Hearer(hear, answers)
        self._hearers.append(hearer)
        try:
            await self._open(who)
            yield
        finally:
            self._hearers.remove(hearer)
            if not self._hearers and not self.is_kept:
                await self._stop()

    async def keep(self, who: Who) -> None:
        """Have the stream open, where the server has one, so that what it asks there is refused at once."""
        self.is_kept = True
        if self._is_offered:
            await self._open(who)

    def let_go(self) -> None:
        """End what ``keep`` began, unless somebody listens."""
        self.is_kept = False
        if self._task is not None and not self._hearers:
            self._task.cancel()

    async def _open(self, who: Who) -> None:
        if self._task is None or self._task.done():
            self._opened = asyncio.Event()
            self._task = asyncio.create_task(self._listen(who, self._opened))
        if not self._opened.is_set() and not self._is_slow:
            await self._open_in_time()

    async def _open_in_time(self) -> None:
        """Wait until the stream is open; a server that keeps its head back is waited for once."""
        try:
            async with asyncio.timeout(OPENING):
                await self._opened.wait()
        except TimeoutError:
            self._is_slow = True

    async def ended(self) -> None:
        """Wait until the server has no more to say. Only within ``heard``."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def _listen(self, who: Who, opened: asyncio.Event) -> None:
        # A server that keeps no stream, or ends it, has nothing to say outside of answers.
        try:
            dialogue = Dialogue(self._pass_on, is_open=self._is_answered)
            self._is_offered = await self._conversation.listen(who, dialogue, opened)
        except (AdapterError, ToolRefused):
            return
        finally:
            opened.set()

    async def _pass_on(self, event: str, data: dict[str, Any]) -> None:
        for hearer in tuple(self._hearers):
            # Who has gone is taken off where it is noticed; the others go on listening.
            with contextlib.suppress(AdapterError, ConnectionError):
                if hearer.answers or event not in _FOR_CALLS:
                    await hearer.hear(event, data)

    def _is_answered(self) -> bool:
        return any(each.answers for each in self._hearers)

    async def _stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
