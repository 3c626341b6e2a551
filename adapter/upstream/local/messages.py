"""JSON-RPC messages of a local server, as bytes: results and errors of both eras, with the HTTP status they leave with.

Source of the rules: MCP 2025-11-25 and 2026-07-28, "Streamable HTTP", and the schemas of both revisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adapter.rules.access.headers import SharedFields
from adapter.upstream.port import Headers
from adapter.wire.envelope import dump, error_response
from adapter.wire.eras import Era
from adapter.wire.rpc_refusals import INVALID_REQUEST as INVALID_REQUEST
from adapter.wire.rpc_refusals import UNSUPPORTED_VERSION as UNSUPPORTED_VERSION
from adapter.wire.rpc_refusals import RpcRefused as RpcRefused
from adapter.wire.rpc_refusals import require_version as require_version
from adapter.wire.rpc_refusals import status_of as status_of

JSON = SharedFields([("Content-Type", "application/json")])

INTERNAL_ERROR = -32603

_PREFIX = "io.modelcontextprotocol/"
CAPABILITIES_KEY = _PREFIX + "clientCapabilities"
SERVER_INFO_KEY = _PREFIX + "serverInfo"


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


def result(id_bytes: bytes, value: Mapping[str, Any]) -> bytes:
    """A JSON-RPC response with this result."""
    return b'{"jsonrpc":"2.0","id":' + id_bytes + b',"result":' + dump(value) + b"}"


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
