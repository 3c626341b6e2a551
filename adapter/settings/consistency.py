"""Checks that no single field can make: ids, mounts and tools against each other, and values that must be present."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping

from adapter.settings.addresses import address_problems
from adapter.settings.mounts import mount_problems
from adapter.settings.pipeline import PresenterSettings
from adapter.settings.root import Settings
from adapter.settings.section import Problem
from adapter.settings.servers.file_adapters import ArtifactProducer, UploadConsumer
from adapter.settings.servers.hosted_tools import ToolSettings
from adapter.settings.servers.server import ServerSettings, UpstreamSettings
from adapter.settings.servers.stages import StageKeys
from adapter.settings.servers.upstream_auth import auth_problems
from adapter.settings.storage import RedisState


def inconsistencies(settings: Settings) -> Iterator[Problem]:
    """Every contradiction between values that are valid on their own."""
    if not settings.servers:
        yield Problem("servers", "no server is configured: add at least one with an id and an upstream.url")
    for index, first in _repeated(server.id.lower() for server in settings.servers):
        sentence = f"{settings.servers[index].id} is already the id of servers[{first}]"
        yield Problem(f"servers[{index}].id", sentence)
    yield from mount_problems(settings.mounts, settings.servers)
    yield from address_problems(settings)
    for index, server in enumerate(settings.servers):
        yield from _upstream_gaps(server, f"servers[{index}]")
        yield from _upstream_auth(server, f"servers[{index}].upstream.auth", settings)
        yield from _hosted_tools(server, f"servers[{index}]", settings)
        yield from _tools_claimed_twice(server, f"servers[{index}]")
        yield from _arguments_claimed_twice(server, f"servers[{index}]")
        if server.shortens and not settings.artifacts.enabled:
            sentence = (
                "is required for large_results, which become artifacts: set it to true, or remove those"
            )
            yield Problem("artifacts.enabled", sentence)
        yield from _helper_names_claimed(server, f"servers[{index}]", settings)
    for index, first in _repeated(connector.name.lower() for connector in settings.connectors):
        sentence = f"{settings.connectors[index].name} is already the name of connectors[{first}]"
        yield Problem(f"connectors[{index}].name", sentence)
    yield from _state(settings)
    yield from _presenters(settings)
    yield from _oauth(settings)


def _repeated(values: Iterable[Hashable]) -> Iterator[tuple[int, int]]:
    """The place of each value that was there before, and the place where it came first."""
    seen: dict[Hashable, int] = {}
    for index, value in enumerate(values):
        first = seen.setdefault(value, index)
        if first != index:
            yield index, first


def _hosted_tools(server: ServerSettings, path: str, settings: Settings) -> Iterator[Problem]:
    """Find contradictions in the tools of one server, and tools where no server is hosted."""
    if server.upstream.kind.needs is not None:
        for key in ("define", "directory", "require_auth"):
            if getattr(server.tools, key):
                sentence = "is only for hosted servers: set upstream.transport to hosted"
                yield Problem(f"{path}.tools.{key}", sentence)
        return
    for key in ("url", "insecure_tls", "static_headers"):
        if getattr(server.upstream, key):
            yield Problem(
                f"{path}.upstream.{key}", "is not for hosted servers, which have no address: remove it"
            )
    if not server.tools.define:
        sentence = (
            "is required for upstream.transport hosted: add at least one tool, here or in tools.directory"
        )
        yield Problem(f"{path}.tools.define", sentence)
    for index, first in _repeated(tool.name for tool in server.tools.define):
        sentence = f"{server.tools.define[index].name} is already the name of define[{first}]"
        yield Problem(f"{path}.tools.define[{index}].name", sentence)
    for index, tool in enumerate(server.tools.define):
        place = f"{path}.tools.define[{index}]"
        yield from _work_problems(tool, place, {connector.name for connector in settings.connectors})
        yield from _stage_problems(tool, place, server, settings)


def _stage_problems(
    tool: ToolSettings, place: str, server: ServerSettings, settings: Settings
) -> Iterator[Problem]:
    yield from _useless(tool, place, server, settings)
    if server.tools.require_auth and server.stages_of(tool).auth is None:
        sentence = (
            f"{tool.name} has no auth, but tools.require_auth is set; to allow everybody, use the "
            "plugin allow_all"
        )
        yield Problem(place, sentence)
    exactly = server.stages.get(tool.name)
    if tool.handler is not None and (tool.cache.enabled or (exactly is not None and exactly.cache.enabled)):
        yield Problem(
            f"{place}.cache", "is only for read-only statements: results of scripts cannot be cached"
        )


def _useless(stages: StageKeys, place: str, server: ServerSettings, settings: Settings) -> Iterator[Problem]:
    """Find a presenter that is missing, and a cache that keeps nothing."""
    if stages.presenter is not None and stages.presenter not in settings.presenters:
        yield Problem(f"{place}.presenter", f"there is no presenter with the name {stages.presenter}")
    if stages.cache.idle(server.tools.cache.enabled):
        sentence = (
            "configures a cache that is not enabled: add enabled: true, or set servers[].tools.cache.enabled"
        )
        yield Problem(f"{place}.cache", sentence)


def _work_problems(tool: ToolSettings, place: str, connectors: set[str]) -> Iterator[Problem]:
    if tool.handler is not None and tool.substitution != "bound":
        yield Problem(f"{place}.substitution", "is only for statements, not for scripts: remove it")
    if (tool.use is None) == (tool.handler is None):
        how = "neither" if tool.use is None else "both"
        yield Problem(place, f"{tool.name} has {how} of use and handler: set exactly one")
    if tool.use is not None:
        if tool.use not in connectors:
            yield Problem(f"{place}.use", f"there is no connector with the name {tool.use}")
        if tool.statement is None:
            yield Problem(f"{place}.statement", "is required where use names a connector")
        if "runtime" in tool.model_fields_set:
            yield Problem(f"{place}.runtime", "is only for scripts, not for statements: remove it")
    elif tool.statement is not None:
        yield Problem(f"{place}.use", "is required: name the connector that runs the statement")


def _presenters(settings: Settings) -> Iterator[Problem]:
    """References to missing presenters, presenters that embed each other, and caches that keep nothing."""
    yield from _embeds(settings.presenters)
    for index, server in enumerate(settings.servers):
        for glob, stages in server.stages.items():
            yield from _useless(stages, f"servers[{index}].stages.{glob}", server, settings)


def _embeds(presenters: Mapping[str, PresenterSettings]) -> Iterator[Problem]:
    for name, presenter in presenters.items():
        for member, embedded in presenter.embed.items():
            place = f"presenters.{name}.embed.{member}"
            if embedded not in presenters:
                yield Problem(place, f"there is no presenter with the name {embedded}")
            elif name in _within(embedded, presenters):
                yield Problem(place, f"{embedded} embeds {name} again, so the data would have no end")


def _within(name: str, presenters: Mapping[str, PresenterSettings]) -> set[str]:
    """The presenter and all presenters that it embeds, directly or indirectly."""
    found: set[str] = set()
    open_ends = [name]
    while open_ends:
        embedded = open_ends.pop()
        if embedded in presenters and embedded not in found:
            found.add(embedded)
            open_ends.extend(presenters[embedded].embed.values())
    return found


def _upstream_gaps(server: ServerSettings, path: str) -> Iterator[Problem]:
    upstream = server.upstream
    needs = upstream.kind.needs
    if needs is not None and getattr(upstream, needs) is None:
        yield Problem(f"{path}.upstream.{needs}", f"is required for the transport {upstream.transport}")
    yield from _strange_keys(upstream, f"{path}.upstream")


def _upstream_auth(server: ServerSettings, path: str, settings: Settings) -> Iterator[Problem]:
    """Find contradictions in the credentials of one server, and between them and what callers have."""
    upstream, auth, core = server.upstream, server.upstream.auth, settings.core
    passed = (*upstream.client_headers.passthrough, *upstream.client_headers.required)
    headless = None if upstream.kind.headers else upstream.transport
    yield from auth_problems(auth, headless, upstream.static_headers, passed, path)
    if auth.type == "token_exchange" and core.auth.oauth is None:
        sentence = (
            "token_exchange exchanges the access tokens of callers, which only core.auth.oauth accepts: configure it, "
            "or use client_credentials"
        )
        yield Problem(f"{path}.type", sentence)
    if auth.metadata and core.auth.enabled:
        sentence = (
            "is not allowed with core.auth: clients can sign in with one authorization server only, that of the "
            "adapter or that of the upstream. Turn one of them off"
        )
        yield Problem(f"{path}.metadata", sentence)
    if core.public_base_url is None and auth.type == "authorization_code":
        sentence = (
            "is required with upstream.auth.type authorization_code, because people open links to this URL"
        )
        yield Problem("core.public_base_url", sentence)
    if core.public_base_url is None and auth.metadata:
        sentence = "is required with upstream.auth.metadata: the metadata name the URL of the mount"
        yield Problem("core.public_base_url", sentence)
    for key in ("upstream", "missing_id", "scope"):
        shares = getattr(settings.sessions, key) == "principal"
        if shares and auth.type == "passthrough" and not core.auth.enabled:
            sentence = (
                "must not be principal with upstream.auth.type passthrough unless core.auth is enabled: without it all "
                "callers are one principal, and would share what the upstream gives to one of them"
            )
            yield Problem(f"sessions.{key}", sentence)


_OF_HTTP = ("url", "insecure_tls", "static_headers", "client_headers", "server_headers")
_OF_STDIO = (
    *("command", "args", "env", "inherit_env", "cwd", "process", "max_processes", "idle_ttl_seconds"),
    *("start_timeout_seconds", "stop_grace_seconds"),
)


def _strange_keys(upstream: UpstreamSettings, path: str) -> Iterator[Problem]:
    """Keys of another transport than the server's; a default that stands there does no harm."""
    is_stdio = upstream.kind.needs == "command"
    for key in _OF_HTTP if is_stdio else _OF_STDIO:
        usual = UpstreamSettings.model_fields[key].get_default(call_default_factory=True)
        if key in upstream.said and getattr(upstream, key) != usual:
            sentence = (
                "is not for stdio servers, which get no HTTP requests: remove it"
                if is_stdio
                else "is only for stdio servers: set transport to stdio, or remove it"
            )
            yield Problem(f"{path}.{key}", sentence)


