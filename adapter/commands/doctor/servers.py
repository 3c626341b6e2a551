"""Servers, each as a client meets it through the adapter; the machine of each; and one file through one tool: uploaded,
handed to the tool, and what the tool wrote downloaded again.
"""

from __future__ import annotations

import asyncio
import io
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from adapter.commands.connections import spoken
from adapter.commands.doctor import Finding, right, warning, wrong
from adapter.commands.progress_bar import count_of, size
from adapter.commands.upload import HELPER
from adapter.rules.mounts.lists import MISSING
from adapter.settings.mounts import MountSettings
from adapter.settings.servers.server import ServerSettings
from adapter.upstream.client_connection import McpServer, ServerRefused, TokenRefused, connected
from adapter.upstream.transfers import TransferFailed, download, head_of, json_of, upload

SLOW = 1.0
"""Seconds for a list of tools from which a server is called slow."""

LOOKS, PAUSE = 20, 0.1
"""Times that the eras of a server are asked for, and the seconds between them."""

_HIDDEN = "failed"
"""The word in /healthz for an error that only operators are told."""

MOST_SKEW = 60.0
"""Seconds that two clocks may differ before signed links and tokens of one are refused by the other."""


class AdapterAddress(NamedTuple):
    """``base`` is the URL of the adapter here; ``headers`` hold its token, where it asks for one."""

    base: str
    headers: Mapping[str, str]

    def of(self, server: ServerSettings) -> str:
        """The URL of a server's mount."""
        return f"{self.base}{server.mount_path}"


async def look_at(
    server: ServerSettings, adapter: AdapterAddress, public: str | None
) -> AsyncIterator[Finding]:
    """Connect as a client does, list the tools, and compare them with those that the settings name.

    ``public`` is the public URL of the adapter.
    """
    subject = f"server {server.id}"
    try:
        async with connected(adapter.of(server), adapter.headers) as connection:
            began = time.monotonic()
            # First: the adapter greets clients of a server that it knows, also while that is away.
            names = {tool["name"] for tool in await connection.tools()}
            took = time.monotonic() - began
            yield right(subject, _greeting(connection, await _eras_of(server, adapter)))
    except ServerRefused as refused:
        if _asks_oauth(server, refused, public):
            advice = (
                "Set upstream.auth.type: authorization_code, so that people sign in there (docs/grants.md)."
            )
            yield wrong(subject, "the upstream asks for OAuth.", advice)
        else:
            why = await _why_not_started(server, adapter) or f"{refused}"
            yield wrong(subject, why, "See the upstream's log, and `servers` in /healthz.")
        return
    listed = f"{count_of(len(names), 'tool')}, listed in {took * 1000:.0f} ms"
    yield right(subject, listed) if took < SLOW else warning(subject, listed, "The upstream is slow.")
    for finding in _missing(server, subject, names):
        yield finding


def _asks_oauth(server: ServerSettings, refused: ServerRefused, public: str | None) -> bool:
    """Tell whether the upstream, and not the adapter itself, has named where people sign in."""
    if not isinstance(refused, TokenRefused) or refused.data is None:
        return False
    own = public is not None and refused.data.startswith("{0.scheme}://{0.netloc}/".format(urlsplit(public)))
    return server.upstream.auth.type in ("none", "static") and not own


async def _why_not_started(server: ServerSettings, adapter: AdapterAddress) -> str | None:
    """What the adapter tells operators of a program that does not start, None where it tells nothing."""
    if server.upstream.kind.needs != "command":
        return None
    error = (await _health_of(server, adapter)).get("ping", {}).get("last_error")
    return None if error in (None, _HIDDEN) else str(error)


