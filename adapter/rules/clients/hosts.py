"""Hosts, by the names with which their clients introduce themselves, and the extensions that they understand. Pure.

A name is a client's own word: it chooses how tools are described, and never who may do what.
"""

from __future__ import annotations

from adapter.errors import AdapterError
from adapter.wire.envelope import parse
from adapter.wire.spans import find

Path = tuple[str, ...]

IN_INITIALIZE: Path = ("params", "clientInfo", "name")
IN_REQUEST: Path = ("params", "_meta", "io.modelcontextprotocol/clientInfo", "name")
"""The place of the name in ``initialize``, and in each request since MCP 2026-07-28."""

LONGEST_NAME = 200

_OPENAI_FILE_PARAMS = frozenset(("openai-mcp", "openai-mcp (chatgpt)", "openai-mcp (codex)"))
"""Names of clients that fill in arguments of ``openai/fileParams``, in lower case.

Source of the extension: OpenAI, "Plugins reference" (developers.openai.com/plugins/reference, "Define file inputs" and
"File APIs"; earlier "Apps SDK, Build your MCP server"), as of 2026-10. Of the names: logs of servers, which had
``openai-mcp`` until 2026-09-23, and since then the product in brackets. The Responses API and the Realtime API have
conversations without attached files, and are left out.
"""


def client_name(message: bytes, place: Path) -> str:
    """The name of a client, as it stands at ``place`` in its message; "" for none, and for one that is too long."""
    try:
        span = find(message, place)
        name = parse(message[slice(*span)]) if span is not None else None
    except AdapterError:
        return ""
    return name if isinstance(name, str) and len(name) <= LONGEST_NAME else ""


def attaches_files(name: str) -> bool:
    """Tell whether a host gives files of its conversation to arguments that ``openai/fileParams`` names."""
    return name.strip().lower() in _OPENAI_FILE_PARAMS
