"""The part of upstream tools that clients see: models shared by ``core`` and ``servers[]``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from adapter.rules.text.expressions import Expression, ExpressionInvalid
from adapter.settings.section import Count, OffWord, Section, Spelled


def _expressions(values: list[str]) -> list[str]:
    for value in values:
        try:
            Expression(value)
        except ExpressionInvalid as invalid:
            shown = value if len(value) <= 100 else value[:99] + "…"
            raise ValueError(f"{shown!r} is not a valid regular expression of RE2: {invalid}") from None
    return values


ToolPatterns = Annotated[list[str], AfterValidator(_expressions), Spelled("list of names or RE2 expressions")]

SanitizationMode = Literal["off", "sanitize", "block"]
DescriptionMode = Literal["preserve", "truncate", "strip"]
PinningMode = Literal["off", "warn", "block"]
BlockStrategy = Literal["error", "baseline_subset"]
SessionAction = Literal["keep", "invalidate"]
PinningBaseline = Literal["session", "server"]


class ToolDefaults(Section):
    """How tools are called."""

    tool_call_timeout_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=60,
        description="Silence after which a tool call fails; progress resets it, null waits for ever.",
    )
    allow_raw_output: bool = Field(
        default=False, description="Embeds the bytes of a captured artifact in the tool's result as well."
    )


class ToolDefaultsOverride(Section):
    """The same for some tools; null keeps what holds one level up."""

    tool_call_timeout_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="Overrides `core.defaults.tool_call_timeout_seconds` here; null keeps it."
    )
    allow_raw_output: bool | None = Field(
        default=None, description="Overrides `core.defaults.allow_raw_output` here; null keeps it."
    )


class MetadataSanitization(Section):
    """Cleans the text of tool definitions before a model reads it."""

    mode: Annotated[SanitizationMode, OffWord] = Field(
        default="sanitize",
        description="`sanitize` cleans the text, `block` hides a tool that would have changed.",
    )
    normalize_unicode: bool = Field(default=True, description="Brings text into Unicode form NFKC.")
    remove_invisible_characters: bool = Field(
        default=True, description="Removes zero-width, bidirectional, tag and control characters."
    )
    max_tool_title_chars: Count | None = Field(
        default=256, description="Longest title of a tool, in characters."
    )
    max_tool_description_chars: Count | None = Field(
        default=16384, description="Longest description of a tool, in characters."
    )
    max_schema_text_chars: Count | None = Field(
        default=8192, description="Longest title or description inside a schema, in characters."
    )


class MetadataSanitizationOverride(Section):
    """The same for one server; null keeps what `core.tool_metadata_sanitization` says."""

    mode: Annotated[SanitizationMode | None, OffWord] = Field(
        default=None, description="Overrides `core.tool_metadata_sanitization.mode` for this server."
    )
    normalize_unicode: bool | None = Field(
        default=None, description="Overrides the setting of `core` for this server."
    )
    remove_invisible_characters: bool | None = Field(
        default=None, description="Overrides the setting of `core` for this server."
    )
    max_tool_title_chars: Count | None = Field(
        default=None, description="Overrides the limit of `core` for this server."
    )
    max_tool_description_chars: Count | None = Field(
        default=None, description="Overrides the limit of `core` for this server."
    )
    max_schema_text_chars: Count | None = Field(
        default=None, description="Overrides the limit of `core` for this server."
    )


class DescriptionPolicy(Section):
    """How much of the upstream's prose is passed on."""

    mode: DescriptionMode = Field(
        default="preserve",
        description="`truncate` shortens descriptions to the limits below, `strip` drops them.",
    )
    max_tool_description_chars: Count | None = Field(
        default=280, description="Limit of `truncate` for a tool's description, in characters."
    )
    max_schema_description_chars: Count | None = Field(
        default=280, description="Limit of `truncate` for descriptions inside schemas, in characters."
    )


class DescriptionPolicyOverride(Section):
    """The same for one server; null keeps what `core.tool_description_policy` says."""

    mode: DescriptionMode | None = Field(
        default=None, description="Overrides `core.tool_description_policy.mode` for this server."
    )
    max_tool_description_chars: Count | None = Field(
        default=None, description="Overrides the limit of `core` for this server."
    )
    max_schema_description_chars: Count | None = Field(
        default=None, description="Overrides the limit of `core` for this server."
    )


class DefinitionPinning(Section):
    """What happens when a tool's definition changes after a client first saw it."""

    mode: Annotated[PinningMode, OffWord] = Field(
        default="warn",
        description="`warn` serves the new definition with a warning, `block` refuses it, "
        "`off` never compares.",
    )
    block_strategy: BlockStrategy = Field(
        default="error", description="`block` either fails with an error or shows only the unchanged tools."
    )
    block_error_session_action: SessionAction = Field(
        default="invalidate", description="Whether the error of `block` also ends the session."
    )
    baseline: PinningBaseline = Field(
        default="session",
        description="`session` holds each session against what it saw first, `server` against what anybody saw "
        "first; what an operator accepted takes the place of both.",
    )


class DefinitionPinningOverride(Section):
    """The same for one server; null keeps what `core.tool_definition_pinning` says."""

    mode: Annotated[PinningMode | None, OffWord] = Field(
        default=None, description="Overrides `core.tool_definition_pinning.mode` for this server."
    )
    block_strategy: BlockStrategy | None = Field(
        default=None, description="Overrides `core.tool_definition_pinning.block_strategy` for this server."
    )
    block_error_session_action: SessionAction | None = Field(
        default=None,
        description="Overrides `core.tool_definition_pinning.block_error_session_action` for this server.",
    )
    baseline: PinningBaseline | None = Field(
        default=None, description="Overrides `core.tool_definition_pinning.baseline` for this server."
    )
