"""``mcp-adapter wrap``: one server on a URL, without a settings file."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from adapter import log
from adapter.app.build import build
from adapter.app.preflight import obstacles
from adapter.app.run import running
from adapter.app.serve import serve
from adapter.commands.file_writing import replace_file, write_new
from adapter.commands.settings_flags import failed
from adapter.commands.wrap.report import FoundServer, FoundTools, address_of, report
from adapter.commands.wrap.wrapped_settings import WrappedServer, named_arguments, with_all
from adapter.rules.files.file_arguments import FileArgument, propose
from adapter.rules.text.unicode import shown
from adapter.settings.cautions import cautions
from adapter.settings.root import Settings
from adapter.upstream.client.server import ServerRefused, TokenRefused, connected
from adapter.upstream.client.transfers import json_of

FAILED, TERMINATED = 1, 143

_LOOK_SECONDS = 0.05
"""Between two looks at a server that starts."""

_REASON_LIMIT = 2000


def run(server: WrappedServer, options: argparse.Namespace) -> int:
    """Start the server once to see its tools, print what it has, and serve it until stopped.

    Return the exit status, 1 if it cannot be started or served. Raises SettingsError.
    """
    settings = server.settings()
    folders = (server.root / "state", server.root, *server.root.parents)
    made = [folder for folder in folders if not folder.exists()]
    if (problem := _hindrance(settings, options)) is not None:
        return failed(problem)
    url = address_of(server, settings.core.port).url
    print(f"mcp-adapter: {server.id} will be at {url}", file=sys.stderr)
    if not server.oauth:
        print(f"mcp-adapter: starting {server.id} to see its tools; {_patience(server)} …", file=sys.stderr)
    try:
        # Without anybody who has signed in there is nothing to see.
        found = FoundServer(server.id, "", "", []) if server.oauth else uvloop.run(_looked_at(settings))
    except ServerRefused as refused:
        return failed(_why(server, str(refused)))
    except asyncio.CancelledError:
        return TERMINATED
    finally:
        # What uvloop leaves behind would swallow a signal until the adapter that serves listens for it.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _remove_empty(made)
    proposals = propose(found.tools)
    applied = named_arguments(found.tools, options.consume, options.produce)
    if options.auto:
        applied = with_all(applied, proposals)
    settings = server.settings(applied)
    print(report(server, settings.core.port, found, FoundTools(proposals, applied)), flush=True)
    if options.save is not None and not _saved(server, settings, applied, options):
        return FAILED
    print("\nStop with Ctrl-C.", flush=True)
    return serve(settings, cautions(settings))


def _patience(server: WrappedServer) -> str:
    return "its packages may be downloaded first" if server.url is None else f"at {shown(server.url, 200)}"


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove the folders that the look for obstacles made, the innermost first."""
    with contextlib.suppress(OSError):
        for folder in folders:
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


# --- the server as a client meets it -----------------------------------------------------------------------------


async def _looked_at(settings: Settings) -> FoundServer:
    """Run the adapter on a free port of loopback, with nothing that it would leave, and ask it as a client does.

    Raises ServerRefused, whose text has the last lines of the program's standard error.
    """
    task = asyncio.current_task()
    assert task is not None
    # Programs end with the adapter; Ctrl-C cancels this task by itself.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    log.configure("critical")
    with tempfile.TemporaryDirectory(prefix="mcp-adapter-") as root:
        core = settings.core.model_copy(update={"port": 0, "shutdown_grace_seconds": 0})
        storage = settings.storage.model_copy(update={"root": Path(root)})
        (entry,) = settings.servers
        # The health check and the look at the tools start a program once.
        entry = entry.model_copy(update={"upstream": entry.upstream.model_copy(update={"process": "shared"})})
        app = build(settings.model_copy(update={"core": core, "storage": storage, "servers": [entry]}))
        async with running(app) as (host, port):
            return await _asked(f"http://{host}:{port}", settings)


async def _asked(base: str, settings: Settings) -> FoundServer:
    entry = settings.servers[0]
    await _started(base, entry.upstream.start_timeout_seconds)
    try:
        async with connected(f"{base}{entry.mount_path}", {}) as server:
            info = server.client.server_info
            tools = await server.tools() if server.client.server_capabilities.tools else []
            name, version = ("", "") if info is None else (info.title or info.name, info.version)
            return FoundServer(name or entry.id, version, server.client.protocol_version, tools)
    except TokenRefused as refused:
        cure = "a token: pass --header 'Authorization: Bearer …'."
        if refused.data is not None:
            cure = "people to sign in (OAuth): pass --oauth."
        raise ServerRefused(f"it needs {cure}") from None
    except ServerRefused as refused:
        raise ServerRefused(await _reason(base) or str(refused)) from None


async def _started(base: str, patience: float) -> None:
    """Wait until the server has answered. Raises ServerRefused for one that has failed."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        ping = await _ping(base)
        if ping.get("last_success") is not None:
            return
        if ping.get("last_error") is not None:
            raise ServerRefused(_plain_reason(str(ping["last_error"])))
        await asyncio.sleep(_LOOK_SECONDS)


async def _reason(base: str) -> str | None:
    error = (await _ping(base)).get("last_error")
    return None if error is None else _plain_reason(str(error))


async def _ping(base: str) -> dict[str, Any]:
    """The health of the only server, as operators read it."""
    answer = await json_of(f"{base}/healthz")
    ping: dict[str, Any] = answer["servers"][0].get("ping") or {}
    return ping


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


def _saved(
    server: WrappedServer, settings: Settings, applied: Sequence[FileArgument], options: argparse.Namespace
) -> bool:
    """Write the settings file and print what is left to do. False, with a sentence, if it cannot be written."""
    assert options.save is not None
    text, variables = server.settings_file(applied, settings.core.port)
    try:
        write = replace_file if options.force else write_new
        write(options.save, text.encode())
    except FileExistsError:
        failed(f"{options.save} exists: use --force to overwrite it, or name another file")
        return False
    except OSError as error:
        failed(f"{options.save} cannot be written: {error.strerror or error}")
        return False
    print(f"\n{options.save} is written; mcp-adapter serve --config {options.save} starts the same.")
    for variable, place in variables.items():
        print(f"  Set {variable} before: a secret ({place}) was left out of the file.")
    return True
