"""All checks in their order, against the adapter that runs, or one that runs as long as they do; first those of the
machine: its storage, its port and its clock.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import uvloop

from adapter import log
from adapter.app.build import build
from adapter.app.preflight import RootLock, Unusable, directory_refusal, lock_of, port_refusal
from adapter.app.run import running
from adapter.app.serve import locked_state
from adapter.commands.check import checked_settings
from adapter.commands.command_parser import local_address, servers_named
from adapter.commands.connections import reach_state
from adapter.commands.doctor import Finding, right, warning, wrong
from adapter.commands.doctor.servers import (
    AdapterAddress,
    RoundTrip,
    clock_of,
    look_at,
    look_at_mount,
    public_url,
    travel,
)
from adapter.commands.progress_bar import count_of, size
from adapter.commands.upload import authorization
from adapter.errors import AdapterError
from adapter.extras import overlap
from adapter.settings.cautions import cautions
from adapter.settings.root import Settings, worker_count
from adapter.settings.section import Problem, SettingsError
from adapter.settings.servers.server import ServerSettings
from adapter.state.lock_file import StateTaken
from adapter.upstream.transfers import TransferFailed, head_of

OK, WRONG = 0, 1


def run(options: argparse.Namespace) -> int:
    """Print one line for each finding, or a list in JSON. Return 1 if anything is wrong, else 0.

    Raises SettingsError, also for a server or tool that cannot be meant.
    """
    try:
        options.arguments = json.loads(options.arguments)
    except ValueError:
        options.arguments = None
    if not isinstance(options.arguments, dict):
        raise SettingsError([Problem("--arguments", "must be a JSON object")])
    settings = checked_settings(options)
    servers = _chosen(settings, options)
    findings = uvloop.run(_printed(settings, servers, options))
    if options.json:
        print(orjson.dumps(findings, option=orjson.OPT_INDENT_2).decode())
    wrongs = sum(each.status == "wrong" for each in findings)
    if not options.json:
        print(
            f"{wrongs} of {count_of(len(findings), 'finding')} {'is' if wrongs == 1 else 'are'} wrong."
            if wrongs
            else "Nothing is wrong."
        )
    return WRONG if wrongs else OK


def _chosen(settings: Settings, options: argparse.Namespace) -> list[ServerSettings]:
    servers = servers_named(settings, options.server)
    if options.tool is not None and len(servers) > 1:
        raise SettingsError([Problem("--tool", "needs --server, since there are several")])
    return servers


async def _printed(
    settings: Settings, servers: Sequence[ServerSettings], options: argparse.Namespace
) -> list[Finding]:
    findings = []
    async for finding in _examined(settings, servers, options):
        findings.append(finding)
        if not options.json:
            print(finding, flush=True)
    return findings


async def _examined(
    settings: Settings, servers: Sequence[ServerSettings], options: argparse.Namespace
) -> AsyncIterator[Finding]:
    yield right("settings", f"they can be used; {count_of(len(settings.servers), 'server')}")
    for caution in cautions(settings):
        yield warning(caution.path, caution.sentence, "")
    if (sentence := overlap()) is not None:
        yield warning("installation", f"{sentence}.", "")
    runs = await _runs(settings)
    yield right("port", f"the adapter runs on {local_address(settings)}") if runs else port(settings)
    for finding in storage(settings, in_use=runs):
        yield finding
    for finding in workers(settings):
        yield finding
    if (state := await reach_state(settings)) is not None:
        yield (
            right("state", state.detail)
            if state.reachable
            else wrong("state", state.detail, "See docs/scaling.md.")
        )
    yield clock()
    for server in servers:
        if (compared := await clock_of(server)) is not None:
            yield compared
    if settings.core.public_base_url is not None and runs:
        yield await public_url(settings.core.public_base_url)
    async for finding in _of_servers(settings, servers, options, runs):
        yield finding


async def _of_servers(
    settings: Settings, servers: Sequence[ServerSettings], options: argparse.Namespace, runs: bool
) -> AsyncIterator[Finding]:
    headers, problem = _credentials(settings, options)
    if problem is not None:
        yield problem
        return
    try:
        async with _adapter(settings, runs) as base:
            adapter = AdapterAddress(base, headers)
            for server in servers:
                async for finding in look_at(server, adapter, settings.core.public_base_url):
                    yield finding
                if options.tool is not None:
                    trip = RoundTrip(server, options.tool, options.arguments, options.file)
                    async for finding in travel(trip, adapter):
                        yield finding
            if options.server is None:
                for mount in settings.mounts:
                    yield await look_at_mount(mount, adapter)
    except (AdapterError, OSError, StateTaken) as failure:
        yield wrong("adapter", f"it does not start: {failure}", "Correct what is wrong above first.")


def _credentials(settings: Settings, options: argparse.Namespace) -> tuple[dict[str, str], Finding | None]:
    """The header fields for calls to the adapter, or the reason why there are none."""
    headers, auth = authorization(options.token), settings.core.auth
    if headers or not auth.enabled:
        return headers, None
    secrets = [auth.token, *(each.token for each in auth.tokens)]
    token = next((each.get_secret_value() for each in secrets if each is not None), None)
    if token is not None:
        return authorization(token), None
    held = "only digests of tokens" if auth.has_static_tokens else "no token, only issuers of tokens"
    return {}, warning(
        "servers", f"not looked at: the settings hold {held}.", "Pass --token, or set MCP_ADAPTER_TOKEN."
    )


@asynccontextmanager
async def _adapter(settings: Settings, runs: bool) -> AsyncIterator[str]:
    """The URL of the running adapter, or of one on a free port of loopback that ends with the block."""
    if runs:
        yield f"http://{local_address(settings)}"
        return
    log.configure("critical")
    core = settings.core.model_copy(update={"host": "127.0.0.1", "port": 0})
    app = build(settings.model_copy(update={"core": core}))
    with locked_state(settings, wait=0):
        async with running(app) as (host, port):
            yield f"http://{host}:{port}"


async def _runs(settings: Settings) -> bool:
    """Tell whether an adapter answers at the address of the settings."""
    try:
        fields = await head_of(f"http://{local_address(settings)}/livez", method="GET")
    except TransferFailed:
        return False
    return fields.get("Content-Type", "").startswith("application/json")


LEAST_FREE = 1 << 30
"""Bytes below which a disk is called nearly full."""

_EARLIEST = 1_767_225_600
"""2026-01-01 in Unix seconds: a clock before that has never been set."""


def storage(settings: Settings, *, in_use: bool) -> Iterator[Finding]:
    """Look at ``storage.root`` and the state store. ``in_use``: this adapter runs, so it holds the lock itself."""
    root = Path(settings.storage.root)
    refusal = directory_refusal(root)
    if refusal is not None:
        yield _refused("storage", refusal, ", or set another storage.root")
        return
    yield right("storage", f"{root} is writable")
    free = shutil.disk_usage(root).free
    if free < LEAST_FREE:
        yield warning("storage", f"only {size(free)} are free.", "Free some, or limit storage.max_size.")
    else:
        yield right("storage", f"{size(free)} are free")
    yield _lock(root, settings, in_use)
    yield from _same_file_system(root)
    yield from _state(settings)


def workers(settings: Settings) -> Iterator[Finding]:
    """Look at the number of processes that serve; nothing is said of one."""
    count, cores = worker_count(settings.core.workers), worker_count("auto")
    if count > cores:
        yield warning(
            "workers",
            f"{count} share {cores} processor cores.",
            "Set core.workers to auto, unless they wait for slow code of yours.",
        )
    elif count > 1:
        yield right("workers", f"{count} serve, on {cores} processor cores")


def _refused(subject: str, refusal: Unusable, otherwise: str = "") -> Finding:
    advice = refusal.advice[:1].upper() + refusal.advice[1:]
    return wrong(subject, f"{refusal.reason}.", f"{advice}{otherwise}.")


def _lock(root: Path, settings: Settings, in_use: bool) -> Finding:
    if settings.root_lock is None:
        return warning(
            "storage",
            f"storage.lock_mode is {settings.storage.lock_mode}.",
            "Make sure that no adapter with another state store uses this folder.",
        )
    shared = settings.root_lock == "shared"
    lock = lock_of(root, shared=shared, create=True)
    if lock is RootLock.NONE:
        return wrong(
            "storage",
            "its file system has no locks.",
            "Set storage.lock_mode to none, and let only one adapter use it.",
        )
    if in_use and not any(server.has_files for server in settings.servers):
        return right("storage", "no server uses files, so the running adapter needs no lock")
    if in_use and lock is RootLock.FREE and not shared:
        return wrong(
            "storage",
            "the running adapter does not hold the lock of this folder.",
            "It runs with other settings: restart it with these.",
        )
    if in_use:
        return right("storage", "the running adapter holds its lock")
    if lock is RootLock.TAKEN:
        return wrong(
            "storage",
            "another process uses this folder.",
            "Stop that adapter, or set another storage.root.",
        )
    return right("storage", "its lock is free")


def _state(settings: Settings) -> Iterator[Finding]:
    """Look at the directory of the state file where it has one of its own."""
    local = settings.state_persistence.disk.local_path
    if settings.state_persistence.type != "disk" or local is None:
        return
    directory = settings.state_path.parent
    if (refusal := directory_refusal(directory, private=True)) is not None:
        yield _refused("state", refusal, ", or set another state_persistence.disk.local_path")
    else:
        yield right("state", f"{directory} is writable")


def _same_file_system(root: Path) -> Iterator[Finding]:
    """Files move between the areas by renaming, which no two file systems do."""
    device = root.stat().st_dev
    for area in ("uploads", "artifacts", "staging"):
        place = root / area
        if place.exists() and place.stat().st_dev != device:
            yield wrong(
                "storage",
                f"{place} is on another file system than {root}.",
                "Mount one file system for the whole of storage.root.",
            )


def port(settings: Settings) -> Finding:
    """Tell whether the adapter, which does not run, could listen where the settings say."""
    host, number = settings.core.host, settings.core.port
    if (refusal := port_refusal(host, number)) is not None:
        return _refused("port", refusal)
    return right("port", f"{host}:{number} is free; the adapter does not run")


def clock() -> Finding:
    """Look at the clock of this machine alone."""
    if time.time() < _EARLIEST:
        return wrong("clock", "it was never set.", "Set it: signed links and certificates depend on it.")
    return right("clock", time.strftime("it is %Y-%m-%d %H:%M:%S UTC", time.gmtime()))
