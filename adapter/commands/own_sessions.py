"""Sessions of a command's own with the configured servers, as clients would meet them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any, NamedTuple

from adapter import log
from adapter.app.base import Base
from adapter.app.servers import Upstreams
from adapter.app.tool_plans import Compiled, compiled
from adapter.app.tools import Decorate, policies_of, shape_of
from adapter.errors import AdapterError
from adapter.relay.param_headers import ParamHeaders
from adapter.relay.sessions.own_session import REFUSED, OwnSession
from adapter.relay.stages import StageTable
from adapter.relay.tools.catalogue_reader import all_tools
from adapter.relay.tools.tool_lists import ToolLists
from adapter.rules.access.authorization_servers import OAUTH_CURE
from adapter.rules.tools.definitions import Tool
from adapter.settings.root import Settings
from adapter.settings.servers.server import ServerSettings
from adapter.state.memory import MemoryStore
from adapter.state.watched import WatchedStore
from adapter.wire.eras import Era


@contextlib.asynccontextmanager
async def own_session(
    settings: Settings, entry: ServerSettings, patience: float
) -> AsyncIterator[tuple[OwnSession, Compiled]]:
    """Yield a session with one server, not open yet, and the plans of its tools. ``patience`` is in seconds.

    Raises SettingsError.
    """
    # The scripts of other servers are not loaded.
    alone = settings.model_copy(update={"servers": [entry]})
    made = compiled(alone, log.get_logger(__name__))
    upstreams = Upstreams(Base(settings, WatchedStore(MemoryStore())), made.hosting)
    server = upstreams.server(entry, StageTable())
    session = OwnSession(server, patience)
    try:
        yield session, made
    finally:
        await session.close()
        await server.upstream.close()
        await upstreams.close()
        made.loading.close()


async def tools_of(
    settings: Settings, entry: ServerSettings, session: OwnSession, decorate: Decorate | None = None
) -> list[Tool] | None:
    """The tools on all pages, as clients would see them; None where no whole list can be had.

    ``decorate`` is what the stages of a tool add to it. Raises what the upstream raises, and BadJson.
    """
    shape = shape_of(policies_of(settings, entry), decorate)
    lists = ToolLists(entry.id, shape, (), ParamHeaders(), log.get_logger(__name__))

    async def fetch(method: str, params: dict[str, Any]) -> bytes | None:
        return (await session.ask(method, params, settings.core.upstream_request_timeout_seconds)).response

    return await all_tools(lists, fetch, modern=session.era is Era.MODERN)


def _hint(entry: ServerSettings, *, asks_oauth: bool) -> str:
    auth = entry.upstream.auth
    if auth.per_caller:
        return f"callers bring them (upstream.auth.type {auth.type})"
    if auth.type in ("none", "static"):
        return OAUTH_CURE if asks_oauth else "set them in upstream.static_headers"
    return f"upstream.auth got no token, or one that is refused (type {auth.type})"


class Reached(NamedTuple):
    """One server as the adapter reaches it: ``detail`` is a sentence, ``milliseconds`` None where it is not reached."""

    server: str
    reachable: bool
    detail: str
    milliseconds: float | None = None


async def reached(place: str, asked: Awaitable[str]) -> Reached:
    """What comes of asking at a place: the sentence, or the failure. A ``{took}`` of the sentence becomes the time."""
    began = time.monotonic()
    try:
        detail = await asked
    except (AdapterError, ValueError) as error:
        return Reached(place, False, getattr(error, "reason", None) or str(error))
    took = round((time.monotonic() - began) * 1000, 1)
    return Reached(place, True, detail.replace("{took}", f"{took:g} ms"), took)


async def reach_all(settings: Settings) -> Sequence[Reached]:
    """Open and close a session with every server that has an address or a process of its own, all at once."""
    entries = [entry for entry in settings.servers if entry.upstream.kind.needs is not None]
    return await asyncio.gather(*(reached(entry.id, _answer(settings, entry)) for entry in entries))


async def _answer(settings: Settings, entry: ServerSettings) -> str:
    patience = settings.core.upstream_request_timeout_seconds
    try:
        async with own_session(settings, entry, patience) as (session, _), asyncio.timeout(patience):
            status = await session.open()
            if status in REFUSED:
                hint = _hint(entry, asks_oauth=session.asks_oauth)
                return f"requires credentials (HTTP status {status}): {hint}"
            if not session.is_open:
                raise ValueError(f"does not answer as an MCP server (HTTP status {status})")
            return f"answers in {{took}}, era {session.era.value if session.era is not None else 'unknown'}"
    except TimeoutError:
        raise ValueError(
            f"did not answer within core.upstream_request_timeout_seconds ({patience:g})"
        ) from None
