"""The values that a client and a server agree on in ``initialize``, as a server that only carries it reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapter.upstream.local.port import LocalRequest
from adapter.wire.envelope import parse
from adapter.wire.line_messages import LineMessage
from adapter.wire.spans import find

UNNAMED_VERSION = "2025-03-26"
"""The version of a result that names none (MCP 2025-11-25, "Protocol Version Header")."""


def declared_capabilities(request: LocalRequest) -> Mapping[str, Any]:
    """The client's capabilities as its ``initialize`` declares them."""
    declared = request.params.get("capabilities") if isinstance(request.params, dict) else None
    return declared if isinstance(declared, dict) else {}


def agreed_version(response: LineMessage) -> str | None:
    """The protocol version of a successful response to ``initialize``, None for an error."""
    span = find(response.data, ("result",))
    if span is None:
        return None
    value = parse(response.data[slice(*span)])
    version = value.get("protocolVersion") if isinstance(value, dict) else None
    return version if isinstance(version, str) else UNNAMED_VERSION
