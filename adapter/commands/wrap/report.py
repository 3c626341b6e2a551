"""Text that ``mcp-adapter wrap`` prints: the address, the tools, arguments that look like files, and clients."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from adapter.commands.progress_bar import count_of
from adapter.commands.wrap.wrapped_settings import WrappedServers
from adapter.extras import typed_command
from adapter.rules.clients.client_file import entry_text
from adapter.rules.clients.mcp_clients import CLIENTS, ServerAddress
from adapter.rules.files.file_arguments import FileArgument
from adapter.rules.text.unicode import shown

WIDTH = 100
"""Columns of text that wraps."""

_MOST_TOOLS = 30
_LONGEST = 64
_FORGETS = (
    "each call of a client of MCP 2026-07-28 has a session of its own, and finds nothing of the call before. If only "
    "you use it, start again with --one-session"
)


class FoundServer(NamedTuple):
    """A server as it describes itself; ``protocol`` is the revision of MCP. ``tools`` are its definitions.

    All is empty of one that nobody has asked yet. ``refusal`` is the sentence about one that cannot be used.
    ``forgets``: each call of a modern client has a session of its own there.
    """

    name: str
    version: str
    protocol: str
    tools: list[Any]
    refusal: str = ""
    forgets: bool = False


class FoundTools(NamedTuple):
    """The arguments that look like files, and those that are handled as files."""

    proposals: Sequence[FileArgument]
    applied: Sequence[FileArgument]


def address_of(wrapped: WrappedServers, port: int) -> ServerAddress:
    """Where clients find the servers."""
    return ServerAddress(wrapped.id, f"http://127.0.0.1:{port}/mcp/{wrapped.id}")


def report(wrapped: WrappedServers, port: int, found: Sequence[FoundServer], files: FoundTools) -> str:
    """The text, without a newline at its end. Everything that the servers say is escaped and bounded."""
    address = address_of(wrapped, port)
    lines = [f"{wrapped.id} is at {address.url}", ""]
    for server, each in zip(wrapped.servers, found, strict=True):
        if len(found) > 1:
            lines.append(f"{server.id} ({address.url.removesuffix(wrapped.id)}{server.id}):")
        lines += [*_described(each, address.url)]
    if forgetting := ", ".join(
        server.id for server, each in zip(wrapped.servers, found, strict=True) if each.forgets
    ):
        lines.append(textwrap.fill(f"{forgetting}: {_FORGETS}", WIDTH, break_on_hyphens=False))
    lines += [
        f"Files are kept in {wrapped.root}",
        "",
        *_files(files, wrapped),
        "Tell a client of it:",
        "",
        f"  {typed_command()} install claude-code --url {address.url}",
        f"  {typed_command()} install cursor --url {address.url}",
        f"  claude mcp add --transport http {address.name} {address.url}",
        "",
        "or with JSON (VS Code calls the outer key servers):",
        "",
        textwrap.indent(_json(address), "  "),
    ]
    return "\n".join(lines)


def _json(address: ServerAddress) -> str:
    client = CLIENTS["claude-code"]
    return entry_text("json", client.keys, address.name, client.entry(address)).rstrip()


def _described(found: FoundServer, url: str) -> Iterator[str]:
    if found.refusal:
        yield found.refusal
        return
    if not found.protocol:
        yield "Its tools are listed when somebody has signed in. Any first call is answered with the link, such as"
        yield f"  {typed_command()} tools {url}"
        return
    count = len(found.tools)
    name = shown(f"{found.name} {found.version}".rstrip(), _LONGEST)
    yield f"{name}, MCP {shown(found.protocol, 32)}, {count_of(count, 'tool')}"
    names = [shown(str(tool.get("name")), _LONGEST) for tool in found.tools[:_MOST_TOOLS]]
    if count > _MOST_TOOLS:
        names.append(f"and {count - _MOST_TOOLS} more")
    if names:
        yield textwrap.fill(
            ", ".join(names),
            WIDTH,
            initial_indent="  ",
            subsequent_indent="  ",
            break_on_hyphens=False,
        )


def _files(files: FoundTools, wrapped: WrappedServers) -> Iterator[str]:
    applied = {(each.tool, each.argument, each.direction) for each in files.applied}
    if files.applied:
        yield "Handled as files:"
        yield from (f"  {_argument(each)}" for each in files.applied)
        if any(each.direction == "consume" for each in files.applied):
            yield f"  The tool {wrapped.id}_get_upload_url tells a client where to upload; or:"
            yield f"  {typed_command()} upload FILE --url …"
        if any(each.edits for each in files.applied):
            yield "  A tool that may change a file works on a copy; a changed copy comes back as a new file."
        if any(each.direction == "produce" for each in files.applied):
            yield "  A tool that writes a file does so at each call, also where it could return its result as text."
        yield ""
    left = [each for each in files.proposals if (each.tool, each.argument, each.direction) not in applied]
    if left:
        yield "Looks like a file, and is passed on as it is. To handle it as one, start again with the flag:"
        for each in left:
            yield f"  {_flag(each)}"
            yield f"      {_argument(each)}: {each.reason}"
        yield "--auto does that for all (one of each kind for each tool)."
        yield ""
    if (files.applied or left) and (root := wrapped.root_below_program) is not None:
        below = shown(str(root.parent), _LONGEST)
        yield f"If the program opens files only below {below}, add --root {shlex.quote(str(root))}"
        yield ""


def _argument(each: FileArgument) -> str:
    verb = "writes" if each.direction == "produce" else "may change" if each.edits else "reads"
    form = " as base64" if each.base64 else ""
    return f"{shown(each.tool, _LONGEST)} {verb} the file in {shown(each.argument, _LONGEST)}{form}"


def _flag(each: FileArgument) -> str:
    """The flag to paste. A name that cannot be shown cannot be pasted either: ``--auto`` takes it."""
    name = f"{each.tool}:{each.argument}"
    if shown(name, 300) != name:
        return f"--auto ({shown(name, _LONGEST)})"
    return f"--{each.direction} {shlex.quote(name)}"
