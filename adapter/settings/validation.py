"""``validation``: how much work it may be to check a value against a JSON Schema."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from adapter.settings.values.section import ByteSize, CodeReference, Count, Seconds, Section, Spelled


class ContextSettings(Section):
    """What handlers, middleware and presenters are given beside a call."""

    factory: CodeReference = Field(
        default=None, description="Function from the request to a mapping, whose members join the context."
    )


class Validation(Section):
    """How much work it may be to check a value against a JSON Schema; a value that takes more is refused."""

    max_steps: Count = Field(
        default=2_000_000, description="Steps of one check, about one for each keyword at each value."
    )
    max_seconds: Seconds = Field(
        default=2, description="Longest check of a large value or schema, which a process of its own makes."
    )
    max_memory: ByteSize = Field(
        default=512 * 1024**2, description="Memory of such a process; a check that takes more is ended."
    )
    workers: Annotated[int, Field(ge=1, le=16), Spelled("whole number from 1 to 16")] = Field(
        default=2, description="Such processes at once; a server has one of them at most."
    )
    max_queue: Count = Field(
        default=8,
        description="Checks for one caller of a server that may wait for a process; another one is refused.",
    )
