"""The entries that MCP clients need for a server, as texts to copy: those of ``mcp-adapter install``.

A text names the variable of the token or holds a placeholder for it, and never the token itself.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adapter.edge.http.access import Bases
from adapter.edge.http.request import Request
from adapter.rules.clients.client_file import entry_text
from adapter.rules.clients.mcp_clients import CLIENTS, McpClient, ServerAddress, placeholder


@dataclass(frozen=True, slots=True)
class Connections:
    """The entries of all servers.

    ``mounts`` are paths by the ids of servers, behind the base that ``bases`` has for the reader. ``token`` is the
    variable with the token for the adapter, None where no such token is asked for. ``signs_in``: people may sign in at
    an issuer instead, and clients find out where.
    """

    mounts: Mapping[str, str]
    bases: Bases
    token: str | None = None
    signs_in: bool = False

    def told(self, server: str, request: Request) -> dict[str, Any]:
        """The address of a server for who makes this request, and the entry of each client."""
        address = ServerAddress(server, f"{self.bases.of(request)}{self.mounts[server]}", self.token)
        return {
            "url": address.url,
            "token": self.token,
            "signs_in": self.signs_in,
            "clients": [_client(name, client, address) for name, client in CLIENTS.items()],
        }


def _client(name: str, client: McpClient, address: ServerAddress) -> dict[str, Any]:
    command = (
        f"mcp-adapter install {name} --url {shlex.quote(address.url)} --name {shlex.quote(address.name)}"
    )
    if address.token is not None:
        command += f" --token-variable {shlex.quote(address.token)}"
    hidden = address.token is not None and not client.expands
    return {
        "id": name,
        "title": client.title,
        "file": client.file.shown,
        "folder": client.file.folder,
        "format": client.format,
        "text": entry_text(client.format, client.keys, address.name, client.entry(address)),
        "note": client.note,
        "command": command,
        "placeholder": placeholder(address.token) if hidden and address.token is not None else None,
    }
