"""The member of structured content that lists the artifacts of a server's tools, as their definitions leave it free."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from adapter.errors import AdapterError
from adapter.relay.stages import Call
from adapter.rules.files.structured_artifacts import free_members
from adapter.wire.envelope import parse

PATIENCE = 5.0
"""Seconds that an answer waits for the list of tools, if none was read yet."""


class ArtifactMembers:
    """The names that are free in the output schemas of one server's tools. ``read`` has its list of tools read, whose
    definitions are then learned. ``is_for_host`` tells whether a call's client understands OpenAI's file references.
    """

    def __init__(self) -> None:
        self._free: dict[str, tuple[str, ...]] = {}
        self.read: ReadList | None = None
        self.is_for_host: Callable[[Call], Awaitable[bool]] | None = None

    def learn(self, tool: str, definition: bytes) -> None:
        """Take note of a tool's definition, as it is without the adapter's additions. Raises BadJson.

        Where callers see definitions that leave differing names free, none is: each checks answers by its own.
        """
        free = free_members(parse(definition).get("outputSchema"))
        self._free[tool] = free if self._free.get(tool, free) == free else ()

    async def of(self, call: Call) -> tuple[str, ...]:
        """The names that the member may have in the answer to a call.

        There are none while nothing is known of the tool: its client may check the answer by another schema.
        """
        tool = call.envelope.name or ""
        if tool not in self._free:
            await read_list(self.read, call, tool)
        return self._free.get(tool, ())


ReadList = Callable[[Call, str], Awaitable[object]]
"""Reads the list of tools for a call of one of them."""


async def read_list(read: ReadList | None, call: Call, tool: str) -> None:
    """Have the list of tools read whose definitions are learned, if that can be; it is not waited for long."""
    if read is not None and call.fetch is not None:
        with contextlib.suppress(AdapterError, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await read(call, tool)
