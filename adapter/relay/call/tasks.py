"""Results that come by another request than their call: those of tasks (MCP 2025-11-25, "Tasks")."""

from __future__ import annotations

from adapter.relay.stages import Call
from adapter.rules.files.redaction import Redaction
from adapter.rules.results.tool_results import without_paths


class TaskTexts:
    """The stage of ``tasks/get`` and ``tasks/result``, in whose texts no path of the store is to be seen."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction

    async def ask(self, call: Call) -> bytes | None:
        call.withheld = self._redaction
        return None

    async def answer(self, call: Call, response: bytes) -> bytes:  # noqa: ARG002 - a stage
        return without_paths(response, self._redaction)
