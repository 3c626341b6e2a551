"""Checks that no single field can make: ids, mounts and tools against each other, and values that must be present."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from adapter.settings.console_oauth import console_oauth_problems
from adapter.settings.metrics_consistency import metrics_problems
from adapter.settings.oauth import oauth_problems
from adapter.settings.pipeline import ConnectorSettings, PresenterSettings
from adapter.settings.root import Settings
from adapter.settings.section import Problem
from adapter.settings.servers.file_adapters import ArtifactProducer, UploadConsumer
from adapter.settings.servers.hosted_tools import ToolSettings
from adapter.settings.servers.server import ServerSettings, UpstreamSettings
from adapter.settings.servers.upstream_auth import (
    auth_problems,
    caller_problems,
    page_problems,
    shared_problems,
)
from adapter.settings.state_consistency import state_problems

NOTHING_KEPT = (
    "configures a cache that is not enabled: add enabled: true, or set servers[].tools.cache.enabled"
)


def _repeated(values: Iterable[Hashable]) -> Iterator[tuple[int, int]]:
    """The place of each value that was there before, and the place where it came first."""
    seen: dict[Hashable, int] = {}
    for index, value in enumerate(values):
        first = seen.setdefault(value, index)
        if first != index:
            yield index, first


def _repeated_connectors(connectors: Sequence[ConnectorSettings]) -> Iterator[Problem]:
    for index, first in _repeated(connector.name.lower() for connector in connectors):
        sentence = f"{connectors[index].name} is already the name of connectors[{first}]"
        yield Problem(f"connectors[{index}].name", sentence)


def hosted_tools(server: ServerSettings, path: str, settings: Settings) -> Iterator[Problem]:
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
    if tool.presenter is not None and tool.presenter not in settings.presenters:
        yield Problem(f"{place}.presenter", f"there is no presenter with the name {tool.presenter}")
    if server.tools.require_auth and server.stages_of(tool).auth is None:
        sentence = (
            f"{tool.name} has no auth, but tools.require_auth is set; to allow everybody, use the "
            "plugin allow_all"
        )
        yield Problem(place, sentence)
    if tool.cache.idle(server.tools.cache.enabled):
        yield Problem(f"{place}.cache", NOTHING_KEPT)
    exactly = server.stages.get(tool.name)
    if tool.handler is not None and (tool.cache.enabled or (exactly is not None and exactly.cache.enabled)):
        yield Problem(
            f"{place}.cache", "is only for read-only statements: results of scripts cannot be cached"
        )


def _work_problems(tool: ToolSettings, place: str, connectors: set[str]) -> Iterator[Problem]:
    if tool.input_schema is not None and tool.inputs:
        yield Problem(f"{place}.input_schema", "replaces inputs: remove one of the two")
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


def pipeline_problems(settings: Settings) -> Iterator[Problem]:
    """References to missing presenters, presenters that embed each other, and an unusable console."""
    yield from _embeds(settings.presenters)
    for index, server in enumerate(settings.servers):
        for glob, stages in server.stages.items():
            if stages.cache.idle(server.tools.cache.enabled):
                yield Problem(f"servers[{index}].stages.{glob}.cache", NOTHING_KEPT)
            if stages.presenter is not None and stages.presenter not in settings.presenters:
                sentence = f"there is no presenter with the name {stages.presenter}"
                yield Problem(f"servers[{index}].stages.{glob}.presenter", sentence)
    yield from _console(settings)


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


def _console(settings: Settings) -> Iterator[Problem]:
    console, auth = settings.console, settings.core.auth
    names = {token.name for token in auth.tokens}
    for index, operator in enumerate(console.operators):
        if operator not in names:
            sentence = f"no entry of core.auth.tokens has the name {operator}"
            yield Problem(f"console.operators[{index}]", sentence)
    exposure = settings.core.exposure
    if console.enabled and not auth.enabled and exposure is not None:
        sentence = f"is not allowed, because {exposure} and core.auth is not enabled: enable core.auth"
        yield Problem("console.enabled", sentence)
    if console.discovery_auth and not auth.enabled:
        yield Problem(
            "console.discovery_auth", "requires a token, but core.auth is not enabled: enable core.auth"
        )


HEALTH_ROUTES = ("/healthz", "/livez", "/readyz")
ARTIFACTS_ROUTE = "/artifacts"
REPLICA_ROUTE = "/_replica"
METADATA_ROUTE = "/.well-known/oauth-protected-resource"
OWN_ROUTES = (*HEALTH_ROUTES, ARTIFACTS_ROUTE, REPLICA_ROUTE, METADATA_ROUTE)


def inconsistencies(settings: Settings) -> Iterator[Problem]:
    """Every contradiction between values that are valid on their own."""
    if not settings.servers:
        yield Problem("servers", "no server is configured: add at least one with an id and an upstream.url")
    yield from _repeated_names(settings)
    yield from _mount_clashes(settings)
    for index, server in enumerate(settings.servers):
        yield from _upstream_gaps(server, f"servers[{index}]")
        yield from _upstream_auth(server, f"servers[{index}].upstream.auth", settings)
        yield from hosted_tools(server, f"servers[{index}]", settings)
        yield from _tools_claimed_twice(server, f"servers[{index}]")
        yield from _arguments_claimed_twice(server, f"servers[{index}]")
        if settings.uploads.enabled:
            yield from _helper_names_claimed(server, f"servers[{index}]")
    yield from _repeated_connectors(settings.connectors)
    yield from _console_clashes(settings)
    yield from state_problems(settings)
    yield from metrics_problems(settings, OWN_ROUTES)
    if any(server.upstream.auth.type == "authorization_code" for server in settings.servers):
        paths = {
            f"servers[{index}].mount_path": server.mount_path for index, server in enumerate(settings.servers)
        }
        paths |= {"core.upload_path": settings.core.upload_path, "console.path": settings.console.path}
        yield from page_problems(paths, settings.core.public_base_url)
    yield from pipeline_problems(settings)
    yield from console_oauth_problems(
        settings.console.oauth, settings.core.auth.oauth, settings.core.public_base_url
    )
    yield from oauth_problems(settings.core.auth.oauth, settings.core.public_base_url)


def _repeated_names(settings: Settings) -> Iterator[Problem]:
    for index, first in _repeated(server.id.lower() for server in settings.servers):
        sentence = f"{settings.servers[index].id} is already the id of servers[{first}]"
        yield Problem(f"servers[{index}].id", sentence)


def _mount_clashes(settings: Settings) -> Iterator[Problem]:
    upload = settings.core.upload_path
    if upload in OWN_ROUTES:
        yield Problem("core.upload_path", f"{upload} is a route of the adapter itself")
    for index, server in enumerate(settings.servers):
        path, mount = f"servers[{index}].mount_path", server.mount_path
        if mount in HEALTH_ROUTES or any(
            _at_or_below(mount, route) for route in (ARTIFACTS_ROUTE, REPLICA_ROUTE, METADATA_ROUTE)
        ):
            yield Problem(path, f"{mount} is a route of the adapter itself")
        elif _at_or_below(mount, upload):
            yield Problem(path, f"{mount} is below core.upload_path, which is {upload}")
    for index, first in _repeated(server.mount_path for server in settings.servers):
        sentence = f"{settings.servers[index].mount_path} is already the mount_path of servers[{first}]"
        yield Problem(f"servers[{index}].mount_path", sentence)


def _console_clashes(settings: Settings) -> Iterator[Problem]:
    """Conflicts between the console's path and other routes: neither may be below the other."""
    console = settings.console
    routes = dict.fromkeys(OWN_ROUTES, "a route of the adapter itself")
    routes[settings.core.upload_path] = "core.upload_path"
    mounts = {server.mount_path: f"the mount_path of {server.id}" for server in settings.servers}
    for path, owner in (routes | mounts).items() if console.enabled else ():
        inside = path in routes and _at_or_below(console.path, path)
        if inside or _at_or_below(path, console.path):
            yield Problem("console.path", f"{console.path} is not free: {path} is {owner}")


