"""Access tokens of scripted issuers, and the settings of an adapter that trusts one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from adapter.errors import AdapterError, Unauthorized
from adapter.rules.access.token_claims import VerifiedToken, digest_of
from tests.oauth.authorization_server import AuthorizationServer

BASE = "https://tools.example.org"
ISSUER = "https://login.example.org"
MOUNT = f"{BASE}/mcp"
AT = f"{BASE}/.well-known/oauth-protected-resource"
ASKS = f'Bearer resource_metadata="{AT}/mcp", scope="mcp"'
"""The challenge of the mount for a request without a token."""


def core(issuer: str = ISSUER, **auth: Any) -> dict[str, Any]:
    """The ``core`` settings of an adapter that trusts the issuer; ``auth`` are more settings of ``core.auth``."""
    oauth = {"issuers": [{"issuer": issuer, "required_scopes": ["mcp"]}]}
    return {"public_base_url": BASE, "auth": {"oauth": oauth, **auth}}


def bearer(token: str) -> dict[str, str]:
    """The header field of a request with this token."""
    return {"authorization": f"Bearer {token}"}


def signed(server: AuthorizationServer, resource: str = MOUNT, **more: Any) -> dict[str, str]:
    """The header field with a token that ``server`` signed for a resource."""
    now = int(time.time())
    said = {"aud": resource, "exp": now + 600, "iat": now, "nbf": now, "scope": "mcp", **more}
    return bearer(server.token(**said))


class ScriptedVerifier:
    """A TokenVerifier that knows the tokens which were issued, and writes down those that it is asked to verify.

    ``failure`` is raised for every token while it is set. ``later`` is how much later it is for it, in seconds.
    """

    def __init__(self) -> None:
        self.issued: dict[str, VerifiedToken] = {}
        self.asked: list[str] = []
        self.failure: AdapterError | None = None
        self.later = 0.0
        self._known: dict[bytes, VerifiedToken] = {}

    def issue(
        self,
        token: str,
        principal: str = "ann",
        audience: str = MOUNT,
        scopes: tuple[str, ...] = ("mcp",),
        claims: Mapping[str, Any] | None = None,
        seconds: float = 3600.0,
    ) -> dict[str, str]:
        """Issue a token that expires in so many seconds. Returns the header field that carries it."""
        self.issued[token] = VerifiedToken(
            f"{principal}@{ISSUER}:0123456789abcdef",
            frozenset({audience}),
            frozenset(scopes),
            claims or {},
            time.time() + seconds,
            required_scopes=("mcp",),
        )
        return bearer(token)

    def revoke(self, token: str) -> None:
        """Let a token be good no more, and have the cache notice it."""
        del self.issued[token]
        self._known.pop(digest_of(token), None)

    def forget(self) -> None:
        """Empty the cache."""
        self._known.clear()

    def known(self, token: str) -> VerifiedToken | None:
        """See TokenVerifier."""
        return self.recall(digest_of(token))

    def recall(self, digest: bytes) -> VerifiedToken | None:
        """See TokenVerifier."""
        found = self._known.get(digest)
        return found if found is not None and found.expires > time.time() + self.later else None

    async def verify(self, token: str) -> VerifiedToken:
        """See TokenVerifier."""
        self.asked.append(token)
        if self.failure is not None:
            raise self.failure
        found = self.issued.get(token)
        if found is None:
            raise Unauthorized('The token is not one of "ours".\r\nX-Injected: yes')
        if found.expires <= time.time() + self.later:
            raise Unauthorized("The access token has expired.")
        self._known[digest_of(token)] = found
        return found
