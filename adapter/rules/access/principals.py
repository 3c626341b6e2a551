"""The principal that a token stands for: the one who is calling."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from adapter.rules.text.unicode import shown


class Scope(NamedTuple):
    """``id`` is public: 32 hex digits that stand in handles and URLs. ``owner`` is not: it names the row of a
    session, or a principal, and goes into the store only.
    """

    id: str
    owner: str

    @property
    def session_key(self) -> str | None:
        """The key of the owning session's row, or None where a principal owns the scope."""
        kind, _, key = self.owner.partition(":")
        return key if kind == "session" else None


def digest(text: str) -> str:
    """SHA-256 of a text of anybody's, in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def session_scope(secret: bytes, session_key: str) -> Scope:
    return _scope(secret, f"session:{session_key}")


def principal_scope(secret: bytes, principal: str) -> Scope:
    return _scope(secret, f"principal:{principal}")


def _scope(secret: bytes, owner: str) -> Scope:
    keyed = _keyed(secret).copy()
    keyed.update(owner.encode("utf-8", "surrogatepass"))
    return Scope(keyed.hexdigest()[:32], owner)


# To begin with the key takes OpenSSL much longer than all the rest.
_keyed = lru_cache(maxsize=1)(partial(hmac.new, digestmod="sha256"))


DEFAULT_TOKEN = "default"  # noqa: S105 (a name, no token)
"""The name of the one token that ``core.auth.token`` sets."""

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


_LONGEST_SHOWN = 128


def token_principal(issuer: str, name: str) -> str:
    """The principal of an access token: ``name@issuer:`` and 16 hex digits of both together.

    So neither two issuers nor a static token have one principal. What is shown of both is bounded and in one line.
    """
    both = digest(f"{issuer}\0{name}")[:16]
    return f"{shown(name, _LONGEST_SHOWN)}@{shown(issuer, _LONGEST_SHOWN)}:{both}"


def is_of_token(principal: str) -> bool:
    """Tell whether a principal is that of an access token: the URL of its issuer stands in it."""
    return "@http" in principal.lower()


def principals_named(name: str) -> frozenset[str]:
    """The principals of access tokens that a name in the settings may mean, ``VALUE@ISSUER`` or one as it is kept.

    Values may have an ``@`` themselves. What two principals look like when they are shown says nothing.
    """
    ends = [place for place, each in enumerate(name) if each == "@"]
    return frozenset({name, *(token_principal(name[end + 1 :], name[:end]) for end in ends)})


def told_name(principal: str) -> str:
    """A principal for a record: its name, or all of it where others may be shown with the same name."""
    name = name_of(principal)
    return principal if is_of_token(principal) and principal not in principals_named(name) else name


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


SESSION_ID = "mcp-session-id"

Entrance = Literal["mcp", "http"]
"""The entrance of a call: MCP, or the HTTP tool API."""

ENTRANCES = get_args(Entrance)


@dataclass(frozen=True, slots=True)
class Caller:
    """``fields`` are the header fields of the client's request by name in any spelling; of several the first.

    ``withheld`` names those, in lower case, that carried the adapter's own token. ``scopes`` and ``claims`` are those
    of the caller's OAuth access token; both are empty for any other caller.
    """

    principal: str = ANONYMOUS
    entrance: Entrance = "mcp"
    fields: Mapping[str, str] = field(default_factory=dict)
    withheld: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = field(default_factory=dict)
    _told: Mapping[str, str] | None = field(default=None, init=False, repr=False, compare=False)

    def lower_fields(self) -> dict[str, str]:
        """The fields by their names in lower case."""
        return {name.lower(): value for name, value in self.fields.items()}

    def told_fields(self) -> Mapping[str, str]:
        """The fields that the user's own code may know, by their names in lower case; found once.

        The adapter's token, or without tokens the id of a session, lets anybody act as this caller.
        """
        if self._told is None:
            told = {
                name: value
                for name, value in self.lower_fields().items()
                if name not in self.withheld and name != SESSION_ID
            }
            object.__setattr__(self, "_told", told)
            return told
        return self._told


NOBODY = Caller()
"""Who makes the calls that the adapter makes by itself."""


class Identity(NamedTuple):
    """The one who makes a request, as its credential says.

    ``withheld`` are the header fields, in lower case, that carried or may carry the adapter's own credential.
    ``scopes``, ``claims`` and ``expires`` (Unix seconds) are those of an OAuth access token.
    """

    principal: str
    withheld: frozenset[str]
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = MappingProxyType({})
    expires: float | None = None


# --- callers who bring credentials for an upstream and none for the adapter ------------------------------------


def authorization_of(caller: Caller) -> str | None:
    """The value of the Authorization field of a caller's request."""
    value = caller.fields.get("authorization")
    return caller.lower_fields().get("authorization") if value is None else value


def party_of(caller: Caller) -> str:
    """The name of those who may share what an upstream told one of them, beside a session that they are in.

    It is the principal. Where nobody is known, it is the principal and a digest of the credential for the upstream.
    """
    value = authorization_of(caller) if caller.principal == ANONYMOUS else None
    return caller.principal if value is None else f"{ANONYMOUS} {digest(value)}"


def credential_digest(caller: Caller) -> str | None:
    """A digest of the Authorization field, by which results are told apart; None without one."""
    value = authorization_of(caller)
    return None if value is None else digest(value)
