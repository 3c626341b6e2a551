"""An issuer of signed access tokens: its keys, and the check of a token with them (RFC 9068 §4)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from adapter.errors import AdapterError, IssuerUnavailable, Unauthorized
from adapter.oauth.discovery import Discovery
from adapter.oauth.http import IssuerHttp
from adapter.oauth.verified_tokens import Verification
from adapter.pipeline.failures import AuthRefused
from adapter.pipeline.key_set import Fetch, KeyLife, KeySet, SigningKey
from adapter.pipeline.signed_tokens import BadSignature, BadToken, Signatures, TokenHeader
from adapter.rules.access.verified_tokens import TOKEN_TYPES, IssuerTrust

LIFE = KeyLife(fresh=600.0, lasting=86_400.0, pause=60.0, patience=1.0)
"""Keys are asked for every ten minutes, and for an unknown one at most once a minute. While the issuer does not answer
they hold for a day: an outage lasts hours, and longer a key that leaked must not be good because nobody can say so.
"""


def refused(why: ValueError) -> Unauthorized:
    """The failure for a sentence about "the token"."""
    return Unauthorized(f"The access {str(why).removeprefix('the ')}.")


class Issuer:
    """Checks the JWTs of one issuer. ``clock`` gives Unix seconds."""

    def __init__(self, trust: IssuerTrust, keys: KeySet, clock: Callable[[], float] = time.time) -> None:
        self._trust = trust
        self._keys = keys
        self._clock = clock
        self._signatures = Signatures(trust.algorithms)

    def __repr__(self) -> str:
        return f"<Issuer {self._trust.issuer!r}: {self._keys!r}>"

    async def check(self, token: str) -> Verification:
        """Verify a token. Raises Unauthorized, and IssuerUnavailable where there are no keys."""
        try:
            header = self._header(token)
            claims, key = await self._signed(token, header)
            # The clock after the keys, which may have taken seconds.
            now = self._clock()
            verified = self._trust.token(claims, now)
        except ValueError as why:
            raise refused(why) from None
        until = min(verified.expires, now + self._keys.unchanged_for())
        return Verification(verified, until, len(token), key)

    def _header(self, token: str) -> TokenHeader:
        header = self._signatures.header(token)
        if (header.type and header.type.lower()) not in TOKEN_TYPES:
            raise BadToken("the token is no access token")
        return header

    async def _signed(self, token: str, header: TokenHeader) -> tuple[dict[str, Any], SigningKey]:
        """The claims, and the key that has signed them."""
        key = await self._key(header)
        try:
            return self._signatures.claims(token, header.algorithm, key), key
        except BadSignature:
            # Some issuers give a new key the id of the old one, or have a single key without any.
            newer = await self._keys.successor(key, header.kid, header.algorithm)
            if newer is None:
                raise
            return self._signatures.claims(token, header.algorithm, newer), newer

    async def _key(self, header: TokenHeader) -> SigningKey:
        try:
            key = await self._keys.find(header.kid, header.algorithm)
        except AuthRefused as unavailable:
            raise IssuerUnavailable(retry_after=unavailable.retry_after) from None
        if key is None:
            raise BadToken("the token is signed with an unknown key")
        return key


def fetch_keys(http: IssuerHttp, discovery: Discovery, jwks_url: str | None) -> Fetch:
    """Return the function that gets the key set of an issuer: at ``jwks_url``, or where its metadata says."""

    async def fetch(issuer: str) -> bytes:
        url = jwks_url or (await discovery.metadata(issuer)).url("jwks_uri")
        try:
            return await http.document(url)
        except AdapterError:
            # It may have moved.
            discovery.outdate(issuer)
            raise

    return fetch
