"""Questions and notifications of a server for callers over HTTP: those of a call, whose caller can answer, and those of
the stream that all who listen in one session share.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from adapter.errors import AdapterError, BadJson, BadRequest
from adapter.relay.http_api.callers import ToolRefused, Who
from adapter.wire.envelope import dump, parse

Hear = Callable[[str, dict[str, Any]], Awaitable[None]]
"""Takes an event: its name and its data."""

ELICITATION = "elicitation/create"

CAPABILITIES: Mapping[str, Any] = {"elicitation": {"form": {}, "url": {}}}
"""Declared for callers who can answer: forms and links can be shown to a person."""

PERSON_PATIENCE = 600.0
"""Seconds that a person has to answer; the silence of a server until then is no failure of it."""

MOST_QUESTIONS, WINDOW = 16, 60.0
"""Questions of one stream that are passed on within so many seconds; more are refused."""

LONGEST_QUESTION = 256 << 10
"""Bytes of one question's parameters."""

_LONGEST_ADDRESS = 2048
_PROGRESS, _COMPLETE = "progress", "notifications/elicitation/complete"
_CHANGED = {f"notifications/{name}/list_changed": name for name in ("tools", "prompts", "resources")}


class ReplyAddress(NamedTuple):
    """The place where the answer to a question goes: the request ``number`` of a legacy session.

    It leaves the adapter with the question, and comes back with the answer, which another process may take.
    """

    version: str | None
    session: str
    number: Any

    def encoded(self) -> str:
        """Encode it as text for the caller to give back."""
        return base64.urlsafe_b64encode(dump(list(self))).decode()

    @classmethod
    def read(cls, text: object) -> ReplyAddress:
        """Decode what ``encoded`` made. Raises BadRequest."""
        if isinstance(text, str) and len(text) <= _LONGEST_ADDRESS:
            try:
                read = parse(base64.b64decode(text, altchars=b"-_", validate=True))
            except (ValueError, BadJson):
                # Also for text that is not ASCII, which is no binascii.Error.
                read = None
            match read:
                case [str() | None as version, str(session), number] if _is_number(number):
                    return cls(version, session, number)
        raise BadRequest("reply_to must be that of the question.")


@dataclass(eq=False, repr=False, slots=True)
class Dialogue:
    """Passes the progress, the questions and the news of a server on to ``hear``.

    Events: ``progress``; ``question`` with ``method``, ``params`` and ``reply_to``; ``refused`` with the ``method``
    of a request that nobody here can answer; ``complete`` with an ``elicitationId``; ``changed`` with the ``list``.
    ``is_open`` tells whether somebody takes questions now.
    """

    hear: Hear
    is_open: Callable[[], bool] = field(default=lambda: True, kw_only=True)
    clock: Callable[[], float] = field(default=time.monotonic, kw_only=True)
    patience: float = field(default=0.0, init=False)
    """Seconds that the server may be silent now, as it waits for a person."""
    _asked: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_QUESTIONS), init=False)

    async def __call__(self, progress: dict[str, Any]) -> None:
        """Pass on progress. Raises what ``hear`` raises."""
        self.patience = 0.0
        await self.hear(_PROGRESS, progress)

    async def question(self, message: Mapping[str, Any], address: ReplyAddress) -> bool:
        """Pass a request on; False if it cannot be answered here, which is passed on too."""
        method, params = message["method"], message.get("params")
        asks = method == ELICITATION and isinstance(params, dict) and len(dump(params)) <= LONGEST_QUESTION
        # An address that could not be read would leave the person with an answer that nobody takes.
        reply_to = address.encoded() if asks and _is_number(address.number) else ""
        if not 0 < len(reply_to) <= _LONGEST_ADDRESS or not self.is_open() or not self._is_free():
            await self.refused(method)
            return False
        self.patience = PERSON_PATIENCE
        await self.hear("question", {"method": method, "params": params, "reply_to": reply_to})
        return True

    async def refused(self, method: object) -> None:
        """Tell that a request of the server was refused."""
        await self.hear("refused", {"method": str(method)[:100]})

    async def notice(self, message: Mapping[str, Any]) -> None:
        """Pass on a notification that callers can use."""
        method, params = message.get("method"), message.get("params")
        if method in _CHANGED:
            await self.hear("changed", {"list": _CHANGED[method]})
        elif method == _COMPLETE and isinstance(params, dict):
            await self.hear("complete", {"elicitationId": str(params.get("elicitationId"))[:500]})

    def _is_free(self) -> bool:
        now = self.clock()
        if len(self._asked) == MOST_QUESTIONS and now - self._asked[0] < WINDOW:
            return False
        self._asked.append(now)
        return True


def _is_number(value: object) -> bool:
    """Tell whether a request can have it as its id (JSON-RPC 2.0)."""
    return isinstance(value, str | int | float) and not isinstance(value, bool)


# --- the stream of a session ----------------------------------------------------------------------------------

OPENING = 2.0
"""Seconds that a call waits for the stream: some servers ask there, and lose a question that nobody hears."""


_FOR_CALLS = ("question", "refused")
"""Events that only those take whose call may be the reason."""


Listen = Callable[[Who, Dialogue, asyncio.Event], Awaitable[bool]]
"""Passes on what a server says outside of answers; see Conversation."""


class SharedListener:
    """Keeps the stream of one session open while anybody listens, or from ``keep`` to ``let_go``.

    ``listen`` is that of the session's Conversation.
    """

    def __init__(self, listen: Listen) -> None:
        self._listen_to = listen
        self._hearers: list[tuple[Hear, bool]] = []
        """Those who listen, each with whether it answers questions."""
        self._opened = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_slow = False
        self.is_kept = False
        """Whether the stream is open for calls of people who listen to nothing."""
        self._is_offered = True

    def __repr__(self) -> str:
        return f"<SharedListener: {len(self._hearers)}>"

    @asynccontextmanager
    async def heard(self, who: Who, hear: Hear, *, answers: bool = False) -> AsyncGenerator[None, None]:
        """Have ``hear`` take the events of the stream within the block, and its questions if it ``answers``."""
        hearer = hear, answers
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
            # A server that keeps its head back is waited for once.
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
            self._is_offered = await self._listen_to(who, dialogue, opened)
        except (AdapterError, ToolRefused):
            return
        finally:
            opened.set()

    async def _pass_on(self, event: str, data: dict[str, Any]) -> None:
        for hear, answers in tuple(self._hearers):
            # Who has gone is taken off where it is noticed; the others go on listening.
            with contextlib.suppress(AdapterError, ConnectionError):
                if answers or event not in _FOR_CALLS:
                    await hear(event, data)

    def _is_answered(self) -> bool:
        return any(answers for _, answers in self._hearers)

    async def _stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
