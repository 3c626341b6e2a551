"""The settings of servers that are named on the command line: their tree, file arguments, and settings file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from adapter.rules.files.file_arguments import Direction, FileArgument, may_edit, propose
from adapter.rules.text.unicode import shown
from adapter.settings.file.host_servers import ConvertedServers, as_yaml
from adapter.settings.file.load import load
from adapter.settings.file.yaml_text import listen_address
from adapter.settings.root import Settings
from adapter.settings.section import Problem, SettingsError

HOST_VARIABLE = "MCP_ADAPTER_WRAP_HOST"
"""Set in a container, whose loopback nobody reaches: where to listen in place of 127.0.0.1."""

_SSE_PATH = re.compile(r"/sse/?\Z")
_FLAGS: Mapping[Direction, str] = {"consume": "--consume", "produce": "--produce"}


class WrappedServer(NamedTuple):
    """A server as the command line names it. Either ``url`` or ``command`` is given.

    ``variables`` are those of the program, ``inherited`` names of those that it gets from the environment. ``oauth``:
    people sign in at the server.
    """

    id: str
    command: Sequence[str] = ()
    url: str | None = None
    variables: Mapping[str, str] = {}
    inherited: Sequence[str] = ()
    headers: Mapping[str, str] = {}
    oauth: bool = False

    def upstream(self) -> dict[str, Any]:
        """The section ``upstream``, with secrets."""
        if self.url is not None:
            sse = {"transport": "sse"} if _SSE_PATH.search(self.url.partition("?")[0]) else {}
            headers = {"static_headers": dict(self.headers)} if self.headers else {}
            return {**sse, "url": self.url, **headers, **self._auth()}
        program, *arguments = self.command
        found: dict[str, Any] = {"transport": "stdio", "command": _absolute(program), "args": arguments}
        if self.variables:
            found["env"] = dict(self.variables)
        return found | self._inheritance()

    def as_of_client(self) -> dict[str, Any]:
        """The server as a client's file would have it, with secrets."""
        if self.url is not None:
            return {"url": self.url, "headers": dict(self.headers)}
        program, *arguments = self.command
        return {"command": _absolute(program), "args": arguments, "env": dict(self.variables)}

    def beyond_clients(self) -> dict[str, Any]:
        """The keys of ``upstream`` that no client's file has."""
        return self._auth() | self._inheritance()

    def _auth(self) -> dict[str, Any]:
        return {"auth": {"type": "authorization_code"}} if self.oauth else {}

    def _inheritance(self) -> dict[str, Any]:
        return {"inherit_env": list(self.inherited)} if self.inherited else {}


class WrappedServers(NamedTuple):
    """The servers of one command, at an address that ends in ``id``: that of the only server, or of a merged mount.

    Their files are kept in ``root``, and the state beside it where that is not the usual folder: it may be one that a
    tool reads. ``one_session``: all clients share one at each server.
    """

    id: str
    root: Path
    port: int | None
    servers: Sequence[WrappedServer]
    one_session: bool = False

    @property
    def oauth(self) -> bool:
        """Tell whether people sign in at a server."""
        return any(each.oauth for each in self.servers)

    @property
    def root_below_program(self) -> Path | None:
        """A place for the files below a folder that the only program is given, None where they are or need none."""
        for word in self.servers[0].command[1:]:
            if ("/" in word or word == ".") and (folder := Path(word)).is_dir():
                return (
                    None if self.root.resolve().is_relative_to(folder.resolve()) else folder / "mcp-adapter"
                )
        return None

    def settings(self, file_arguments: Sequence[FileArgument] = ()) -> Settings:
        """The settings with which the servers are served; the arguments are those of the only one.

        Raises SettingsError.
        """
        given: dict[str, Any] = {
            "core.host": os.environ.get(HOST_VARIABLE, "127.0.0.1"),
            "core.allow_artifacts_download": True,
            "storage.root": str(self.root),
            "servers": [{"id": each.id, "upstream": each.upstream()} for each in self.servers],
            **self._of_all(),
        }
        given["servers"][0]["adapters"] = adapters_of(file_arguments)
        if self.port is not None:
            given["core.port"] = self.port
        if self.oauth:
            given["core.public_base_url"] = _base(listen_address(None, given, os.environ)[1])
        return load(None, overrides=given)

    def settings_file(self, file_arguments: Sequence[FileArgument], port: int) -> tuple[str, dict[str, str]]:
        """The text of a settings file that says the same, and the variables in place of secrets, with their places."""
        converted = ConvertedServers({each.id: each.as_of_client() for each in self.servers})
        for each, entry in zip(self.servers, converted.entries, strict=True):
            entry["upstream"] |= each.beyond_clients()
        if file_arguments:
            converted.entries[0]["adapters"] = adapters_of(file_arguments)
        tree: dict[str, Any] = {
            "core": {"host": "127.0.0.1", "port": port, "allow_artifacts_download": True},
            "storage": {"root": str(self.root)},
            "servers": converted.entries,
            **self._of_all(),
        }
        if self.oauth:
            tree["core"]["public_base_url"] = _base(port)
        return _HEAD + as_yaml(tree), converted.variables

    def _of_all(self) -> dict[str, Any]:
        """The sections that concern all servers."""
        mounts = {"mounts": [{"id": self.id, "servers": ["*"]}]} if len(self.servers) > 1 else {}
        sessions = {"sessions": {"upstream": "principal"}} if self.one_session else {}
        home = home_of(self.id)
        apart = {"disk": {"local_path": str(home / "state" / "adapter.sqlite3")}}
        return {**mounts, **sessions, **({} if self.root == home else {"state_persistence": apart})}


