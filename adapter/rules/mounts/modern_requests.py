"""Requests of the modern era that a merged mount answers itself: what they have to say of their client. Pure.

Source of the rules: MCP 2026-07-28, "_meta" and "Versioning". What goes to a server that one judges.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from adapter.wire.envelope import INVALID_PARAMS, parse
from adapter.wire.eras import MODERN_VERSIONS
from adapter.wire.names import VERSION_KEY
from adapter.wire.shared_ids import named

UNSUPPORTED_VERSION: Final = -32022

_NEEDED = (VERSION_KEY, "io.modelcontextprotocol/clientCapabilities")


class RpcRefusal(NamedTuple):
    """A JSON-RPC error of the protocol's own."""

    code: int
    message: str
    data: dict[str, Any] | None = None


def refusal_of(body: bytes) -> RpcRefusal | None:
    """The refusal of a request with this body; None for one that says what it has to."""
    meta = named(parse(body), "_meta")
    missing = [key for key in _NEEDED if not isinstance(meta, dict) or key not in meta]
    if missing or not isinstance(meta, dict):
        return RpcRefusal(INVALID_PARAMS, f"params._meta is missing {' and '.join(missing)}.")
    version = meta[VERSION_KEY]
    if version not in MODERN_VERSIONS:
        data = {"supported": list(MODERN_VERSIONS), "requested": version}
        return RpcRefusal(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
    return None
