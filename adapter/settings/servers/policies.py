"""Sections that ``core`` has for all servers and ``servers[]`` for one: pings, and policies for tools of upstreams."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from adapter.rules.text.expressions import Expression, ExpressionInvalid
from adapter.settings.section import Count, OffWord, Seconds, Section, Spelled, overriding


class UpstreamPing(Section):
    """Pings of each upstream, and its circuit breaker."""

    enabled: bool = Field(
        default=True, description="Ping every upstream; if false, the circuit breaker never opens."
    )
    interval_seconds: Seconds = Field(default=15, description="Time between two pings.")
    timeout_seconds: Seconds = Field(default=5, description="Time after which an unanswered ping has failed.")
    failure_threshold: Count = Field(
        default=3, description="Number of failed pings in a row that opens the breaker."
    )
    open_cooldown_seconds: Seconds = Field(
        default=30, description="Time that an open breaker refuses calls before the next ping."
    )
    half_open_probe_allowance: Count = Field(
        default=2,
        description="Maximum number of simultaneous pings while the breaker is half-open; one success closes it.",
    )


@overriding(UpstreamPing, "core.upstream_ping")
class UpstreamPingOverride(Section):
    """Overrides for one server; null keeps the value of `core.upstream_ping`."""


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
    """Defaults for calls of tools."""

    tool_call_timeout_seconds: Seconds | None = Field(
        default=60,
        description="Silence of an upstream after which a tool call fails; a message such as progress restarts it, "
        "a comment of an event stream does not. Null waits without limit.",
    )
    tool_call_total_seconds: Seconds | None = Field(
        default=None,
        description="Time after which a call of an upstream's tool fails, whatever the upstream says meanwhile; null "
        "sets no limit.",
    )
    allow_raw_output: bool = Field(
        default=False, description="Embed the content of a captured artifact in the tool's result too."
    )


class ToolDefaultsOverride(Section):
    """Overrides for some tools; null keeps the value of the level above."""

    tool_call_timeout_seconds: Seconds | None = Field(
        default=None, description="Overrides `core.defaults.tool_call_timeout_seconds` here; null keeps it."
    )
    tool_call_total_seconds: Seconds | None = Field(
        default=None, description="Overrides `core.defaults.tool_call_total_seconds` here; null keeps it."
    )
    allow_raw_output: bool | None = Field(
        default=None, description="Overrides `core.defaults.allow_raw_output` here; null keeps it."
    )


class MetadataSanitization(Section):
    """Sanitization of the text in tool definitions before a model reads it."""

    mode: Annotated[SanitizationMode, OffWord] = Field(
        default="sanitize",
        description="`sanitize` cleans the text, `block` hides a tool with text that needs cleaning.",
    )
    normalize_unicode: bool = Field(default=True, description="Convert text to Unicode form NFKC.")
    remove_invisible_characters: bool = Field(
        default=True, description="Remove zero-width, bidirectional, tag and control characters."
    )
    max_tool_title_chars: Count | None = Field(
        default=256, description="Maximum length of a tool's title, in characters."
    )
    max_tool_description_chars: Count | None = Field(
        default=16384, description="Maximum length of a tool's description, in characters."
    )
    max_schema_text_chars: Count | None = Field(
        default=8192, description="Maximum length of a title or description inside a schema, in characters."
    )


@overriding(MetadataSanitization, "core.tool_metadata_sanitization")
class MetadataSanitizationOverride(Section):
    """Overrides for one server; null keeps the value of `core.tool_metadata_sanitization`."""


class DescriptionPolicy(Section):
    """Length of tool descriptions that clients see."""

    mode: DescriptionMode = Field(
        default="preserve",
        description="`truncate` cuts descriptions at the limits below, `strip` removes them.",
    )
    max_tool_description_chars: Count | None = Field(
        default=280, description="Limit of `truncate` for a tool's description, in characters."
    )
    max_schema_description_chars: Count | None = Field(
        default=280, description="Limit of `truncate` for descriptions inside schemas, in characters."
    )


@overriding(DescriptionPolicy, "core.tool_description_policy")
class DescriptionPolicyOverride(Section):
    """Overrides for one server; null keeps the value of `core.tool_description_policy`."""


class DefinitionPinning(Section):
    """Reaction to a tool definition that changes after a client first saw it."""

    mode: Annotated[PinningMode, OffWord] = Field(
        default="warn",
        description="`warn` shows the new definition with a warning, `block` refuses it, `off` does not "
        "compare.",
    )
    block_strategy: BlockStrategy = Field(
        default="error",
        description="Reaction of `block`: answer with an error, or show only the unchanged tools "
        "(`baseline_subset`).",
    )
    block_error_session_action: SessionAction = Field(
        default="invalidate",
        description="Treatment of the session after the error of `block`: end it, or keep it.",
    )
    baseline: PinningBaseline = Field(
        default="session",
        description="Tools that a session is compared with: those that it first saw itself (`session`), or "
        "those that any session first saw (`server`). Tools that an operator accepted replace "
        "both.",
    )


@overriding(DefinitionPinning, "core.tool_definition_pinning")
class DefinitionPinningOverride(Section):
    """Overrides for one server; null keeps the value of `core.tool_definition_pinning`."""
