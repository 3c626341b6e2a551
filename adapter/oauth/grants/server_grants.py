"""The grants of one server's callers, with all that reads, gives, renews and revokes them."""

from __future__ import annotations

from typing import NamedTuple

from adapter.oauth.grants.credentials import GrantCredentials
from adapter.oauth.grants.flow import GrantFlow
from adapter.oauth.grants.grant_store import GrantStore, ListedGrant
from adapter.oauth.grants.renewal import GrantRenewal
from adapter.oauth.grants.terms import GrantTerms


class ServerGrants(NamedTuple):
    """``kept`` are the grants of all servers."""

    terms: GrantTerms
    kept: GrantStore
    credentials: GrantCredentials
    flow: GrantFlow
    renewal: GrantRenewal

    async def revoke(self, listed: ListedGrant) -> bool:
        """Forget it, and revoke it; False: its issuer did not say that it did. Raises StoreUnavailable."""
        revoked = await self.renewal.revoke(self.terms, listed)
        if listed.grant is not None:
            self.credentials.forget(listed.grant.principal)
        return revoked
