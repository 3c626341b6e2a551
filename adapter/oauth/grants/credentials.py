"""The credentials of requests to an upstream: the access tokens of the grants that its callers have given."""

from __future__ import annotations

import asyncio
import time

from adapter.errors import AuthorizationFailed, StoreUnavailable
from adapter.oauth.grants.grant_requests import GrantLinks
from adapter.oauth.grants.grant_store import TABLE, KeptGrant, ListedGrant, key_of
from adapter.oauth.grants.issuer_finder import IssuerFinder
from adapter.oauth.grants.renewal import GrantRenewal
from adapter.rules.access.principals import Caller
from adapter.rules.last_used import LastUsed
from adapter.state.port import StoreListener

MOST = 10_000
"""Grants that are kept in memory for one server."""

FRESH = 5.0
"""Seconds after which a grant is read again: a command on another process may have revoked it."""

SOON = 2.0
"""Seconds that a call waits for the renewal of a token that is still good."""

JUST_RENEWED = 5.0
"""Seconds in which a token that was refused is not renewed again."""


class GrantCredentials(StoreListener):
    """Implements UpstreamCredentials for one server, and StoreListener.

    A grant serves its own principal and nobody else:
    it is kept and read under that one's name only.
    """

    def __init__(self, renewal: GrantRenewal, links: GrantLinks, finder: IssuerFinder) -> None:
        self.terms = renewal.terms
        self.grants = renewal.grants
        self.renewal = renewal
        self.finder = finder
        self._links = links
        self._clock = renewal.clock
        self._now = time.monotonic
        self.just_renewed = JUST_RENEWED
        self._read = LastUsed[str, tuple[KeptGrant, float]](MOST)
        """Grants and when each was read, by a clock that never goes back."""
        self.grants.rows.store.listeners.append(self)

    def __repr__(self) -> str:
        return f"<GrantCredentials of {self.terms.server}: {len(self._read)} grants>"

    async def authorization(self, caller: Caller) -> str | None:
        """See UpstreamCredentials; None where the caller has given no grant. Raises AuthorizationFailed."""
        kept = await self._current(caller.principal)
        return None if kept is None else _field(kept)

    async def refused(self, caller: Caller, value: str | None, challenge: str | None) -> bool:
        """See UpstreamCredentials. Raises GrantRequired for a client whose grant is not, or no longer, enough."""
        self.finder.heard(challenge)
        principal = caller.principal
        kept = await self.grants.get(self.terms.server, principal)
        if kept is not None and _field(kept) == value:
            # By its size: a clock that was set back has seen it renewed in the future.
            if abs(self._clock() - kept.grant.renewed) < self.just_renewed:
                # A newer token would be refused as well, and an upstream must not make the adapter ask all day.
                return False
            kept = await self.renewal.renew(kept)
        self._keep(principal, kept)
        if kept is not None:
            return _field(kept) != value
        if caller.fields:
            raise await self._links.required(self.terms, principal)
        # A request of the adapter's own has nobody who could open a link.
        return False

    async def demand(self, caller: Caller) -> None:
        """Raise GrantRequired for a caller who has given no grant."""
        if await self._current(caller.principal) is None:
            raise await self._links.required(self.terms, caller.principal)

    async def revoke(self, listed: ListedGrant) -> bool:
        """Forget a grant, and revoke it; False: its issuer did not say that it did. Raises StoreUnavailable."""
        revoked = await self.renewal.revoke(listed)
        if listed.grant is not None:
            self._keep(listed.grant.principal, None)
        return revoked

    async def granted(self, principal: str) -> bool:
        """Tell whether a principal has a grant now, by the store. Raises StoreUnavailable."""
        self._keep(principal, None)
        return await self._current(principal) is not None

    async def _current(self, principal: str) -> KeptGrant | None:
        key = key_of(self.terms.server, principal)
        found = self._read.get(key)
        kept = None if found is None or self._now() - found[1] >= FRESH else found[0]
        if kept is None:
            kept = await self.grants.get(self.terms.server, principal)
            self._keep(principal, kept)
        if kept is None or not kept.grant.due(self._clock()):
            return kept
        return await self._renewed(principal, kept)

    async def _renewed(self, principal: str, kept: KeptGrant) -> KeptGrant | None:
        wait = None if kept.grant.over(self._clock()) else SOON
        try:
            async with asyncio.timeout(wait):
                newer = await self.renewal.renew(kept)
        except (AuthorizationFailed, StoreUnavailable, TimeoutError):
            # The upstream decides about a token that is about to end; one that has ended is not sent.
            if kept.grant.over(self._clock()):
                raise
            return kept
        self._keep(principal, newer)
        return newer

    def _keep(self, principal: str, kept: KeptGrant | None) -> None:
        key = key_of(self.terms.server, principal)
        self._read.drop(key)
        if kept is not None:
            self._read.put(key, (kept, self._now()))

    # --- what other processes do ------------------------------------------------------------------------------

    def row_changed(self, table: str, key: str) -> None:
        """See StoreListener."""
        if table == TABLE:
            self._read.drop(key)

    def rows_unknown(self) -> None:
        """See StoreListener."""
        self._read.clear()


def _field(kept: KeptGrant) -> str:
    return f"Bearer {kept.grant.access}"
