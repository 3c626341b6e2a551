"""Sessions of a command's own with the servers, as clients would meet them; and all that ``--connect`` reaches."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from adapter import log
from adapter.app.access.rules import own_tools
from adapter.app.access.tool_policies import Decorate, policies_of, shape_of
from adapter.app.attaching import file_parameters
from adapter.app.base import Base
from adapter.app.hosted import HostedTools
from adapter.app.mounts import naming_of_tools
from adapter.app.servers import Servers
from adapter.app.state import build_redis_store
from adapter.app.tool_plans import compiled
from adapter.commands.progress_bar import count_of
from adapter.errors import AdapterError
from adapter.relay.param_headers import ParamHeaders
from adapter.relay.server import REFUSED
from adapter.relay.sessions.own_session import OwnSession
from adapter.relay.stages import StageTable
from adapter.relay.tools.catalogue_reader import all_tools
from adapter.relay.tools.tool_lists import ToolLists
from adapter.rules.access.authorization_servers import OAUTH_CURE
from adapter.rules.files.attached_files import StaysHandle, declared
from adapter.rules.mounts.names import NameTable, NamingRules, ServerNames
from adapter.rules.text.unicode import shown
from adapter.rules.tools.definitions import Tool
from adapter.settings.auth import Introspection, OAuth, OAuthIssuer
from adapter.settings.root import Settings
from adapter.settings.section import Problem
from adapter.settings.servers.server import ServerSettings
from adapter.state.sqlite import MemoryStore
from adapter.state.watched import WatchedStore
from adapter.wire.piecewise import at_once


@contextlib.asynccontextmanager
async def own_session(
    settings: Settings, entry: ServerSettings, patience: float
) -> AsyncIterator[tuple[OwnSession, HostedTools]]:
    """Yield a session with one server, not open yet, and the plans of its tools. ``patience`` is in seconds.

    Raises SettingsError.
    """
    # The scripts of other servers are not loaded.
    alone = settings.model_copy(update={"servers": [entry]})
    made = compiled(alone, log.get_logger(__name__))
    servers = Servers(Base(settings, WatchedStore(MemoryStore())), hosting=made)
    server = servers.server(entry, StageTable())
    session = OwnSession(server, patience)
    try:
        yield session, made
    finally:
        await session.close()
        await server.upstream.close()
        await servers.end_processes()
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

    return await all_tools(lists, fetch)


# --- what --connect reaches -----------------------------------------------------------------------------------------


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


async def reach(settings: Settings) -> list[Reached]:
    """Reach all that the settings name, each at the same time as the others."""
    state, issuers, servers = await asyncio.gather(
        reach_state(settings), reach_issuers(settings.core.auth.oauth), _reach_servers(settings)
    )
    return [*([] if state is None else [state]), *issuers, *servers]


# --- upstreams --------------------------------------------------------------------------------------------------


async def _reach_servers(settings: Settings) -> Sequence[Reached]:
    """Open and close a session with every server that has an address or a process of its own, all at once."""
    entries = [entry for entry in settings.servers if entry.upstream.kind.needs is not None]
    names: dict[str, list[str]] = {}
    sessions = (reached(entry.id, _session(settings, entry, names)) for entry in entries)
    return [*await asyncio.gather(*sessions), *_hidden(settings, names)]


def _hidden(settings: Settings, names: Mapping[str, Sequence[str]]) -> Iterator[Reached]:
    """Find the tools that mounts do not show, because a server that stands before theirs has the name."""
    for mount in settings.mounts:
        rules = NamingRules(mount.prefix != "none")
        members = [entry.id for entry in settings.members_of(mount) if entry.id in names]
        table = NameTable(rules, [at_once(ServerNames.of(rules, each, names[each])) for each in members])
        if table.hidden:
            yield Reached(mount.path, True, "; ".join(map(str, table.hidden)))


async def _session(settings: Settings, entry: ServerSettings, names: dict[str, list[str]]) -> str:
    patience = settings.core.upstream_request_timeout_seconds
    try:
        async with own_session(settings, entry, patience) as (session, _), asyncio.timeout(patience):
            status = await session.open()
            if status in REFUSED:
                hint = _hint(entry, asks_oauth=session.asks_oauth)
                return f"requires credentials (HTTP status {status}): {hint}"
            if not session.is_open:
                raise ValueError(f"does not answer as an MCP server (HTTP status {status})")
            stays = "".join([f"; {each}" async for each in _handles_only(settings, entry, session)])
            if any(entry in settings.members_of(mount) for mount in settings.mounts):
                names[entry.id] = [tool.name for tool in await tools_of(settings, entry, session) or ()]
                stays += "".join(f"; {each}" for each in _shortened(settings, entry, names[entry.id]))
            return f"answers in {{took}}, {spoken(era.value for era in session.eras)}{stays}"
    except TimeoutError:
        raise ValueError(
            f"did not answer within core.upstream_request_timeout_seconds ({patience:g})"
        ) from None


def spoken(eras: Iterable[str]) -> str:
    """The eras of a server, for people."""
    found = sorted(eras)
    return f"{'eras' if len(found) > 1 else 'era'} {' and '.join(found) or 'unknown'}"


async def _handles_only(settings: Settings, entry: ServerSettings, session: OwnSession) -> AsyncIterator[str]:
    """Find the file arguments into which ChatGPT puts no files, by the schemas of the server's tools."""
    parameters = file_parameters(settings, entry)
    for tool in (await tools_of(settings, entry, session) or []) if parameters else []:
        if (parameter := parameters.get(tool.name)) is not None:
            try:
                declared(tool.raw, parameter)
            except StaysHandle as why:
                yield f"for ChatGPT {parameter.argument} of {tool.name} stays a handle: it {why}"


