"""A cache of results of tools: each caller gets a copy, and concurrent calls for one key do the work once.

The cached answers of tools of upstreams, and the keys of all cached results.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import sys
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import orjson

from adapter.errors import BadJson
from adapter.pipeline.auth_stage import fingerprint
from adapter.pipeline.call import Forward, PlannedCall
from adapter.pipeline.failures import Outcome
from adapter.rules.access.principals import credential_digest
from adapter.rules.last_used import LastUsed, Weight
from adapter.rules.presenters.state_sync import Invalidation
from adapter.rules.results.blocks import NO_BLOCKS
from adapter.rules.results.outcomes import NOTHING
from adapter.wire.envelope import dump, parse

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


class ResultForm(NamedTuple):
    """The form in which results are kept: ``encode`` gives None for a value that is its caller's alone, ``decode``
    raises ValueError for bytes that are no result.
    """

    encode: Callable[[Any], bytes | None]
    decode: Callable[[bytes], Any]


class Lookup(NamedTuple):
    """A result of ``tool`` to look for, which is kept for ``ttl`` seconds. ``key`` is hex.

    ``patience`` are the seconds for which others wait for the one who works it out, None where that takes a limited
    time anyway. ``shares_failure``: what that one's work raises is the others' too.
    """

    key: str
    tool: str
    ttl: float
    form: ResultForm
    patience: float | None = PATIENCE
    shares_failure: bool = False


class CachedResult(NamedTuple):
    """A result. ``hit`` is False for those who waited until it was worked out."""

    value: Any
    hit: bool


Work = Callable[[], Awaitable[Any]]


class ResultFinder(Protocol):
    """A place of results: ResultCache, or one that replicas share."""

    async def find(self, lookup: Lookup, work: Work) -> CachedResult:
        """See ResultCache."""


@dataclass(slots=True)
class _Entry:
    tool: str
    text: bytes
    expires: float


@dataclass(eq=False, slots=True)
class _Lead:
    """Work that one caller does within its own call, and for which others wait until it is ``over``.

    ``text`` is what they may have of it, ``failure`` what it raised; ``left`` says that its caller went away before
    there was anything, ``outdated`` that its tool was purged meanwhile.
    """

    tool: str
    over: asyncio.Event = field(default_factory=asyncio.Event)
    text: bytes | None = None
    failure: Exception | None = None
    left: bool = False
    outdated: bool = False


class ResultCache:
    """Results by key, of at most ``max_bytes`` with what an entry costs; those that were not used for longest go first.

    ``clock`` gives seconds that never go back.
    """

    def __init__(self, max_bytes: int, clock: Callable[[], float]) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._entries: LastUsed[str, _Entry] = LastUsed(
            sys.maxsize, max_bytes, lambda entry: Weight(id(entry), len(entry.text) + ENTRY_COST)
        )
        self._leads: dict[str, _Lead] = {}

    @property
    def size(self) -> int:
        """The bytes that the kept results take."""
        return self._entries.size

    def __repr__(self) -> str:
        return f"<ResultCache: {len(self._entries)} results, {self.size} of {self._max_bytes} bytes>"

    def __len__(self) -> int:
        return len(self._entries)

    async def find(self, lookup: Lookup, work: Work) -> CachedResult:
        """The result that is kept, else that of ``work``, which runs within the call of the first who asks.

        Others wait for that one. If it is cancelled the next of them takes its place. If it raises, they raise the same
        where the lookup ``shares_failure``. Else, and if its value is its caller's alone, each of them does its
        work by itself: taking turns, the last would wait for the failures of all before it. So does each whose
        ``patience`` is over, since whoever reads its own answer slowly must not keep the others waiting.
        """
        while True:
            if (kept := self._kept(lookup.key)) is not None:
                return CachedResult(lookup.form.decode(kept), hit=True)
            lead = self._leads.get(lookup.key)
            if lead is None:
                return CachedResult(await self._lead(lookup, work), hit=False)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(lookup.patience):
                    await lead.over.wait()
            if lead.text is not None:
                return CachedResult(lookup.form.decode(lead.text), hit=False)
            if lead.failure is not None and lookup.shares_failure:
                raise lead.failure.with_traceback(None)
            if not lead.left:
                return CachedResult(await work(), hit=False)

    def purge(self, concerned: Callable[[str], bool]) -> int:
        """Forget the results of every tool that is ``concerned``; returns how many there were.

        What is being worked out for one is given to those who wait for it already, and not kept.
        """
        keys = [key for key, entry in self._entries.values.items() if concerned(entry.tool)]
        for key in keys:
            self._entries.drop(key)
        for key, lead in list(self._leads.items()):
            if concerned(lead.tool):
                lead.outdated = True
                del self._leads[key]
        return len(keys)

    async def _lead(self, lookup: Lookup, work: Work) -> Any:
        lead = self._leads[lookup.key] = _Lead(lookup.tool)
        try:
            value = await work()
            lead.text = lookup.form.encode(value)
            if lead.text is not None and not lead.outdated and len(lead.text) + ENTRY_COST <= self._max_bytes:
                entry = _Entry(lookup.tool, lead.text, self._clock() + lookup.ttl)
                self._entries.put(lookup.key, entry)
            return value
        except asyncio.CancelledError:
            lead.left = True
            raise
        except Exception as failure:
            lead.failure = failure
            raise
        finally:
            if self._leads.get(lookup.key) is lead:
                del self._leads[lookup.key]
            lead.over.set()

    def _kept(self, key: str) -> bytes | None:
        entry = self._entries.get(key)
        if entry is not None and entry.expires <= self._clock():
            self._entries.drop(key)
            return None
        return None if entry is None else entry.text


Vary = Callable[[PlannedCall], list[Any]]
"""What else of a call its result may differ by, as JSON."""

_HEADER = re.compile(r"header:([!#$%&'*+.^_`|~0-9A-Za-z-]+)")


def varying(words: Sequence[str]) -> Vary:
    """Return the function that tells the results of one tool apart, by any of ``identity``, ``principal``,
    ``session`` and ``header:NAME``.

    A missing header is not an empty one. Raises ValueError for any other word.
    """
    parts = [caller_part(word) for word in words]
    return lambda call: [part(call) for part in parts]


def kept_for(ttl: float, words: Sequence[str]) -> str:
    """Return the text in a plan that says how results are kept."""
    return f"{ttl:g} s, apart by {', '.join(words) or 'nothing'}"


def varying_by_credential(vary: Vary) -> Vary:
    """The same, and by principal and credential: for a server at which each caller has a credential of its own."""
    return lambda call: [*vary(call), call.client.caller.principal, credential_digest(call.client.caller)]


@dataclass(eq=False)
class CacheStage:
    """Caches the successful answers of one tool of an upstream for ``ttl`` seconds, if its definition says that it
    only reads: ``read_only`` looks at the definition that holds for the call.

    ``call.notes["cache"]`` is ``"hit"`` or ``"miss"`` for calls that may be answered from the cache.
    """

    tool: str
    cache: ResultFinder
    ttl: float
    vary: Vary
    read_only: Callable[[PlannedCall], Awaitable[bool]]
    digest: str

    def __repr__(self) -> str:
        return f"<CacheStage of {self.tool!r} for {self.ttl:g} s>"

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        """See PlanStage. What the rest of the plan raises is passed on, and nothing is kept."""
        # What a question was answered with, or a task, is not in the arguments that the key is made of.
        key = None if call.continues or not await self.read_only(call) else self._key(call)
        if key is None:
            return await forward(call)
        call.notes["cache"] = "miss"
        lookup = Lookup(key, self.tool, self.ttl, OUTCOMES)
        found = await self.cache.find(lookup, lambda: forward(call))
        if found.hit:
            call.notes["cache"] = "hit"
        outcome: Outcome = found.value
        return outcome

    def _key(self, call: PlannedCall) -> str | None:
        try:
            return key_of(self.digest, self.tool, dict(call.arguments), self.vary(call))
        except (TypeError, ValueError, RecursionError):
            # Somebody's mapper made arguments of it that are no JSON; whoever sends them says so.
            return None


def purge(caches: Mapping[str, ResultCache], invalidation: Invalidation) -> int:
    """Forget the stale results of all servers, since a call of one may make results of another stale; return their
    number. ``caches`` are by server, with results by the names of tools as clients see them.
    """
    return sum(cache.purge(partial(invalidation.stales, server)) for server, cache in caches.items())


def _encoded(outcome: Outcome) -> bytes | None:
    """The outcome as JSON; None for no success, and for one that is more than the JSON of its result."""
    plain = not outcome.final and outcome.data is NOTHING and outcome.blocks == NO_BLOCKS
    return dump(outcome.result) if plain and outcome.succeeded else None


def _decoded(text: bytes) -> Outcome:
    try:
        result = parse(text)
    except BadJson as error:
        raise ValueError("This is no JSON.") from error
    if not isinstance(result, dict):
        raise ValueError("This is no result.")
    return Outcome(result)


OUTCOMES = ResultForm(_encoded, _decoded)


def caller_part(word: str) -> Callable[[PlannedCall], Hashable]:
    """Return the function that tells callers apart by one word; see ``varying``.

    A caller without an identity is told apart by its principal, one without a session too. Raises ValueError.
    """
    if word in _PARTS:
        return _PARTS[word]
    if (header := _HEADER.fullmatch(word)) is not None:
        name = header[1].lower()
        return lambda call: call.client.caller.lower_fields().get(name)
    raise ValueError(f"vary must be identity, principal, session or header:NAME, not {word!r}")


def _identity(call: PlannedCall) -> Hashable:
    # Two words, so that nobody can be called like somebody's fingerprint.
    if call.identity is None:
        return ("principal", call.client.caller.principal)
    return ("identity", fingerprint(call.identity))


_PARTS: Mapping[str, Callable[[PlannedCall], Hashable]] = {
    "identity": _identity,
    "principal": lambda call: call.client.caller.principal,
    "session": lambda call: (call.client.caller.principal, call.client.session),
}
