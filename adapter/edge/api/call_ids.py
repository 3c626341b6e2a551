"""The id that a caller gives a call over HTTP, so that it finds the call among the exchanges."""

from __future__ import annotations

import re

from adapter.edge.http.request import Request
from adapter.edge.openapi import RequestShape

CALL_FIELD = "X-Adapter-Call"

CALL_ID = RequestShape(
    CALL_FIELD,
    "header",
    "Names this call, so that its caller finds it among the exchanges: up to 64 letters, digits, - and _.",
    schema={"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
)

_WELL_FORMED = re.compile(r"[A-Za-z0-9_-]{1,64}")


def call_id(request: Request) -> str | None:
    """The id of the call; None for none, or for one that is not well formed."""
    given = request.headers.get(CALL_FIELD, "")
    return given if _WELL_FORMED.fullmatch(given) else None
