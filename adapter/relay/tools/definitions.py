"""The upstream's definition of a planned call's tool: its schema, whether it only reads, whether it exists."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from adapter.errors import AdapterError
from adapter.pipeline.call import PlannedCall
from adapter.relay.call.planned import CALL
from adapter.relay.last_used import LastUsed, Weight
from adapter.relay.stages import Call
from adapter.rules.tools.definitions import Tool
from adapter.rules.tools.drift import Drift
from adapter.rules.tools.tool_pages import with_warning
from adapter.wire.envelope import parse

DEFINITIONS_KEPT = 4
"""Catalogues of one server whose definitions are kept."""


@dataclass(frozen=True, slots=True)
class Offered:
    """``definitions`` are those of the catalogue ``digest``, by name; the scope may use the ``allowed`` of them.

    ``warns`` is what has changed of them since the scope first saw them, and is to be told with them.
    """

    digest: str
    definitions: Mapping[str, bytes]
    allowed: Set[str]
    warns: Drift | None = None

    def definition(self, name: str) -> bytes | None:
        """A tool's definition as the client of this scope may see it, None if it may not."""
        definition = self.definitions.get(name)
        if definition is None or name not in self.allowed:
            return None
        if self.warns is None or not self.warns_of(name):
            return definition
        return with_warning(definition, name, self.warns)

    def warns_of(self, name: str) -> bool:
        return self.warns is not None and name in self.warns.unsettled


class Definitions:
    """The definitions of the catalogues of a server that were read last, as clients see them."""

    def __init__(self) -> None:
        self._by_digest: OrderedDict[str, Mapping[str, bytes]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Definitions of {len(self._by_digest)} catalogues>"

    def keep(self, digest: str, tools: Iterable[Tool]) -> None:
        """Of several tools of one name the last counts, as it does in the catalogue."""
        self._by_digest[digest] = {tool.name: tool.raw for tool in tools}
        self._by_digest.move_to_end(digest)
        if len(self._by_digest) > DEFINITIONS_KEPT:
            self._by_digest.popitem(last=False)

    def of(self, digest: str) -> Mapping[str, bytes] | None:
        return self._by_digest.get(digest)


KEPT = 1024
"""Definitions that are kept parsed."""

KEPT_BYTES = 4 << 20
"""Bytes that these may have as JSON; parsed they take up to ten times as much memory."""


class _Parsed(NamedTuple):
    raw: bytes
    definition: Mapping[str, Any]


def _weigh(parsed: _Parsed) -> Weight:
    return Weight(parsed.raw, len(parsed.raw))


class DefinitionReader(Protocol):
    """Knows what a scope is offered; see ToolGuard."""

    async def seen(self, call: Call) -> Offered:
        """The tools that the upstream offers now and the scope may use. Raises what the upstream raises."""


class ToolDefinitions:
    """The definitions of one server's tools as the scope of a call may see them."""

    def __init__(self, judge: DefinitionReader) -> None:
        self._judge = judge
        self._parsed: LastUsed[bytes, _Parsed] = LastUsed(KEPT, KEPT_BYTES, _weigh)

    def __repr__(self) -> str:
        return f"<ToolDefinitions: {len(self._parsed)}>"

    async def schema(self, planned: PlannedCall) -> Mapping[str, Any] | None:
        """The input schema of the call's tool, None if nothing is known of it. Raises what the upstream raises."""
        definition = await self._of(planned)
        schema = definition.get("inputSchema") if definition is not None else None
        return schema if isinstance(schema, dict) else None

    async def read_only(self, planned: PlannedCall) -> bool:
        """Tell whether the tool says that it changes nothing."""
        try:
            definition = await self._of(planned)
        except AdapterError:
            return False
        hints = definition.get("annotations") if definition is not None else None
        return isinstance(hints, dict) and hints.get("readOnlyHint") is True

    async def listed(self, planned: PlannedCall) -> bool:
        """Tell whether there is a tool of exactly the call's name. Raises what the upstream raises."""
        return await self._of(planned) is not None

    async def _of(self, planned: PlannedCall) -> Mapping[str, Any] | None:
        call = planned.notes[CALL]
        assert isinstance(call, Call), "the relay's own"
        offered = await self._judge.seen(call)
        raw = offered.definitions.get(planned.tool) if planned.tool in offered.allowed else None
        if raw is None:
            return None
        parsed = self._parsed.get(raw)
        if parsed is None:
            parsed = _Parsed(raw, parse(raw))
            self._parsed.put(raw, parsed)
        return parsed.definition
