"""MCP Apps: widgets that a host shows inside a chat. Pure.

Source: github.com/modelcontextprotocol/ext-apps, specification/2026-01-26/apps.mdx (SEP-1865, stable). A resource has
no ``ui.domain``: it is optional, and a host that expects another one shows nothing (docs/csp-cors.md there, 2026).
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from adapter.errors import BadJson
from adapter.wire.envelope import dump, parse
from adapter.wire.spans import Edit, Insert, edit, find

EXTENSION = "io.modelcontextprotocol/ui"
MEDIA_TYPE = "text/html;profile=mcp-app"
UPLOAD_WIDGET = "ui://mcp-file-adapter/upload"

_OWN_TOOLS = 8
"""Tools at the beginning of a list that may be the adapter's own."""


def shows_widgets(capabilities: object) -> bool:
    """Tell whether a client with these capabilities shows widgets in HTML."""
    extensions = capabilities.get("extensions") if isinstance(capabilities, dict) else None
    told = extensions.get(EXTENSION) if isinstance(extensions, dict) else None
    types = told.get("mimeTypes") if isinstance(told, dict) else None
    return isinstance(types, list) and MEDIA_TYPE in types


def with_widget(response: bytes, tool: str, uri: str) -> bytes:
    """The response with a list of tools, in which ``tool``, one of the adapter's own, names its widget.

    Also by the flat key, which older hosts read. ``response`` itself where the tool is not among the first.
    """
    for place in range(_OWN_TOOLS):
        path = ("result", "tools", place)
        try:
            span = find(response, (*path, "name"))
            if span is None:
                break
            if parse(response[slice(*span)]) == tool:
                return edit(response, [_named(path, uri)])
        except BadJson:
            break
    return response


def _named(path: tuple[str | int, ...], uri: str) -> Edit:
    return Insert((*path, "_meta"), dump({"ui": {"resourceUri": uri}, "ui/resourceUri": uri}))


def widget_contents(uri: str, html: str, base: str) -> dict[str, Any]:
    """A widget as ``resources/read`` returns it. It may connect to the adapter, at ``base``, and to nothing else."""
    url = urlsplit(base)
    origins = [f"{url.scheme}://{url.netloc}"] if url.netloc else []
    meta = {"ui": {"csp": {"connectDomains": origins}, "prefersBorder": True}}
    return {"uri": uri, "mimeType": MEDIA_TYPE, "text": html, "_meta": meta}
