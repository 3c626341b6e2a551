"""``core.auth``: tokens of the callers, and the authorization servers whose access tokens let them in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from adapter.settings.section import (
    BlankIsNull,
    HeaderName,
    HttpUrl,
    Line,
    Listed,
    OptionalText,
    Seconds,
    SecondsOrZero,
    Section,
    Spelled,
    Text,
    TextList,
    is_loopback,
)

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "ES256K", "EdDSA"),
)
"""Algorithms of public keys (RFC 7518 §3.1, RFC 8037)."""

LONGEST_LEEWAY = 300
"""Seconds. Clocks that differ by more are to be set, since a token is good for as much longer."""

_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")
"""RFC 6749 §3.3, with a bound."""

_LONGEST_URL = 1024


def _secure(value: str) -> str:
    parts = urlsplit(value)
    if "@" in parts.netloc or parts.fragment:
        raise ValueError("must be a URL without user and fragment")
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise ValueError("must begin with https://; http:// is only for loopback addresses")
    if len(value) > _LONGEST_URL:
        raise ValueError(f"must have at most {_LONGEST_URL} characters")
    return value


def _scope_tokens(values: list[str]) -> list[str]:
    for value in values:
        if _SCOPE.fullmatch(value) is None:
            raise ValueError(
                f"{value!r} is not a scope: it must have 1 to 256 visible characters without blanks, quotes "
                "and backslashes"
            )
    return values


SecureUrl = Annotated[HttpUrl, AfterValidator(_secure)]
"""A URL at which secrets may be sent and keys be trusted: https, or http to this machine."""

Scopes = Annotated[TextList, AfterValidator(_scope_tokens)]


def _is_an_identifier(value: str) -> str:
    if "?" in value:
        raise ValueError("must be a URL without query")
    return value


def _are_of_public_keys(values: list[str]) -> list[str]:
    for value in values:
        if value.upper().startswith("HS") or value.lower() == "none":
            raise ValueError(f"{value} is not allowed: an issuer's tokens are signed with a private key")
        if value not in ALGORITHMS:
            raise ValueError(f"{value} is not a known algorithm: use some of {', '.join(ALGORITHMS)}")
    return values


class OAuthIssuer(Section):
    """An authorization server that is trusted."""

    issuer: Annotated[SecureUrl, AfterValidator(_is_an_identifier)]
    """Issuer identifier, exactly as in its tokens and metadata, including a slash at the end."""
    audience: OptionalText = None
    """Audience that tokens of this issuer must have; null: the URL of the mount that is called (RFC 8707)."""
    algorithms: Annotated[
        list[Line], Listed, Field(min_length=1), Spelled("list of text"), AfterValidator(_are_of_public_keys)
    ] = Field(
        default_factory=lambda: ["RS256", "ES256"],
        description=f"Signature algorithms that are accepted, of {', '.join(ALGORITHMS)}.",
    )
    principal_claim: Line = "sub"
    """Claim that names the caller; sessions, files, pins and limits belong to issuer and claim."""
    required_scopes: Scopes = Field(default_factory=list)
    """Scopes that every token of this issuer must have."""
    jwks_url: Annotated[SecureUrl | None, BlankIsNull] = None
    """URL of the issuer's key set; null: from the issuer's metadata."""


def _is_present(value: SecretStr) -> SecretStr:
    if not value.get_secret_value().strip():
        raise ValueError("must not be empty")
    return value


class Introspection(Section):
    """Introspection of opaque tokens of the first issuer (RFC 7662)."""

    url: SecureUrl
    """Introspection endpoint of the issuer."""
    client_id: Line
    """Client id of the adapter at the introspection endpoint."""
    client_secret: Annotated[SecretStr, AfterValidator(_is_present)]
    """Client secret, sent as HTTP Basic authentication; write `${VAR}` instead of the secret."""
    cache_seconds: Annotated[Seconds, Field(ge=1)] = 60
    """Maximum time that an answer is used, at least 1."""


class OAuth(Section):
    """Access tokens of authorization servers."""

    issuers: Annotated[list[OAuthIssuer], Field(min_length=1)]
    """Authorization servers that are trusted; clients are told of them in this order."""
    introspection: Introspection | None = None
    """Introspection of tokens that are not JWTs of one of `issuers`; null refuses such tokens."""
    documentation: Annotated[HttpUrl | None, BlankIsNull] = None
    """URL of a page for developers, told in the metadata of each mount."""
    leeway_seconds: Annotated[SecondsOrZero, Field(le=LONGEST_LEEWAY)] = Field(
        default=30,
        description=f"Difference of the clocks of issuer and adapter that is allowed, at most {LONGEST_LEEWAY}.",
    )

    def _contradictions(self) -> Iterator[str]:
        seen: dict[str, int] = {}
        for index, entry in enumerate(self.issuers):
            if (first := seen.setdefault(entry.issuer, index)) != index:
                yield f"issuers[{index}] has the same issuer as issuers[{first}]"


def _is_a_digest(value: str | None) -> str | None:
    if value is not None and re.fullmatch(r"[0-9a-fA-F]{64}", value) is None:
        raise ValueError("must be 64 hexadecimal digits")
    return value.lower() if value else None


class NamedToken(Section):
    """One principal: a name, and its token or the digest of the token."""

    name: Text
    """Name of the principal; files and pins can belong to it."""
    token: Annotated[SecretStr | None, BlankIsNull] = None
    """The token; set either this or `sha256`."""
    sha256: Annotated[str | None, BlankIsNull, AfterValidator(_is_a_digest)] = None
    """SHA-256 of the token in hexadecimal, so that the file contains no secret."""

    def _contradictions(self) -> Iterator[str]:
        if (self.token is None) == (self.sha256 is None):
            yield "needs either token or sha256, and not both"


class Auth(Section):
    """Tokens that callers must send."""

    enabled: bool = False
    """Refuse requests without a valid token, except to health routes. True by default with `core.auth.oauth`."""
    header_name: HeaderName = "X-Mcp-Adapter-Auth-Token"
    """Header that may carry the token; `Authorization: Bearer` is accepted too."""
    token: Annotated[SecretStr | None, BlankIsNull] = None
    """The token, if there is only one principal; write `${VAR}` instead of the secret."""
    tokens: list[NamedToken] = Field(default_factory=list)
    """Several principals, each with its own token."""
    oauth: OAuth | None = None
    """Access tokens of authorization servers, also beside `token` and `tokens` ([access](access.md))."""
    signed_upload_ttl_seconds: Seconds = 120
    """Time that a signed upload URL is valid."""
    signing_secret: Annotated[SecretStr | None, BlankIsNull] = None
    """Key of signed URLs; null: `core.auth.token`, or a generated secret in the state store."""

    @model_validator(mode="before")
    @classmethod
    def _oauth_enables(cls, data: Any) -> Any:
        # Whoever names issuers and forgets the switch would leave the door open.
        if isinstance(data, dict) and data.get("oauth") is not None and data.get("enabled") is None:
            return {**data, "enabled": True}
        return data

    def _contradictions(self) -> Iterator[str]:
        if self.enabled and not self.has_static_tokens and self.oauth is None:
            yield "enabled is true, but neither token nor tokens is set, nor oauth: nobody could call it"
        names = [entry.name for entry in self.tokens]
        if len(set(names)) < len(names):
            yield "two entries of tokens have the same name"

    @property
    def has_static_tokens(self) -> bool:
        """Tell whether a caller may come with a token of the settings."""
        return self.token is not None or bool(self.tokens)
