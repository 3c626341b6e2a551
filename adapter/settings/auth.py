"""``core.auth``: tokens of the callers."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Field, SecretStr, field_validator, model_validator

from adapter.settings.oauth import OAuth
from adapter.settings.section import BlankIsNull, HeaderName, Seconds, Section, Text


class NamedToken(Section):
    """One principal: a name, and its token or the digest of the token."""

    name: Text = Field(description="Name of the principal; files and pins can belong to it.")
    token: Annotated[SecretStr | None, BlankIsNull] = Field(
        default=None, description="The token; set either this or `sha256`."
    )
    sha256: Annotated[str | None, BlankIsNull] = Field(
        default=None, description="SHA-256 of the token in hexadecimal, so that the file contains no secret."
    )

    @field_validator("sha256")
    @classmethod
    def _is_a_digest(cls, value: str | None) -> str | None:
        if value is not None and re.fullmatch(r"[0-9a-fA-F]{64}", value) is None:
            raise ValueError("must be 64 hexadecimal digits")
        return value.lower() if value else None

    @model_validator(mode="after")
    def _has_one_of_both(self) -> NamedToken:
        if (self.token is None) == (self.sha256 is None):
            raise ValueError("needs either token or sha256, and not both")
        return self


class Auth(Section):
    """Tokens that callers must send."""

    enabled: bool = Field(
        default=False,
        description="Refuse every request without a valid token, except to health routes. True by default where "
        "`core.auth.oauth` is set.",
    )
    header_name: HeaderName = Field(
        default="X-Mcp-Adapter-Auth-Token",
        description="Header that may carry the token; `Authorization: Bearer` is accepted too.",
    )
    token: Annotated[SecretStr | None, BlankIsNull] = Field(
        default=None,
        description="The token, if there is only one principal; write `${VAR}` instead of the secret.",
    )
    tokens: list[NamedToken] = Field(
        default_factory=list, description="Several principals, each with its own token."
    )
    oauth: OAuth | None = Field(
        default=None,
        description="Access tokens of authorization servers, also beside `token` and `tokens`; the adapter is then "
        "an OAuth resource server, and each mount a protected resource.",
    )
    signed_upload_ttl_seconds: Seconds = Field(
        default=120, description="Time that a signed upload URL is valid."
    )
    signing_secret: Annotated[SecretStr | None, BlankIsNull] = Field(
        default=None,
        description="Key of the signatures in upload and download URLs; null uses `core.auth.token`, or a "
        "generated secret in the state store.",
    )

    @model_validator(mode="before")
    @classmethod
    def _oauth_enables(cls, data: Any) -> Any:
        # Whoever names issuers and forgets the switch would leave the door open.
        if isinstance(data, dict) and data.get("oauth") is not None and data.get("enabled") is None:
            return {**data, "enabled": True}
        return data

    @model_validator(mode="after")
    def _can_be_passed(self) -> Auth:
        if self.enabled and not self.has_static_tokens and self.oauth is None:
            raise ValueError(
                "enabled is true, but neither token nor tokens is set, nor oauth: nobody could call it"
            )
        names = [entry.name for entry in self.tokens]
        if len(set(names)) < len(names):
            raise ValueError("two entries of tokens have the same name")
        return self

    @property
    def has_static_tokens(self) -> bool:
        """Tell whether a caller may come with a token of the settings."""
        return self.token is not None or bool(self.tokens)
