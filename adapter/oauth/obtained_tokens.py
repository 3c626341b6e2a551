"""Access tokens that were obtained for upstreams: kept while they are good, renewed once for all who need them."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import orjson

from adapter.errors import CredentialsMissing, StoreUnavailable
from adapter.oauth.port import Leases
from adapter.rules.access.grants import Tokens
from adapter.rules.last_used import LastUsed, Weight
from adapter.state.sealed_rows import SealedRows

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
"""Seconds in which an upstream that refuses a token after another gets no third: it refuses more than tokens."""


TABLE = "upstream_tokens"

PATIENCE = 15.0
"""Seconds that a replica waits for another one that asks for the same token."""

LOOK = 0.1
"""Seconds between two looks at a token that another replica asks for."""

Obtain = Callable[[], Awaitable[Tokens]]
"""Asks for a token. Raises CredentialsMissing."""


class KeptToken(NamedTuple):
    """A token with the times at which it is to be renewed, and ``expires``, in Unix seconds; and when one of its key
    was ``refused`` last. One that is refused itself has expired long ago.
    """

    value: str
    renewed: float
    expires: float
    refused: float = -math.inf

    def __repr__(self) -> str:
        # Without its value, wherever it may be shown; event loops show the results of tasks.
        return f"<KeptToken until {self.expires:.0f}>"

    @property
    def weight(self) -> Weight:
        """Its bytes, about."""
        return Weight(id(self), len(self.value) + 500)


class SharedTokens:
    """Tokens that replicas share, sealed in the state store; a store that fails is no failure here.

    ``name`` names the server, and all of its settings that a token depends on.
    """

    def __init__(self, rows: SealedRows, leases: Leases, name: str) -> None:
        self._rows = rows
        self._lease = leases(f"upstream token {name}")
        self._name = name

    async def find(self) -> KeptToken | None:
        """The token that a replica wrote down; None where there is none."""
        with contextlib.suppress(StoreUnavailable, ValueError, TypeError):
            found = await self._rows.get(TABLE, self._name)
            return None if found is None else KeptToken(*orjson.loads(found[1]))
        return None

    async def keep(self, token: KeptToken) -> None:
        """Write a token down, in place of any other."""
        with contextlib.suppress(StoreUnavailable):
            await self._rows.put(TABLE, self._name, orjson.dumps(token[:3]))

    async def lead(self) -> bool:
        """Take the right to ask for a token. False where another replica has it."""
        with contextlib.suppress(StoreUnavailable):
            return await self._lease.take()
        return True

    async def release(self) -> None:
        """Let another replica ask."""
        with contextlib.suppress(StoreUnavailable):
            await self._lease.release()


class ObtainedTokens:
    """The tokens for one server, by keys that hold everything a token depends on. ``clock`` gives Unix time in seconds.

    ``tell`` is called with ``why`` at the first of several failures. ``shared`` is None where no other process needs
    the same tokens; it is for one key alone. ``most`` tokens are known at most, and as many failures.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        tell: Callable[..., None],
        shared: SharedTokens | None = None,
        most: int = MOST,
    ) -> None:
        self._clock = clock
        self._tell = tell
        self._fails = False
        self._shared = shared
        self._known = LastUsed[str, KeptToken](most, MOST_BYTES, lambda kept: kept.weight)
        # When the last request failed, and how. Apart, so that those who get no token push out nobody's.
        self._failures = LastUsed[str, tuple[float, CredentialsMissing]](most)
        self._flights: dict[str, asyncio.Task[KeptToken]] = {}

    def __repr__(self) -> str:
        return f"<ObtainedTokens: {len(self._known)} known, {len(self._flights)} on the way>"

    async def get(self, key: str, obtain: Obtain) -> str:
        """The token of this key; ``obtain`` asks for one where there is none, once for all who wait.

        A token that is good but should be renewed is used while that is done. Raises what ``obtain`` raises.
        """
        kept, now = self._known.get(key), self._clock()
        if kept is not None and now < kept.renewed:
            return kept.value
        failed = self._failures.get(key)
        failure = failed[1] if failed is not None and _is_within(RETRY, failed[0], now) else None
        if kept is not None and now < kept.expires:
            if failure is None:
                self._fly(key, obtain)
            return kept.value
        if failure is not None:
            raise CredentialsMissing(str(failure))
        # Shielded: one who waits and is cancelled must not end it for the others.
        return (await asyncio.shield(self._fly(key, obtain))).value

    def refused(self, key: str, value: str) -> bool:
        """Take note that the upstream refused a token. True if ``get`` will give another one."""
        kept, now = self._known.get(key), self._clock()
        if kept is None or kept.value != value or kept.expires == -math.inf:
            # Renewed by another request, or on the way.
            return True
        if _is_within(REFUSED_AGAIN, kept.refused, now):
            return False
        self._known.put(key, KeptToken(value, -math.inf, -math.inf, now))
        return True

    async def close(self) -> None:
        """Give up what is on the way."""
        flights = list(self._flights.values())
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)

    # --- obtaining --------------------------------------------------------------------------------------------

    def _fly(self, key: str, obtain: Obtain) -> asyncio.Task[KeptToken]:
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

    async def _renew(self, key: str, obtain: Obtain) -> KeptToken:
        try:
            shared = self._shared
            token = await (self._obtain(obtain) if shared is None else self._join(shared, key, obtain))
        except CredentialsMissing as error:
            if not self._fails:
                self._tell(why=str(error))
            self._fails = True
            self._failures.put(key, (self._clock(), error))
            raise
        self._fails = False
        self._failures.drop(key)
        if (old := self._known.get(key)) is not None:
            token = token._replace(refused=old.refused)
        self._known.put(key, token)
        return token

    async def _join(self, shared: SharedTokens, key: str, obtain: Obtain) -> KeptToken:
        """The token that another replica has obtained, or obtains now; else obtain it for all."""
        deadline = time.monotonic() + PATIENCE
        while (found := await self._found(shared, key)) is None:
            if not await shared.lead() and time.monotonic() < deadline:
                await asyncio.sleep(LOOK)
                continue
            try:
                # The last one who led may have written it meanwhile.
                if (found := await self._found(shared, key)) is None:
                    found = await self._obtain(obtain)
                    await shared.keep(found)
            finally:
                await shared.release()
            return found
        return found

    async def _found(self, shared: SharedTokens, key: str) -> KeptToken | None:
        found = await shared.find()
        if found is None or self._clock() >= found.renewed:
            return None
        kept = self._known.get(key)
        is_refused = kept is not None and kept.value == found.value and kept.expires == -math.inf
        return None if is_refused else found

    async def _obtain(self, obtain: Obtain) -> KeptToken:
        issued = await obtain()
        now = self._clock()
        life = UNKNOWN_LIFE if issued.life is None else issued.life
        # One that lives shorter than the margin is used once, by those who wait for it.
        expires = now + max(life - MARGIN, 0.0)
        return KeptToken(issued.access, min(now + life * random.uniform(*RENEWED_AT), expires), expires)  # noqa: S311 (spread, no secret)


def _is_within(seconds: float, at: float, now: float) -> bool:
    """Tell whether ``at`` is so long ago at most; the future, which a clock that was set back has seen, never is."""
    return 0 <= now - at < seconds
