"""The cached answers of tools of upstreams, and the keys of all cached results."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from adapter.errors import BadJson
from adapter.pipeline.auth_stage import fingerprint
from adapter.pipeline.call import Forward, PlannedCall
from adapter.pipeline.failures import Outcome
from adapter.pipeline.result_cache import Lookup, ResultCache, ResultFinder, ResultForm, key_of
from adapter.rules.access.principals import credential_digest
from adapter.rules.presenters.state_sync import Invalidation
from adapter.rules.results.blocks import NO_BLOCKS
from adapter.rules.results.outcomes import NOTHING
from adapter.wire.envelope import dump, parse

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
