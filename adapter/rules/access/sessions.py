"""A client session: its states, its record in the store, and the refusal of a request that names it.

A session at a server that all sessions of one principal share: its names, its record, and who answers what. Pure.
"""

from __future__ import annotations

import binascii
import hashlib
import re
from collections import OrderedDict, deque
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from adapter.errors import SessionUnknown
from adapter.wire.shared_ids import EVERYBODY


class SessionState(Enum):
    """IDLE is a tombstone: its upstream session is closed, its client may still come back."""

    OPEN = "open"
    IDLE = "idle"
    ENDED = "ended"
    REVOKED = "revoked"


class Event(Enum):
    REINITIALIZED = "reinitialized"
    EXPIRED_IDLE = "expired_idle"
    REVIVED = "revived"
    DELETED = "deleted"
    REVOKED_BY_DRIFT = "revoked_by_drift"


TRANSITIONS: dict[tuple[SessionState, Event], SessionState] = {
    (SessionState.OPEN, Event.REINITIALIZED): SessionState.OPEN,
    (SessionState.OPEN, Event.EXPIRED_IDLE): SessionState.IDLE,
    (SessionState.OPEN, Event.DELETED): SessionState.ENDED,
    (SessionState.OPEN, Event.REVOKED_BY_DRIFT): SessionState.REVOKED,
    (SessionState.IDLE, Event.REVIVED): SessionState.OPEN,
    (SessionState.IDLE, Event.DELETED): SessionState.ENDED,
    # Coming back is a re-initialization, and that may find another catalogue than before.
    (SessionState.IDLE, Event.REVOKED_BY_DRIFT): SessionState.REVOKED,
    (SessionState.REVOKED, Event.DELETED): SessionState.ENDED,
}


def advance(state: SessionState, event: Event) -> SessionState:
    """The only way a session changes state. A pair not listed raises KeyError."""
    return TRANSITIONS[state, event]


# --- ids ----------------------------------------------------------------------------------------------------

LONGEST_ID = 128
"""Characters of a session id."""

_URL_SAFE = bytes.maketrans(b"+/", b"-_")

_WELL_FORMED = re.compile(rf"[\x21-\x7e]{{1,{LONGEST_ID}}}")


def session_id_from(random: bytes) -> str:
    """A session id of 43 base64url characters out of 32 random bytes; ValueError for any other number."""
    if len(random) != 32:
        raise ValueError("a session id is made of 32 random bytes")
    return binascii.b2a_base64(random, newline=False).translate(_URL_SAFE, b"=").decode("ascii")


def well_formed(session_id: str) -> bool:
    """Visible ASCII (MCP's rule for ids), at most ``LONGEST_ID`` of it; anything else is simply not known."""
    return _WELL_FORMED.fullmatch(session_id) is not None


# Every call of a session asks for the same key, and the hash is a third of what finding its session costs.
@lru_cache(maxsize=1024)
def session_key(session_id: str) -> str:
    """The key of a session's row: SHA-256 in hex. The store holds no id: reading it opens no session."""
    return hashlib.sha256(_raw(session_id)).hexdigest()


def _raw(text: str) -> bytes:
    # surrogatepass: header text may hold surrogate escapes, and a hostile id is to be unknown, not an
    # exception.
    return text.encode("utf-8", "surrogatepass")


# --- the record ---------------------------------------------------------------------------------------------


class Handshake(NamedTuple):
    """The bodies with which a client opened its session, as received; they are sent again after a loss."""

    initialize: bytes
    initialized: bytes | None = None


class UpstreamSession(NamedTuple):
    """The upstream's end of a session: its ``Mcp-Session-Id`` (None: none is open) and the negotiated version.

    ``digest`` is the SHA-256 (hex) of the result of ``initialize``; ``generation`` counts the renewals.
    """

    id: str | None
    protocol_version: str
    digest: str = ""
    generation: int = 0


class SessionTimes(NamedTuple):
    """Unix seconds. ``idle``: the session is over when nobody has used it for so many; None: it rests as all do."""

    created: float
    last_seen: float
    idle: float | None = None


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """One client session as the store holds it. ``reason`` tells why it was revoked."""

    server: str
    principal: str
    handshake: Handshake
    upstream: UpstreamSession
    state: SessionState
    times: SessionTimes
    reason: str | None = None

    @classmethod
    def begun(
        cls,
        server: str,
        principal: str,
        initialize: bytes,
        upstream: UpstreamSession,
        state: SessionState,
        now: float,
        idle: float | None = None,
    ) -> SessionRecord:
        """The record of a session that is first written down at ``now``."""
        times = SessionTimes(now, now, idle)
        return cls(server, principal, Handshake(initialize), upstream, state, times)

    def seen(self, now: float, idle: float | None = None) -> SessionRecord:
        """The record of a session that was last used at ``now``; it keeps its limit unless it is given another."""
        created, _, own = self.times
        return replace(self, times=SessionTimes(created, now, own if idle is None else idle))


_FORMAT = 1

_TEXTS = ("server", "principal", "upstream_session", "protocol_version", "said", "reason")


