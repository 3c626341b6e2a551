"""The meaning of answers: from status and body to what a client may conclude. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from tests.faults.history import Told

Json = dict[str, Any]

REVOKED = -32010
INTERNAL = -32603
STORAGE_FAILED = "could not read or write a file"
"""A part of the message of a failing disk, which has the code of an internal error."""

GATEWAY = (502, 504)
"""Statuses of a load balancer whose replica broke the connection; those of the adapter have a JSON body."""


@dataclass(frozen=True)
class Meaning:
    """``detail`` is for people; ``result`` is that of the response, empty without one; ``code`` that of its error."""

    told: Told
    detail: str = ""
    result: Json = field(default_factory=dict)
    code: int = 0


def response_of(content_type: str, body: bytes) -> Json | None:
    """The JSON-RPC response in a JSON body or at the end of an event stream; None without one."""
    if not content_type.startswith("text/event-stream"):
        return _object(body)
    for line in reversed(body.splitlines()):
        message = _object(line.removeprefix(b"data: ")) if line.startswith(b"data: ") else None
        if message is not None and ("result" in message or "error" in message):
            return message
    return None


def of_call(status: int, content_type: str, body: bytes) -> Meaning:
    """The answer to a JSON-RPC request."""
    message = response_of(content_type, body)
    if message is None:
        return Meaning(Told.BROKEN if status in GATEWAY else Told.EMPTY, str(status))
    if "error" in message:
        return _of_error(status, message["error"])
    result: Json = message["result"]
    if not result.get("isError"):
        return Meaning(Told.DONE, "", result)
    # Tools of these runs never fail: this is what the adapter says of a handle.
    return Meaning(Told.GONE, str(result["content"][0].get("text", ""))[:100])


def _of_error(status: int, error: Json) -> Meaning:
    code, text = error["code"], str(error.get("message", ""))
    detail = f"{status} {code} {text[:100]}"
    if status == 404:
        return Meaning(Told.GONE, detail)
    if code == INTERNAL and STORAGE_FAILED not in text:
        return Meaning(Told.FAULTY, detail)
    return Meaning(Told.REFUSED, detail, code=code)


def of_transfer(status: int, body: bytes) -> Meaning:
    """The answer to an upload, a download or a DELETE."""
    if status < 300:
        return Meaning(Told.DONE, "", _object(body) or {})
    detail = f"{status} {body[:100].decode(errors='replace')}"
    if status == 404:
        return Meaning(Told.GONE, detail)
    if status in GATEWAY and _object(body) is None:
        return Meaning(Told.BROKEN, detail)
    if status == 500 and STORAGE_FAILED.encode() not in body:
        return Meaning(Told.FAULTY, detail)
    return Meaning(Told.REFUSED, detail)


def _object(text: bytes) -> Json | None:
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return parsed if isinstance(parsed, dict) else None
