"""One session of a legacy client at a modern server.

It has what the client said of itself, the questions that it was asked, and a subscription while the client listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from adapter.errors import UpstreamBroken
from adapter.rules.eras.legacy_server import LEVEL_KEY
from adapter.upstream.local.events import EventStream
from adapter.upstream.local.port import LocalHead
from adapter.upstream.local.sessions import LocalSession, LocalSessions
from adapter.wire.envelope import dump

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
"""Seconds until a subscription that broke off is opened again. They double each time."""

UNASKED_LEVEL = "info"
"""The level of log messages for a client that names none. Until it does a server may choose (MCP 2025-11-25,
"Logging"), and a modern one sends none.
"""

LARGEST_ANSWERS = 16 << 20
"""Bytes of a client's answers that wait for the others of their rounds."""

MOST_URIS = 1000
"""Resources that one session is subscribed to."""


class BridgedSession(LocalSession):
    """A LocalSession whose client has said ``meta`` of itself, in a request with the ``head``.

    ``listens`` hears what the server says to a session until that ends; it is called while a GET stream is open.
    """

    meta: Mapping[str, Any]
    members: bytes
    head: LocalHead
    listens: Callable[[BridgedSession], Coroutine[Any, Any, bool]]

    def begin(
        self,
        meta: Mapping[str, Any],
        head: LocalHead,
        listens: Callable[[BridgedSession], Coroutine[Any, Any, bool]],
    ) -> None:
        """Know a client. A session begins once, when its ``initialize`` has succeeded."""
        self.listens = listens
        self.head = head
        self.describe({**meta, LEVEL_KEY: UNASKED_LEVEL})
        self.uris: dict[str, None] = {}
        self._asked: dict[str, asyncio.Future[bytes]] = {}
        self._numbers = itertools.count(1)
        # Nobody can guess the ids of questions, so no answer meets one of another session.
        self._mark = secrets.token_hex(8)
        self._listening: asyncio.Task[None] | None = None
        self._former: asyncio.Task[None] | None = None
        self._acknowledged = asyncio.Event()
        self._held = 0

    def describe(self, meta: Mapping[str, Any]) -> None:
        """Have this in ``_meta`` of each request from now on."""
        self.meta, self.members = meta, dump(meta)[1:-1]

    def set_level(self, level: str) -> None:
        """Want log messages of this level, and above."""
        self.describe({**self.meta, LEVEL_KEY: level})

    def close(self) -> None:
        """See LocalSession."""
        super().close()
        self.stop_listening()
        for answer in self._asked.values():
            answer.cancel()

    # --- questions --------------------------------------------------------------------------------------------

    @property
    def asked(self) -> int:
        """The number of questions that the client has not answered."""
        return len(self._asked)

    def expect_answer(self) -> tuple[str, asyncio.Future[bytes]]:
        """The id of a new question to the client, and its answer to come."""
        number = f"{self._mark}-{next(self._numbers)}"
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda _: self._asked.pop(number, None))
        return number, answer

    def answered(self, number: object, response: bytes) -> None:
        """Take a response of the client. One that answers no question is dropped, as legacy servers do."""
        answer = self._asked.get(number) if isinstance(number, str) else None
        if answer is None or answer.done():
            return
        self._held += len(response)
        if self._held > LARGEST_ANSWERS:
            answer.set_exception(
                UpstreamBroken(
                    f"The answers to the server's questions have more than {LARGEST_ANSWERS} bytes."
                )
            )
        else:
            answer.set_result(response)

    def forget(self, answers: Iterable[asyncio.Future[bytes]]) -> None:
        """Let go of the answers to questions of one round, and wait for no more of them."""
        for answer in answers:
            if not answer.done():
                answer.cancel()
            elif not answer.cancelled():
                self._held -= 0 if answer.exception() is not None else len(answer.result())
        if not self._asked:
            self._held = 0

    # --- subscription -----------------------------------------------------------------------------------------

    def listen(self, last_event_id: str | None = None) -> EventStream:
        """See LocalSession."""
        stream = super().listen(last_event_id)
        if stream is self.listener:
            stream.emptied = self._look_at_streams
            self.resubscribe(anew=False)
        return stream

    def resubscribe(self, *, anew: bool = True) -> None:
        """Hear what the server says while a stream is open; ``anew``: to another subscription than before, which goes
        on until the server has taken note of this one.
        """
        if self._listening is not None and anew:
            self._drop(self._former)
            self._former, self._listening = self._listening, None
        if self._listening is None and any(not each.over for each in self._streams):
            self._acknowledged.clear()
            self._listening = asyncio.get_running_loop().create_task(self._listen())

    async def subscribed(self, within: float) -> None:
        """Wait until the server has taken note of the subscription, if there is one."""
        if self._listening is not None and not self._listening.done():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await self._acknowledged.wait()

    def acknowledged(self) -> None:
        """Note that the server has taken note."""
        self._acknowledged.set()
        self._drop(self._former)

    def stop_listening(self) -> None:
        """Drop the subscription."""
        self._drop(self._former)
        self._drop(self._listening)
        self._listening = self._former = None

    def _drop(self, task: asyncio.Task[None] | None) -> None:
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def _look_at_streams(self) -> None:
        # A stream says that it is over before it is forgotten.
        if all(each.over for each in self._streams):
            self.stop_listening()

    async def _listen(self) -> None:
        pause = FIRST_PAUSE
        while True:
            began = asyncio.get_running_loop().time()
            if not await self.listens(self):
                self._acknowledged.set()
                return
            if asyncio.get_running_loop().time() - began > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)


class BridgedSessions(LocalSessions):
    """LocalSessions of that kind."""

    def _made(self, session_id: str, version: str) -> LocalSession:
        return BridgedSession(session_id, version, lambda: self._end(session_id), self.bounds)
