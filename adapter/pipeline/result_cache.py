"""A cache of results of tools: each caller gets a copy, and concurrent calls for one key do the work once."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import pickle
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from adapter.rules.last_used import LastUsed, Weight

PATIENCE = 10.0
"""Seconds to wait for what another caller is about to be answered."""

ENTRY_COST = 512
"""Bytes that an entry costs beside its value."""

_AS_JSON_ONLY = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)


def key_of(*parts: Any) -> str:
    """Hex SHA-256 over the parts as JSON with sorted keys, so that no two lists of them ever meet in one text.

    What has to be in it: a digest of the configuration, the tool, its template, the bound values, and whatever else
    the result may differ by, such as the caller's identity.
    """
    # Not the canonical form of ``rules.canonical``, to which texts that only look alike are one.
    try:
        text = orjson.dumps(parts, option=_AS_JSON_ONLY)
    except orjson.JSONEncodeError:
        text = b""
    if not text or b"null" in text:
        # To orjson an infinite number is null too.
        text = json.dumps(parts, sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest()


class Shareable:
    """A value that nobody can change: everybody has the same one. ``weight`` is the bytes that it takes."""

    __slots__ = ("weight",)

    weight: int


class CachedResult(NamedTuple):
    """A result. ``hit`` is False for those who waited until it was worked out."""

    value: Any
    hit: bool


_Packed = bytes | Shareable
"""A value of which anybody may have a copy: pickled, or itself."""


@dataclass(slots=True)
class _Entry:
    tool: str
    packed: _Packed
    expires: float

    @property
    def cost(self) -> int:
        packed = self.packed
        return (packed.weight if isinstance(packed, Shareable) else len(packed)) + ENTRY_COST


@dataclass(eq=False, slots=True)
class _Flight:
    """A result that is being worked out. ``outdated`` says that its tool was purged meanwhile."""

    tool: str
    task: asyncio.Task[tuple[Any, _Packed | None]] = field(init=False)
    waiting: int = 0
    outdated: bool = False


@dataclass(eq=False, slots=True)
class _Lead:
    """Work that one caller does within its own call, and for which others wait until it is ``over``.

    ``packed`` is what they may have of it; ``left`` says that its caller went away before there was anything.
    """

    tool: str
    over: asyncio.Event = field(default_factory=asyncio.Event)
    packed: _Packed | None = None
    left: bool = False
    outdated: bool = False


class _Lookup(NamedTuple):
    """A result that a call asks for, and the way to work it out and to keep it."""

    key: str
    tool: str
    ttl: float
    work: Callable[[], Awaitable[Any]]
    keep: Callable[[Any], bool]


class ResultCache:
    """A cache of at most ``max_bytes``; the least recently used result goes first. ``clock`` gives seconds.

    Each caller gets its own copy, unless the value is a Shareable. Values that cannot be copied are passed on and not
    kept.
    """

    def __init__(self, max_bytes: int, clock: Callable[[], float]) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._entries: LastUsed[str, _Entry] = LastUsed(
            sys.maxsize, max_bytes, lambda entry: Weight(id(entry), entry.cost)
        )
        self._flights: dict[str, _Flight] = {}
        self._leads: dict[str, _Lead] = {}

    @property
    def bytes(self) -> int:
        """The bytes that the kept results take."""
        return self._entries.size

    def __repr__(self) -> str:
        return f"<ResultCache: {len(self._entries)} results, {self.bytes} of {self._max_bytes} bytes>"

    def __len__(self) -> int:
        return len(self._entries)

    async def find(
        self,
        key: str,
        tool: str,
        ttl: float,
        work: Callable[[], Awaitable[Any]],
        keep: Callable[[Any], bool] = lambda _: True,
    ) -> CachedResult:
        """The result under ``key``, which ``work`` gives where there is none; it is kept for ``ttl`` seconds.

        All who ask for a key while it is worked out wait for the same work, which is cancelled when the last of them
        is. What it raises they all get, and nothing is kept, nor is a value to which ``keep`` says no.
        """
        if (stored := self._kept(key)) is not None:
            return CachedResult(_unpacked(stored), hit=True)
        flight = self._flights.get(key)
        first = flight is None
        if flight is None:
            flight = self._begin(_Lookup(key, tool, ttl, work, keep))
        value, packed = await self._wait(key, flight)
        return CachedResult(value if first or packed is None else _unpacked(packed), hit=False)

    async def find_or_lead(
        self,
        key: str,
        tool: str,
        ttl: float,
        work: Callable[[], Awaitable[Any]],
        keep: Callable[[Any], bool] = lambda _: True,
        patience: float = PATIENCE,
    ) -> CachedResult:
        """Like ``find``, for work that cannot outlive its caller: it runs within the call of the first who asks.

        Others wait for that one. If it is cancelled the next of them takes its place. If it raises, or ``keep``
        says no to its value, that is its own, and each of the others does its work by itself: taking turns, the
        last of them would wait for the failures of all before it. So they do after ``patience`` seconds, since whoever
        reads its own answer slowly must not keep the others waiting.
        """
        while True:
            if (stored := self._kept(key)) is not None:
                return CachedResult(_unpacked(stored), hit=True)
            lead = self._leads.get(key)
            if lead is None:
                return CachedResult(await self._lead(_Lookup(key, tool, ttl, work, keep)), hit=False)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await lead.over.wait()
            if lead.packed is not None:
                return CachedResult(_unpacked(lead.packed), hit=False)
            if not lead.left:
                return CachedResult(await work(), hit=False)

    def purge(self, concerned: Callable[[str], bool]) -> int:
        """Forget the results of every tool that is ``concerned``; returns how many there were.

        What is being worked out for one is given to those who wait for it already, and not kept.
        """
        keys = [key for key, entry in self._entries.values.items() if concerned(entry.tool)]
        for key in keys:
            self._entries.drop(key)
        for key, flight in list(self._flights.items()):
            if concerned(flight.tool):
                flight.outdated = True
                del self._flights[key]
        for key, lead in list(self._leads.items()):
            if concerned(lead.tool):
                lead.outdated = True
                del self._leads[key]
        return len(keys)

    # --- work under way ---------------------------------------------------------------------------------------

    def _begin(self, lookup: _Lookup) -> _Flight:
        key, flight = lookup.key, _Flight(lookup.tool)

        async def fly() -> tuple[Any, _Packed | None]:
            try:
                value = await lookup.work()
                packed = _packed(value)
                if packed is not None and not flight.outdated and lookup.keep(value):
                    self._put(lookup, packed)
                return value, packed
            finally:
                if self._flights.get(key) is flight:
                    del self._flights[key]

        flight.task = asyncio.get_running_loop().create_task(fly())
        # The last to wait may leave before it fails, and then nobody asks for its exception.
        flight.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        self._flights[key] = flight
        return flight

    async def _wait(self, key: str, flight: _Flight) -> tuple[Any, _Packed | None]:
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if flight.waiting == 0 and not flight.task.done():
                # Nobody may join what is being given up, or it would be cancelled with it.
                if self._flights.get(key) is flight:
                    del self._flights[key]
                flight.task.cancel()

    async def _lead(self, lookup: _Lookup) -> Any:
        lead = self._leads[lookup.key] = _Lead(lookup.tool)
        try:
            value = await lookup.work()
            if lookup.keep(value):
                lead.packed = _packed(value)
            if lead.packed is not None and not lead.outdated:
                self._put(lookup, lead.packed)
            return value
        except asyncio.CancelledError:
            lead.left = True
            raise
        finally:
            if self._leads.get(lookup.key) is lead:
                del self._leads[lookup.key]
            lead.over.set()

    # --- what is kept -----------------------------------------------------------------------------------------

    def _kept(self, key: str) -> _Packed | None:
        entry = self._entries.get(key)
        if entry is not None and entry.expires <= self._clock():
            self._entries.drop(key)
            return None
        return None if entry is None else entry.packed

    def _put(self, lookup: _Lookup, packed: _Packed) -> None:
        entry = _Entry(lookup.tool, packed, self._clock() + lookup.ttl)
        if entry.cost <= self._max_bytes:
            self._entries.put(lookup.key, entry)


def _packed(value: Any) -> _Packed | None:
    """Return a value in a form that can be copied any number of times; None if it cannot."""
    if isinstance(value, Shareable):
        return value
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:
        # Whatever an object's own hooks raise: it is the script's object, and it is not kept.
        return None


def _unpacked(packed: _Packed) -> Any:
    if isinstance(packed, Shareable):
        return packed
    return pickle.loads(packed)  # noqa: S301  (these bytes never leave this process)
