"""What has to fit together for servers that the adapter hosts itself: their tools, and the connectors these use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from adapter.settings.connectors import Connector
from adapter.settings.problems import Problem
from adapter.settings.servers import Server
from adapter.settings.tools import Tool


def repeated_connectors(connectors: Sequence[Connector]) -> Iterator[Problem]:
    """Connectors of one name, in whatever case."""
    seen: dict[str, int] = {}
    for index, connector in enumerate(connectors):
        first = seen.setdefault(connector.name.lower(), index)
        if first != index:
            sentence = f"{connector.name} is already the name of connectors[{first}]"
            yield Problem(f"connectors[{index}].name", sentence)


def hosted_tools(server: Server, path: str, connectors: Sequence[Connector]) -> Iterator[Problem]:
    """What contradicts itself in the tools of one server, and tools where no server is hosted."""
    if server.upstream.transport != "hosted":
        if server.tools.define:
            sentence = "are for a server that the adapter hosts itself: set upstream.transport to hosted"
            yield Problem(f"{path}.tools.define", sentence)
        return
    for key in ("url", "insecure_tls", "static_headers"):
        if getattr(server.upstream, key):
            yield Problem(f"{path}.upstream.{key}", "is for other transports: a hosted server has no address")
    if not server.tools.define:
        yield Problem(f"{path}.tools.define", "is required for the transport hosted: add at least one tool")
    names = {connector.name for connector in connectors}
    seen: dict[str, int] = {}
    for index, tool in enumerate(server.tools.define):
        place = f"{path}.tools.define[{index}]"
        first = seen.setdefault(tool.name, index)
        if first != index:
            yield Problem(f"{place}.name", f"{tool.name} is already the name of define[{first}]")
        yield from _one_tool(tool, place, names)


def _one_tool(tool: Tool, place: str, connectors: set[str]) -> Iterator[Problem]:
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
    if tool.handler is not None and tool.cache.enabled:
        yield Problem(f"{place}.cache", "is for statements that read: what a script does is not known")
