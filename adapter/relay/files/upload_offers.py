"""Offers of uploads: links that take one batch, and the row by which any process knows what becomes of it.

A batch that came by an offer is its owner's in every session: hosts open one for nearly every call. So its scope
outlives its session while the offer lasts, and handles of its files can name the batch instead of the scope. It stays
when the session ends where its owner is known, where a person sent it, or where it came later; what else came into an
open session ends with that. Such a handle is good for the principal that asked for the links; where nobody is known,
for whoever has the handle, which nobody can guess: it is told to those who hold the upload's id, and to those who
uploaded.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple, Protocol

from adapter.errors import LimitReached, StoreUnavailable
from adapter.relay.background import run_to_completion
from adapter.relay.files.scopes import Scopes
from adapter.relay.files.signed_urls import Credentials, UploadQueries
from adapter.rules.access.principals import ANONYMOUS, Scope
from adapter.rules.files.file_records import (
    TELL_EVERY,
    UploadOffer,
    batch_of,
    decode_offer,
    encode_offer,
)
from adapter.state.port import ABSENT, StoreListener, delete_overdue

TABLE = "upload_offers"

_KEPT = 60.0
"""Seconds that an offer outlives its links, for replicas whose clocks differ."""

MOST_OFFERS = 1000
"""Offers that one scope may have at a time: each is rows in the store for as long as its links are good."""


class IssuedOffer(NamedTuple):
    """A new offer; ``upload_id`` is for the one who asked for it, and nobody else."""

    upload_id: str
    links: UploadQueries


class Incoming(Protocol):
    """A batch on its way in."""

    @property
    def size(self) -> int:
        """Bytes that have come."""


@dataclass(slots=True)
class KnownOffer:
    """An offer, the name of its batch, and the time (Unix seconds) until which it is kept."""

    batch: str
    offer: UploadOffer
    due: float


@dataclass(eq=False)
class UploadOffers(StoreListener):
    """Makes offers and knows what becomes of them. Files live ``upload_ttl`` seconds after their last use at least."""

    credentials: Credentials
    scopes: Scopes
    upload_ttl: float = 0.0

    def __post_init__(self) -> None:
        self.store, self.clock = self.credentials.store, self.credentials.clock
        self._lifetime = max(self.upload_ttl, self.credentials.page_ttl, self.credentials.ttl)
        self._coming: dict[str, list[Incoming]] = {}
        self._watchers: dict[str, set[asyncio.Event]] = {}
        self.stopping = False
        """The adapter stops, so nobody waits any more."""
        if self.store.shared:
            self.store.listeners.append(self)

    def __repr__(self) -> str:
        return f"<UploadOffers: {len(self._coming)} batches coming, {len(self._watchers)} waited for>"

    # --- offers -----------------------------------------------------------------------------------------------

    async def issue(self, server: str, principal: str, scope: Scope) -> IssuedOffer:
        """Offer one upload into a scope. Raises LimitReached, StoreUnavailable."""
        seconds = max(self.credentials.page_ttl, self.credentials.ttl)
        wait = await self.store.spend(TABLE, scope.id, MOST_OFFERS, seconds)
        if wait:
            raise LimitReached(
                f"{MOST_OFFERS} uploads were offered within {seconds:g} s, the longer of uploads.page_ttl_seconds and "
                f"core.auth.signed_upload_ttl_seconds: use their links, or try again in {ceil(wait)} s.",
                retry_after=wait,
            )
        upload_id = secrets.token_hex(16)
        batch = batch_of(upload_id)
        assert batch is not None, "just made"
        links = self.credentials.issue(server, scope.id, batch)
        expires = max(links.expires, links.page_expires)
        offer = UploadOffer(server, principal, scope.id, expires, outlives=principal != ANONYMOUS)
        due = offer.expires + _KEPT
        await self.scopes.keep(scope, due)
        await self.store.put(TABLE, batch, encode_offer(offer), expected=ABSENT, due=due)
        return IssuedOffer(upload_id, links)

    async def find(self, batch: str) -> KnownOffer | None:
        """The offer of that batch, None for one that is over or never was. Raises StoreUnavailable."""
        try:
            row = await self.store.get(TABLE, batch)
        except UnicodeEncodeError:  # no key of ours: it came out of a message
            return None
        if row is None or row.due is None or row.due <= self.clock():
            return None
        try:
            return KnownOffer(batch, decode_offer(row.value), row.due)
        except ValueError:
            return None  # another version wrote it, so another version may know it

    async def find_of(self, server: str, principal: str, batch: str | None) -> KnownOffer | None:
        """The same, for the principal and the server that it was made for only."""
        known = None if batch is None else await self.find(batch)
        if known is None or known.offer.server != server or known.offer.principal != principal:
            return None
        return known

    async def use(self, known: KnownOffer) -> None:
        """Keep an offer and its scope for as long as its files live that are used now. Raises StoreUnavailable."""
        now = self.clock()
        if known.due >= now + self._lifetime:
            return
        scope = await self.scopes.find(known.offer.scope)
        if scope is not None:
            known.due = now + 2 * self._lifetime  # so that not each use writes
            await self.scopes.keep(scope, known.due)
            await self.store.touch(TABLE, {known.batch: known.due})

    async def outlive(self, known: KnownOffer) -> None:
        """Let the files of a batch that is coming stay when the session ends that asked for it. Raises
        StoreUnavailable.
        """
        known.offer = replace(known.offer, outlives=True)
        if self.store.shared:
            await self._tell(known, self.received(known.batch) or 0)
        else:
            await self._put(known, known.offer)

    async def outliving(self, batches: Iterable[str]) -> set[str]:
        """Those of the batches whose files stay when their session ends. Raises StoreUnavailable."""
        found = await asyncio.gather(*map(self.find, batches))
        return {known.batch for known in found if known is not None and known.offer.outlives}

    async def expire(self) -> None:
        """Forget offers that are over. Raises StoreUnavailable."""
        await delete_overdue(self.store, TABLE, self.clock())

    # --- batches ----------------------------------------------------------------------------------------------

    def received(self, batch: str) -> int | None:
        """Bytes that have come of a batch which is on its way to this process; None for any other."""
        coming = self._coming.get(batch)
        return max(each.size for each in coming) if coming else None

    @contextlib.asynccontextmanager
    async def arriving(self, known: KnownOffer, incoming: Incoming) -> AsyncIterator[None]:
        """Let everybody know of a batch on its way, and then that its way has ended. Its offer lasts until then, also
        where that is longer than its links last. Raises StoreUnavailable.
        """
        batch = known.batch
        self._coming.setdefault(batch, []).append(incoming)
        telling = asyncio.get_running_loop().create_task(self._tell_on(known, incoming))
        try:
            if self.store.shared:
                await self._tell(known, incoming.size)
            self._wake(batch)
            yield
        finally:
            self._coming[batch].remove(incoming)
            if not self._coming[batch]:
                del self._coming[batch]
            telling.cancel()
            if self.store.shared:
                await run_to_completion(self._tell_end(known))
            self._wake(batch)

    async def _tell_on(self, known: KnownOffer, incoming: Incoming) -> None:
        while True:
            await asyncio.sleep(TELL_EVERY)
            with contextlib.suppress(StoreUnavailable):
                await self.use(known)
                if self.store.shared:
                    await self._tell(known, incoming.size)

    async def _tell_end(self, known: KnownOffer) -> None:
        # What cannot be told now, others see by themselves a little later.
        with contextlib.suppress(StoreUnavailable):
            await self._put(known, replace(known.offer, received=0, heard=0.0))

    async def _tell(self, known: KnownOffer, size: int) -> None:
        await self._put(known, replace(known.offer, received=size, heard=self.clock()))

    async def _put(self, known: KnownOffer, offer: UploadOffer) -> None:
        row = await self.store.get(TABLE, known.batch)
        if row is not None:  # who used its files meanwhile has prolonged it; and one that is over stays over
            with contextlib.suppress(ValueError):
                offer = replace(offer, outlives=offer.outlives or decode_offer(row.value).outlives)
            await self.store.put(TABLE, known.batch, encode_offer(offer), due=max(known.due, row.due or 0.0))

    # --- waiting ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def watch(self, batch: str) -> Iterator[asyncio.Event]:
        """An event that is set each time when something happens to a batch, here or as others have told."""
        event = asyncio.Event()
        watchers = self._watchers.setdefault(batch, set())
        watchers.add(event)
        try:
            yield event
        finally:
            watchers.discard(event)
            if not watchers:
                self._watchers.pop(batch, None)

    def stop_waiting(self) -> None:
        """Let everybody who waits go on at once: the adapter stops, and what they wait for may take minutes."""
        self.stopping = True
        for batch in self._watchers:
            self._wake(batch)

    def _wake(self, batch: str) -> None:
        for event in self._watchers.get(batch, ()):
            event.set()

    def row_changed(self, table: str, key: str) -> None:
        """See StoreListener."""
        if table == TABLE:
            self._wake(key)
