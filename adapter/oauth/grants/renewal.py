"""Renewing grants: once for all calls of all replicas, and without losing a refresh token that is given out once.

The credentials of requests to an upstream: the access tokens of the grants that its callers have given.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, AuthorizationFailed, StoreUnavailable
from adapter.oauth.grants.grant_store import TABLE, GrantLinks, GrantStore, KeptGrant, ListedGrant, key_of
from adapter.oauth.grants.issuer_finder import ClientRegistry, IssuerFinder
from adapter.oauth.port import Leases
from adapter.oauth.upstream_credentials import proof_of, request_revocation, request_tokens
from adapter.rules.access.grants import Grant, GrantRefused, OAuthClient, Tokens
from adapter.rules.access.principals import Caller
from adapter.rules.last_used import LastUsed
from adapter.state.port import STORE_ONLY, Conflict, StoreListener

WAIT = 30.0
"""Seconds that a replica waits for another one that renews the same grant."""

LOOK = 0.1
"""Seconds between two looks at a grant that another replica renews."""

WRITES = 6
"""Times that a renewed grant is written, with growing pauses, before callers are told that the store fails."""

PAUSE = 0.1
"""Seconds between the first two of them; it doubles each time, up to LONGEST_PAUSE."""

LONGEST_PAUSE = 1.0

_OVER = frozenset({"invalid_grant"})
_FORGOTTEN = frozenset({"invalid_client", "unauthorized_client"})


class _UnderWay(NamedTuple):
    """A renewal. Its callers hear from ``told``, which the task may outlive: it has tokens to write."""

    task: asyncio.Task[KeptGrant | None]
    told: asyncio.Future[KeptGrant | None]


@dataclass(eq=False)
class GrantRenewal:
    """Renews and revokes the grants for one server. ``leases`` is None where no other process uses the store."""

    grants: GrantStore
    clients: ClientRegistry
    leases: Leases | None
    log: FilteringBoundLogger
    clock: Callable[[], float] = time.time
    _under_way: dict[str, _UnderWay] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.terms = self.clients.terms
        self.pause = PAUSE

    def __repr__(self) -> str:
        return f"<GrantRenewal: {len(self._under_way)} under way>"

    @property
    def under_way(self) -> list[asyncio.Task[KeptGrant | None]]:
        """The renewals that wait for an answer, or for the store."""
        return [each.task for each in self._under_way.values()]

    async def renew(self, kept: KeptGrant) -> KeptGrant | None:
        """The grant with a newer access token than that of ``kept``; None where it is no longer valid.

        Raises AuthorizationFailed where the authorization server cannot be asked, and StoreUnavailable. It goes on when
        its caller leaves, and while the store does not take new tokens: a refresh token would be lost.
        """
        key = key_of(self.terms.server, kept.grant.principal)
        found = self._under_way.get(key)
        if found is None:
            loop = asyncio.get_running_loop()
            task = loop.create_task(self._renewed(kept, key))
            found = self._under_way[key] = _UnderWay(task, loop.create_future())
            task.add_done_callback(lambda _: self._landed(key))
        return await asyncio.shield(found.told)

    def _landed(self, key: str) -> None:
        task, told = self._under_way.pop(key)
        if task.cancelled():
            told.cancel()
        elif (error := task.exception()) is not None:
            _fail(told, error)
        elif not told.done():
            told.set_result(task.result())

    async def close(self, within: float) -> None:
        """Wait until answers under way are written, no longer than ``within`` seconds; then give them up."""
        if self._under_way:
            _, late = await asyncio.wait(self.under_way, timeout=within)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _renewed(self, kept: KeptGrant, key: str) -> KeptGrant | None:
        if self.leases is None:
            return await self._asked(kept)
        # What a replica remembers of a store that fails tells nothing of the others: a lease would be everybody's.
        STORE_ONLY.set(True)
        lease = self.leases(f"grants/{key}")
        began = time.monotonic()
        while not await lease.take():
            await asyncio.sleep(LOOK)
            found = await self.grants.get(self.terms.server, kept.grant.principal)
            if found is None or found.version != kept.version:
                return found
            if time.monotonic() - began > WAIT:
                raise AuthorizationFailed()
        try:
            return await self._asked(kept)
        finally:
            try:
                await lease.release()
            except StoreUnavailable:
                self.log.info("a lease could not be released; it ends by itself")

    async def _asked(self, kept: KeptGrant) -> KeptGrant | None:
        """Ask for new tokens, unless somebody has done so in the meantime."""
        grant = kept.grant
        now = await self.grants.get(self.terms.server, grant.principal)
        if now is None or now.version != kept.version:
            return now
        if grant.refresh is None:
            return await self._dropped(kept)
        client = await self.clients.client_of(grant.issuer, grant.client)
        if client is None:
            return await self._dropped(kept)
        try:
            tokens = await request_tokens(
                self.clients.http, grant.token_endpoint, proof_of(client), _form(grant, grant.refresh)
            )
        except GrantRefused as refused:
            return await self._refused(kept, refused)
        except (AdapterError, ValueError) as error:
            self.log.warning("a grant could not be renewed", server=self.terms.server, why=str(error))
            raise AuthorizationFailed() from error
        return await self._written(kept, renewed(grant, tokens, self.clock()), client)

    async def _refused(self, kept: KeptGrant, refused: GrantRefused) -> KeptGrant | None:
        self.log.warning("a grant was not renewed", server=self.terms.server, error=refused.code)
        if refused.code in _OVER:
            return await self._dropped(kept)
        if refused.code in _FORGOTTEN and self.terms.auth.client_id is None:
            await self.clients.forget(kept.grant.issuer, kept.grant.client)
            return await self._dropped(kept)
        raise AuthorizationFailed()

    async def _dropped(self, kept: KeptGrant) -> KeptGrant | None:
        """Forget a grant that is over; the one that somebody has put in its place meanwhile stays."""
        try:
            await self.grants.delete(self.terms.server, kept.grant.principal, expected=kept.version)
        except Conflict:
            return await self.grants.get(self.terms.server, kept.grant.principal)
        return None

    async def _written(self, kept: KeptGrant, grant: Grant, client: OAuthClient) -> KeptGrant | None:
        """Write new tokens at once, and until it is done: the old refresh token may be worth nothing any more."""
        pause, attempts = self.pause, 0
        while True:
            try:
                return await self._put(kept, grant, client)
            except StoreUnavailable as error:
                attempts += 1
                if attempts == WRITES:
                    self.log.warning("a renewed grant is not written yet", server=self.terms.server)
                    _fail(self._under_way[key_of(self.terms.server, grant.principal)].told, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _put(self, kept: KeptGrant, grant: Grant, client: OAuthClient) -> KeptGrant | None:
        try:
            return await self.grants.put(self.terms.server, grant, expected=kept.version)
        except Conflict:
            now = await self.grants.get(self.terms.server, grant.principal)
            # Equal where an attempt that seemed to fail has written it.
            if now is None or now.grant != grant:
                # Revoked, or granted anew, while this was asked for: what came is nobody's.
                await self._revoked(grant, client)
            return now

    # --- revoking ---------------------------------------------------------------------------------------------

    async def revoke(self, listed: ListedGrant) -> bool:
        """Forget a grant, and revoke it at its authorization server. False: the server does not say that it did.

        Raises StoreUnavailable.
        """
        grant = listed.grant
        await self.grants.delete_listed(listed)
        if grant is None:
            return False
        client = await self.clients.client_of(grant.issuer, grant.client)
        return client is not None and await self._revoked(grant, client)

    async def _revoked(self, grant: Grant, client: OAuthClient) -> bool:
        if grant.revocation_endpoint is None:
            return False
        try:
            return await request_revocation(
                self.clients.http, grant.revocation_endpoint, proof_of(client), grant.refresh or grant.access
            )
        except (AdapterError, ValueError) as error:
            self.log.warning("a grant could not be revoked at its issuer", why=str(error))
            return False


def _fail(told: asyncio.Future[KeptGrant | None], error: BaseException) -> None:
    if not told.done():
        told.set_exception(error)
        # All callers may have left; a failure that is never looked at would be logged.
        told.exception()


def renewed(grant: Grant, tokens: Tokens, now: float) -> Grant:
    """The grant with new tokens; a refresh token that did not change is not sent again (RFC 6749 §6)."""
    return grant._replace(
        access=tokens.access,
        refresh=tokens.refresh or grant.refresh,
        scope=grant.scope if tokens.scope is None else tokens.scope,
        renewed=now,
        expires=None if tokens.life is None else now + tokens.life,
    )


def _form(grant: Grant, refresh: str) -> dict[str, str]:
    form = {"grant_type": "refresh_token", "refresh_token": refresh}
    return form | {"resource": grant.resource} if grant.resource else form


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
