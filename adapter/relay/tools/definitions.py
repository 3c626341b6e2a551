"""The upstream's definition of a planned call's tool: its schema, whether it only reads, whether it exists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from adapter.errors import AdapterError
from adapter.pipeline.call import PlannedCall
from adapter.relay.call.planned import CALL
from adapter.relay.last_used import LastUsed, Weight
from adapter.relay.stages import Call
from adapter.relay.tools.offered_tools import Offered
from adapter.wire.envelope import parse

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
