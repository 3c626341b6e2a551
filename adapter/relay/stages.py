"""The pipeline a read exchange walks: a tuple of stages in the order things happen.

A call that no stage concerns has an empty tuple and is piped. A new behaviour is one new stage in a plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from adapter.wire.envelope import Envelope
from adapter.wire.spans import Edit, edit


@dataclass(slots=True)
class Call:
    """A request on its way through the stages, and what they want changed of it.

    ``request`` is the message as it will go upstream. ``notes`` is where a stage keeps what it must remember
    from the request to the response; it must be JSON, since a parked call outlives the process.
    """

    server: str
    scope: str
    envelope: Envelope
    request: bytes
    notes: dict[str, Any] = field(default_factory=dict)

    def change(self, *edits: Edit) -> None:
        """Edit the request; everything outside the edited spans keeps its bytes."""
        self.request = edit(self.request, edits)


class Stage(Protocol):
    """One step. The first stage whose ``ask`` returns a response ends the walk; ``finish`` always runs."""

    async def ask(self, call: Call) -> bytes | None:
        """Look at, edit or answer the request. Bytes are a whole JSON-RPC response; None goes on."""

    async def answer(self, call: Call, response: bytes) -> bytes:
        """The final response as it came, to the response as it shall leave."""

    def finish(self, call: Call) -> None:
        """The exchange is over, whichever way it ended."""


Stages = tuple[Stage, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Which stages a request walks, by its method and the name in its params."""

    named: Mapping[tuple[str, str | None], Stages] = field(default_factory=dict)

    def stages_for(self, envelope: Envelope) -> Stages:
        return self.named.get((envelope.method, envelope.name), ()) if self.named else ()


async def walk_request(stages: Stages, call: Call) -> bytes | None:
    """Run the request through the stages; a stage's own response is what is returned, else None."""
    for number, stage in enumerate(stages):
        response = await stage.ask(call)
        if response is not None:
            return await walk_response(stages[:number], call, response)
    return None


async def walk_response(stages: Sequence[Stage], call: Call, response: bytes) -> bytes:
    """Run the final response through the stages, the last one first."""
    for stage in reversed(stages):
        response = await stage.answer(call, response)
    return response


def finish(stages: Stages, call: Call) -> None:
    for stage in stages:
        stage.finish(call)
