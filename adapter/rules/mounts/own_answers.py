"""What a merged mount says itself: to ``initialize`` and ``server/discover``, and to requests of the modern era that do
not say what they have to of their client. What goes to a server that one judges. Pure.

Source of the rules: MCP 2026-07-28, "_meta" and "Versioning".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from adapter.rules.eras.legacy_requests import CAPABILITIES_KEY
from adapter.wire.envelope import INVALID_PARAMS, parse
from adapter.wire.eras import MODERN_VERSIONS
from adapter.wire.names import VERSION_KEY
from adapter.wire.shared_ids import named

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


UNSUPPORTED_VERSION: Final = -32022

_NEEDED = (VERSION_KEY, CAPABILITIES_KEY)


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
