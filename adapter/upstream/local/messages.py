"""JSON-RPC messages of a local server, as bytes: results and errors of both eras, with the HTTP status they leave with.

Source of the rules: MCP 2025-11-25 and 2026-07-28, "Streamable HTTP", and the schemas of both revisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adapter.rules.access.headers import SharedFields
from adapter.upstream.port import Headers
from adapter.wire.envelope import INVALID_PARAMS, METHOD_NOT_FOUND, dump, error_response
from adapter.wire.eras import MODERN_VERSIONS, Era

JSON = SharedFields([("Content-Type", "application/json")])

INVALID_REQUEST = -32600
INTERNAL_ERROR = -32603
UNSUPPORTED_VERSION = -32022

_PREFIX = "io.modelcontextprotocol/"
CAPABILITIES_KEY = _PREFIX + "clientCapabilities"
SERVER_INFO_KEY = _PREFIX + "serverInfo"

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


# Not frozen: each call makes one, and a frozen one costs three times as much.
@dataclass(slots=True)
class LocalAnswer:
    """A JSON-RPC response, the HTTP status and fields it leaves with (None: JSON), and the id of the session
    that it opens.
    """

    body: bytes
    status: int = 200
    session_id: str | None = None
    headers: Headers | None = None


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


def result(id_bytes: bytes, value: Mapping[str, Any]) -> bytes:
    """A JSON-RPC response with this result."""
    return b'{"jsonrpc":"2.0","id":' + id_bytes + b',"result":' + dump(value) + b"}"


def status_of(code: int | None, era: Era) -> int:
    """The HTTP status of a response with this error code, None for a result."""
    return _MODERN_STATUS.get(code, 200) if era is Era.MODERN and code is not None else 200


def refusal(id_bytes: bytes, code: int, message: str, data: Any, era: Era) -> LocalAnswer:
    """A JSON-RPC error with the status of its era: a legacy client takes any status but 200 for a broken server."""
    body = error_response(id_bytes, code, message, data)
    return LocalAnswer(body, status_of(code, era))


def notification(method: str, params: Mapping[str, Any] | None = None) -> bytes:
    """A JSON-RPC notification."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return dump(message)
