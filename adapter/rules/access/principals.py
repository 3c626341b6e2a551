"""The principal that a token stands for: the one who is calling."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

ANONYMOUS = "anonymous"
"""The principal of everybody where authentication is off."""


class Principals:
    """The configured tokens, as (name, SHA-256 digest) pairs; a token itself is never kept.

    A principal is ``name:`` and the first 16 hex digits of the digest, so a token that is replaced under the
    same name owns nothing of its predecessor. Raises ValueError for a digest that is not 32 bytes.
    """

    def __init__(self, tokens: Sequence[tuple[str, bytes]]) -> None:
        if any(len(digest) != hashlib.sha256().digest_size for _, digest in tokens):
            raise ValueError("a token is given by its SHA-256 digest of 32 bytes")
        self._tokens = tuple((digest, f"{name}:{digest.hex()[:16]}") for name, digest in tokens)
        # Holds accepted tokens only, so it never has more entries than there are tokens.
        self._accepted: dict[bytes, str] = {}

    def __repr__(self) -> str:
        return f"<Principals: {len(self._tokens)} tokens>"

    def accept(self, token: str) -> str | None:
        """The principal of this token, or None. How long it takes tells nothing about any token."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        if (known := self._accepted.get(digest)) is not None:
            return known
        principal: str | None = None
        for candidate, name in self._tokens:
            if hmac.compare_digest(candidate, digest) and principal is None:
                principal = name
        if principal is not None:
            self._accepted[digest] = principal
        return principal


def bearer(value: str | None) -> str | None:
    """The token in an Authorization field's value (RFC 6750 §2.1), or None if it holds no Bearer token."""
    if value is None:
        return None
    scheme, _, token = value.strip(" \t").partition(" ")
    token = token.strip(" \t")
    if scheme.lower() != "bearer" or not token or " " in token or "\t" in token:
        return None
    return token


def name_of(principal: str) -> str:
    """A principal as it is shown: without the part that follows from its token."""
    return principal if principal == ANONYMOUS else principal.rpartition(":")[0]
