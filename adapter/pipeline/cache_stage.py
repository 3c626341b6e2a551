"""Answers of tools of upstreams, kept where the settings say so; and what every key of a kept result is made of."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from adapter.pipeline.call import Forward, PlannedCall
from adapter.pipeline.failures import Outcome
from adapter.pipeline.result_cache import ResultCache, key_of
from adapter.rules.presenters.state_sync import Invalidation

Vary = Callable[[PlannedCall], list[Any]]
"""What else of a call its result may differ by, as JSON."""

_HEADER = re.compile(r"header:([!#$%&'*+.^_`|~0-9A-Za-z-]+)")


def varying(words: Sequence[str], fingerprint: Callable[[Any], str]) -> Vary:
    """By what results are told apart: ``identity``, ``principal``, ``session`` and ``header:NAME``, in any number.

    ``fingerprint`` makes a text of an identity. A caller without one is told apart by its principal; a header
    that is missing is not one that is empty. Raises ValueError for any other word.
    """
    parts = [_part(word, fingerprint) for word in words]
    return lambda call: [part(call) for part in parts]


def cache_key(digest: str, tool: str, parts: Any, vary: Sequence[Any] = ()) -> str:
    """The key of a result: ``digest`` is that of the configuration, ``parts`` what the tool is asked, as JSON.

    Raises TypeError, ValueError or RecursionError for parts that are no JSON.
    """
    return key_of(digest, tool, parts, list(vary))


class Caching:
    """Keeps the successful answers of one tool of an upstream for ``ttl`` seconds, if its definition says that it
    only reads: ``read_only`` looks at the definition that holds for the call.

    ``call.notes["cache"]`` is ``"hit"`` or ``"miss"`` for calls that may be answered from here.
    """

    def __init__(
        self,
        tool: str,
        cache: ResultCache,
        ttl: float,
        vary: Vary,
        read_only: Callable[[PlannedCall], Awaitable[bool]],
        digest: str,
    ) -> None:
        self._tool = tool
        self._cache = cache
        self._ttl = ttl
        self._vary = vary
        self._read_only = read_only
        self._digest = digest

    def __repr__(self) -> str:
        return f"<Caching of {self._tool!r} for {self._ttl:g} s>"

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        """See PlanStage. What the rest of the plan raises is passed on, and nothing is kept."""
        # What a question was answered with, or a task, is not in the arguments that the key is made of.
        key = None if call.continues or not await self._read_only(call) else self._key(call)
        if key is None:
            return await forward(call)
        call.notes["cache"] = "miss"
        # The request goes out within the exchange of its own client and ends with that, hence not ``find``.
        found = await self._cache.find_or_lead(key, self._tool, self._ttl, lambda: forward(call), _succeeded)
        if found.hit:
            call.notes["cache"] = "hit"
        outcome: Outcome = found.value
        return outcome

    def _key(self, call: PlannedCall) -> str | None:
        try:
            return cache_key(self._digest, self._tool, dict(call.arguments), self._vary(call))
        except (TypeError, ValueError, RecursionError):
            # Somebody's mapper made arguments of it that are no JSON; whoever sends them says so.
            return None


class Caches:
    """The caches of all servers, since what a call of one makes stale may have been read from another."""

    def __init__(self) -> None:
        self._caches: dict[str, ResultCache] = {}

    def __repr__(self) -> str:
        return f"<Caches of {', '.join(self._caches) or 'no server'}>"

    def __getitem__(self, server: str) -> ResultCache:
        """Raises KeyError for a server that keeps nothing."""
        return self._caches[server]

    def add(self, server: str, cache: ResultCache) -> None:
        """``cache`` holds the results of this server's tools, by their names as clients see them."""
        self._caches[server] = cache

    def purge(self, invalidation: Invalidation) -> int:
        """Forget what is stale now; returns how many results that were."""
        return sum(purged(server, cache, invalidation) for server, cache in self._caches.items())


def purged(server: str, cache: ResultCache, invalidation: Invalidation) -> int:
    """Forget what is stale now of one server's results; returns how many that were."""
    return cache.purge(lambda tool: invalidation.stales(server, tool))


def _part(word: str, fingerprint: Callable[[Any], str]) -> Callable[[PlannedCall], Any]:
    if word == "identity":
        return lambda call: _identity(call, fingerprint)
    if word == "principal":
        return lambda call: call.caller.principal
    if word == "session":
        # A caller without sessions is still not every other one.
        return lambda call: [call.caller.principal, call.session]
    if (header := _HEADER.fullmatch(word)) is not None:
        name = header[1].lower()
        return lambda call: call.caller.lower_fields().get(name)
    raise ValueError(f"vary must be identity, principal, session or header:NAME, not {word!r}")


def _identity(call: PlannedCall, fingerprint: Callable[[Any], str]) -> list[str]:
    # Two words, so that nobody can be called like somebody's fingerprint.
    if call.identity is None:
        return ["principal", call.caller.principal]
    return ["identity", fingerprint(call.identity)]


def _succeeded(outcome: Any) -> bool:
    return isinstance(outcome, Outcome) and outcome.succeeded