def _tools_claimed_twice(server: ServerSettings, path: str) -> Iterator[Problem]:
    """Tools in several entries of one type; one entry of each type is allowed."""
    seen: dict[tuple[str, str], int] = {}
    for index, entry in enumerate(server.adapters):
        for tool in entry.tools:
            first = seen.setdefault((entry.type, tool), index)
            if first != index:
                sentence = (
                    f"the tool {tool} is already in adapters[{first}]; a tool may be in one {entry.type} only"
                )
                yield Problem(f"{path}.adapters[{index}].tools", sentence)


def _arguments_claimed_twice(server: ServerSettings, path: str) -> Iterator[Problem]:
    """Tools with the same argument for the file to read and the file to write."""
    read = {
        tool: (entry.file_path_argument, index)
        for index, entry in enumerate(server.adapters)
        if isinstance(entry, UploadConsumer)
        for tool in entry.tools
    }
    for index, entry in enumerate(server.adapters):
        written = entry.output_path_argument if isinstance(entry, ArtifactProducer) else None
        for tool in entry.tools:
            argument, other = read.get(tool, (None, 0))
            if argument is not None and written is not None and _overlap(argument, written):
                sentence = (
                    f"{written} of {tool} is already the file argument {argument} in "
                    f"adapters[{other}]: use another argument"
                )
                yield Problem(f"{path}.adapters[{index}].output_path_argument", sentence)


