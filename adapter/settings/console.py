"""``console``: the page to explore tools with, and the HTTP API behind it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from adapter.settings.section import ByteSize, CodeReference, Section, Text, TextList, UrlPath


class Console(Section):
    """The page to explore tools with, and the HTTP API behind it."""

    enabled: bool = Field(default=False, description="Serves the page and the API.")
    path: UrlPath = Field(default="/explorer", description="Path of the page; that of a server is below it.")
    title: Text = Field(default="MCP Tool Explorer", description="Heading of the page.")
    allow_execute: bool = Field(default=False, description="Lets the page and the API call tools.")
    auth_hook: CodeReference = Field(
        default=None, description="Context manager around each call that the API makes; refuses by raising."
    )
    discovery_auth: bool = Field(
        default=False,
        description="Demands a token of `core.auth` for lists of tools too, not only for calls.",
    )
    invalid_json: Literal["empty", "reject"] = Field(
        default="empty",
        description="What a body is that cannot be read: no arguments, with a warning, or refused with 400. "
        "Tools with `destructiveHint` always refuse it.",
    )
    max_body: ByteSize = Field(
        default=1024**2, description="Largest body that is read; a larger one gets 413."
    )
    operators: TextList = Field(
        default_factory=list,
        description="Names in `core.auth.tokens` that may accept changed tools; without `core.auth`, everybody "
        "on loopback may.",
    )
