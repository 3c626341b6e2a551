"""Hosts, by what their clients say of themselves: the extensions that they understand, their widgets, and the largest
results of tools that they show to their models, as documented. Pure.

In ``clientInfo`` anybody may write anything: it chooses how tools are described and shortens results, and never says
who may do what.

Source of the rules for widgets (MCP Apps): github.com/modelcontextprotocol/ext-apps, specification/2026-01-26/apps.mdx
(SEP-1865, stable). A resource has no ``ui.domain``: it is optional, and a host that expects another one shows nothing
(docs/csp-cors.md there, 2026).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from adapter.rules.calls.rounds import member_of
from adapter.wire.envelope import dump, list_at, value_at
from adapter.wire.spans import Edit, Insert, edit

Path = tuple[str, ...]

IN_INITIALIZE: Path = ("params", "clientInfo")
IN_REQUEST: Path = ("params", "_meta", "io.modelcontextprotocol/clientInfo")
"""The place of ``clientInfo`` in ``initialize``, and in each request since MCP 2026-07-28."""

LONGEST_NAME = 200

_OPENAI_FILE_PARAMS = frozenset(("openai-mcp", "openai-mcp (chatgpt)", "openai-mcp (codex)"))
"""Names of clients that fill in arguments of ``openai/fileParams``, in lower case.

Source of the extension: OpenAI, "Plugins reference" (developers.openai.com/plugins/reference, "Define file inputs" and
"File APIs"; earlier "Apps SDK, Build your MCP server"), as of 2026-10. Of the names: logs of servers, which had
``openai-mcp`` until 2026-09-23, and since then the product in brackets. The Responses API and the Realtime API have
conversations without attached files, and are left out.
"""


def client_info(message: bytes, place: Path) -> Mapping[str, str]:
    """The name and the version of a client, as they stand at ``place`` in its message; those that are short texts."""
    said = member_of(message, place)
    found = ((key, value_at(said, key)) for key in ("name", "version"))
    return {key: text for key, text in found if isinstance(text, str) and len(text) <= LONGEST_NAME}


def attaches_files(client: Mapping[str, str]) -> bool:
    """Tell whether a host gives files of its conversation to arguments that ``openai/fileParams`` names."""
    return client.get("name", "").strip().lower() in _OPENAI_FILE_PARAMS


# --- largest results ------------------------------------------------------------------------------------------

Version = tuple[int, ...]

MOST_CHARACTERS = "anthropic/maxResultSizeChars"
"""The member of a tool's ``_meta`` that sets another limit in Claude Code, of at most 500,000 characters."""

_MOST_DECLARED = 500_000
_VERSION = re.compile(r"\d{1,6}(?:\.\d{1,6}){0,3}")


class HostLimit(NamedTuple):
    """The bytes of a result that hosts of these names show. A character is at least one byte, so a limit in
    characters is never missed. ``before``: versions from this one on have another limit. ``declared``: a tool may set
    its own by ``MOST_CHARACTERS``.
    """

    names: frozenset[str]
    most: int
    before: Version | None = None
    declared: bool = False


TOKEN = 3
"""Bytes of a token, at the least: that of prose has four, of digits and signs fewer."""

HOST_LIMITS = (
    # code.claude.com/docs/en/mcp, "MCP output limits and warnings", as of 2026-10-05: above 25,000 tokens, or above
    # 50,000 characters, a result goes to a file of the client's. Its name is in initialize of versions 2.1.
    HostLimit(frozenset({"claude-code"}), min(25_000 * TOKEN, 50_000), declared=True),
    # claude.com/docs/connectors/building, "Technical specifications", as of 2026-06: about 150,000 characters. Claude
    # Desktop says claude-ai, claude.ai the other name.
    HostLimit(frozenset({"claude-ai", "anthropic/claudeai"}), 150_000),
    # github/copilot-cli#1732 (2026-02-28): 10 KiB, in versions 0. Later ones keep what is above 30 KB in a file
    # (github/copilot-sdk#1091, 2026-04-16). Most say github-copilot-developer, as other hosts do: those stay out.
    HostLimit(frozenset({"copilot-cli", "github-copilot-cli"}), 10 << 10, before=(1,)),
    HostLimit(frozenset({"copilot-cli", "github-copilot-cli"}), 30_000),
)

SMALLEST = min(each.most for each in HOST_LIMITS)
"""Bytes that every host shows, as far as it is known."""


def host_limit(client: Mapping[str, str], definition: Mapping[str, Any] | None = None) -> int | None:
    """The bytes of a result that a host shows, by its ``client_info`` and the definition of the tool; None for a host
    that is not known.
    """
    name, version = client.get("name", "").strip().lower(), _version(client.get("version", ""))
    for each in HOST_LIMITS:
        if name in each.names and (each.before is None or (version and version < each.before)):
            meta = definition.get("_meta") if each.declared and definition is not None else None
            declared = meta.get(MOST_CHARACTERS) if isinstance(meta, Mapping) else None
            return (
                min(declared, _MOST_DECLARED) if type(declared) is int and declared > each.most else each.most
            )
    return None


def _version(text: str) -> Version | None:
    found = _VERSION.match(text)
    return None if found is None else tuple(map(int, found[0].split(".")))


EXTENSION = "io.modelcontextprotocol/ui"
MEDIA_TYPE = "text/html;profile=mcp-app"
UPLOAD_WIDGET = "ui://mcp-file-adapter/upload"
FILES_WIDGET = "ui://mcp-file-adapter/files"

_FLAT = "ui/resourceUri"


def shows_widgets(capabilities: object) -> bool:
    """Tell whether a client with these capabilities shows widgets in HTML."""
    return MEDIA_TYPE in list_at(capabilities, "extensions", EXTENSION, "mimeTypes")


def with_widgets(response: bytes, message: Any, widgets: Mapping[str, str]) -> bytes:
    """The response with a list of tools, in which each tool of ``widgets`` names its widget, unless it has one.

    Of several tools of one name the first does. Also by the flat key, which older hosts read. ``message`` is the value
    of the response, which stays as it is where it is no such list.
    """
    edits: list[Edit] = []
    unnamed = dict(widgets)
    for place, tool in enumerate(list_at(message, "result", "tools")):
        name = value_at(tool, "name")
        uri = unnamed.pop(name, None) if isinstance(name, str) else None
        meta = tool.get("_meta", {}) if uri is not None else None
        if uri is not None and isinstance(meta, dict) and "ui" not in meta and _FLAT not in meta:
            path = ("result", "tools", place, "_meta")
            edits += Insert((*path, "ui"), dump({"resourceUri": uri})), Insert((*path, _FLAT), dump(uri))
    return edit(response, edits) if edits else response


def widget_contents(uri: str, html: str, base: str) -> dict[str, Any]:
    """A widget as ``resources/read`` returns it. It may connect to the adapter, at ``base``, and to nothing else."""
    url = urlsplit(base)
    origins = [f"{url.scheme}://{url.netloc}"] if url.netloc else []
    policy = {"connectDomains": origins}
    if uri == FILES_WIDGET:
        policy["resourceDomains"] = origins
    meta = {"ui": {"csp": policy, "prefersBorder": True}}
    return {"uri": uri, "mimeType": MEDIA_TYPE, "text": html, "_meta": meta}
