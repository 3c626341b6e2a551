"""A failure as a JSON-RPC error response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapter.errors import AdapterError
from adapter.wire.envelope import dump


def failure(error: AdapterError, id_bytes: bytes = b"null") -> bytes:
    """The response to the request whose id is spelled ``id_bytes`` (JSON), as JSON without line breaks."""
    return error_response(id_bytes, error.rpc, str(error), error.data)


def error_response(id_bytes: bytes, code: int, message: str, data: Mapping[str, Any] | None = None) -> bytes:
    """A JSON-RPC error response, for codes that are the protocol's own and in no catalogue of ours."""
    body: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        body["data"] = data
    return b'{"jsonrpc":"2.0","id":' + id_bytes + b',"error":' + dump(body) + b"}"
