"""``servers[].tools``: the tools of a server that the adapter hosts itself."""

from __future__ import annotations

import re
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from adapter.settings.section import BlankIsNull, ByteSize, Duration, Entries, OptionalText, Section, Spelled
from adapter.settings.stages import (
    Mappers,
    StageCache,
    StageErrors,
    StageLimits,
    ToolAuth,
    ToolStages,
    ToolStateSync,
)

InputKind = Literal["string", "int", "float", "boolean", "datetime"]
ScriptRuntime = Literal["inprocess", "subprocess"]


def _spelled_out(value: object) -> object:
    """YAML makes a date of ``2026-01-02``; to a tool it is the text that was written."""
    if isinstance(value, list):
        return [_spelled_out(member) for member in value]
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.isoformat(sep=" ")
    return value.isoformat() if isinstance(value, date) else value


class ToolInput(Section):
    """One argument of a tool."""

    type: InputKind = Field(description="What a value has to be, or can be read as.")
    description: str = Field(default="", description="What models read about it.")
    optional: bool = Field(default=False, description="Whether calls may leave it out.")
    default: Annotated[Any, BeforeValidator(_spelled_out), Spelled("value of the type, or null")] = Field(
        default=None, description="Stands for an argument that is left out; null is none."
    )
    enum: Annotated[
        list[Any] | None, BeforeValidator(_spelled_out), Spelled("list of values of the type, or null")
    ] = Field(default=None, description="The values it may have; null allows all.")


class Tool(Section):
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
        """What it says of its own stages, as ``servers[].stages`` would have it."""
        said = {key: value for key, value in self.said.items() if key in ToolStages.model_fields}
        return ToolStages().model_copy(update=said)

    @property
    def destructive(self) -> bool:
        """Whether the tool says of itself that it destroys something."""
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
    define: list[Tool] = Field(default_factory=list, description="The tools, in the order clients see them.")
