"""The file ``tools.lock``: pinned definitions as text that people review in a diff. Pure.

Below a ``server`` line each tool has one line with its name and digests, then its definition in canonical order,
indented. What could hide from a reviewer (invisible characters, bidirectional controls) is escaped.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import NoReturn

from adapter.errors import BadJson
from adapter.rules.text.canonical_json import canonical
from adapter.rules.text.unicode import escaped, nfkc
from adapter.rules.tools.definitions import PinnedTool
from adapter.wire.envelope import parse

HEADER = """\
# tools.lock: the tool definitions that every session starts from.
# Written by `mcp-adapter pins export`. Review what changes; a digest belongs to the definition below it.
format 1
"""
_FORMAT = "format 1"
_INDENT = "  "
# Deeper levels are not indented further, or the spaces would take the square of their number.
_DEEPEST_INDENT = 24
_SERVER = re.compile(r'server ("(?:[^"\\]|\\.)*+")')
_TOOL = re.compile(r'tool ("(?:[^"\\]|\\.)*+") known sha256:([0-9a-f]{64}) other sha256:([0-9a-f]{64})')
_JSON = re.compile(r'"(?:[^"\\]++|\\.)*+"?+|[\[{][\]}]|[\[\]{},:]|[^\[\]{},:"]++')


class LockError(ValueError):
    """The text is no lock file. ``str(error)`` says where and why; ``line`` counts from 1."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"tools.lock, line {line}: {problem}")
        self.line = line


def write_lock(servers: Mapping[str, Mapping[str, PinnedTool]]) -> str:
    """The lock file of these tools by server and name: the same text for the same tools, in plain UTF-8."""
    pieces = [HEADER]
    for server, tools in sorted(servers.items()):
        pieces.append(f"\nserver {_quoted(server)}\n")
        for name, pin in sorted(tools.items()):
            pieces.append(f"\ntool {_quoted(name)} known sha256:{pin.known} other sha256:{pin.unknown}\n")
            pieces += (pretty(pin.definition.decode("utf-8"), 1), "\n")
    return "".join(pieces)


def read_lock(text: str) -> dict[str, dict[str, PinnedTool]]:
    """Return what ``write_lock`` was given. Raises LockError, also if a definition does not match its digest."""
    reader = _Reader()
    # Not splitlines(): to that, half a dozen characters of Unicode end a line.
    for line in text.split("\n"):
        reader.read(line.removesuffix("\r"))
    reader.end_tool()
    if not reader.is_begun:
        raise LockError(1, f'it does not say "{_FORMAT}".')
    return reader.servers


def pretty(text: str, depth: int = 0) -> str:
    """Compact JSON over several lines, indented from ``depth`` on, with what is invisible escaped."""
    pieces = [_INDENT * depth]
    for found in _JSON.finditer(text):
        part = found[0]
        if part in ("{", "["):
            depth += 1
            pieces += (part, _line(depth))
        elif part in ("}", "]"):
            depth -= 1
            pieces += (_line(depth), part)
        elif part == ",":
            pieces += (part, _line(depth))
        else:
            pieces.append(": " if part == ":" else escaped(part))
    return "".join(pieces)


def _line(depth: int) -> str:
    return "\n" + _INDENT * min(depth, _DEEPEST_INDENT)


class _Reader:
    """Takes a lock file line by line."""

    def __init__(self) -> None:
        self.servers: dict[str, dict[str, PinnedTool]] = {}
        self.is_begun = False
        self._line = 0
        self._tools: dict[str, PinnedTool] | None = None
        self._tool: re.Match[str] | None = None
        self._tool_line = 0
        self._definition: list[str] = []

    def read(self, line: str) -> None:
        self._line += 1
        if line.startswith(" "):
            if self._tool is None:
                self._fail("an indented line belongs to a tool, but no tool is before it.")
            self._definition.append(line)
        elif line and not line.startswith("#"):
            self.end_tool()
            self._read_head(line)

    def _read_head(self, line: str) -> None:
        if not self.is_begun:
            if line != _FORMAT:
                self._fail(f'the first line that is not a comment must be "{_FORMAT}".')
            self.is_begun = True
        elif found := _SERVER.fullmatch(line):
            name = _unquoted(found[1], self._line)
            if name in self.servers:
                self._fail("this server appears twice.")
            self._tools = self.servers[name] = {}
        elif (found := _TOOL.fullmatch(line)) and self._tools is not None:
            self._tool, self._tool_line = found, self._line
        else:
            self._fail("this line is neither a server nor a tool of a server.")

    def end_tool(self) -> None:
        """Take in the tool whose definition has been read, if there is one."""
        if self._tool is None or self._tools is None:
            return
        found, line = self._tool, self._tool_line
        name = _unquoted(found[1], line)
        definition = _canonical("\n".join(self._definition), name, line)
        if hashlib.sha256(definition).hexdigest() != found[2]:
            raise LockError(line, "the definition does not match its digest; export it again.")
        if name in self._tools:
            raise LockError(line, "this tool appears twice.")
        self._tools[name] = PinnedTool(found[2], found[3], definition)
        self._tool, self._definition = None, []

    def _fail(self, problem: str) -> NoReturn:
        raise LockError(self._line, problem)


def _canonical(text: str, name: str, line: int) -> bytes:
    try:
        value = parse(text.encode("utf-8"))
    except (BadJson, UnicodeEncodeError):
        raise LockError(line, "the lines below are not JSON.") from None
    stated = value.get("name") if isinstance(value, dict) else None
    if not isinstance(stated, str) or nfkc(stated) != nfkc(name):
        raise LockError(line, "the definition below is not of this tool.")
    return canonical(value)


def _unquoted(quoted: str, line: int) -> str:
    try:
        name: str = json.loads(quoted)
    except ValueError:
        raise LockError(line, f"{quoted} is not a JSON string.") from None
    return name


def _quoted(name: str) -> str:
    return escaped(json.dumps(name, ensure_ascii=False))
