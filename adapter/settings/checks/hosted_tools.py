"""Checks of what has to fit together for servers that the adapter hosts: their tools, and the connectors these use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from adapter.settings.connectors import ConnectorSettings
from adapter.settings.problems import Problem
from adapter.settings.root import Settings
from adapter.settings.servers.hosted_tools import ToolSettings
from adapter.settings.servers.server import ServerSettings

NOTHING_KEPT = (
    "says how results are kept, but none are: add enabled: true, or set servers[].tools.cache.enabled"
)


def repeated_connectors(connectors: Sequence[ConnectorSettings]) -> Iterator[Problem]:
    """Connectors of one name, in whatever case."""
    seen: dict[str, int] = {}
    for index, connector in enumerate(connectors):
        first = seen.setdefault(connector.name.lower(), index)
        if first != index:
            sentence = f"{connector.name} is already the name of connectors[{first}]"
            yield Problem(f"connectors[{index}].name", sentence)


def hosted_tools(server: ServerSettings, path: str, settings: Settings) -> Iterator[Problem]:
    """Find contradictions in the tools of one server, and tools where no server is hosted."""
    if server.upstream.transport != "hosted":
        for key in ("define", "directory", "require_auth"):
            if getattr(server.tools, key):
                sentence = "is for a server that the adapter hosts itself: set upstream.transport to hosted"
                yield Problem(f"{path}.tools.{key}", sentence)
        return
    for key in ("url", "insecure_tls", "static_headers"):
        if getattr(server.upstream, key):
            yield Problem(f"{path}.upstream.{key}", "is for other transports: a hosted server has no address")
    if not server.tools.define:
        sentence = "is required for the transport hosted: add at least one tool, here or in tools.directory"
        yield Problem(f"{path}.tools.define", sentence)
    seen: dict[str, int] = {}
    for index, tool in enumerate(server.tools.define):
        place = f"{path}.tools.define[{index}]"
        first = seen.setdefault(tool.name, index)
        if first != index:
            yield Problem(f"{place}.name", f"{tool.name} is already the name of define[{first}]")
        yield from _work_problems(tool, place, {connector.name for connector in settings.connectors})
        yield from _stage_problems(tool, place, server, settings)


def _stage_problems(
    tool: ToolSettings, place: str, server: ServerSettings, settings: Settings
) -> Iterator[Problem]:
    if tool.presenter is not None and tool.presenter not in settings.presenters:
        yield Problem(f"{place}.presenter", f"there is no presenter of the name {tool.presenter}")
    if server.tools.require_auth and server.stages_of(tool).auth is None:
        sentence = f"{tool.name} has no auth, which tools.require_auth demands; for everybody, the plugin is allow_all"
        yield Problem(place, sentence)
    if tool.cache.idle(server.tools.cache.enabled):
        yield Problem(f"{place}.cache", NOTHING_KEPT)
    exactly = server.stages.get(tool.name)
    if tool.handler is not None and (tool.cache.enabled or (exactly is not None and exactly.cache.enabled)):
        yield Problem(f"{place}.cache", "is for statements that read: what a script does is not known")


def _work_problems(tool: ToolSettings, place: str, connectors: set[str]) -> Iterator[Problem]:
    if tool.input_schema is not None and tool.inputs:
        yield Problem(f"{place}.input_schema", "stands in place of inputs: leave out one of the two")
    if tool.handler is not None and tool.substitution != "bound":
        yield Problem(f"{place}.substitution", "is for statements: nothing is pasted into a script")
    if (tool.use is None) == (tool.handler is None):
        how = "neither" if tool.use is None else "both"
        yield Problem(place, f"{tool.name} has {how} of use and handler: exactly one says what it does")
    if tool.use is not None:
        if tool.use not in connectors:
            yield Problem(f"{place}.use", f"there is no connector of the name {tool.use}")
        if tool.statement is None:
            yield Problem(f"{place}.statement", "is required where use names a connector")
        if "runtime" in tool.model_fields_set:
            yield Problem(f"{place}.runtime", "is for scripts: a statement has none")
    elif tool.statement is not None:
        yield Problem(f"{place}.use", "is required: a statement needs the connector that runs it")
