"""Servers as MCP clients configure them (``mcpServers``), and the ``servers`` that they become here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

import yaml

from adapter.rules.text.events import for_log, is_telling

_KEYS = ("mcpServers", "mcp_servers", "context_servers", "servers")
"""Keys of the mapping from names to servers: Claude and most others, Codex, Zed, VS Code."""

_URL_KEYS = ("url", "serverUrl", "httpUrl", "uri")
_KIND_KEYS = ("type", "transport")
_TAKEN = frozenset(
    (
        *_URL_KEYS,
        *_KIND_KEYS,
        "command",
        "args",
        "env",
        "cwd",
        "headers",
        "disabled",
        "enabled",
        "name",
        "description",
    )
)
_SSE_PATH = re.compile(r"/sse/?\Z")

_REFERENCE = re.compile(
    r"\$\{(env|input|config):([^}]{1,200})\}|\$\{(userHome|workspaceFolder|pathSeparator|/)\}"
)
_OF_EDITORS = {"userHome": "${HOME}", "workspaceFolder": ".", "pathSeparator": "/", "/": "/"}
_TELLING_NAME = re.compile(r"(?:\A|[_-])(?:key|pat|pass|auth|apikey|bearer)\Z", re.IGNORECASE)
_RANDOM = re.compile(r"(?=[^a-z]*[a-z])(?=[^0-9]*[0-9])[A-Za-z0-9_+=-]{24,}", re.IGNORECASE)
_FLAG = re.compile(r"(--?([\w-]{1,60}))(?:=(.*))?", re.DOTALL)
_SCHEME = re.compile(r"(bearer|basic|token)\s+(.*)", re.IGNORECASE | re.DOTALL)


def host_servers(tree: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """The key of the servers in the configuration of an MCP client, and the servers by name; None if it has none.

    ``servers`` as a list is the adapter's own key.
    """
    inner = tree.get("mcp")
    for place, section in (("", tree), ("mcp.", inner if isinstance(inner, Mapping) else {})):
        for key in _KEYS:
            found = section.get(key)
            if isinstance(found, Mapping) and found and all(map(_is_host_server, found.values())):
                return f"{place}{key}", found
    return None


def _is_host_server(entry: object) -> bool:
    return isinstance(entry, Mapping) and any(key in entry for key in ("command", *_URL_KEYS))


class ConvertedServers:
    """Entries for ``servers``, made of the servers of an MCP client.

    ``variables`` are the environment variables that took the place of secrets, each with the place of its value;
    ``notes`` are sentences about everything that is not as it was. No secret is in any of them.
    """

    def __init__(self, servers: Mapping[str, Any]) -> None:
        self.entries: list[dict[str, Any]] = []
        self.variables: dict[str, str] = {}
        self.notes: list[str] = []
        self._values: dict[str, str] = {}
        for name, server in servers.items():
            self._add(str(name), server)

    def __repr__(self) -> str:
        return f"<ConvertedServers: {len(self.entries)}>"

    def as_yaml(self) -> str:
        """The section ``servers`` as text, ending in one newline."""
        return as_yaml({"servers": self.entries})

    def _add(self, name: str, server: Mapping[str, Any]) -> None:
        if server.get("disabled") is True or server.get("enabled") is False:
            self.notes.append(f"{name} is disabled there and was left out")
            return
        id_ = self._id(name)
        upstream = self._process(id_, server) if "command" in server else self._address(id_, server)
        self.entries.append({"id": id_, "upstream": upstream})
        left = sorted(str(key) for key in server if key not in _TAKEN)
        if left:
            self.notes.append(f"{id_}: not taken over: {', '.join(left)}")

    def _id(self, name: str) -> str:
        plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_") or "server"
        taken = {entry["id"].lower() for entry in self.entries}
        id_, number = plain, 2
        while id_.lower() in taken:
            id_, number = f"{plain}-{number}", number + 1
        if id_ != name:
            self.notes.append(f"{name} has the id {id_} here")
        return id_

    # --- one server -------------------------------------------------------------------------------------------

    def _process(self, id_: str, server: Mapping[str, Any]) -> dict[str, Any]:
        upstream: dict[str, Any] = {"transport": "stdio", "command": self._text(str(server["command"]))}
        args = server.get("args")
        if isinstance(args, list) and args:
            upstream["args"] = list(self._arguments(id_, [str(arg) for arg in args]))
        env = server.get("env")
        if isinstance(env, Mapping) and env:
            upstream["env"] = {
                str(key): self._value(id_, str(key), _written(value), "env") for key, value in env.items()
            }
        if isinstance(server.get("cwd"), str):
            upstream["cwd"] = self._text(server["cwd"])
        return upstream

    def _arguments(self, id_: str, args: list[str]) -> Iterator[str]:
        """Yield the arguments; the value of a flag like ``--api-key`` is a secret, in this argument or the next."""
        before = ""
        for arg in args:
            flag = _FLAG.fullmatch(arg)
            if flag is not None and flag[3] is not None:
                yield f"{flag[1]}={self._value(id_, flag[2], flag[3], 'args')}"
            elif flag is not None:
                yield self._text(arg)
            else:
                yield self._value(id_, before or "argument", arg, "args")
            before = flag[2] if flag is not None and flag[3] is None else ""

    def _address(self, id_: str, server: Mapping[str, Any]) -> dict[str, Any]:
        url = str(next(server[key] for key in _URL_KEYS if key in server))
        kind = str(next((server[key] for key in _KIND_KEYS if key in server), "")).lower()
        parts = _split(url)
        upstream: dict[str, Any] = {}
        if kind == "sse" or (not kind and "httpUrl" not in server and _SSE_PATH.search(parts.path)):
            upstream["transport"] = "sse"
        upstream["url"] = self._url(id_, url)
        headers = server.get("headers")
        headers = headers if isinstance(headers, Mapping) else {}
        shown = {str(name): self._header(id_, str(name), _written(value)) for name, value in headers.items()}
        if "@" in parts.netloc:
            user = self._hidden(id_, "basic", parts.netloc.rpartition("@")[0], "url")
            shown.setdefault("Authorization", f"Basic {user}")
            self._note(f"{id_}: {user} is the user:password of its url, in Base64")
        if shown:
            upstream["static_headers"] = shown
        return upstream

    # --- values -----------------------------------------------------------------------------------------------

    def _text(self, text: str) -> str:
        """The text with the references of editors as ``${VAR}``."""
        return _REFERENCE.sub(self._reference, text)

    def _reference(self, found: re.Match[str]) -> str:
        kind, name, word = found.groups()
        if word is not None:
            if word == "workspaceFolder":
                self._note("${workspaceFolder} became the working directory of the adapter")
            return _OF_EDITORS[word]
        if kind == "env":
            return f"${{{_variable(name)}}}"
        self._note(
            f"${{{kind}:{name}}} became the environment variable {_variable(name)}: set it before the start"
        )
        return f"${{{_variable(name)}}}"

    def _note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def _value(self, id_: str, name: str, value: str, place: str) -> str:
        text = self._text(value)
        if "${" in text or not _is_secret(name, text):
            return text
        return self._hidden(id_, name, text, place)

    def _header(self, id_: str, name: str, value: str) -> str:
        text = self._text(value)
        if "${" in text or not (name.lower() == "authorization" or _is_secret(name, text)):
            return text
        scheme = _SCHEME.fullmatch(text)
        if scheme is None:
            return self._hidden(id_, name, text, "headers")
        return f"{scheme[1]} {self._hidden(id_, 'token', scheme[2], 'headers')}"

    def _url(self, id_: str, url: str) -> str:
        text = self._text(url)
        parts = _split(text)
        # The adapter sends credentials as a header only.
        parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        shown = [(name, self._value(id_, name, value, "url")) for name, value in pairs]
        if shown != pairs:
            parts = parts._replace(query=urlencode(shown, safe="${}"))
        return urlunsplit(parts)

    def _hidden(self, id_: str, name: str, value: str, place: str) -> str:
        """The reference to a variable that takes the place of a secret. A variable of the process keeps its name."""
        variable, prefix = _variable(name), _variable(id_)
        shared = place != "env" or self._values.get(variable, value) != value
        if shared and not variable.startswith(prefix):
            variable = f"{prefix}_{variable}"
        self._values[variable] = value
        self.variables.setdefault(variable, f"{place} of {id_}")
        return f"${{{variable}}}"


def as_yaml(tree: Mapping[str, Any]) -> str:
    """The text of a settings file, with short lists on one line."""
    return yaml.safe_dump(
        dict(tree), sort_keys=False, allow_unicode=True, default_flow_style=None, width=1000
    )


def _split(url: str) -> SplitResult:
    """The parts of a URL; text that is none is all path."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", url, "", "")


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _variable(name: str) -> str:
    plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").upper() or "SECRET"
    return f"_{plain}" if plain[0].isdigit() else plain


def _is_secret(name: str, value: str) -> bool:
    """Tell whether a value is a secret, by the name that it has or by its own form."""
    if not value.strip() or value.lower() in ("true", "false") or value.isdigit():
        return False
    if is_telling(name) or _TELLING_NAME.search(name) is not None:
        return True
    return for_log(value) != value or _RANDOM.fullmatch(value) is not None
