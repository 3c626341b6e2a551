"""Servers, each as a client meets it through the adapter; and the machine of each."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from email.utils import parsedate_to_datetime
from typing import NamedTuple
from urllib.parse import urlsplit

from adapter.commands.doctor.findings import Finding, right, warning, wrong
from adapter.commands.progress_bar import count_of
from adapter.settings.servers.server import ServerSettings
from adapter.upstream.client.server import McpServer, ServerRefused, TokenRefused, connected
from adapter.upstream.client.transfers import TransferFailed, head_of, json_of

SLOW = 1.0
"""Seconds for a list of tools from which a server is called slow."""

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
            yield right(subject, _greeting(connection))
            began = time.monotonic()
            names = {tool["name"] for tool in await connection.tools()}
            took = time.monotonic() - began
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
    try:
        health = await json_of(f"{adapter.base}/healthz", adapter.headers)
        (error,) = [
            each["ping"]["last_error"] for each in health["servers"] if each["server_id"] == server.id
        ]
    except (TransferFailed, ValueError, LookupError, TypeError):
        return None
    return None if error in (None, _HIDDEN) else str(error)


def _greeting(connection: McpServer) -> str:
    client = connection.client
    who = (
        f"{client.server_info.name} {client.server_info.version}" if client.server_info else "without a name"
    )
    offers = sorted(client.server_capabilities.model_dump(exclude_none=True)) or ["nothing"]
    era = "with sessions" if connection.has_sessions else "without sessions"
    return f"{who}, MCP {client.protocol_version} ({era}), offers {', '.join(offers)}"


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