def encode(record: SessionRecord) -> bytes:
    """The record as one JSON object; ``decode`` gives back an equal one, whatever it holds."""
    (initialize, initialized), upstream = record.handshake, record.upstream
    fields: dict[str, Any] = {
        "format": _FORMAT,
        "server": record.server,
        "principal": record.principal,
        "upstream_session": upstream.id,
        "protocol_version": upstream.protocol_version,
        "initialize": initialize.decode("latin-1"),
        "initialized": None if initialized is None else initialized.decode("latin-1"),
        "said": upstream.digest,
        "generation": upstream.generation,
        "state": record.state._value_,  # ``value`` takes two calls of Python
        "created": record.times.created,
        "last_seen": record.times.last_seen,
        "reason": record.reason,
    }
    if record.times.idle is not None:
        fields["idle"] = record.times.idle
    # orjson refuses the surrogates that header text may hold. One Latin-1 character per byte holds any bytes,
    # and leaves ASCII, so nearly all of it, readable in the store.
    for name in _TEXTS:
        text = fields[name]
        if text is not None and not text.isascii():
            fields[name] = _raw(text).decode("latin-1")
    return orjson.dumps(fields)


def decode(data: bytes) -> SessionRecord:
    """The record out of a row's value; ValueError if this version cannot read it."""
    try:
        fields: dict[str, Any] = orjson.loads(data)
        if fields["format"] != _FORMAT:
            raise ValueError(f"a session record of format {fields['format']}, expected {_FORMAT}")
        initialized = fields["initialized"]
        return SessionRecord(
            server=_text(fields["server"]),
            principal=_text(fields["principal"]),
            handshake=Handshake(
                fields["initialize"].encode("latin-1"),
                None if initialized is None else initialized.encode("latin-1"),
            ),
            upstream=UpstreamSession(
                _optional_text(fields["upstream_session"]),
                _text(fields["protocol_version"]),
                _text(fields["said"]),
                fields["generation"],
            ),
            state=SessionState(fields["state"]),
            times=SessionTimes(fields["created"], fields["last_seen"], fields.get("idle")),
            reason=_optional_text(fields["reason"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("not a session record") from error


def _text(packed: str) -> str:
    return packed.encode("latin-1").decode("utf-8", "surrogatepass")


def _optional_text(packed: str | None) -> str | None:
    return None if packed is None else _text(packed)


# --- what may happen to it ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Every None means: no limit. Times in seconds."""

    max_active: int | None = None
    max_in_flight: int | None = None
    idle_ttl: float | None = None
    allow_revival: bool = True
    tombstone_ttl: float = 86400.0

    def idle_of(self, own: float | None) -> float | None:
        """The seconds for which a session may idle that has such a limit of its ``own``."""
        return own if self.idle_ttl is None else self.idle_ttl if own is None else min(own, self.idle_ttl)

    def rests(self, own: float | None) -> bool:
        """Tell whether a session turns into a tombstone when it idles, and is not over yet."""
        return own is None or (self.idle_ttl is not None and self.idle_ttl < own)


def due(record: SessionRecord, limits: SessionLimits) -> float | None:
    """When the cleanup is to look at this session, in Unix seconds; None: never.

    An open session turns into a tombstone, a tombstone or a revoked session is deleted. An ended one is due at once,
    because its upstream session is to be closed.
    """
    _, last_seen, own = record.times
    match record.state:
        case SessionState.OPEN:
            ttl = limits.idle_ttl if own is None else limits.idle_of(own)
            return None if ttl is None else last_seen + ttl
        case SessionState.IDLE if own is not None:
            return last_seen + own
        case SessionState.IDLE:
            return last_seen + (limits.idle_ttl or 0.0) + limits.tombstone_ttl
        case SessionState.REVOKED:
            return last_seen + limits.tombstone_ttl
        case SessionState.ENDED:
            return last_seen


def refusal(
    record: SessionRecord | None, *, server: str, principal: str, now: float, limits: SessionLimits
) -> SessionUnknown | None:
    """The failure of a request that names this session; None: it is served, though the cleanup may be late.

    A session that is not there, has ended, or belongs to somebody else gets the same answer.
    """
    if record is None or (record.server, record.principal) != (server, principal):
        return SessionUnknown()
    if record.state is SessionState.REVOKED:
        return SessionUnknown(_revoked(record.reason))
    if record.state is SessionState.ENDED:
        return SessionUnknown()
    deadline = due(record, limits)
    if deadline is None or now < deadline:
        served = record.state is SessionState.OPEN or limits.allow_revival
    else:
        # Not yet a tombstone, so its upstream session is still there: going on costs less than reviving.
        is_late = record.state is SessionState.OPEN and now < deadline + limits.tombstone_ttl
        served = is_late and limits.allow_revival
    return None if served else SessionUnknown()


def _revoked(reason: str | None) -> str:
    if not reason:
        return "This session was revoked: send initialize again."
    return f"This session was revoked: {reason.rstrip('.')}. Send initialize again."


MANY = "~"
"""How members begin in which several clients speak, so that their ids may be the same."""

_PREFIX = "shared-"
_MEMBER = re.compile(r"shared-([0-9a-f]{32})-([0-9a-f]{32})-(~?[0-9a-f]{16})")
_LONGEST_ID = 1024


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