def _at_or_below(path: str, route: str) -> bool:
    return path == route or path.startswith(f"{route}/")


def _upstream_gaps(server: ServerSettings, path: str) -> Iterator[Problem]:
    upstream = server.upstream
    needs = upstream.kind.needs
    if needs is not None and getattr(upstream, needs) is None:
        yield Problem(f"{path}.upstream.{needs}", f"is required for the transport {upstream.transport}")
    yield from _strange_keys(upstream, f"{path}.upstream")


def _upstream_auth(server: ServerSettings, path: str, settings: Settings) -> Iterator[Problem]:
    upstream, core = server.upstream, settings.core
    passed = (*upstream.client_headers.passthrough, *upstream.client_headers.required)
    yield from auth_problems(upstream.auth, upstream.transport, upstream.static_headers, passed, path)
    yield from caller_problems(
        upstream.auth,
        path,
        oauth=core.auth.oauth is not None,
        auth_enabled=core.auth.enabled,
        public=core.public_base_url is not None,
    )
    if upstream.auth.type == "passthrough" and not core.auth.enabled:
        yield from shared_problems(
            {key: getattr(settings.sessions, key) for key in ("upstream", "missing_id", "scope")}
        )


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


def _helper_names_claimed(server: ServerSettings, path: str) -> Iterator[Problem]:
    """Upstream tools with the name of the adapter's own upload helper, which would hide them."""
    helper = f"{server.id}_get_upload_url"
    if not any(isinstance(entry, UploadConsumer) for entry in server.adapters):
        return
    for index, entry in enumerate(server.adapters):
        if helper in entry.tools:
            sentence = f"{helper} is the name of the adapter's own tool for upload URLs"
            yield Problem(f"{path}.adapters[{index}].tools", f"{sentence}; choose another id for the server")
