"""The messages of a hosted server, as bytes: results and errors of both eras, and the HTTP status that goes with them.

Source of the rules: MCP 2025-11-25 and 2026-07-28, "Streamable HTTP", and the schemas of both revisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adapter.errors import AdapterError, UpstreamBroken
from adapter.upstream.port import Headers
from adapter.wire.envelope import dump, error_response
from adapter.wire.eras import Era

LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")

INVALID_PARAMS = -32602
METHOD_NOT_FOUND = -32601
INTERNAL_ERROR = -32603
UNSUPPORTED_VERSION = -32022

JSON: Headers = (("Content-Type", "application/json"),)
EVENTS: Headers = (("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache, no-transform"))

_PREFIX = "io.modelcontextprotocol/"
CAPABILITIES_KEY = _PREFIX + "clientCapabilities"
SERVER_INFO_KEY = _PREFIX + "serverInfo"
SUBSCRIPTION_KEY = _PREFIX + "subscriptionId"

# A modern client reads from the status whether the request was understood; a code that is not here is a success.
_MODERN_STATUS = {
    -32700: 400,
    -32600: 400,
    INVALID_PARAMS: 400,
    METHOD_NOT_FOUND: 404,
    -32020: 400,
    -32021: 400,
    UNSUPPORTED_VERSION: 400,
}


@dataclass(frozen=True, slots=True)
class HostedAnswer:
    """A JSON-RPC response and the HTTP status it leaves with."""

    status: int
    body: bytes


class RpcRefused(Exception):
    """A request that is answered with a JSON-RPC error of the protocol's own."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class WholeReply:
    """An UpstreamReply whose body is there from the beginning."""

    needs_request = False

    def __init__(self, status: int, headers: Headers = (), body: bytes = b"") -> None:
        self.status = status
        self.headers = headers
        self.whole: bytes | None = body
        self._unread = body
        self._aborted = False

    async def read(self, read_timeout: float | None) -> bytes:  # noqa: ARG002 (the port's: nothing here is waited for)
        """See UpstreamReply."""
        if self._aborted and self._unread:
            raise UpstreamBroken("The connection to the upstream server was dropped.")
        chunk, self._unread = self._unread, b""
        return chunk

    def abort(self) -> None:
        """See UpstreamReply."""
        self._aborted = True


def result(id_bytes: bytes, value: Mapping[str, Any]) -> bytes:
    """A JSON-RPC response with this result."""
    return b'{"jsonrpc":"2.0","id":' + id_bytes + b',"result":' + dump(value) + b"}"


def refusal(id_bytes: bytes, code: int, message: str, data: Any, era: Era) -> HostedAnswer:
    """A JSON-RPC error with the status of its era: a legacy client takes any status but 200 for a broken server."""
    body = error_response(id_bytes, code, message, data)
    return HostedAnswer(_MODERN_STATUS.get(code, 200) if era is Era.MODERN else 200, body)


def refused_whole(error: AdapterError, id_bytes: bytes = b"null") -> WholeReply:
    """The answer to what is no request of either era, or not in its place: the catalogue's code and status."""
    body = error_response(id_bytes, error.rpc, str(error), error.data)
    return WholeReply(error.http, JSON, body)


def modern(
    value: dict[str, Any], server_info: Mapping[str, Any], *, cacheable: bool = False
) -> dict[str, Any]:
    """A result with what 2026-07-28 asks of each: its type, who answers, and how long it may be kept.

    What may be kept is kept by nobody but the client: the adapter in front may show different lists to two of them.
    """
    meta = {SERVER_INFO_KEY: server_info, **value.get("_meta", {})}
    kept = {"ttlMs": 0, "cacheScope": "private"} if cacheable else {}
    return {"resultType": "complete", **kept, **value, "_meta": meta}


def notification(method: str, params: Mapping[str, Any] | None = None) -> bytes:
    """A JSON-RPC notification."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return dump(message)