def home_of(id_: str) -> Path:
    """The folder for files and state where the command line names none."""
    return Path("data") / id_


def _base(port: int) -> str:
    """The URL below which people open links."""
    return f"http://127.0.0.1:{port}"


_HEAD = (
    "# Written by mcp-adapter wrap. mcp-adapter serve uses it in this folder; "
    "mcp-adapter config reference explains each key.\n"
)


def _absolute(program: str) -> str:
    """The program; a path is absolute, since those in a settings file are relative to that."""
    return str(Path(program).absolute()) if "/" in program else program


# --- arguments that are files ------------------------------------------------------------------------------------


def adapters_of(file_arguments: Sequence[FileArgument]) -> list[dict[str, Any]]:
    """The section ``adapters``: tools whose argument has the same name share an entry."""
    entries: dict[tuple[str, str, bool, bool | None], dict[str, Any]] = {}
    for each in file_arguments:
        key = (each.direction, each.argument, each.base64, each.edits)
        entry = entries.setdefault(key, _entry(each))
        entry["tools"].append(each.tool)
    return list(entries.values())


def _entry(each: FileArgument) -> dict[str, Any]:
    if each.direction == "produce":
        return {"type": "artifact_producer", "tools": [], "output_path_argument": each.argument}
    entry: dict[str, Any] = {"type": "upload_consumer", "tools": [], "file_path_argument": each.argument}
    if each.edits is not None:
        entry["edits"] = each.edits
    return {**entry, "delivery": "base64"} if each.base64 else entry


def named_arguments(
    tools: Sequence[Mapping[str, Any]], consume: Sequence[str], produce: Sequence[str]
) -> list[FileArgument]:
    """The arguments that flags name as ``TOOL:ARG``. Raises SettingsError for a name that the server does not have."""
    named = [
        *(_named(tools, "consume", text) for text in consume),
        *(_named(tools, "produce", text) for text in produce),
    ]
    seen: dict[tuple[str, str], str] = {}
    for each in named:
        before = seen.setdefault((each.tool, each.direction), each.argument)
        if before != each.argument:
            sentence = (
                f"{shown(each.tool, 64)} can have one argument of each kind; {shown(before, 64)} is named too"
            )
            raise SettingsError([Problem(_FLAGS[each.direction], sentence)])
    return list(dict.fromkeys(named))


def _named(tools: Sequence[Mapping[str, Any]], direction: Direction, text: str) -> FileArgument:
    flag = _FLAGS[direction]
    name, colon, argument = text.rpartition(":")
    if not colon or not name or not argument:
        raise SettingsError([Problem(flag, f"write TOOL:ARGUMENT in place of {shown(text, 64)}")])
    by_name = {str(tool.get("name")): tool for tool in tools}
    if name not in by_name:
        sentence = f"the server has no tool {shown(name, 64)}{_nearest(name, by_name)}"
        raise SettingsError([Problem(flag, sentence)])
    tool = by_name[name]
    properties = _properties(tool)
    # An argument may be nested: files[].path.
    first = re.split(r"[.\[]", argument, maxsplit=1)[0]
    if argument not in properties and first not in properties:
        sentence = f"{shown(name, 64)} has no argument {shown(argument, 64)}{_nearest(argument, properties)}"
        raise SettingsError([Problem(flag, sentence)])
    alone = {**tool, "inputSchema": {"properties": {argument: properties.get(argument)}}}
    base64 = direction == "consume" and any(each.base64 for each in propose([alone]))
    edits = may_edit(tool) if direction == "consume" and not base64 else None
    return FileArgument(name, argument, direction, "it was named", base64, edits)


def _properties(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    near = get_close_matches(name, list(known)[:1000], n=1, cutoff=0.5)
    if near:
        return f"; did you mean {shown(near[0], 64)}?"
    first = [shown(each, 64) for each in list(known)[:8]]
    more = ", …" if len(known) > len(first) else ""
    return (
        f"; there {'is' if len(first) == 1 else 'are'} {', '.join(first)}{more}" if first else "; it has none"
    )


def with_all(named: Sequence[FileArgument], proposals: Sequence[FileArgument]) -> list[FileArgument]:
    """The named arguments, and of each tool the first proposal of each kind that none of them takes the place of."""
    return [*named, *_first_of_each(named, proposals)]


def _first_of_each(
    named: Sequence[FileArgument], proposals: Sequence[FileArgument]
) -> Iterator[FileArgument]:
    taken = {(each.tool, each.direction) for each in named}
    used = {(each.tool, each.argument) for each in named}
    for each in proposals:
        if (each.tool, each.direction) not in taken and (each.tool, each.argument) not in used:
            taken.add((each.tool, each.direction))
            yield each
