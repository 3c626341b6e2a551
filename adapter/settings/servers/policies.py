"""Pings and policies, which ``core`` has for all servers and ``servers[]`` for one, and ``servers[].access``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from adapter.rules.text.expressions import Expression, ExpressionInvalid, NamePattern
from adapter.rules.text.unicode import shown
from adapter.settings.section import Count, OffWord, Seconds, Section, Spelled, overriding


class UpstreamPing(Section):
    """Pings of each upstream, and its circuit breaker."""

    enabled: bool = True
    """Ping every upstream; if false, the circuit breaker never opens."""
    interval_seconds: Seconds = 15
    """Time between two pings."""
    timeout_seconds: Seconds = 5
    """Time after which an unanswered ping has failed."""
    failure_threshold: Count = 3
    """Number of failed pings in a row that opens the breaker."""
    open_cooldown_seconds: Seconds = 30
    """Time that an open breaker refuses calls before the next ping, 5 s at most while no connection can be opened; one
    success closes it."""


@overriding(UpstreamPing, "core.upstream_ping")
class UpstreamPingOverride(Section):
    """Overrides for one server; null keeps the value of `core.upstream_ping`."""


def _expressions(values: list[str]) -> list[str]:
    for value in values:
        try:
            Expression(value)
        except ExpressionInvalid as invalid:
            short = value if len(value) <= 100 else value[:99] + "…"
            raise ValueError(f"{short!r} is not a valid regular expression of RE2: {invalid}") from None
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

    tool_call_timeout_seconds: Seconds | None = 60
    """Silence of an upstream after which a tool call fails; a message such as progress restarts it. Null: no limit.
    """
    tool_call_total_seconds: Seconds | None = None
    """Time after which a call of an upstream's tool fails, whatever it says; null: no limit."""
    allow_raw_output: bool = False
    """Embed the content of a captured artifact in the tool's result too."""


class ToolDefaultsOverride(Section):
    """Overrides for some tools; null keeps the value of the level above."""

    tool_call_timeout_seconds: Seconds | None = None
    """Overrides `core.defaults.tool_call_timeout_seconds` here; null keeps it."""
    allow_raw_output: bool | None = None
    """Overrides `core.defaults.allow_raw_output` here; null keeps it."""


class MetadataSanitization(Section):
    """Sanitization of the text in tool definitions before a model reads it."""

    mode: Annotated[SanitizationMode, OffWord] = "sanitize"
    """`sanitize` cleans the text, `block` hides a tool with text that needs cleaning."""
    normalize_unicode: bool = True
    """Convert text to Unicode form NFKC."""
    remove_invisible_characters: bool = True
    """Remove zero-width, bidirectional, tag and control characters."""
    max_tool_title_chars: Count | None = 256
    """Maximum length of a tool's title, in characters."""
    max_tool_description_chars: Count | None = 16384
    """Maximum length of a tool's description, in characters."""
    max_schema_text_chars: Count | None = 8192
    """Maximum length of a title or description inside a schema, in characters."""


@overriding(MetadataSanitization, "core.tool_metadata_sanitization")
class MetadataSanitizationOverride(Section):
    """Overrides for one server; null keeps the value of `core.tool_metadata_sanitization`."""


class DescriptionPolicy(Section):
    """Length of tool descriptions that clients see."""

    mode: DescriptionMode = "preserve"
    """`truncate` cuts descriptions at the limits below, `strip` removes them."""
    max_tool_description_chars: Count | None = 280
    """Limit of `truncate` for each description, of the tool and inside its schemas, in characters."""


@overriding(DescriptionPolicy, "core.tool_description_policy")
class DescriptionPolicyOverride(Section):
    """Overrides for one server; null keeps the value of `core.tool_description_policy`."""


class DefinitionPinning(Section):
    """Reaction to a tool definition that changes after a client first saw it."""

    mode: Annotated[PinningMode, OffWord] = "warn"
    """`warn` shows the new definition with a warning, `block` refuses it, `off` does not compare."""
    block_strategy: BlockStrategy = "error"
    """Reaction of `block`: answer with an error, or show only the unchanged tools (`baseline_subset`)."""
    block_error_session_action: SessionAction = "invalidate"
    """Treatment of the session after the error of `block`: end it, or keep it."""
    baseline: PinningBaseline = "session"
    """Tools that a session is compared with: those that it first saw (`session`), or that any session first saw
    (`server`).
    """


@overriding(DefinitionPinning, "core.tool_definition_pinning")
class DefinitionPinningOverride(Section):
    """Overrides for one server; null keeps the value of `core.tool_definition_pinning`."""


# --- access ---------------------------------------------------------------------------------------------------

ClaimValue = StrictStr | StrictBool | StrictInt | StrictFloat


def _patterns(values: list[str]) -> list[str]:
    for value in values:
        try:
            NamePattern(value)
        except ExpressionInvalid as invalid:
            raise ValueError(f"{shown(value, 100)!r} is not a pattern: {invalid}") from None
    return values


def _one_or_more(values: list[str] | None) -> list[str] | None:
    if values is not None and not all(values):
        raise ValueError("has an empty entry")
    if values == []:
        raise ValueError(
            "is an empty list, which no caller fits: name somebody, or leave it out to mean everybody"
        )
    return values


Patterns = Annotated[list[str], AfterValidator(_patterns), Spelled("list of patterns (`*`, `?`)")]
Condition = Annotated[list[str] | None, AfterValidator(_one_or_more)]


def _claims(
    claims: dict[str, ClaimValue | list[ClaimValue]] | None,
) -> dict[str, ClaimValue | list[ClaimValue]] | None:
    if claims is None:
        return None
    if not claims or not all(claims) or [] in claims.values():
        raise ValueError("must name claims, each with a value or a list of values")
    return claims


class AccessEntry(Section):
    """Rule for the callers that fulfil all its conditions; without a condition it is for everybody."""

    principals: Condition = None
    """Callers by name: of their static token, `default` for `core.auth.token`, `VALUE@ISSUER`, `anonymous`."""
    scopes: Condition = None
    """OAuth scopes of which the caller must have all."""
    claims: Annotated[dict[str, ClaimValue | list[ClaimValue]] | None, AfterValidator(_claims)] = None
    """Claims of the caller's token, each with a value or a list of which it must have one; `a.b` is a member of `a`.
    """
    tools: Patterns = Field(default_factory=list)
    """Tools that these callers may see and call."""
    resources: Patterns = Field(default_factory=list)
    """Resources that these callers may see and read, by URI; templates are compared as written."""
    prompts: Patterns = Field(default_factory=list)
    """Prompts that these callers may see and get."""
    deny: Patterns = Field(default_factory=list)
    """Names and URIs that these callers may not use, whatever other entries allow."""

    def _contradictions(self) -> Iterator[str]:
        if not (self.tools or self.resources or self.prompts or self.deny):
            yield "allows and denies nothing: set tools, resources, prompts or deny"


def _not_empty(entries: list[AccessEntry] | None) -> list[AccessEntry] | None:
    if entries == []:
        raise ValueError("is an empty list: leave it out to allow everything, or say who may use what")
    return entries


AccessEntries = Annotated[list[AccessEntry] | None, AfterValidator(_not_empty)]
