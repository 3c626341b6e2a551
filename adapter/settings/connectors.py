"""``connectors``: the databases that hosted tools ask."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, field_validator

from adapter.settings.values.section import Count, Seconds, Section, Spelled

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
