"""Renewing grants: once for all calls of all replicas, and without losing a refresh token that is given out once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, AuthorizationFailed, StoreUnavailable
from adapter.oauth.client_authentication import proof_of, request_revocation, request_tokens
from adapter.oauth.grants.client_registry import ClientRegistry
from adapter.oauth.grants.grant_store import GrantStore, KeptGrant, ListedGrant, key_of
from adapter.oauth.port import Leases
from adapter.rules.access.grants import Grant, GrantRefused, OAuthClient, Tokens
from adapter.state.port import STORE_ONLY, Conflict

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
