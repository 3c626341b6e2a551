"""The view that the front door has of authorization servers."""

from __future__ import annotations

from typing import Protocol

from adapter.rules.access.verified_tokens import VerifiedToken


class TokenVerifier(Protocol):
    """Checks access tokens; each only once until it expires."""

    def known(self, token: str) -> VerifiedToken | None:
        """The token, if it was verified before and has not expired."""

    def recall(self, digest: bytes) -> VerifiedToken | None:
        """As ``known``, for the SHA-256 of a token: to find that takes longer than the look into a table."""

    async def verify(self, token: str) -> VerifiedToken:
        """Check a token, asking its issuer where necessary. Raises Unauthorized, with a sentence that tells why."""
