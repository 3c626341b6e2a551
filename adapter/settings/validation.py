"""``validation``: how much work it may be to check a value against a JSON Schema."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, field_validator

from adapter.settings.section import ByteSize, CodeReference, Count, Seconds, Section, Spelled

ConnectorKind = Literal["sqlite", "postgres", "postgresql", "mysql", "mariadb", "mongodb", "redis"]


class ConnectorSettings(Section):
    """A database that tools of hosted servers ask, by its name."""

    name: str = Field(description="What `servers[].tools.define[].use` calls it, unique.")
    connector: ConnectorKind = Field(
        description="Kind of the database. SQLite is built in, the drivers of the others are extras of the package."
    )
    connection_string: SecretStr = Field(
        min_length=1,
        description="Where the database is; may hold `{{ env.NAME }}`. A path of SQLite's is relative to the "
        "settings file.",
    )
    options: Annotated[dict[str, Any], Spelled("mapping of names to values")] = Field(
        default_factory=dict, repr=False, description="The driver's own options, such as `pool_size`."
    )
    max_rows: Count = Field(default=1000, description="Rows of one answer; more are cut off.")
    timeout_seconds: Seconds = Field(
        default=10,
        description="How long a statement may take, unless its tool's `limits.timeout` says otherwise.",
    )
    required: bool = Field(
        default=True,
        description="Whether the adapter refuses to start while this database cannot be reached.",
    )

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", value.strip()) is None:
            raise ValueError("must begin with a letter and hold only letters, digits, _ and -")
        return value.strip()


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
