"""MCP Apps: widgets that a host shows inside a chat. Pure.

Source: github.com/modelcontextprotocol/ext-apps, specification/2026-01-26/apps.mdx (SEP-1865, stable). A resource has
no ``ui.domain``: it is optional, and a host that expects another one shows nothing (docs/csp-cors.md there, 2026).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from adapter.wire.envelope import dump, list_at, value_at
from adapter.wire.spans import Edit, Insert, edit

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
