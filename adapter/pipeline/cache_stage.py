"""The cached answers of tools of upstreams, and the keys of all cached results."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from adapter.errors import BadJson
from adapter.pipeline.call import Forward, PlannedCall
from adapter.pipeline.failures import Outcome
from adapter.pipeline.result_cache import CachedResult, ResultCache, key_of
from adapter.rules.access.principals import credential_digest
from adapter.rules.presenters.state_sync import Invalidation
from adapter.rules.results.blocks import NO_BLOCKS
from adapter.rules.results.outcomes import NOTHING
from adapter.wire.envelope import dump, parse

Vary = Callable[[PlannedCall], list[Any]]
"""What else of a call its result may differ by, as JSON."""

_HEADER = re.compile(r"header:([!#$%&'*+.^_`|~0-9A-Za-z-]+)")


def varying(words: Sequence[str], fingerprint: Callable[[Any], str]) -> Vary:
    """Return the function that tells the results of one tool apart, by any of ``identity``, ``principal``,
    ``session`` and ``header:NAME``.

    ``fingerprint`` makes a text of an identity. A caller without an identity is told apart by its principal; a
    missing header is not an empty one. Raises ValueError for any other word.
    """
    parts = [_part(word, fingerprint) for word in words]
    return lambda call: [part(call) for part in parts]


def kept_for(ttl: float, words: Sequence[str]) -> str:
    """Return the text in a plan that says how results are kept."""
    return f"{ttl:g} s, apart by {', '.join(words) or 'nothing'}"


def varying_by_credential(vary: Vary) -> Vary:
    """The same, and by principal and credential: for a server at which each caller has a credential of its own."""
    return lambda call: [*vary(call), call.client.caller.principal, credential_digest(call.client.caller)]


def cache_key(digest: str, tool: str, parts: Any, vary: Sequence[Any] = ()) -> str:
    """Return the key of a result: ``digest`` is that of the configuration, ``parts`` is the question to the tool, as
    JSON.

    Raises TypeError, ValueError or RecursionError for parts that are no JSON.
    """
    return key_of(digest, tool, parts, list(vary))


class ResultFinder(Protocol):
    """A place of results: ResultCache, or one that replicas share."""

    async def find_or_lead(
        self,
        key: str,
        tool: str,
        ttl: float,
        work: Callable[[], Awaitable[Any]],
        keep: Callable[[Any], bool],
    ) -> CachedResult:
        """See ResultCache."""


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
        # The request goes out within the exchange of its own client and ends with that, hence not ``find``.
        found = await self.cache.find_or_lead(key, self.tool, self.ttl, lambda: forward(call), _succeeded)
        if found.hit:
            call.notes["cache"] = "hit"
        outcome: Outcome = found.value
        return outcome

    def _key(self, call: PlannedCall) -> str | None:
        try:
            return cache_key(self.digest, self.tool, dict(call.arguments), self.vary(call))
        except (TypeError, ValueError, RecursionError):
            # Somebody's mapper made arguments of it that are no JSON; whoever sends them says so.
            return None


def purge(caches: Mapping[str, ResultCache], invalidation: Invalidation) -> int:
    """Forget the stale results of all servers, since a call of one may make results of another stale; return their
    number. ``caches`` are by server, with results by the names of tools as clients see them.
    """
    return sum(cache.purge(partial(invalidation.stales, server)) for server, cache in caches.items())


def encoded_outcome(outcome: Any) -> bytes | None:
    """The outcome as JSON, for other processes; None for one that is more than the JSON of its result."""
    if (
        not isinstance(outcome, Outcome)
        or outcome.final
        or outcome.data is not NOTHING
        or outcome.blocks != NO_BLOCKS
    ):
        return None
    return dump(outcome.result)


def decoded_outcome(text: bytes) -> Outcome:
    """The outcome of ``encoded_outcome``. Raises ValueError for anything else."""
    try:
        result = parse(text)
    except BadJson as error:
        raise ValueError("This is no JSON.") from error
    if not isinstance(result, dict):
        raise ValueError("This is no result.")
    return Outcome(result)


def _part(word: str, fingerprint: Callable[[Any], str]) -> Callable[[PlannedCall], Any]:
    if word == "identity":
        return lambda call: _identity(call, fingerprint)
    if word == "principal":
        return lambda call: call.client.caller.principal
    if word == "session":
        # A caller without sessions is still not every other one.
        return lambda call: [call.client.caller.principal, call.client.session]
    if (header := _HEADER.fullmatch(word)) is not None:
        name = header[1].lower()
        return lambda call: call.client.caller.lower_fields().get(name)
    raise ValueError(f"vary must be identity, principal, session or header:NAME, not {word!r}")


def _identity(call: PlannedCall, fingerprint: Callable[[Any], str]) -> list[str]:
    # Two words, so that nobody can be called like somebody's fingerprint.
    if call.identity is None:
        return ["principal", call.client.caller.principal]
    return ["identity", fingerprint(call.identity)]


def _succeeded(outcome: Any) -> bool:
    return isinstance(outcome, Outcome) and outcome.succeeded
