"""MCP clients whose files can be told of a server: where each keeps its servers, and an entry as it reads one. Pure.

Sources of the forms: the documentation of each client, October 2026.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Format = Literal["json", "toml", "yaml"]
Entry = dict[str, Any]


class ServerAddress(NamedTuple):
    """A server's address. ``token`` names the environment variable with the adapter's token, None without one."""

    name: str
    url: str
    token: str | None = None


USUAL_VARIABLE = "MCP_ADAPTER_TOKEN"
"""The environment variable with the token for the adapter, unless another is named."""

Folder = Literal["home", "config", "project"]
"""The user's home, the folder of the user's settings on that system, and the folder in which one works."""


class ClientFile(NamedTuple):
    """The place of a client's file: ``path``, with slashes, below a folder."""

    folder: Folder
    path: str

    @property
    def shown(self) -> str:
        """The place for people, who may read it on any system."""
        if self.folder == "home":
            return f"~/{self.path}"
        return self.path if self.folder == "project" else self.path.rpartition("/")[2]


@dataclass(frozen=True)
class McpClient:
    """One client. ``keys`` lead to its servers in ``file``; ``note`` is one sentence on what is left to do.

    ``expands``: it reads variables of the environment where its file names them.
    """

    title: str
    file: ClientFile
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
        "description": f"{address.name}, through mcp-file-adapter",
        "enabled": True,
        "uri": address.url,
        "timeout": 300,
        **_headers(address, "${{{}}}"),
        **({} if address.token is None else {"env_keys": [address.token]}),
    }


CLIENTS: Mapping[str, McpClient] = {
    "claude-code": McpClient(
        "Claude Code",
        ClientFile("project", ".mcp.json"),
        "json",
        ("mcpServers",),
        lambda address: _http(address, "${{{}}}"),
        "Start claude in this folder and approve the server.",
    ),
    "claude-desktop": McpClient(
        "Claude Desktop",
        ClientFile("config", "Claude/claude_desktop_config.json"),
        "json",
        ("mcpServers",),
        _desktop,
        "Quit and start Claude Desktop; it needs Node.js for mcp-remote.",
        expands=False,
    ),
    "cursor": McpClient(
        "Cursor",
        ClientFile("home", ".cursor/mcp.json"),
        "json",
        ("mcpServers",),
        lambda address: {"url": address.url, **_headers(address, "${{env:{}}}")},
        "Enable the server in Cursor's settings under MCP.",
    ),
    "vscode": McpClient(
        "VS Code",
        ClientFile("project", ".vscode/mcp.json"),
        "json",
        ("servers",),
        lambda address: _http(address, "${{env:{}}}"),
        "Open this folder in VS Code and start the server from the file.",
    ),
    "codex": McpClient(
        "Codex",
        ClientFile("home", ".codex/config.toml"),
        "toml",
        ("mcp_servers",),
        _codex,
        "Start codex again; /mcp shows the server.",
    ),
    "goose": McpClient(
        "Goose",
        ClientFile("home", ".config/goose/config.yaml"),
        "yaml",
        ("extensions",),
        _goose,
        "Start a new goose session.",
    ),
    "gemini-cli": McpClient(
        "Gemini CLI",
        ClientFile("home", ".gemini/settings.json"),
        "json",
        ("mcpServers",),
        lambda address: {"httpUrl": address.url, **_headers(address, "${{{}}}")},
        "Start gemini again; /mcp shows the server.",
    ),
}
"""The clients by the name that the command takes."""
