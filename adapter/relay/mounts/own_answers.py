"""What a merged mount says itself: to ``initialize`` and ``server/discover``, and to requests of the modern era that do
not say what they have to of their client. What goes to a server that one judges.

Source of the rules: MCP 2026-07-28, "_meta" and "Versioning".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from adapter.relay.exchange import JSON, ClientResponse
from adapter.rules.eras.legacy_requests import CAPABILITIES_KEY
from adapter.wire.envelope import INVALID_PARAMS, Envelope, error_response, parse, value_at
from adapter.wire.eras import Era
from adapter.wire.names import VERSION_KEY
from adapter.wire.rpc_refusals import RpcRefused, require_version, status_of

LONGEST_INSTRUCTIONS: Final = 16 << 10
"""Characters of the instructions of one server that are joined with the others'."""

CAPABILITIES: Final[dict[str, Any]] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}
"""Of every mount, before any server has been asked: what a server lacks is empty."""


def joined_instructions(servers: Iterable[tuple[str, str | None]]) -> str | None:
    """The instructions of all servers, each under the name of its server; None where there are none."""
    parts = []
    for server, text in servers:
        if text is not None and (text := text.strip()):
            cut = text if len(text) <= LONGEST_INSTRUCTIONS else text[: LONGEST_INSTRUCTIONS - 1] + "…"
            parts.append(f"# {server}\n\n{cut}")
    return "\n\n".join(parts) or None


def require_meta(body: bytes) -> None:
    """Raise RpcRefused for a request with this body that does not say what it has to."""
    meta = value_at(parse(body), "params", "_meta")
    meta = meta if isinstance(meta, dict) else {}
    missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
    if missing:
        raise RpcRefused(INVALID_PARAMS, f"params._meta is missing {' and '.join(missing)}.")
    require_version(meta[VERSION_KEY])


def refused(envelope: Envelope, era: Era, why: RpcRefused) -> ClientResponse:
    """The answer to a request that is refused."""
    body = error_response(envelope.id_bytes, why.code, str(why), why.data)
    return ClientResponse(status_of(why.code, era), [JSON], body)
