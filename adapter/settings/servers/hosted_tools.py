"""``servers[].tools``: the tools of a server that the adapter hosts itself."""

from __future__ import annotations

import re
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from adapter.settings.section import (
    BlankIsNull,
    ByteSize,
    Duration,
    Entries,
    OptionalText,
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
    """YAML makes a date of ``2026-01-02``; to a tool it is the text that was written."""
    if isinstance(value, list):
        return [_spelled_out(member) for member in value]
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.isoformat(sep=" ")
    return value.isoformat() if isinstance(value, date) else value


Number = Annotated[int | float, Spelled("number")]
Length = Annotated[int, Field(ge=0), Spelled("whole number")]
Schema = Annotated[dict[str, Any] | bool, Spelled("JSON Schema, with the same words for types")]


class ToolInput(Section):
    """One argument of a tool. Beside these first keys it has those of JSON Schema that fit its type."""

    type: InputKind = Field(
        description="What a value has to be; a `string`, `int`, `float`, `boolean` or `datetime` is also read from "
        "what spells one."
    )
    description: str = Field(default="", description="What models read about it.")
    optional: bool = Field(default=False, description="Whether calls may leave it out.")
    default: Annotated[Any, BeforeValidator(_spelled_out), Spelled("value of the type, or null")] = Field(
        default=None, description="Stands for an argument that is left out; null is none."
    )
    enum: Annotated[
        list[Any] | None, BeforeValidator(_spelled_out), Spelled("list of values of the type, or null")
    ] = Field(default=None, description="The values it may have; null allows all.")
    minimum: Number | None = Field(default=None, description="The least number.")
    maximum: Number | None = Field(default=None, description="The greatest number.")
    exclusive_minimum: Number | None = Field(
        default=None, alias="exclusiveMinimum", description="A number that it has to be above."
    )
    exclusive_maximum: Number | None = Field(
        default=None, alias="exclusiveMaximum", description="A number that it has to be below."
    )
    multiple_of: Annotated[int | float, Field(gt=0), Spelled("number above 0")] | None = Field(
        default=None, alias="multipleOf", description="A number that it is a multiple of."
    )
    min_length: Length | None = Field(
        default=None, alias="minLength", description="Fewest characters of a `string`."
    )
    max_length: Length | None = Field(
        default=None, alias="maxLength", description="Most characters of a `string`."
    )
    pattern: Text | None = Field(
        default=None, description="Regular expression that occurs in a `string`; `^…$` is for all of it."
    )
    format: Text | None = Field(
        default=None,
        description="What a `string` is: `date`, `date-time`, `duration`, `email`, `hostname`, `ipv4`, `ipv6`, `time`, "
        "`uri` or `uuid`.",
    )
    items: Schema | None = Field(default=None, description="What each item of an `array` has to be.")
    prefix_items: Annotated[list[Schema] | None, Spelled("list of JSON Schemas, or null")] = Field(
        default=None,
        alias="prefixItems",
        description="What the first items of an `array` have to be, in turn.",
    )
    contains: Schema | None = Field(
        default=None, description="What at least one item of an `array` has to be."
    )
    min_items: Length | None = Field(
        default=None, alias="minItems", description="Fewest items of an `array`."
    )
    max_items: Length | None = Field(default=None, alias="maxItems", description="Most items of an `array`.")
    unique_items: bool | None = Field(
        default=None, alias="uniqueItems", description="Whether no two items of an `array` may be equal."
    )
    properties: Annotated[dict[str, Schema] | None, Spelled("mapping of names to JSON Schemas, or null")] = (
        Field(default=None, description="The members of an `object`; any others are refused.")
    )
    required: TextList | None = Field(default=None, description="Members that an `object` has to have.")
    additional_properties: Schema | None = Field(
        default=None,
        alias="additionalProperties",
        description="What other members an `object` may have; false, where `properties` are named.",
    )
    min_properties: Length | None = Field(
        default=None, alias="minProperties", description="Fewest members of an `object`."
    )
    max_properties: Length | None = Field(
        default=None, alias="maxProperties", description="Most members of an `object`."
    )

    @property
    def keywords(self) -> dict[str, Any]:
        """The values given beside the keys of the short form, under their names in JSON Schema."""
        fields = type(self).model_fields
        return {
            fields[name].alias or name: value for name, value in self.said.items() if name not in _SHORT_FORM
        }


_SHORT_FORM = frozenset(("type", "description", "optional", "default", "enum"))


class ToolSettings(Section):
    """One tool: a statement for a connector (`use`), or a script (`handler`)."""

    name: str = Field(description="What clients call it, unique: letters, digits, `_`, `-` and `.`.")
    title: OptionalText = Field(default=None, description="Its name for people.")
    description: str = Field(default="", description="What models read about it.")
    annotations: Annotated[dict[str, Any], Spelled("mapping, as in MCP")] = Field(
        default_factory=dict,
        description="Hints such as `readOnlyHint`; with `destructiveHint: true` calls run one after the other "
        "and are never cached.",
    )
    use: OptionalText = Field(default=None, description="Name of the connector that runs the statement.")
    statement: OptionalText = Field(
        default=None,
        description="What is asked of the connector; `{{ inputs.x }}` is bound, `{{ env.X }}` read at each call.",
    )
    handler: OptionalText = Field(
        default=None,
        description="Script to call, as `file.py#function` or another program; relative to the settings file.",
    )
    runtime: ScriptRuntime = Field(
        default="inprocess",
        description="`inprocess` is for trusted Python; `subprocess` runs any program, confined, ended with its call.",
    )
    inputs: dict[str, ToolInput] = Field(
        default_factory=dict, description="The arguments by name; any others are refused."
    )
    input_schema: Annotated[dict[str, Any] | None, Spelled("JSON Schema of an object, or null")] = Field(
        default=None, description="All arguments in JSON Schema, in place of `inputs`."
    )
    substitution: Literal["bound", "textual"] = Field(
        default="bound",
        description="`textual` pastes inputs into an SQL statement where nothing can be bound; it refuses a `string` "
        "without an `enum` of plain words.",
    )
    rows: bool = Field(
        default=False,
        description="Answers with a list of objects, whatever the statement or script returned.",
    )
    auth: ToolAuth | None = Field(
        default=None, description="Who may call it; null: whoever may call the server."
    )
    mappers: Mappers = Field(default_factory=Mappers, description="Functions around the call.")
    middleware: Entries = Field(
        default_factory=list,
        description="Functions around the execution, as `file.py#function`; first is outermost.",
    )
    limits: StageLimits = Field(default_factory=StageLimits, description="What calls may take.")
    cache: StageCache = Field(default_factory=StageCache, description="Keeping this tool's results.")
    presenter: OptionalText = Field(
        default=None, description="Name in `presenters` of what becomes of the tool's data."
    )
    state_sync: ToolStateSync = Field(
        default_factory=ToolStateSync, description="What models are told about how long its data stays true."
    )
    errors: StageErrors = Field(default_factory=StageErrors, description="How its failures look.")

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
        """The stages that the tool itself sets, in the form of ``servers[].stages``."""
        said = {key: value for key, value in self.said.items() if key in ToolStages.model_fields}
        return ToolStages().model_copy(update=said)

    @property
    def destructive(self) -> bool:
        """Tell whether the tool says of itself that it destroys something."""
        return bool(self.annotations.get("destructiveHint"))


class ToolsCache(Section):
    """Results that are kept, of statements that only read."""

    enabled: bool = Field(default=False, description="Whether results are kept.")
    ttl: Duration = Field(default=120, description="How long a result is kept.")
    max_bytes: ByteSize = Field(default=128 << 20, description="Size of all results of this server together.")


class Tools(Section):
    """The tools of a server with `upstream.transport: hosted`."""

    directory: Annotated[Path | None, BlankIsNull] = Field(
        default=None,
        description="Folder in which each folder or file is a tool; relative to the settings file.",
    )
    require_auth: bool = Field(default=False, description="Refuses to start with a tool that has no `auth`.")
    cache: ToolsCache = Field(default_factory=ToolsCache, description="Keeping results.")
    define: list[ToolSettings] = Field(
        default_factory=list, description="The tools, in the order clients see them."
    )
