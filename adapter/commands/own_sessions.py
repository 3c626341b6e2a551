"""Sessions of a command's own with the configured servers, as clients would meet them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from adapter import log
from adapter.app.base import Base
from adapter.app.servers import Upstreams
from adapter.app.tool_plans import Compiled, compiled
from adapter.app.tools import Decorate, policies_of, shape_of
from adapter.relay.param_headers import ParamHeaders
from adapter.relay.sessions.inner_client import OwnSession
from adapter.relay.stages import StageTable
from adapter.relay.tools.catalogue_reader import all_tools
from adapter.relay.tools.tool_lists import ToolLists
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
