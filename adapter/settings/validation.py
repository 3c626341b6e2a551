"""``connectors``, ``context`` and ``validation``: databases, added context, and limits for JSON Schemas."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, field_validator

from adapter.settings.section import ByteSize, CodeReference, Count, Seconds, Section, Spelled

ConnectorKind = Literal["sqlite", "postgres", "postgresql", "mysql", "mariadb", "mongodb", "redis"]


class ConnectorSettings(Section):
    """A database for tools of hosted servers."""

    name: str = Field(description="Unique name, for `servers[].tools.define[].use`.")
    connector: ConnectorKind = Field(
        description="Kind of the database. SQLite is built in; the drivers of the others are extras of the "
        "package."
    )
    connection_string: SecretStr = Field(
        min_length=1,
        description="Address of the database; may contain `{{ env.NAME }}`. A SQLite path is relative to the "
        "settings file.",
    )
    options: Annotated[dict[str, Any], Spelled("mapping of names to values")] = Field(
        default_factory=dict, repr=False, description="Options of the driver, such as `pool_size`."
    )
    max_rows: Count = Field(
        default=1000, description="Maximum number of rows in one result; more are cut off."
    )
    timeout_seconds: Seconds = Field(
        default=10,
        description="Timeout of a statement, unless its tool has `limits.timeout`.",
    )
    required: bool = Field(
        default=True,
        description="Refuse to start if this database cannot be reached.",
    )

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", value.strip()) is None:
            raise ValueError("must begin with a letter and contain only letters, digits, _ and -")
        return value.strip()


class ContextSettings(Section):
    """Additional context for handlers, middleware and presenters."""

    factory: CodeReference = Field(
        default=None,
        description="Function that takes the request and returns a mapping; its members are added to the "
        "context.",
    )


class Validation(Section):
    """Limits for checking a value against a JSON Schema; a value above a limit is refused."""

    max_steps: Count = Field(
        default=2_000_000,
        description="Maximum number of steps of one check; about one step for each keyword at each value.",
    )
    max_seconds: Seconds = Field(
        default=2,
        description="Timeout of a check in a worker process, which checks large values and schemas.",
    )
    max_memory: ByteSize = Field(
        default=512 * 1024**2, description="Memory limit of a worker process; a check above it fails."
    )
    workers: Annotated[int, Field(ge=1, le=16), Spelled("whole number from 1 to 16")] = Field(
        default=2, description="Maximum number of worker processes; a server uses one at a time."
    )
    max_queue: Count = Field(
        default=8,
        description="Maximum number of checks that wait for a worker, for each caller of a server; more are "
        "refused.",
    )
