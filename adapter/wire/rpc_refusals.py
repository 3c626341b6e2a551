"""Refusals by the protocol's own errors, with the HTTP status of each era.

Source of the rules: MCP 2025-11-25 and 2026-07-28, "Streamable HTTP", and the schemas of both revisions.
"""

from __future__ import annotations

from typing import Any

from adapter.wire.envelope import INVALID_PARAMS, METHOD_NOT_FOUND
from adapter.wire.eras import MODERN_VERSIONS, Era

INVALID_REQUEST = -32600
UNSUPPORTED_VERSION = -32022

# A modern client reads from the status whether the request was understood; a code that is not here is a success.
_MODERN_STATUS = {
    -32700: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    METHOD_NOT_FOUND: 404,
    -32020: 400,
    -32021: 400,
    UNSUPPORTED_VERSION: 400,
}


class RpcRefused(Exception):
    """A request that is answered with a JSON-RPC error of the protocol's own."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


def require_version(version: object) -> None:
    """Raise RpcRefused for what is no version of the modern era."""
    if version not in MODERN_VERSIONS:
        data = {"supported": list(MODERN_VERSIONS), "requested": version}
        raise RpcRefused(UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def status_of(code: int | None, era: Era) -> int:
    """The HTTP status of a response with this error code, None for a result."""
    return _MODERN_STATUS.get(code, 200) if era is Era.MODERN and code is not None else 200
