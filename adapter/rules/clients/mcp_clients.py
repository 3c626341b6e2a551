"""MCP clients whose files can be told of a server: where each keeps its servers, and an entry as it reads one. Pure.

Sources of the forms: the documentation of each client, October 2026.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

Format = Literal["json", "toml", "yaml"]
Entry = dict[str, Any]


class ServerAddress(NamedTuple):
    """A server's address. ``token`` names the environment variable with the adapter's token, None without one.

    ``command`` is the one by which a client reaches it over stdio, empty where the client opens the URL itself.
    """

    name: str
    url: str
    token: str | None = None
    command: tuple[str, ...] = ()


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

    ``expands``: it reads variables of the environment where its file names them. ``opens_urls``: its file may hold
    addresses, not commands only.
    """

    title: str
    file: ClientFile
    format: Format
    keys: tuple[str, ...]
    entry: Callable[[ServerAddress], Entry]
    note: str
    expands: bool = True
    opens_urls: bool = True


def placeholder(variable: str) -> str:
    """The text that stands for a token in files in which no variable can."""
    return f"REPLACE-WITH-{variable}"


def _headers(address: ServerAddress, reference: str) -> Entry:
    """``headers`` with a reference to the token's variable, spelled as the client reads it."""
    if address.token is None:
        return {}
    return {"headers": {"Authorization": f"Bearer {reference.format(address.token)}"}}


def _stdio(address: ServerAddress, reference: str) -> Entry:
    """The command, and the token in the variable in which it looks for one."""
    command, *arguments = address.command
    token = {} if address.token is None else {"env": {USUAL_VARIABLE: reference.format(address.token)}}
    return {"command": command, "args": arguments, **token}


def _forwarded(address: ServerAddress) -> list[str]:
    """The arguments of the command for a client that passes a variable on under its own name."""
    arguments = [*address.command[1:]]
    if address.token not in (None, USUAL_VARIABLE):
        arguments += ["--header", f"Authorization:Bearer ${{{address.token}}}"]
    return arguments


def _http(address: ServerAddress, reference: str) -> Entry:
    if address.command:
        return {"type": "stdio", **_stdio(address, reference)}
    return {"type": "http", "url": address.url, **_headers(address, reference)}


def _desktop(address: ServerAddress) -> Entry:
    """Through mcp-remote, if through nothing else: the file holds commands only."""
    if address.command:
        return _stdio(address, placeholder(address.token or ""))
    arguments = ["-y", "mcp-remote", address.url]
    if address.url.startswith("http://"):
        arguments.append("--allow-http")
    if address.token is None:
        return {"command": "npx", "args": arguments}
    # Its arguments may hold no space on some systems, so the word Bearer stands in the variable.
    arguments += ["--header", "Authorization:${ADAPTER_AUTHORIZATION}"]
    value = f"Bearer {placeholder(address.token)}"
    return {"command": "npx", "args": arguments, "env": {"ADAPTER_AUTHORIZATION": value}}


def _cursor(address: ServerAddress) -> Entry:
    if address.command:
        return _stdio(address, "${{env:{}}}")
    return {"url": address.url, **_headers(address, "${{env:{}}}")}


def _gemini(address: ServerAddress) -> Entry:
    if address.command:
        return _stdio(address, "${{{}}}")
    return {"httpUrl": address.url, **_headers(address, "${{{}}}")}


def _codex(address: ServerAddress) -> Entry:
    if address.command:
        named = {} if address.token is None else {"env_vars": [address.token]}
        return {"command": address.command[0], "args": _forwarded(address), **named}
    token = {} if address.token is None else {"bearer_token_env_var": address.token}
    return {"url": address.url, **token}


def _goose(address: ServerAddress) -> Entry:
    if address.command:
        reached: Entry = {"type": "stdio", "cmd": address.command[0], "args": _forwarded(address)}
    else:
        reached = {"type": "streamable_http", "uri": address.url, **_headers(address, "${{{}}}")}
    return {
        **reached,
        "name": address.name,
        "description": f"{address.name}, through mcp-file-adapter",
        "enabled": True,
        "timeout": 300,
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
        "Quit and start Claude Desktop; mcp-remote, where the entry has it, needs Node.js.",
        expands=False,
        opens_urls=False,
    ),
    "cursor": McpClient(
        "Cursor",
        ClientFile("home", ".cursor/mcp.json"),
        "json",
        ("mcpServers",),
        _cursor,
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
        _gemini,
        "Start gemini again, in a folder that it trusts; /mcp shows the server.",
    ),
}
"""The clients by the name that the command takes."""


def link_to(client: str, address: ServerAddress) -> str | None:
    """The URL that adds a server to a client when it is opened there, None for a client without such URLs."""
    entry = CLIENTS[client].entry(address)
    if client == "vscode":
        return f"vscode:mcp/install?{quote(_compact({'name': address.name, **entry}), '')}"
    if client == "cursor":
        config = quote(b64encode(_compact(entry).encode()).decode(), "")
        return (
            f"cursor://anysphere.cursor-deeplink/mcp/install?name={quote(address.name, '')}&config={config}"
        )
    return None


def _compact(value: Entry) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
