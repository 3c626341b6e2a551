"""``mcp-adapter wrap``: servers at a URL, without a settings file; and what it prints: the address, the tools,
arguments that look like files, and clients.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import shlex
import shutil
import signal
import sys
import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import uvloop

from adapter import log
from adapter.app.build import App
from adapter.app.preflight import obstacles
from adapter.app.serve import serve
from adapter.commands.command_parser import failed
from adapter.commands.connections import own_session, tools_of
from adapter.commands.file_writing import refusal_to_write
from adapter.commands.progress_bar import count_of
from adapter.commands.wrap.wrapped_settings import WrappedServer, WrappedServers, named_arguments, with_all
from adapter.errors import AdapterError
from adapter.extras import missing_extras, typed_command
from adapter.relay.sessions.own_session import OwnSession
from adapter.rules.clients.client_file import entry_text
from adapter.rules.clients.mcp_clients import CLIENTS, ServerAddress
from adapter.rules.files.file_arguments import FileArgument, propose
from adapter.rules.text.unicode import shown
from adapter.settings.cautions import cautions
from adapter.settings.root import Settings
from adapter.upstream.client_refusals import ServerRefused

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


FAILED, TERMINATED = 1, 143

_REASON_LIMIT = 2000
_HOST = re.compile(r"[\w-]+(?:\.[\w-]+|:\d+)+(?:/|\Z)")


def run(wrapped: WrappedServers, options: argparse.Namespace) -> int:
    """Serve the servers until stopped, and print what they have.

    Their tools are seen in the sessions of the health check, which is the only start of a program until a client comes.
    Flags that name tools need them before: then a program starts once more. Return the exit status, 1 if no server
    can be started or served. Raises SettingsError.
    """
    settings = wrapped.settings()
    state = settings.state_path.parent
    folders = dict.fromkeys((state, wrapped.root, *state.parents, *wrapped.root.parents))
    made = [folder for folder in folders if not folder.exists()]
    problem = _hindrance(settings, options)
    _remove_empty(made)
    if problem is not None:
        return failed(problem)
    url = address_of(wrapped, settings.core.port).url
    names = ", ".join(each.id for each in wrapped.servers)
    print(f"mcp-adapter: {names} will be at {url}", file=sys.stderr)
    # The settings depend on them.
    needs_tools = bool(options.auto or options.consume or options.produce)
    # Without anybody who has signed in there is nothing to see.
    found = [FoundServer("", "", "", [])] if wrapped.oauth else None
    try:
        if found is None:
            starting = f"starting {names} to see the tools; {_patience(wrapped.servers)} …"
            print(f"mcp-adapter: {starting}", file=sys.stderr)
            if needs_tools or not settings.ping_for(settings.servers[0]).enabled:
                found = _found_before(wrapped, settings)
        if found is not None:
            settings = _tell(wrapped, options, found)
        return serve(
            settings, cautions(settings), partial(_tell_of_app, wrapped, options) if found is None else None
        )
    except ServerRefused as refused:
        for folder in {state, wrapped.root}.intersection(made):
            # Made for servers that have answered nobody.
            shutil.rmtree(folder, ignore_errors=True)
        _remove_empty(made)
        return failed(str(refused))
    except _NotSaved as failure:
        return failed(str(failure))
    except asyncio.CancelledError:
        return TERMINATED


class _NotSaved(Exception):
    """The file of ``--save`` cannot be written; ``str(error)`` is a sentence."""


def _tell(wrapped: WrappedServers, options: argparse.Namespace, found: Sequence[FoundServer]) -> Settings:
    """Print the report, and write the settings file if one is wanted. Return the settings with which the servers are
    served. Raises SettingsError, _NotSaved.
    """
    files = FoundTools((), ())
    if len(found) == 1:
        proposals = propose(found[0].tools)
        applied = named_arguments(found[0].tools, options.consume, options.produce)
        files = FoundTools(proposals, with_all(applied, proposals) if options.auto else applied)
    settings = wrapped.settings(files.applied)
    print(report(wrapped, settings.core.port, found, files), flush=True)
    if options.save is not None:
        _save(wrapped, settings, files.applied, options)
    print("\nStop with Ctrl-C.", flush=True)
    return settings


async def _tell_of_app(wrapped: WrappedServers, options: argparse.Namespace, app: App) -> None:
    """Tell of the servers of an adapter that serves, as its health checks find them. Raises ServerRefused where they
    find none, _NotSaved.
    """
    found = []
    for server in wrapped.servers:
        monitor = app.server_parts.monitors[server.id]
        await monitor.first.wait()
        try:
            if monitor.pulse.error is not None:
                raise ServerRefused(_plain_reason(monitor.pulse.error))
            found.append(await _seen(app.settings, server, monitor.own_session))
        except ServerRefused as refused:
            found.append(_refused(server, refused))
    _require_one(found)
    _tell(wrapped, options, found)


def _refused(server: WrappedServer, refused: ServerRefused) -> FoundServer:
    return FoundServer("", "", "", [], _why(server, str(refused)))


def _require_one(found: Sequence[FoundServer]) -> None:
    """Raise ServerRefused where no server can be used."""
    if all(each.refusal for each in found):
        raise ServerRefused("\n".join(each.refusal for each in found))


def _patience(servers: Sequence[WrappedServer]) -> str:
    urls = [shown(each.url, 200) for each in servers if each.url is not None]
    return f"at {urls[0]}" if len(urls) == len(servers) == 1 else "packages may be downloaded first"


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove the folders that were made and hold nothing, the innermost first."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _why(server: WrappedServer, reason: str) -> str:
    if server.url is None:
        word = server.command[0]
        cure = " A URL begins with https://." if _HOST.match(word) and shutil.which(word) is None else ""
        return f"{server.id} does not start: {reason}{cure}"
    return f"{shown(server.url, 200)} cannot be used: {reason}"


def _hindrance(settings: Settings, options: argparse.Namespace) -> str | None:
    """The sentence about anything that would stop this command later, None if nothing would."""
    if options.save is not None and options.save.exists() and not options.force:
        return f"{options.save} exists: use --force to overwrite it, or name another file"
    found = next(iter(obstacles(settings)), None)
    return None if found is None else f"{found.event}: {found.why}"


# --- a look at the server ----------------------------------------------------------------------------------------


def _found_before(wrapped: WrappedServers, settings: Settings) -> list[FoundServer]:
    """Start the servers for a look, and end them. Raises ServerRefused where none can be used, whose text has the last
    lines of the program's standard error, and CancelledError for a signal.
    """
    log.configure("critical")
    try:
        found = uvloop.run(_looked_at(wrapped, settings))
        _require_one(found)
        return found
    finally:
        # What uvloop leaves behind would swallow a signal until the adapter that serves listens for it.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


async def _looked_at(wrapped: WrappedServers, settings: Settings) -> list[FoundServer]:
    task = asyncio.current_task()
    assert task is not None
    # Programs end with the adapter; Ctrl-C cancels this task by itself.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    found = []
    for server, entry in zip(wrapped.servers, settings.servers, strict=True):
        async with own_session(settings, entry, settings.core.upstream_request_timeout_seconds) as (
            session,
            _,
        ):
            try:
                with _refusing():
                    await session.open()
                found.append(await _seen(settings, server, session))
            except ServerRefused as refused:
                found.append(_refused(server, refused))
    return found


async def _seen(settings: Settings, server: WrappedServer, session: OwnSession) -> FoundServer:
    """Ask in a session that was opened. Raises ServerRefused."""
    if session.refusal is not None:
        raise ServerRefused(f"it needs {_credentials(oauth=session.asks_oauth)}")
    if not session.is_open:
        raise ServerRefused("it does not answer as an MCP server.")
    entry = next(each for each in settings.servers if each.id == server.id)
    with _refusing():
        listed = await tools_of(settings, entry, session)
    if listed is None:
        raise ServerRefused("it did not answer with a complete list of its tools.")
    tools = [orjson.loads(tool.raw) for tool in listed]
    info = session.server_info
    name, version = str(info.get("title") or info.get("name") or entry.id), str(info.get("version") or "")
    forgets = session.needs_session and settings.sessions.upstream == "session"
    return FoundServer(name, version, session.version, tools, forgets=forgets)


def _credentials(*, oauth: bool) -> str:
    if not oauth:
        return "a token: pass --header 'Authorization: Bearer …'."
    flag = "people to sign in (OAuth): pass --oauth"
    missing = missing_extras("oauth")
    return f"{flag}." if missing is None else f"{flag}, which {missing}"


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Raises ServerRefused for an upstream that fails while the block runs."""
    try:
        yield
    except AdapterError as error:
        raise ServerRefused(_plain_reason(error.reason or str(error))) from None


