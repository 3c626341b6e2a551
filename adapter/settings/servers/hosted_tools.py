"""``servers[].tools``: the tools of a hosted server."""

from __future__ import annotations

import re
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from adapter.settings.section import (
    BlankIsNull,
    ByteSize,
    Entries,
    OptionalText,
    Seconds,
    Section,
    Spelled,
    Text,
    TextList,
)
from adapter.settings.servers.stages import (
    Mappers,
    StageCache,
    StageErrors,
    StageLimits,
    ToolAuth,
    ToolStages,
    ToolStateSync,
)

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


Number = Annotated[int | float, Spelled("number")]
Length = Annotated[int, Field(ge=0), Spelled("whole number")]
Schema = Annotated[dict[str, Any] | bool, Spelled("JSON Schema, with the same words for types")]


class ToolInput(Section):
    """One argument of a tool. It may also have the JSON Schema keywords for its type."""

    type: InputKind = Field(
        description="Type of the value; `string`, `int`, `float`, `boolean` and `datetime` are converted from "
        "text and numbers."
    )
    description: str = Field(default="", description="Description for models.")
    optional: bool = Field(default=False, description="Allow calls to leave it out.")
    default: Annotated[Any, BeforeValidator(_spelled_out), Spelled("value of the type, or null")] = Field(
        default=None, description="Value of an argument that is left out; null means none."
    )
    enum: Annotated[
        list[Any] | None, BeforeValidator(_spelled_out), Spelled("list of values of the type, or null")
    ] = Field(default=None, description="Allowed values; null allows all.")
    minimum: Number | None = Field(default=None, description="Minimum number.")
    maximum: Number | None = Field(default=None, description="Maximum number.")
    exclusive_minimum: Number | None = Field(
        default=None, alias="exclusiveMinimum", description="The number must be greater than this."
    )
    exclusive_maximum: Number | None = Field(
        default=None, alias="exclusiveMaximum", description="The number must be less than this."
    )
    multiple_of: Annotated[int | float, Field(gt=0), Spelled("number above 0")] | None = Field(
        default=None, alias="multipleOf", description="The number must be a multiple of this."
    )
    min_length: Length | None = Field(
        default=None, alias="minLength", description="Minimum length of a `string`, in characters."
    )
    max_length: Length | None = Field(
        default=None, alias="maxLength", description="Maximum length of a `string`, in characters."
    )
    pattern: Text | None = Field(
        default=None,
        description="Regular expression that must match in a `string`; write `^…$` to match all of it.",
    )
    format: Text | None = Field(
        default=None,
        description="Format of a `string`: `date`, `date-time`, `duration`, `email`, `hostname`, `ipv4`, "
        "`ipv6`, `time`, `uri` or `uuid`.",
    )
    items: Schema | None = Field(default=None, description="Schema of each item of an `array`.")
    prefix_items: Annotated[list[Schema] | None, Spelled("list of JSON Schemas, or null")] = Field(
        default=None,
        alias="prefixItems",
        description="Schemas of the first items of an `array`, in order.",
    )
    contains: Schema | None = Field(
        default=None, description="Schema that at least one item of an `array` must match."
    )
    min_items: Length | None = Field(
        default=None, alias="minItems", description="Minimum number of items of an `array`."
    )
    max_items: Length | None = Field(
        default=None, alias="maxItems", description="Maximum number of items of an `array`."
    )
    unique_items: bool | None = Field(
        default=None, alias="uniqueItems", description="Refuse an `array` with equal items."
    )
    properties: Annotated[dict[str, Schema] | None, Spelled("mapping of names to JSON Schemas, or null")] = (
        Field(default=None, description="Members of an `object`; others are refused.")
    )
    required: TextList | None = Field(default=None, description="Required members of an `object`.")
    additional_properties: Schema | None = Field(
        default=None,
        alias="additionalProperties",
        description="Schema of other members of an `object`; the default is false if `properties` is set.",
    )
    min_properties: Length | None = Field(
        default=None, alias="minProperties", description="Minimum number of members of an `object`."
    )
    max_properties: Length | None = Field(
        default=None, alias="maxProperties", description="Maximum number of members of an `object`."
    )

    @property
    def keywords(self) -> dict[str, Any]:
        """The values of keys outside the short form, by their names in JSON Schema."""
        fields = type(self).model_fields
        return {
            fields[name].alias or name: value for name, value in self.said.items() if name not in _SHORT_FORM
        }


