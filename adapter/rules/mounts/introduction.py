"""What a merged mount says of itself to ``initialize`` and ``server/discover``. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

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
