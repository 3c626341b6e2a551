"""``mcp-adapter wrap``: one server on a URL, without a settings file."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson
import uvloop

from adapter import log
from adapter.app.build import App
from adapter.app.preflight import obstacles
from adapter.app.serve import serve
from adapter.commands.connections import own_session, tools_of
from adapter.commands.file_writing import refusal_to_write
from adapter.commands.settings_flags import failed
from adapter.commands.wrap.report import FoundServer, FoundTools, address_of, report
from adapter.commands.wrap.wrapped_settings import WrappedServer, named_arguments, with_all
from adapter.errors import AdapterError
from adapter.relay.sessions.inner_client import OwnSession
from adapter.rules.files.file_arguments import FileArgument, propose
from adapter.rules.text.unicode import shown
from adapter.settings.cautions import cautions
from adapter.settings.root import Settings
from adapter.upstream.client_connection import ServerRefused

FAILED, TERMINATED = 1, 143

_REASON_LIMIT = 2000


def run(server: WrappedServer, options: argparse.Namespace) -> int:
    """Serve the server until stopped, and print what it has.

    Its tools are seen in the session of the health check, which is the only start of a program until a client comes.
    Flags that name tools need them before: then a program starts once more. Return the exit status, 1 if the server
    cannot be started or served. Raises SettingsError.
    """
    settings = server.settings()
    folders = (server.root / "state", server.root, *server.root.parents)
    made = [folder for folder in folders if not folder.exists()]
    problem = _hindrance(settings, options)
    _remove_empty(made)
    if problem is not None:
        return failed(problem)
    url = address_of(server, settings.core.port).url
    print(f"mcp-adapter: {server.id} will be at {url}", file=sys.stderr)
    introduction = _Introduction(server, options)
    # Without anybody who has signed in there is nothing to see.
    found = FoundServer(server.id, "", "", []) if server.oauth else None
    try:
        if found is None:
            starting = f"starting {server.id} to see its tools; {_patience(server)} …"
            print(f"mcp-adapter: {starting}", file=sys.stderr)
            if introduction.needs_tools or not settings.ping_for(settings.servers[0]).enabled:
                found = _found_before(settings)
        if found is not None:
            settings = introduction.tell(found)
        return serve(settings, cautions(settings), introduction.of_app if found is None else None)
    except ServerRefused as refused:
        if server.root in made:
            # Made for a server that has answered nobody.
            shutil.rmtree(server.root, ignore_errors=True)
        _remove_empty(made)
        return failed(_why(server, str(refused)))
    except _NotSaved as failure:
        return failed(str(failure))
    except asyncio.CancelledError:
        return TERMINATED


class _NotSaved(Exception):
    """The file of ``--save`` cannot be written; ``str(error)`` is a sentence."""


class _Introduction:
    """What is printed and saved of a server that was found."""

    def __init__(self, server: WrappedServer, options: argparse.Namespace) -> None:
        self._server = server
        self._options = options

    @property
    def needs_tools(self) -> bool:
        """Tell whether the settings depend on the tools."""
        return bool(self._options.auto or self._options.consume or self._options.produce)

    def tell(self, found: FoundServer) -> Settings:
        """Print the report, and write the settings file if one is wanted. Return the settings with which the server
        is served. Raises SettingsError, _NotSaved.
        """
        server, options = self._server, self._options
        proposals = propose(found.tools)
        applied = named_arguments(found.tools, options.consume, options.produce)
        if options.auto:
            applied = with_all(applied, proposals)
        settings = server.settings(applied)
        print(report(server, settings.core.port, found, FoundTools(proposals, applied)), flush=True)
        if options.save is not None:
            _save(server, settings, applied, options)
        print("\nStop with Ctrl-C.", flush=True)
        return settings

    async def of_app(self, app: App) -> None:
        """Tell of the only server of an adapter that serves, as its health check finds it. Raises ServerRefused,
        _NotSaved.
        """
        (monitor,) = app.server_parts.monitors.values()
        await monitor.first.wait()
        if monitor.pulse.error is not None:
            raise ServerRefused(_plain_reason(monitor.pulse.error))
        self.tell(await _seen(app.settings, monitor.own_session))


def _patience(server: WrappedServer) -> str:
    return "its packages may be downloaded first" if server.url is None else f"at {shown(server.url, 200)}"


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove the folders that were made and hold nothing, the innermost first."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _why(server: WrappedServer, reason: str) -> str:
    if server.url is None:
        return f"the server does not start: {reason}"
    return f"{shown(server.url, 200)} cannot be used: {reason}"


def _hindrance(settings: Settings, options: argparse.Namespace) -> str | None:
    """The sentence about anything that would stop this command later, None if nothing would."""
    if options.save is not None and options.save.exists() and not options.force:
        return f"{options.save} exists: use --force to overwrite it, or name another file"
    found = next(iter(obstacles(settings)), None)
    return None if found is None else f"{found.event}: {found.why}"


# --- a look at the server ----------------------------------------------------------------------------------------


def _found_before(settings: Settings) -> FoundServer:
    """Start the server for a look, and end it. Raises ServerRefused, whose text has the last lines of the program's
    standard error, and CancelledError for a signal.
    """
    log.configure("critical")
    try:
        return uvloop.run(_looked_at(settings))
    finally:
        # What uvloop leaves behind would swallow a signal until the adapter that serves listens for it.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


async def _looked_at(settings: Settings) -> FoundServer:
    task = asyncio.current_task()
    assert task is not None
    # Programs end with the adapter; Ctrl-C cancels this task by itself.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    (entry,) = settings.servers
    async with own_session(settings, entry, settings.core.upstream_request_timeout_seconds) as (session, _):
        with _refusing():
            await session.open()
        return await _seen(settings, session)


async def _seen(settings: Settings, session: OwnSession) -> FoundServer:
    """Ask in a session that was opened. Raises ServerRefused."""
    if session.refusal is not None:
        cure = "people to sign in (OAuth): pass --oauth."
        if not session.asks_oauth:
            cure = "a token: pass --header 'Authorization: Bearer …'."
        raise ServerRefused(f"it needs {cure}")
    if not session.is_open:
        raise ServerRefused("it does not answer as an MCP server.")
    (entry,) = settings.servers
    with _refusing():
        listed = await tools_of(settings, entry, session)
    if listed is None:
        raise ServerRefused("it did not answer with a complete list of its tools.")
    tools = [orjson.loads(tool.raw) for tool in listed]
    info = session.server_info
    name, version = str(info.get("title") or info.get("name") or entry.id), str(info.get("version") or "")
    return FoundServer(name, version, session.version, tools)


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
    server: WrappedServer, settings: Settings, applied: Sequence[FileArgument], options: argparse.Namespace
) -> None:
    """Write the settings file and print what is left to do. Raises _NotSaved."""
    assert options.save is not None
    text, variables = server.settings_file(applied, settings.core.port)
    refusal = refusal_to_write(options.save, text.encode(), force=options.force)
    if refusal is not None:
        raise _NotSaved(refusal)
    print(f"\n{options.save} is written; mcp-adapter serve --config {options.save} starts the same.")
    for variable, place in variables.items():
        print(f"  Set {variable} before: a secret ({place}) was left out of the file.")
