"""Tools that a configuration declares: what clients see of them, and the way of a call to the work behind it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from adapter.hosted.failures import StageFailed, unfit
from adapter.hosted.tools import HostedTool, ToolAnswer, ToolCall
from adapter.rules.inputs import Input, InputsRefused, Scalar, coerced, input_schema


class Work(Protocol):
    """What a tool does with inputs that fit."""

    async def __call__(self, values: Mapping[str, Scalar], call: ToolCall) -> ToolAnswer:
        """Raises StageFailed."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """A tool as it is declared. ``serial``: its calls run one after the other."""

    name: str
    inputs: Mapping[str, Input]
    title: str | None = None
    description: str = ""
    annotations: Mapping[str, Any] = field(default_factory=dict)
    serial: bool = False

    def definition(self) -> dict[str, Any]:
        """Its entry in ``tools/list``."""
        shown: dict[str, Any] = {"name": self.name}
        if self.title:
            shown["title"] = self.title
        if self.description:
            shown["description"] = self.description
        shown["inputSchema"] = input_schema(self.inputs)
        if self.annotations:
            shown["annotations"] = dict(self.annotations)
        return shown

    def doing(self, work: Work) -> HostedTool:
        """The tool, with what it does."""
        turns = asyncio.Lock() if self.serial else contextlib.nullcontext()

        async def run(call: ToolCall) -> ToolAnswer:
            try:
                values = coerced(self.inputs, call.arguments)
                async with turns:
                    return await work(values, call)
            except InputsRefused as refused:
                return unfit(self.name, self.inputs, refused).answer()
            except StageFailed as failed:
                return failed.answer()

        return HostedTool(self.definition(), run)
