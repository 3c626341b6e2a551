"""Access tokens that were obtained for upstreams: kept while they are good, renewed once for all who need them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from adapter.errors import CredentialsMissing
from adapter.rules.access.token_answers import IssuedToken
from adapter.rules.last_used import LastUsed, Weight

MOST = 10_000
MOST_BYTES = 32 << 20
"""Tokens of one server that are kept, and their characters."""

UNKNOWN_LIFE = 3600.0
"""Seconds for which a token is used whose answer tells no time; a 401 renews it earlier."""

RENEWED_AT = (0.7, 0.85)
"""The part of its life after which a token is renewed; by chance, so that replicas do not do it at the same moment."""

MARGIN = 5.0
"""Seconds before its end from which a token is not sent any more: it has to arrive, and clocks differ."""

RETRY = 2.0
"""Seconds after a failure in which the authorization server is not asked again."""

REFUSED_AGAIN = 10.0
"""Seconds: an upstream that refuses a token which is younger refuses more than that token, and gets no other."""


class KeptToken(NamedTuple):
    """A token with the times at which it was ``issued``, is to be renewed, and ``expires``, in Unix seconds."""

    value: str
    issued: float
    renewed: float
    expires: float


class SharedTokens(Protocol):
    """Tokens that replicas share."""

    async def find(self, key: str) -> KeptToken | None:
        """The token that a replica wrote down; None where there is none, or the store fails."""

    async def keep(self, key: str, token: KeptToken) -> None:
        """Write a token down; a store that fails is no failure."""

    async def lead(self, key: str) -> bool:
        """Take the right to obtain the token of this key. False where another replica has it and may still use it."""

    async def changed(self, key: str) -> None:
        """Wait a moment for the replica that leads."""


class _Failure(NamedTuple):
    until: float
    error: CredentialsMissing


class AccessTokens:
    """The tokens for one server, by keys that hold everything a token depends on. ``clock`` gives Unix time in seconds.

    ``shared`` is None where no other process needs the same tokens.
    """

    def __init__(self, clock: Callable[[], float], shared: SharedTokens | None = None) -> None:
        self._clock = clock
        self._shared = shared
        self._kept = LastUsed[str, KeptToken](MOST, MOST_BYTES, _weight)
        self._failures = LastUsed[str, _Failure](MOST, MOST_BYTES, _failure_weight)
        # Values that the upstream has refused: another replica may have written one down.
        self._refused = LastUsed[str, str](MOST, MOST_BYTES, _text_weight)
        self._flights: dict[str, asyncio.Task[KeptToken]] = {}

    def __repr__(self) -> str:
        return f"<AccessTokens: {len(self._kept)} kept, {len(self._flights)} on the way>"

    async def get(self, key: str, obtain: Callable[[], Awaitable[IssuedToken]]) -> str:
        """The token of this key; ``obtain`` asks for one where there is none, once for all who wait.

        A token that is good but should be renewed is used while that is done. Raises what ``obtain`` raises.
        """
        kept, now = self._kept.get(key), self._clock()
        if kept is not None and now < kept.renewed:
            return kept.value
        if kept is not None and now < kept.expires:
            if self._failure(key) is None:
                self._fly(key, obtain)
            return kept.value
        if (failure := self._failure(key)) is not None:
            raise CredentialsMissing(str(failure.error))
        # Shielded: one who waits and is cancelled must not end it for the others.
        return (await asyncio.shield(self._fly(key, obtain))).value

    def refused(self, key: str, value: str) -> bool:
        """Take note that the upstream refused a token. True if ``get`` will give another one."""
        kept = self._kept.get(key)
        if kept is None or kept.value != value:
            # Renewed by another request, or on the way.
            return True
        if self._clock() < kept.issued + REFUSED_AGAIN:
            return False
        self._kept.drop(key)
        self._refused.put(key, value)
        return True

    async def close(self) -> None:
        """Give up what is on the way."""
        flights = list(self._flights.values())
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)

    # --- obtaining --------------------------------------------------------------------------------------------

    def _fly(self, key: str, obtain: Callable[[], Awaitable[IssuedToken]]) -> asyncio.Task[KeptToken]:
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = asyncio.create_task(self._renew(key, obtain))
            flight.add_done_callback(lambda done: self._landed(key, done))
        return flight

    def _landed(self, key: str, flight: asyncio.Task[KeptToken]) -> None:
        del self._flights[key]
        if not flight.cancelled():
            # Who waits is told; where nobody waits the old token is good for a while.
            flight.exception()

    async def _renew(self, key: str, obtain: Callable[[], Awaitable[IssuedToken]]) -> KeptToken:
        try:
            token = await self._obtain(key, obtain) if self._shared is None else await self._join(key, obtain)
        except CredentialsMissing as error:
            self._failures.put(key, _Failure(self._clock() + RETRY, error))
            raise
        self._failures.drop(key)
        self._kept.put(key, token)
        return token

    async def _join(self, key: str, obtain: Callable[[], Awaitable[IssuedToken]]) -> KeptToken:
        """The token that another replica has obtained, or obtains now; else obtain it for all."""
        assert self._shared is not None
        if (found := await self._found(key)) is not None:
            return found
        while not await self._shared.lead(key):
            await self._shared.changed(key)
            if (found := await self._found(key)) is not None:
                return found
        token = await self._obtain(key, obtain)
        await self._shared.keep(key, token)
        return token

    async def _found(self, key: str) -> KeptToken | None:
        assert self._shared is not None
        found = await self._shared.find(key)
        is_good = found is not None and self._clock() < found.renewed
        return found if found is not None and is_good and found.value != self._refused.get(key) else None

    async def _obtain(self, key: str, obtain: Callable[[], Awaitable[IssuedToken]]) -> KeptToken:
        issued = await obtain()
        now = self._clock()
        life = UNKNOWN_LIFE if issued.life is None else issued.life
        # One that lives shorter than the margin is used once, by those who wait for it.
        expires = now + max(life - MARGIN, 0.0)
        return KeptToken(issued.value, now, min(now + life * random.uniform(*RENEWED_AT), expires), expires)  # noqa: S311 (spread, no secret)

    def _failure(self, key: str) -> _Failure | None:
        failure = self._failures.get(key)
        return failure if failure is not None and self._clock() < failure.until else None


def _weight(token: KeptToken) -> Weight:
    return Weight(token.value, len(token.value) + 100)


def _failure_weight(failure: _Failure) -> Weight:
    return Weight(id(failure), 500)


def _text_weight(text: str) -> Weight:
    return Weight(text, len(text) + 50)
