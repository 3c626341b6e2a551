"""Spans of planned calls, as a plan asks for them; who records them is the composition root's choice."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from adapter.pipeline.call import Forward, PlannedCall
from adapter.pipeline.outcome import Outcome

Attributes = Mapping[str, str | int | float | bool]


class Span(Protocol):
    """One piece of work that is timed. Attributes never hold arguments."""

    def set(self, key: str, value: str | int | float | bool) -> None:
        """Note something; values pass redaction."""


class Tracing(Protocol):
    def span(self, name: str, attributes: Attributes) -> AbstractContextManager[Span]:
        """A span around a block, child of the one that is current.

        What the block raises leaves its status as it is when it is a refusal, and else makes it an error.
        """


def traced(tracing: Tracing, name: str, forward: Forward) -> Forward:
    """A part of a plan within a span of its own."""

    async def walk(call: PlannedCall) -> Outcome:
        with tracing.span(f"stage.{name}", {"tool.name": call.tool, "stage": name}):
            return await forward(call)

    return walk
