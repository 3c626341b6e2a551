"""A failure as a JSON-RPC error response."""

from __future__ import annotations

from typing import Any

import orjson

from adapter.errors import AdapterError


def failure(error: AdapterError, id_bytes: bytes = b"null") -> bytes:
    """The response to the request whose id is spelled ``id_bytes`` (JSON), as JSON without line breaks."""
    body: dict[str, Any] = {"code": error.rpc, "message": str(error)}
    if error.data is not None:
        body["data"] = error.data
    return b'{"jsonrpc":"2.0","id":' + id_bytes + b',"error":' + orjson.dumps(body) + b"}"
