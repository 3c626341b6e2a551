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

    client_id: Line = Field(
        description="Client id; its redirect URI is `core.public_base_url` + `console.path` + `/-/signed-in`."
    )
    client_secret: Annotated[SecretStr | None, BlankIsNull] = Field(
        default=None,
        description="Client secret (HTTP Basic authentication); null for a public client.",
    )
    scopes: Scopes = Field(
        default_factory=list,
        description="Scopes that are asked for, besides `required_scopes` of the issuer.",
    )
    operator_claims: ClaimValues = Field(
        default_factory=dict,
        description="Values by claim, of which one makes a person an operator; `a.b` is a member of a claim, `scope` "
        "a list of scopes.",
    )
    viewer_claims: ClaimValues = Field(
        default_factory=dict,
        description="Values by claim, of which one lets a person see the console; without any everybody may.",
    )


class Console(Section):
    """The web page for tools, and the tool HTTP API."""

    enabled: bool = Field(default=False, description="Serve the page and the API.")
    path: UrlPath = Field(
        default="/explorer", description="Path of the page; the API of each server is below it."
    )
    title: Text = Field(default="MCP Tool Explorer", description="Heading of the page.")
    allow_execute: bool = Field(default=False, description="Allow the page and the API to call tools.")
    auth_hook: CodeReference = Field(
        default=None,
        description="Context manager around each call of the API, which refuses by an exception.",
    )
    discovery_auth: bool = Field(
        default=False,
        description="Require a token of `core.auth` for tool lists too, not only for calls.",
    )
    invalid_json: Literal["empty", "reject"] = Field(
        default="empty",
        description="Treatment of a body that is not JSON. `empty`: call without arguments, with a warning. "
        "`reject`: 400.",
    )
    max_body: ByteSize = Field(
        default=1024**2, description="Maximum size of a request body; a larger one gets 413."
    )
    operators: TextList = Field(
        default_factory=list,
        description="Names in `core.auth.tokens` that may accept changed tools; without `core.auth`, everybody "
        "on loopback may accept.",
    )
    oauth: ConsoleOAuth | None = Field(
        default=None,
        description="Sign-in of people with their browser at an issuer of `core.auth.oauth`; tokens continue to work.",
    )
