"""The end of an exchange, told once to all who want to know."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from adapter import log
from adapter.relay.call.audit_trail import AuditTrail
from adapter.relay.call.observed import ObservedRelay, OperationCounts, ServerOperations
from adapter.rules.calls.request_outcomes import TOOL_ERROR
from adapter.rules.metrics.catalogue import TOOL_CALLS
from adapter.rules.metrics.labels import ToolNames
from adapter.settings.telemetry import AuditSettings
from adapter.telemetry.metric_registry import MetricRegistry
from tests.relay.relaying import Relaying, whole
from tests.scripted import Expect, ScriptedAnswer, ScriptedUpstream

CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tool"}}'
FAILED = b'{"jsonrpc":"2.0","id":1,"result":{"isError":true}}'
JSON, SSE = (("Content-Type", "application/json"),), (("Content-Type", "text/event-stream"),)


class Lines:
    """An AuditSink that writes when it is allowed to."""

    failing = False
    write_at_once = staticmethod(lambda _: False)

    def __init__(self) -> None:
        self.written: list[Any] = []
        self.asked = asyncio.Event()
        self.allowed = asyncio.Event()

    async def write(self, line: bytes) -> None:
        self.asked.set()
        await self.allowed.wait()
        self.written.append(orjson.loads(line)["outcome"])


class Observed:
    """A relay in front of an upstream that plays ``answer``, with counts and records."""

    def __init__(self, answer: ScriptedAnswer) -> None:
        self.relaying = Relaying(ScriptedUpstream([(Expect("POST", CALL), answer)]))
        self.lines, self.registry = Lines(), MetricRegistry()
        self.server = ServerOperations("one", ToolNames(["tool"]))
        self.counts = OperationCounts(self.registry, {"one": self.server}, "artifact://")
        trail = AuditTrail(self.lines, AuditSettings(), (), self.relaying.background, log.get_logger("test"))
        self.relay = ObservedRelay(self.relaying.relay, self.counts, trail)

    def counted(self) -> dict[str, float]:
        """The calls by their outcome."""
        for _ in self.counts.waiting.flush():
            pass
        families = dict(self.registry.own())
        return {sample.labels["outcome"]: sample.value for sample in families[TOOL_CALLS].samples}


@pytest.mark.parametrize(
    "answer",
    [
        ScriptedAnswer(200, JSON, (FAILED,)),
        ScriptedAnswer(200, JSON, (FAILED[:20], FAILED[20:])),
        ScriptedAnswer(200, SSE, (b"data: " + FAILED[:20], FAILED[20:] + b"\n\n")),
    ],
)
async def test_all_are_told_the_same_outcome(answer: ScriptedAnswer) -> None:
    """Whole, in pieces or in events: the counts, the record, and whoever has the answer."""
    observed = Observed(answer)
    observed.lines.allowed.set()
    given = await observed.relay.handle(observed.relaying.ask(CALL, await observed.relaying.open()))
    assert FAILED in await whole(given)
    assert given.outcome == TOOL_ERROR
    assert observed.lines.written == ["tool_error"]
    assert observed.counted() == {"tool_error": 1}
    assert observed.server.active == 0


async def test_whoever_leaves_while_the_record_is_written_is_counted_once() -> None:
    """Nothing of the exchange is left behind."""
    observed = Observed(ScriptedAnswer(200, JSON, (FAILED,)))
    ask = observed.relaying.ask(CALL, await observed.relaying.open())
    task = asyncio.create_task(_read(observed, ask))
    await asyncio.wait_for(observed.lines.asked.wait(), 10)
    assert observed.server.active == 1
    task.cancel()
    await asyncio.wait([task])
    assert observed.counted() == {"client_gone": 1}
    assert observed.server.active == 0


async def _read(observed: Observed, ask: Any) -> None:
    await whole(await observed.relay.handle(ask))
