"""``console``: the web page for tools, and the tool HTTP API."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from adapter.settings.auth import Scopes
from adapter.settings.section import (
    BlankIsNull,
    ByteSize,
    CodeReference,
    Line,
    Section,
    Text,
    TextList,
    UrlPath,
)

ClaimValues = dict[str, TextList]


class ConsoleOAuth(Section):
    """Sign-in with the first issuer of `core.auth.oauth`."""

    client_id: Line
    """Client id; its redirect URI is `core.public_base_url` + `console.path` + `/-/signed-in`."""
    client_secret: Annotated[SecretStr | None, BlankIsNull] = None
    """Client secret (HTTP Basic authentication); null for a public client."""
    scopes: Scopes = Field(default_factory=list)
    """Scopes that are asked for, besides `required_scopes` of the issuer."""
    operator_claims: ClaimValues = Field(default_factory=dict)
    """Values by claim, of which one makes a person an operator; `a.b` is a member of a claim, `scope` a list of
    scopes.
    """
    viewer_claims: ClaimValues = Field(default_factory=dict)
    """Values by claim, of which one lets a person see the console; without any everybody may."""


class Console(Section):
    """The web page for tools, and the tool HTTP API."""

    enabled: bool = False
    """Serve the page and the API."""
    path: UrlPath = "/explorer"
    """Path of the page; the API of each server is below it."""
    title: Text = "MCP Tool Explorer"
    """Heading of the page."""
    allow_execute: bool = False
    """Allow the page and the API to call tools."""
    auth_hook: CodeReference = None
    """Context manager around each call of the API, which refuses by an exception."""
    discovery_auth: bool = False
    """Require a token of `core.auth` for tool lists too, not only for calls."""
    invalid_json: Literal["empty", "reject"] = "empty"
    """Treatment of a body that is not JSON. `empty`: call without arguments, with a warning. `reject`: 400."""
    max_body: ByteSize = 1024**2
    """Maximum size of a request body; a larger one gets 413."""
    operators: TextList = Field(default_factory=list)
    """Names in `core.auth.tokens` that may accept changed tools; without `core.auth`, everybody on loopback may
    accept.
    """
    oauth: ConsoleOAuth | None = None
    """Sign-in of people with their browser at an issuer of `core.auth.oauth`; tokens continue to work."""
