"""The answers to pages of other origins (Fetch standard, "CORS protocol")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adapter.rules.access.host_and_origin_check import origin_allowed
from adapter.settings.core import CorsSettings

_ALLOWED_METHODS = ("GET", "POST", "DELETE", "OPTIONS")
_ALLOWED_HEADERS = (
    "Accept, Authorization, Content-Type, Last-Event-ID, "
    "Mcp-Method, Mcp-Name, Mcp-Session-Id, MCP-Protocol-Version"
)
_FILE_HEADERS = "Authorization, Content-Type, If-None-Match, If-Range, Mcp-Session-Id, Range"
_EXPOSED_HEADERS = "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After"
_MAX_AGE = "600"
"""Seconds that a browser may keep a preflight answer."""


@dataclass(frozen=True, slots=True)
class Cors:
    """Answers as ``settings`` say."""

    settings: CorsSettings

    def fields(self, headers: Mapping[str, str], exposed: Sequence[str]) -> list[tuple[str, str]]:
        """The additional fields of an answer to a page at an allowed origin; see ``Guard.cors_fields``."""
        origin = headers.get("Origin")
        if origin is None or not origin_allowed(
            origin, headers.get("Host"), allowed=self.settings.allowed_origins
        ):
            return []
        fields = [
            ("Access-Control-Allow-Origin", origin),
            ("Access-Control-Expose-Headers", ", ".join((_EXPOSED_HEADERS, *exposed))),
            ("Vary", "Origin"),
        ]
        if self.settings.allow_credentials:
            fields.append(("Access-Control-Allow-Credentials", "true"))
        return fields

    def preflight_fields(
        self, headers: Mapping[str, str], methods: Sequence[str] | None, token_header: str
    ) -> list[tuple[str, str]] | None:
        """The answer to a preflight, or None: it is none; see ``Guard.preflight_fields``."""
        fields = self.fields(headers, ())
        if not fields or "Access-Control-Request-Method" not in headers:
            return None
        requested = headers.get("Access-Control-Request-Headers")
        own = _ALLOWED_HEADERS if methods is None else _FILE_HEADERS
        # Said back by name: a literal * does not cover Authorization, nor anything with credentials.
        allowed = requested or f"{own}, {token_header}"
        return [
            *fields,
            ("Access-Control-Allow-Methods", ", ".join(methods or _ALLOWED_METHODS)),
            ("Access-Control-Allow-Headers", allowed),
            ("Access-Control-Max-Age", _MAX_AGE),
        ]