_SHORT_FORM = frozenset(("type", "description", "optional", "default", "enum"))


class ToolSettings(Section):
    """One tool: a statement for a connector (`use`), or a script (`handler`)."""

    name: str = Field(description="Unique name: letters, digits, `_`, `-` and `.`.")
    title: OptionalText = Field(default=None, description="Name for people.")
    description: str = Field(default="", description="Description for models.")
    annotations: Annotated[dict[str, Any], Spelled("mapping, as in MCP")] = Field(
        default_factory=dict,
        description="Hints such as `readOnlyHint`. With `destructiveHint: true`, calls run one after the other "
        "and are never cached.",
    )
    use: OptionalText = Field(default=None, description="Name of the connector that runs the statement.")
    statement: OptionalText = Field(
        default=None,
        description="Statement for the connector; `{{ inputs.x }}` is bound, `{{ env.X }}` is read at each "
        "call.",
    )
    handler: OptionalText = Field(
        default=None,
        description="Script to call, as `file.py#function`, or another program; relative to the settings file.",
    )
    runtime: ScriptRuntime = Field(
        default="inprocess",
        description="`inprocess` runs trusted Python code in the adapter. `subprocess` runs any program with "
        "limits and ends it with its call.",
    )
    inputs: dict[str, ToolInput] = Field(
        default_factory=dict, description="Arguments by name; others are refused."
    )
    input_schema: Annotated[dict[str, Any] | None, Spelled("JSON Schema of an object, or null")] = Field(
        default=None, description="One JSON Schema for all arguments, instead of `inputs`."
    )
    substitution: Literal["bound", "textual"] = Field(
        default="bound",
        description="`textual` inserts inputs into the text of an SQL statement, where nothing can be bound; a "
        "`string` needs an `enum` of plain words.",
    )
    rows: bool = Field(
        default=False,
        description="Convert every result to a list of objects.",
    )
    auth: ToolAuth | None = Field(
        default=None, description="Authentication; null allows everybody who may call the server."
    )
    mappers: Mappers = Field(
        default_factory=Mappers, description="Functions that change arguments and results."
    )
    middleware: Entries = Field(
        default_factory=list,
        description="Functions around the execution, as `file.py#function`; the first is the outermost.",
    )
    limits: StageLimits = Field(default_factory=StageLimits, description="Limits of calls.")
    cache: StageCache = Field(default_factory=StageCache, description="Caching of this tool's results.")
    presenter: OptionalText = Field(default=None, description="Name of an entry in `presenters`.")
    state_sync: ToolStateSync = Field(
        default_factory=ToolStateSync, description="Messages to models about outdated data of this tool."
    )
    errors: StageErrors = Field(default_factory=StageErrors, description="Form of this tool's errors.")

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", value.strip()) is None:
            raise ValueError("must be 1 to 128 letters, digits, _, - and .")
        return value.strip()

    @field_validator("annotations")
    @classmethod
    def _are_annotations(cls, annotations: dict[str, Any]) -> dict[str, Any]:
        for name, value in annotations.items():
            if name.endswith("Hint") and not isinstance(value, bool):
                raise ValueError(f"{name} must be true or false")
            if not isinstance(value, str | bool):
                raise ValueError(f"{name} must be text, true or false")
        return annotations

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

    enabled: bool = Field(default=False, description="Cache results.")
    ttl: Seconds = Field(default=120, description="Time that a result is cached.")
    max_bytes: ByteSize = Field(
        default=128 << 20, description="Maximum size of all cached results of this server."
    )


class Tools(Section):
    """The tools of a server with `upstream.transport: hosted`."""

    directory: Annotated[Path | None, BlankIsNull] = Field(
        default=None,
        description="Folder of tools: each folder or file in it is a tool. Relative to the settings file.",
    )
    require_auth: bool = Field(default=False, description="Refuse to start if a tool has no `auth`.")
    cache: ToolsCache = Field(default_factory=ToolsCache, description="Caching of results.")
    define: list[ToolSettings] = Field(
        default_factory=list, description="The tools, in the order in which clients see them."
    )
