"""The slots of a tool call in running order: the one place where the order of stages stands.

A stage declares its slot. Plans sort their stages by it, ``mcp-adapter plan`` prints in this order, and
``python -m tests.traceability`` writes the table of ``docs/pipeline.md``. The relay has coarser stages
(``relay/stages.py``): its rules for callers and its guard are ``PIN``, its plan is ``CONTEXT`` to
``FINISH``, its uploads and artifacts are within ``EXECUTE``. Its large results are around the plan; of a tool with
such, it also keeps ``limits.egress``, which stands behind them.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

Part = Literal["before", "after", "around"]
"""When a stage works: on the way to the tool, with the answer of the tool, or both."""


class Slot(Enum):
    """One place in the order of a call, declared as: name; room that runs it; settings; how it ends a call.

    The first slots up to ``EXECUTE`` run on the way to the tool, the later ones on the way back.
    """

    ADMIT = "admit", "edge", "`core.auth`, `core.max_request_bytes`, `sessions`", "an HTTP status"
    RESOLVE = (
        "resolve",
        "relay, plan",
        "",
        "the upstream's own answer; for a hosted server `core.errors.unknown_tool_code`",
    )
    PIN = (
        "pin",
        "relay",
        "`servers[].access` ([policies](policies.md)), then `core.tool_definition_pinning` ([pins](pins.md))",
        "a JSON-RPC error",
    )
    CONTEXT = "context", "plan", "`context.factory`", '"context unavailable"'
    AUTH = "auth", "plan", "`auth`", '"unauthorized: …"'
    LIMITS = (
        "limits",
        "plan",
        "`limits.rate`, `limits.concurrency`; destructive hosted tools run one call at a time",
        "`RATE_LIMITED`, `SERVER_BUSY`",
    )
    INPUT_TRANSFORM = "input_transform", "plan", "`mappers.input`", '"input transform failed for tool …"'
    VALIDATE = (
        "validate",
        "plan",
        "hosted tools always, others with `validate: true`",
        "`<validation_error>`",
    )
    MIDDLEWARE = "middleware", "plan", "`middleware`", "whatever it returns or raises"
    CACHE = "cache", "plan", "`cache`", "a result that was kept"
    EXECUTE = (
        "execute",
        "plan, relay",
        "the statement, the script, or the upstream with its [files](files.md)",
        "the tool's own failure",
    )
    OUTPUT_TRANSFORM = "output_transform", "plan", "`mappers.output`", '"output transform failed for tool …"'
    PRESENTER = "presenter", "plan", "`presenter`", '"[… Presenter] …"'
    STATE_SYNC = "state_sync", "plan", "`state_sync`", "never"
    LARGE_RESULTS = "large_results", "relay", "`large_results` ([files](files.md))", "never"
    FINISH = "finish", "plan", "`limits.egress`, `errors`", ""

    def __init__(self, label: str, room: str, settings: str, failure: str) -> None:
        self.number = len(type(self).__members__)
        self.label = label
        self.room = room
        self.settings = settings
        self.failure = failure

    def __repr__(self) -> str:
        return f"<Slot {self.number} {self.label}>"

    @property
    def part(self) -> Part:
        """When stages of this slot work, unless one of them also works with the answer."""
        return "after" if self.number > Slot.EXECUTE.number else "before"

    @property
    def depth(self) -> tuple[int, int]:
        """A key that sorts stages around each other, the outermost first.

        Stages that work with the answer are around those that work on the call, and the last one is outermost. A call
        keeps its place in the limits until all of them are done, so the slots up to ``LIMITS`` are around everything.
        """
        if self.part == "after":
            return 1, -self.number
        return (0 if self.number <= Slot.LIMITS.number else 2), self.number
