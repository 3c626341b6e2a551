"""MCP clients whose files can be told of a server: where each keeps its servers, and an entry as it reads one.

Sources of the forms: the documentation of each client, October 2026.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

Format = Literal["json", "toml", "yaml"]
Entry = dict[str, Any]


class ServerAddress(NamedTuple):
    """A server's address. ``token`` names the environment variable with the adapter's token, None without one."""

    name: str
    url: str
    token: str | None = None


class ClientFolders(NamedTuple):
    """The folders that clients keep their files in: the user's ``home``, its ``config``, and the ``project``."""

    home: Path
    config: Path
    project: Path

    @classmethod
    def here(cls) -> ClientFolders:
        """The folders of this user on this machine, and the working directory."""
        home = Path.home()
        if sys.platform == "darwin":
            return cls(home, home / "Library" / "Application Support", Path())
        return cls(home, Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config"), Path())


@dataclass(frozen=True)
class McpClient:
    """One client. ``keys`` lead to its servers in ``file``; ``note`` is one sentence on what is left to do.

    ``expands``: it reads variables of the environment where its file names them.
    """

    title: str
    file: Callable[[ClientFolders], Path]
    format: Format
    keys: tuple[str, ...]
    entry: Callable[[ServerAddress], Entry]
    note: str
    expands: bool = True


def placeholder(variable: str) -> str:
    """The text that stands for a token in files in which no variable can."""
    return f"REPLACE-WITH-{variable}"


def _headers(address: ServerAddress, reference: str) -> Entry:
    """``headers`` with a reference to the token's variable, spelled as the client reads it."""
    if address.token is None:
        return {}
    return {"headers": {"Authorization": f"Bearer {reference.format(address.token)}"}}


def _http(address: ServerAddress, reference: str) -> Entry:
    return {"type": "http", "url": address.url, **_headers(address, reference)}


def _desktop(address: ServerAddress) -> Entry:
    """Through mcp-remote: the file holds commands only."""
    arguments = ["-y", "mcp-remote", address.url]
    if address.url.startswith("http://"):
        arguments.append("--allow-http")
    if address.token is None:
        return {"command": "npx", "args": arguments}
    # Its arguments may hold no space on some systems, so the word Bearer stands in the variable.
    arguments += ["--header", "Authorization:${ADAPTER_AUTHORIZATION}"]
    value = f"Bearer {placeholder(address.token)}"
    return {"command": "npx", "args": arguments, "env": {"ADAPTER_AUTHORIZATION": value}}


def _codex(address: ServerAddress) -> Entry:
    token = {} if address.token is None else {"bearer_token_env_var": address.token}
    return {"url": address.url, **token}


def _goose(address: ServerAddress) -> Entry:
    return {
        "type": "streamable_http",
        "name": address.name,
        "enabled": True,
        "uri": address.url,
        "timeout": 300,
        **_headers(address, "${{{}}}"),
        **({} if address.token is None else {"env_keys": [address.token]}),
    }


CLIENTS: Mapping[str, McpClient] = {
    "claude-code": McpClient(
        "Claude Code",
        lambda folders: folders.project / ".mcp.json",
        "json",
        ("mcpServers",),
        lambda address: _http(address, "${{{}}}"),
        "Start claude in this folder and approve the server.",
    ),
    "claude-desktop": McpClient(
        "Claude Desktop",
        lambda folders: folders.config / "Claude" / "claude_desktop_config.json",
        "json",
        ("mcpServers",),
        _desktop,
        "Quit and start Claude Desktop; it needs Node.js for mcp-remote.",
        expands=False,
    ),
    "cursor": McpClient(
        "Cursor",
        lambda folders: folders.home / ".cursor" / "mcp.json",
        "json",
        ("mcpServers",),
        lambda address: {"url": address.url, **_headers(address, "${{env:{}}}")},
        "Enable the server in Cursor's settings under MCP.",
    ),
    "vscode": McpClient(
        "VS Code",
        lambda folders: folders.project / ".vscode" / "mcp.json",
        "json",
        ("servers",),
        lambda address: _http(address, "${{env:{}}}"),
        "Open this folder in VS Code and start the server from the file.",
    ),
    "codex": McpClient(
        "Codex",
        lambda folders: folders.home / ".codex" / "config.toml",
        "toml",
        ("mcp_servers",),
        _codex,
        "Start codex again; /mcp shows the server.",
    ),
    "goose": McpClient(
        "Goose",
        lambda folders: folders.home / ".config" / "goose" / "config.yaml",
        "yaml",
        ("extensions",),
        _goose,
        "Start a new goose session.",
    ),
    "gemini-cli": McpClient(
        "Gemini CLI",
        lambda folders: folders.home / ".gemini" / "settings.json",
        "json",
        ("mcpServers",),
        lambda address: {"httpUrl": address.url, **_headers(address, "${{{}}}")},
        "Start gemini again; /mcp shows the server.",
    ),
}
"""The clients by the name that the command takes."""
