"""``server/discover`` tells of what the adapter adds, as the answer to ``initialize`` does."""

from __future__ import annotations

from collections.abc import Callable

from adapter.relay.stages import Call


class Announcing:
    """The stage of ``server/discover``; ``announce`` is the plan's edit of capabilities."""

    def __init__(self, announce: Callable[[bytes], bytes]) -> None:
        self._announce = announce

    async def ask(self, call: Call) -> bytes | None:  # noqa: ARG002 - a stage; this one only answers
        return None

    async def answer(self, call: Call, response: bytes) -> bytes:  # noqa: ARG002 - the same for every call
        return self._announce(response)
