"""``core.auth.oauth``: the authorization servers whose access tokens let callers in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from adapter.settings.section import (
    BlankIsNull,
    HttpUrl,
    Line,
    Listed,
    OptionalText,
    Problem,
    Seconds,
    SecondsOrZero,
    Section,
    Spelled,
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

_CHANGEABLE = frozenset(
    ("email", "preferred_username", "upn", "unique_name", "username", "user_name", "name", "nickname")
)
"""Claims that can be changed, or given to another person later (OpenID Connect Core §5.7)."""


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


class OAuthIssuer(Section):
    """An authorization server that is trusted."""

    issuer: SecureUrl = Field(
        description="Issuer identifier, exactly as in the `iss` claim of its tokens and in its metadata, including "
        "a slash at the end."
    )
    audience: OptionalText = Field(
        default=None,
        description="Audience that tokens of this issuer must have; null: the URL of the mount that is called "
        "(RFC 8707), so that a token for one server is not accepted by another.",
    )
    algorithms: Annotated[list[Line], Listed, Field(min_length=1), Spelled("list of text")] = Field(
        default_factory=lambda: ["RS256", "ES256"],
        description=f"Signature algorithms that are accepted, of {', '.join(ALGORITHMS)}.",
    )
    principal_claim: Line = Field(
        default="sub",
        description="Claim that names the caller; sessions, files, pins and limits belong to issuer and claim.",
    )
    required_scopes: Scopes = Field(
        default_factory=list, description="Scopes that every token of this issuer must have."
    )
    jwks_url: Annotated[SecureUrl | None, BlankIsNull] = Field(
        default=None,
        description="URL of the issuer's key set; null finds it by the issuer's metadata (RFC 8414 or OpenID "
        "Connect Discovery).",
    )

    @field_validator("issuer")
    @classmethod
    def _is_an_identifier(cls, value: str) -> str:
        if "?" in value:
            raise ValueError("must be a URL without query")
        return value

    @field_validator("algorithms")
    @classmethod
    def _are_of_public_keys(cls, values: list[str]) -> list[str]:
        for value in values:
            if value.upper().startswith("HS") or value.lower() == "none":
                raise ValueError(f"{value} is not allowed: an issuer's tokens are signed with a private key")
            if value not in ALGORITHMS:
                raise ValueError(f"{value} is not a known algorithm: use some of {', '.join(ALGORITHMS)}")
        return values


class Introspection(Section):
    """Introspection of opaque tokens (RFC 7662)."""

    url: SecureUrl = Field(description="Introspection endpoint of the issuer.")
    client_id: Line = Field(description="Client id of the adapter at the introspection endpoint.")
    client_secret: SecretStr = Field(
        description="Client secret, sent as HTTP Basic authentication; write `${VAR}` instead of the secret."
    )
    issuer: Annotated[SecureUrl | None, BlankIsNull] = Field(
        default=None,
        description="Entry of `issuers` whose tokens it knows; null if there is only one.",
    )
    cache_seconds: Annotated[Seconds, Field(ge=1)] = Field(
        default=60,
        description="Maximum time that an answer is used, at least 1; a token that is revoked is accepted as long.",
    )

    @field_validator("client_secret")
    @classmethod
    def _is_present(cls, value: SecretStr) -> SecretStr:
        if not value.get_secret_value().strip():
            raise ValueError("must not be empty")
        return value


class OAuth(Section):
    """Access tokens of authorization servers."""

    issuers: Annotated[list[OAuthIssuer], Field(min_length=1)] = Field(
        description="Authorization servers that are trusted; clients are told of them in this order."
    )
    introspection: Introspection | None = Field(
        default=None,
        description="Introspection of tokens that are not JWTs of one of `issuers`; null refuses such tokens.",
    )
    documentation: Annotated[HttpUrl | None, BlankIsNull] = Field(
        default=None,
        description="URL of a page for developers, told in the metadata of each mount.",
    )
    leeway_seconds: Annotated[SecondsOrZero, Field(le=LONGEST_LEEWAY)] = Field(
        default=30,
        description=f"Difference of the clocks of issuer and adapter that is allowed, at most {LONGEST_LEEWAY}.",
    )

    @model_validator(mode="after")
    def _are_told_apart(self) -> OAuth:
        seen: dict[str, int] = {}
        for index, entry in enumerate(self.issuers):
            if (first := seen.setdefault(entry.issuer, index)) != index:
                raise ValueError(f"issuers[{index}] has the same issuer as issuers[{first}]")
        self._require_issuer_of_introspection()
        return self

    def _require_issuer_of_introspection(self) -> None:
        if self.introspection is None:
            return
        named = self.introspection.issuer
        if named is None and len(self.issuers) > 1:
            raise ValueError("introspection.issuer is required, because there are several issuers")
        if named is not None and named not in [entry.issuer for entry in self.issuers]:
            raise ValueError("introspection.issuer is not one of issuers")

    @property
    def introspected_issuer(self) -> OAuthIssuer:
        """The issuer whose tokens are introspected."""
        named = self.introspection.issuer if self.introspection is not None else None
        return next((entry for entry in self.issuers if entry.issuer == named), self.issuers[0])


def oauth_problems(oauth: OAuth | None, public_base_url: str | None) -> Iterator[Problem]:
    """Find what is missing outside of the section."""
    if oauth is not None and public_base_url is None:
        sentence = "is required with core.auth.oauth: tokens are issued for the URLs of the mounts, which begin with it"
        yield Problem("core.public_base_url", sentence)


def oauth_cautions(oauth: OAuth | None, public_base_url: str | None) -> Iterator[Problem]:
    """A warning for each setting of the section with an effect that is easy to overlook."""
    if oauth is None:
        return
    parts = urlsplit(public_base_url or "")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        sentence = "begins with http://, so access tokens cross the network unencrypted: use https://"
        yield Problem("core.public_base_url", sentence)
    for index, entry in enumerate(oauth.issuers):
        if entry.principal_claim in _CHANGEABLE:
            sentence = (
                f"{entry.principal_claim} can change, or pass to another person, who then owns the sessions and "
                "files: use sub unless your issuer promises otherwise"
            )
            yield Problem(f"core.auth.oauth.issuers[{index}].principal_claim", sentence)