def _shortened(settings: Settings, entry: ServerSettings, names: Sequence[str]) -> Iterator[str]:
    """Find the tools whose names at merged mounts are not those that their server gave them, with the prefix."""
    for mount in settings.mounts:
        if entry in settings.members_of(mount):
            shown = at_once(ServerNames.of(NamingRules(mount.prefix != "none"), entry.id, names))
            for short in sorted(shown.shortened):
                yield f"{shown.shown[short]} is {short} at {mount.path}"


def _hint(entry: ServerSettings, *, asks_oauth: bool) -> str:
    auth = entry.upstream.auth
    if auth.per_caller:
        return f"callers bring them (upstream.auth.type {auth.type})"
    if auth.type in ("none", "static"):
        return OAUTH_CURE if asks_oauth else "set them in upstream.static_headers"
    return f"upstream.auth got no token, or one that is refused (type {auth.type})"


# --- the state store --------------------------------------------------------------------------------------------


async def reach_state(settings: Settings) -> Reached | None:
    """Write a small row and delete it; None where the state is not in Redis. Raises SettingsError."""
    if settings.state_persistence.type != "redis":
        return None
    return await reached("state_persistence", _written(settings))


async def _written(settings: Settings) -> str:
    warnings: list[str] = []
    store = build_redis_store(settings, warnings.append)
    await store.open()
    try:
        await store.put("health", "checked", b"")
        await store.delete("health", "checked")
    finally:
        await store.close()
    return " ".join(("Redis answers and can be written, in {took}.", *warnings))


# --- authorization servers --------------------------------------------------------------------------------------


async def reach_issuers(oauth: OAuth | None) -> Sequence[Reached]:
    """Fetch the keys of each issuer, and ask the introspection endpoint about a token that nobody has."""
    if oauth is None:
        return ()
    asked = [
        reached(f"core.auth.oauth.issuers[{index}]", _keys(entry))
        for index, entry in enumerate(oauth.issuers)
    ]
    if oauth.introspection is not None:
        asked.append(reached("core.auth.oauth.introspection", _introspection(oauth.introspection)))
    return await asyncio.gather(*asked)


async def _keys(entry: OAuthIssuer) -> str:
    # Late: the library of keys is for those who have issuers.
    from adapter.oauth.discovery import issuer_metadata
    from adapter.oauth.issuer import fetch_keys
    from adapter.pipeline.key_set import read_key_set
    from adapter.upstream.outgoing import IssuerHttp

    http = IssuerHttp()
    document = await fetch_keys(http, issuer_metadata(http, entry.issuer), entry.jwks_url)(entry.issuer)
    keys, _ = read_key_set(document)
    offered = {algorithm for key in keys.values() for algorithm in key.algorithms}
    if not offered.intersection(entry.algorithms):
        fitting = ", ".join(sorted(offered)) or "no algorithm"
        raise ValueError(
            f"publishes no key for {', '.join(entry.algorithms)}, but for {fitting}: change algorithms"
        )
    return f"publishes {count_of(len(keys), 'usable key')}, in {{took}}"


async def _introspection(settings: Introspection) -> str:
    from adapter.oauth.introspection import introspected
    from adapter.upstream.outgoing import IssuerHttp

    nobodys = secrets.token_urlsafe()
    answer, _ = await introspected(IssuerHttp(), settings, nobodys)
    if answer.get("active") is not False:
        raise ValueError("does not say that a token which was just made up is not active")
    return "answers, in {took}"


# --- names at mounts ---------------------------------------------------------------------------------------


def mount_cautions(settings: Settings, known: Mapping[str, Set[str]]) -> Iterator[Problem]:
    """A warning for each tool that a mount hides or shortens the name of, where tools of servers are ``known``."""
    for place, mount in enumerate(settings.mounts):
        rules, tables = naming_of_tools(mount), []
        for server in (entry.id for entry in settings.members_of(mount) if entry.id in known):
            names = sorted(known[server] - own_tools(server))
            tables.append(at_once(ServerNames.of(rules, server, names)))
        for hidden in NameTable(rules, tables).hidden:
            yield Problem(f"mounts[{place}]", str(hidden))
        for names_there in tables:
            for short in sorted(names_there.shortened):
                sentence = f"{shown(names_there.shown[short], 300)} of {names_there.server} is {short}"
                yield Problem(f"mounts[{place}]", sentence)
