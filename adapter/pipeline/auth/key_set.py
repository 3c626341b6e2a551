"""The keys of an issuer, fetched from where it publishes them and kept for a while (RFC 7517 §5)."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson
from structlog.typing import FilteringBoundLogger

from adapter.pipeline.auth.auth_stage import AuthRefused
from adapter.pipeline.auth.keys import SigningKey, is_disclosed, of_jwk
from adapter.rules.results.exposure import exposed

FRESH = 600.0
"""Seconds for which fetched keys are used without asking again."""

LASTING = 3600.0
"""Seconds for which they are used at most while nothing newer can be had."""

PAUSE = 30.0
"""Seconds between two fetches, so that tokens with made-up key ids cannot make the adapter ask all day."""

PAUSE_WITHOUT_KEYS = 5.0
"""The same where nobody can be let in until there are keys."""

LARGEST = 1 << 20
"""Bytes of a document that are read."""

MOST_KEYS = 256
"""Keys of a document; issuers publish a handful. To read the points of curves takes 0.2 ms each."""

MOST_VALUES = 64 * MOST_KEYS
"""Values in a document. To make as many empty lists of a mebibyte as fit into it takes the loop's turns for 0.2 s."""

Fetch = Callable[[str], Awaitable[bytes]]
"""Gets the document at a URL, or raises whatever tells why it cannot."""


class KeySet:
    """Keys at ``url``. ``clock`` gives seconds that only ever grow.

    A key that is not known may be a new one, so that another fetch is tried for it. Whoever needs what is being
    fetched waits for that one fetch, which goes on when they leave: callers that come and go make no more of them.
    """

    def __init__(
        self,
        url: str,
        fetch: Fetch,
        log: FilteringBoundLogger,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        self._fetch = fetch
        self._log = log
        self._clock = clock
        self._keys: dict[bytes, SigningKey] = {}
        """By how the document spells them."""
        self._fetched = self._next = -math.inf
        self._renewal: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        # Not the URL, whose query may hold a key of another kind.
        return f"<KeySet: {len(self._keys)} keys>"

    async def find(self, kid: str | None, algorithm: str) -> SigningKey | None:
        """See Keys. Raises AuthRefused where there are no keys to be had."""
        # Where somebody asks for newer ones already, those that are there will do: an issuer that does not answer
        # holds one call up, not all.
        if self._age() >= (FRESH if self._renewal is None else LASTING):
            await self._renew()
        if self._age() >= LASTING:
            raise AuthRefused(
                "unauthorized: the keys that tokens are checked with cannot be fetched now",
                retry_after=PAUSE_WITHOUT_KEYS,
            )
        key = self._known(kid, algorithm)
        if key is None and (self._renewal is not None or self._clock() >= self._next):
            await self._renew()
            key = self._known(kid, algorithm)
        return key

    def _age(self) -> float:
        return self._clock() - self._fetched

    def _known(self, kid: str | None, algorithm: str) -> SigningKey | None:
        fitting = [
            key
            for key in self._keys.values()
            if algorithm in key.algorithms and (kid is None or key.kid == kid)
        ]
        # Of several a token has to say which; two of one id are a mistake of the issuer's, and the first is it.
        return fitting[0] if fitting and (kid is not None or len(fitting) == 1) else None

    async def _renew(self) -> None:
        """Wait until the keys have been fetched, unless that was tried a moment ago."""
        if self._renewal is None:
            if self._clock() < self._next:
                return
            self._renewal = asyncio.ensure_future(self._fetched_anew())
        await asyncio.shield(self._renewal)

    async def _fetched_anew(self) -> None:
        try:
            # In a thread, for a document may hold more than the loop has time for.
            members, disclosed = await asyncio.to_thread(_members, await self._fetch(self._url))
        except Exception as error:
            # Whatever the network or the document are at fault for; the keys that are there have to do.
            self._log.warning("the keys of an issuer could not be fetched", why=exposed(error))
        else:
            if disclosed:
                self._log.warning("an issuer publishes private keys, which are not used", keys=disclosed)
            # A key that is still there stays the same object, and what was checked with it stays checked.
            self._keys = {text: self._keys.get(text) or key for text, key in members.items()}
            self._fetched = self._clock()
        finally:
            self._next = self._clock() + (PAUSE if self._age() < LASTING else PAUSE_WITHOUT_KEYS)
            self._renewal = None


def _members(document: bytes) -> tuple[dict[bytes, SigningKey], int]:
    """The usable keys of a JWK set, and how many it discloses. Raises ValueError where it is none."""
    if len(document) > LARGEST:
        raise ValueError(f"the document is larger than {LARGEST >> 20} MiB")
    if sum(document.count(mark) for mark in (b",", b"[", b"{")) > MOST_VALUES:
        raise ValueError(f"the document holds more than {MOST_VALUES} values")
    try:
        read: Any = orjson.loads(document)
    except orjson.JSONDecodeError:
        raise ValueError("the document is not JSON") from None
    listed = read.get("keys") if isinstance(read, Mapping) else None
    if not isinstance(listed, list):
        raise ValueError("the document is no JWK set")
    if len(listed) > MOST_KEYS:
        raise ValueError(f"the document holds more than {MOST_KEYS} keys")
    members = [member for member in listed if isinstance(member, Mapping)]
    keys: dict[bytes, SigningKey] = {}
    for member in members:
        if (key := of_jwk(member)) is not None:
            keys.setdefault(orjson.dumps(member, option=orjson.OPT_SORT_KEYS), key)
    return keys, sum(map(is_disclosed, members))