def _plain_reason(text: str) -> str:
    """The reason in the words of this command, which has no settings file; lines of the program below each other."""
    sentence, words, last = text.partition(" Its last words: ")
    if sentence.startswith('Server "'):
        sentence = sentence.partition('": ')[2] or sentence
    sentence = sentence.removeprefix("upstream.command: ").replace("in upstream.env", "with --env")
    sentence = sentence.replace("there, and its arguments in upstream.args:", "and its words without quotes:")
    sentence = shown(sentence, _REASON_LIMIT)
    lines = [f"  {shown(line, 500)}" for line in last.split(" | ")] if words else []
    return "\n".join([sentence, *lines])


# --- its settings file -------------------------------------------------------------------------------------------


def _save(
    wrapped: WrappedServers, settings: Settings, applied: Sequence[FileArgument], options: argparse.Namespace
) -> None:
    """Write the settings file and print what is left to do. Raises _NotSaved."""
    assert options.save is not None
    text, variables = wrapped.settings_file(applied, settings.core.port)
    refusal = refusal_to_write(options.save, text.encode(), force=options.force)
    if refusal is not None:
        raise _NotSaved(refusal)
    print(f"\n{options.save} is written; {typed_command()} serve --config {options.save} starts the same.")
    for variable, place in variables.items():
        print(f"  Set {variable} before: a secret ({place}) was left out of the file.")
