"""``servers[].tools``: the tools of a hosted server."""

from __future__ import annotations

import re
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from adapter.settings.section import (
    BlankIsNull,
    ByteSize,
    OptionalText,
    Seconds,
    Section,
    Spelled,
)
from adapter.settings.servers.stages import StageKeys, ToolStages

InputKind = Literal[
    "string", "int", "integer", "float", "number", "boolean", "datetime", "array", "object", "any"
]
ScriptRuntime = Literal["inprocess", "subprocess"]


def _spelled_out(value: object) -> object:
    """Convert dates back to text: YAML reads ``2026-01-02`` as a date."""
    if isinstance(value, list):
        return [_spelled_out(member) for member in value]
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.isoformat(sep=" ")
    return value.isoformat() if isinstance(value, date) else value


KEYWORDS = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "pattern", "format"),
    *("items", "prefixItems", "contains", "minItems", "maxItems", "uniqueItems"),
    *("properties", "required", "additionalProperties", "minProperties", "maxProperties"),
)
"""The JSON Schema keywords that an argument may have."""


class ToolInput(Section):
    """One argument of a tool. It may also have the JSON Schema keywords for its type, such as `minimum`."""

    model_config = ConfigDict(extra="allow")

    type: InputKind
    """Type of the value; scalars are converted from text and numbers."""
    description: str = ""
    """Description for models."""
    optional: bool = False
    """Allow calls to leave it out."""
    default: Annotated[Any, BeforeValidator(_spelled_out), Spelled("value of the type, or null")] = None
    """Value of an argument that is left out; null means none."""
    enum: Annotated[
        list[Any] | None, BeforeValidator(_spelled_out), Spelled("list of values of the type, or null")
    ] = None
    """Allowed values; null allows all."""

    @model_validator(mode="before")
    @classmethod
    def _are_keywords(cls, data: Any) -> Any:
        known = (*cls.model_fields, *KEYWORDS)
        for name in data if isinstance(data, dict) else ():
            if name not in known:
                from difflib import get_close_matches  # late: only a wrong key asks for it

                (nearest,) = get_close_matches(str(name), known, n=1, cutoff=0)
                raise ValueError(f"{name} is not a known key; the nearest is {nearest}")
        return data

    @property
    def keywords(self) -> dict[str, Any]:
        """The JSON Schema keywords beside the named keys; the type decides which it may have."""
        return {name: value for name, value in (self.model_extra or {}).items() if value is not None}


def _is_a_name(value: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", value.strip()) is None:
        raise ValueError("must be 1 to 128 letters, digits, _, - and .")
    return value.strip()


def _are_annotations(annotations: dict[str, Any]) -> dict[str, Any]:
    for name, value in annotations.items():
        if name.endswith("Hint") and not isinstance(value, bool):
            raise ValueError(f"{name} must be true or false")
        if not isinstance(value, str | bool):
            raise ValueError(f"{name} must be text, true or false")
    return annotations


class ToolWork(Section):
    """The name and the work of a hosted tool: a statement for a connector, or a script."""

    name: Annotated[str, AfterValidator(_is_a_name)]
    """Unique name: letters, digits, `_`, `-` and `.`."""
    title: OptionalText = None
    """Name for people."""
    description: str = ""
    """Description for models."""
    annotations: Annotated[
        dict[str, Any], AfterValidator(_are_annotations), Spelled("mapping, as in MCP")
    ] = Field(default_factory=dict)
    """Hints such as `readOnlyHint`; calls with `destructiveHint: true` run one by one."""
    use: OptionalText = None
    """Name of the connector that runs the statement."""
    statement: OptionalText = None
    """Statement for the connector; `{{ inputs.x }}` is bound, `{{ env.X }}` is read at each call."""
    handler: OptionalText = None
    """Script to call, as `file.py#function`, or another program; relative to the settings file."""
    runtime: ScriptRuntime = "inprocess"
    """`inprocess` runs trusted Python in the adapter, `subprocess` any program with limits."""
    inputs: dict[str, ToolInput] = Field(default_factory=dict)
    """Arguments by name; others are refused."""
    substitution: Literal["bound", "textual"] = "bound"
    """`textual` inserts inputs into an SQL text where nothing can be bound; a `string` needs an `enum`."""
    rows: bool = False
    """Convert every result to a list of objects."""


class ToolSettings(StageKeys, ToolWork):
    """One tool: a statement for a connector (`use`), or a script (`handler`)."""

    # The keys of ToolWork come first: pages and editors show them in the order of the last base to the first.

    @property
    def stages(self) -> ToolStages:
        """The stages in the tool's own definition, in the form of ``servers[].stages``."""
        said = {key: value for key, value in self.said.items() if key in ToolStages.model_fields}
        return ToolStages().model_copy(update=said)

    @property
    def destructive(self) -> bool:
        """Tell whether the tool has ``destructiveHint: true``."""
        return bool(self.annotations.get("destructiveHint"))


class ToolsCache(Section):
    """Caching of results of read-only statements."""

    enabled: bool = False
    """Cache results."""
    ttl: Seconds = 120
    """Time that a result is cached."""
    max_bytes: ByteSize = 128 << 20
    """Maximum size of all cached results of this server."""


class Tools(Section):
    """The tools of a server with `upstream.transport: hosted`."""

    directory: Annotated[Path | None, BlankIsNull] = None
    """Folder in which each folder or file is a tool."""
    require_auth: bool = False
    """Refuse to start if a tool has no `auth`."""
    cache: ToolsCache = Field(default_factory=ToolsCache)
    define: list[ToolSettings] = Field(default_factory=list)
    """The tools, in the order in which clients see them."""