def _overlap(one: str, other: str) -> bool:
    """Tell whether one of two dotted arguments is equal to the other or inside it."""
    parts, others = ([part.rstrip("[]") for part in path.split(".")] for path in (one, other))
    shorter = min(len(parts), len(others))
    return parts[:shorter] == others[:shorter]


def _helper_names_claimed(server: ServerSettings, path: str, settings: Settings) -> Iterator[Problem]:
    """Find tools with the names of the adapter's own, which would hide them."""
    takes, writes = server.consumers and settings.uploads.enabled, server.producers or server.shortens
    uploads = {f"{server.id}_get_upload_url": "upload URLs", f"{server.id}_upload_status": "uploads"}
    own = uploads if takes else {}
    if writes and settings.artifacts.enabled:
        own[f"{server.id}_read_artifact"] = "reading artifacts"
    named = [(f"adapters[{index}].tools", entry.tools) for index, entry in enumerate(server.adapters)]
    named += [(f"tools.define[{index}].name", [tool.name]) for index, tool in enumerate(server.tools.define)]
    for place, tools in named:
        for name in own.keys() & tools:
            sentence = f"{name} is the name of the adapter's own tool for {own[name]}"
            yield Problem(f"{path}.{place}", f"{sentence}; choose another id for the server")


def _state(settings: Settings) -> Iterator[Problem]:
    """Find contradictions between the state store, the lock on files, and the processes that use them."""
    state = settings.state_persistence
    if state.type == "redis":
        yield from _redis_address(state.redis)
    if settings.core.workers != 1 and state.type == "memory":
        sentence = "memory is for one process: set disk or redis, or core.workers to 1"
        yield Problem("state_persistence.type", sentence)
    if settings.storage.lock_mode == "redis" and state.type != "redis":
        sentence = "redis needs state_persistence.type redis: set that, or auto here"
        yield Problem("storage.lock_mode", sentence)
    if state.type == "redis" and state.refresh_on_startup:
        sentence = (
            "each replica that starts would delete the state of the others; empty the Redis database instead"
        )
        yield Problem("state_persistence.refresh_on_startup", sentence)


def _redis_address(redis: RedisState) -> Iterator[Problem]:
    if redis.url is None and redis.host is None:
        yield Problem(
            "state_persistence.redis.host", "or redis.url is required when state_persistence.type is redis"
        )
    if redis.url is not None:
        for key in ("host", "port", "db", "username", "password", "tls"):
            if key in redis.model_fields_set and getattr(redis, key):
                yield Problem(f"state_persistence.redis.{key}", "is in redis.url: remove one of them")


def _oauth(settings: Settings) -> Iterator[Problem]:
    """Find needs of the sections for access tokens and for signing in, outside of themselves."""
    console, oauth, base = settings.console.oauth, settings.core.auth.oauth, settings.core.public_base_url
    if oauth is not None and base is None:
        sentence = "is required with core.auth.oauth: tokens are issued for the URLs of the mounts, which begin with it"
        yield Problem("core.public_base_url", sentence)
    if console is None:
        return
    if oauth is None:
        yield Problem("console.oauth", "signs people in with an issuer of core.auth.oauth: set that")
    if base is None:
        yield Problem("console.oauth", "needs core.public_base_url, to which browsers return")
