"""A session at a server that all sessions of one principal share: its names, its record, and who answers what. Pure."""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from adapter.wire.shared_ids import EVERYBODY

MANY = "~"
"""How members begin in which several clients speak, so that their ids may be the same."""

_PREFIX = "shared-"
_MEMBER = re.compile(r"shared-([0-9a-f]{32})-([0-9a-f]{32})-(~?[0-9a-f]{16})")
_LONGEST_ID = 1024
_FORMAT = 1


class Membership(NamedTuple):
    """A client's part in a shared session. ``key`` names the principal, ``secret`` the session; ``member`` is the tag
    of the client's ids.
    """

    key: str
    secret: str
    member: str

    def __str__(self) -> str:
        """The text that stands for the id of an upstream session, as long as the shared one lives."""
        return f"{_PREFIX}{self.key}-{self.secret}-{self.member}"


def membership(session: str | None) -> Membership | None:
    """The part in a shared session that is named so; None for the id of a session of its own."""
    found = _MEMBER.fullmatch(session) if session is not None else None
    return None if found is None else Membership(found[1], found[2], found[3])


def principal_key(principal: str) -> str:
    """The key under which a principal's session is kept: 32 hexadecimal digits."""
    return hashlib.sha256(principal.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def belongs(tag: str, member: str) -> bool:
    """Tell whether the ids of ``tag`` are that member's."""
    return tag == member or tag.startswith(f"{member}-")


@dataclass(frozen=True, slots=True)
class SharedRecord:
    """The facts that are known of a shared session.

    ``session`` is the id that the server gave to it; ``result`` is the result of its ``initialize``, as it came.
    ``secret`` (32 hexadecimal digits) tells it from the shared sessions before it.
    """

    session: str
    version: str
    result: bytes
    secret: str

    @property
    def epoch(self) -> str:
        """The part of ids that tells the session from those before it; clients may see it."""
        return hashlib.sha256(self.secret.encode("ascii")).hexdigest()[:8]

    def encoded(self) -> bytes:
        """The record as one JSON object."""
        return orjson.dumps(
            {
                "format": _FORMAT,
                "session": self.session.encode("utf-8", "surrogatepass").decode("latin-1"),
                "version": self.version.encode("utf-8", "surrogatepass").decode("latin-1"),
                "result": self.result.decode("latin-1"),
                "secret": self.secret,
            }
        )


def shared_record(data: bytes) -> SharedRecord:
    """The record out of a row's value. Raises ValueError if this version cannot read it."""
    try:
        fields: dict[str, Any] = orjson.loads(data)
        if fields["format"] != _FORMAT:
            raise ValueError(f"a shared session of format {fields['format']}, expected {_FORMAT}")
        return SharedRecord(
            session=fields["session"].encode("latin-1").decode("utf-8", "surrogatepass"),
            version=fields["version"].encode("latin-1").decode("utf-8", "surrogatepass"),
            result=fields["result"].encode("latin-1"),
            secret=fields["secret"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("not a shared session") from error


@dataclass(slots=True)
class _Open:
    """``waiting``: streams whose clients have not refused yet. ``answered``: further answers come too late."""

    tag: str
    waiting: int
    answered: bool = False


class ServerRequests:
    """Requests of a server to the clients of one session, by the JSON text of their ids; of the newest, ``most``."""

    def __init__(self, most: int = 1000) -> None:
        self._most = most
        self._open: OrderedDict[bytes, _Open] = OrderedDict()

    def __repr__(self) -> str:
        return f"<ServerRequests: {len(self._open)}>"

    def ask(self, number: bytes, tag: str, streams: int) -> None:
        """Note that a request was written to so many streams of ``tag``. One with a very long id is not known."""
        if len(number) > _LONGEST_ID:
            return
        self._open.pop(number, None)
        self._open[number] = _Open(tag, streams)
        if len(self._open) > self._most:
            self._open.popitem(last=False)

    def tag_of(self, number: bytes) -> str:
        """The tag whose clients were asked; ``EVERYBODY`` for a request that is not known."""
        found = self._open.get(number)
        return EVERYBODY if found is None else found.tag

    def answer(self, number: bytes, *, refused: bool) -> bool:
        """Tell whether an answer is to reach the server: the first, but a refusal only when nobody else is left.

        One to a request that is not known, as after a restart, is for the server to judge.
        """
        found = self._open.get(number)
        if found is None:
            return True
        if found.answered:
            return False
        found.waiting -= 1
        if refused and found.waiting > 0:
            return False
        found.answered = True
        return True


REPLAY_EVENTS = 256
"""Events that are kept for listeners that come back with ``Last-Event-ID``."""

REPLAY_BYTES = 1 << 20
"""Bytes of those events."""


class SentEvent(NamedTuple):
    """An event of the server's stream. ``tag``: the client it is for, None for everybody."""

    id: bytes
    tag: str | None
    raw: bytes


class EventHistory:
    """The newest events of a stream that have ids."""

    def __init__(self) -> None:
        self._events: deque[SentEvent] = deque()
        self._size = 0

    def __repr__(self) -> str:
        return f"<EventHistory: {len(self._events)} events, {self._size} bytes>"

    def add(self, event: SentEvent) -> None:
        """Keep the event, and drop the oldest above REPLAY_EVENTS or REPLAY_BYTES."""
        self._events.append(event)
        self._size += len(event.raw)
        while len(self._events) > REPLAY_EVENTS or self._size > REPLAY_BYTES:
            self._size -= len(self._events.popleft().raw)

    def after(self, event_id: bytes, member: str) -> list[bytes]:
        """The events for that member behind the last one of this id; none where that is not known any more."""
        missed: list[SentEvent] = []
        known = False
        for event in self._events:
            missed.append(event)
            if event.id == event_id:
                missed, known = [], True
        own = None if member.startswith(MANY) else member
        return [event.raw for event in missed if known and event.tag in (None, own)]