async def _health_of(server: ServerSettings, adapter: AdapterAddress) -> Mapping[str, Any]:
    """What the adapter tells of the health of a server, empty where it tells nothing."""
    try:
        health = await json_of(f"{adapter.base}/healthz", adapter.headers)
        (found,) = [each for each in health["servers"] if each["server_id"] == server.id]
    except (TransferFailed, ValueError, LookupError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


async def _eras_of(server: ServerSettings, adapter: AdapterAddress) -> Sequence[str]:
    """The eras that the server itself speaks, empty where that is not told: an adapter that has just begun looks for
    them with its first ping.
    """
    for _ in range(LOOKS):
        eras: Sequence[str] | None = (await _health_of(server, adapter)).get("eras")
        if eras or eras is None:
            break
        await asyncio.sleep(PAUSE)
    return eras or ()


async def look_at_mount(mount: MountSettings, adapter: AdapterAddress) -> Finding:
    """Connect to a merged mount as a client does, and list its tools."""
    subject = f"mount {mount.id}"
    try:
        async with connected(f"{adapter.base}{mount.path}", adapter.headers) as connection:
            listed = f"{mount.path} answers, {count_of(len(await connection.tools()), 'tool')}"
            missing = (await connection.notes_on_tools()).get(MISSING) or {}
    except ServerRefused as refused:
        return wrong(subject, str(refused), "See `mounts` in /healthz.")
    if not missing:
        return right(subject, listed)
    whys = "; ".join(f"{server}: {why}" for server, why in missing.items())
    return warning(subject, f"{listed}; missing: {whys}", "It shows their last lists, where there are any.")


def _greeting(connection: McpServer, eras: Sequence[str]) -> str:
    client = connection.client
    who = "without a name"
    if client.server_info:
        who = f"{client.server_info.name} {client.server_info.version}".strip()
    if eras:
        who += f", {spoken(eras)}; through the adapter"
    offers = sorted(client.server_capabilities.model_dump(exclude_none=True)) or ["nothing"]
    era = "with sessions" if connection.has_sessions else "without sessions"
    return f"{who}{'' if eras else ','} MCP {client.protocol_version} ({era}), offers {', '.join(offers)}"


def _missing(server: ServerSettings, subject: str, names: set[str]) -> list[Finding]:
    return [
        wrong(
            subject,
            f"servers[].adapters names the tool {tool}, which the server does not list.",
            "Correct the name, or remove it: its files are not moved.",
        )
        for tool in sorted({tool for adapter in server.adapters for tool in adapter.tools} - names)
    ]


async def clock_of(server: ServerSettings) -> Finding | None:
    """Compare the clock of an upstream on HTTP with this machine's; None where it names no time."""
    if server.upstream.url is None:
        return None
    try:
        date = (await head_of(server.upstream.url)).get("Date")
        there = parsedate_to_datetime(date).timestamp() if date else None
    except (TransferFailed, ValueError):
        return None
    if there is None:
        return None
    skew = there - time.time()
    if abs(skew) <= MOST_SKEW:
        return right("clock", f"the upstream of {server.id} agrees within {MOST_SKEW:.0f} s")
    return warning(
        "clock", f"the upstream of {server.id} is {skew:+.0f} s away.", "Synchronize both clocks (NTP)."
    )


async def public_url(url: str) -> Finding:
    """Tell whether the adapter answers under ``core.public_base_url``, which is in the links that clients get."""
    subject = "public URL"
    try:
        fields = await head_of(f"{url.rstrip('/')}/livez", method="GET")
    except TransferFailed as failure:
        return wrong(
            subject,
            f"{url} does not lead to the adapter: {failure}",
            "Correct core.public_base_url, or its proxy.",
        )
    if not fields.get("Content-Type", "").startswith("application/json"):
        return wrong(
            subject, f"{url} leads to something else.", "Correct core.public_base_url, or its proxy."
        )
    return right(subject, f"{url} leads to an adapter")


# --- a file, there and back -------------------------------------------------------------------------------------

CONTENT = b"A file from mcp-adapter doctor.\n"


class RoundTrip(NamedTuple):
    """``tool`` of ``server``; ``arguments`` join those that the adapter fills. Without ``file`` a text of one line."""

    server: ServerSettings
    tool: str
    arguments: Mapping[str, Any]
    file: Path | None = None


async def travel(trip: RoundTrip, adapter: AdapterAddress) -> AsyncIterator[Finding]:
    """Move the file, and say of each step whether it worked. The steps after a failed one are left out."""
    subject = f"tool {trip.tool}"
    entry, tool = trip.server, trip.tool
    taking = next((each for each in entry.consumers if tool in each.tools), None)
    giving = next((each for each in entry.producers if tool in each.tools), None)
    if taking is None and giving is None:
        yield wrong(subject, "no adapter is declared for it.", "Name it in servers[].adapters.")
        return
    arguments = dict(trip.arguments)
    try:
        async with connected(adapter.of(trip.server), adapter.headers) as connection:
            if taking is not None:
                handle = await _uploaded(trip, connection)
                arguments[taking.file_path_argument] = handle
                yield right(subject, f"a file was uploaded and has the handle {handle[:9]}…")
            if giving is not None and giving.output_path_argument is not None:
                arguments.setdefault(giving.output_path_argument, "doctor.txt")
            result = await connection.call(trip.tool, arguments)
            yield right(subject, "the call succeeded")
            if giving is not None:
                yield await _fetched(subject, result, connection)
    except (ServerRefused, TransferFailed) as failure:
        yield wrong(
            subject, str(failure), "Pass what the tool needs with --arguments, or correct its adapter."
        )


async def _uploaded(trip: RoundTrip, connection: McpServer) -> str:
    offer = (await connection.call(f"{trip.server.id}{HELPER}", {}))["structuredContent"]
    with tempfile.TemporaryDirectory() as folder:
        file = trip.file
        if file is None:
            file = Path(folder) / "doctor.txt"
            file.write_bytes(CONTENT)
        (uploaded,) = await upload(offer["upload_url"], [file], {}, _silent)
    return str(uploaded["upload_handle"])


async def _fetched(subject: str, result: dict[str, Any], connection: McpServer) -> Finding:
    meta = result.get("_meta", {})
    artifact = meta.get("artifact")
    if artifact is None:
        why = meta.get("artifact_error", "the result has none")
        return wrong(subject, f"no artifact was captured: {why}", "See output_locator in docs/files.md.")
    if "download_url" in artifact:
        await download(artifact["download_url"], {}, lambda *_: io.BytesIO(), _silent)
    else:
        await connection.read(artifact["artifact_uri"])
    return right(
        subject, f"its artifact {artifact['filename']} ({size(artifact['size_bytes'])}) was downloaded"
    )


def _silent(moved: int) -> None:
    """Show no progress of a file that small."""
