"""The views of others: that of the front door of access tokens, and that which this room has of locks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from adapter.rules.access.token_claims import VerifiedToken


class TokenVerifier(Protocol):
    """Checks access tokens; each only once until it expires."""

    def known(self, token: str) -> VerifiedToken | None:
        """The token, if it was verified before and has not expired."""

    def recall(self, digest: bytes) -> VerifiedToken | None:
        """As ``known``, for the SHA-256 of a token: to find that takes longer than the look into a table."""

    async def verify(self, token: str) -> VerifiedToken:
        """Check a token, asking its issuer where necessary. Raises Unauthorized, with a sentence that tells why."""


class RenewalLease(Protocol):
    """The right to renew one grant, which one replica at a time has for some seconds."""

    async def take(self) -> bool:
        """Take it if it is free. Raises StoreUnavailable."""

    async def release(self) -> None:
        """Let the next one have it. Raises StoreUnavailable."""


Leases = Callable[[str], RenewalLease]
"""The lease of a name."""
