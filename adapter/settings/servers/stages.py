"""``servers[].stages``: what calls pass on their way to a tool and back. Hosted tools have the same keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator

from adapter.settings.section import (
    ByteSize,
    CodeReference,
    Count,
    Duration,
    Entries,
    Line,
    Listed,
    OptionalText,
    Section,
    Spelled,
    Text,
)

CacheControl = Literal["no-store", "immutable"]


class SyncDefaults(Section):
    """What holds for tools of which nothing is said."""

    cache_control: CacheControl | None = Field(
        default=None, description="What may be kept of their results; null says nothing."
    )


class SyncPolicy(Section):
    """What holds for the tools that a glob matches; of several policies the first counts."""

    match: Line = Field(
        description="Glob for names as clients see them and for `server.tool`: `*` is one part, `**` any number."
    )
    cache_control: CacheControl | None = Field(
        default=None, description="What may be kept of their results; null: what `state_sync.defaults` says."
    )
    invalidates: Entries = Field(
        default_factory=list, description="Tools, as globs, whose data a success makes stale."
    )


class StateSyncSettings(Section):
    """What models are told about how long the data of tools stays true."""

    defaults: SyncDefaults = Field(
        default_factory=SyncDefaults, description="What holds for tools of which nothing is said."
    )
    wording: Literal["element", "system"] = Field(
        default="element",
        description="How results name what is stale: in an XML `element`, or in a sentence of the `system`.",
    )
    policies: list[SyncPolicy] = Field(default_factory=list, description="What holds for which tools.")
    observer: CodeReference = Field(
        default=None, description="Function that is told of everything that gets stale."
    )


AUTH_PLUGINS = ("allow_all", "api_key", "jwt")
"""The plugins that come with the adapter; any other is a function of the user's."""

SMALLEST_EGRESS = 1024
"""Bytes that a limit for results leaves at least: the sentence about what was cut off has to fit."""

RateKey = Literal["identity", "principal", "session", "tool"]
ErrorMode = Literal["result", "jsonrpc"]
Expose = Literal["message", "safe"]


def _large_enough(size: int) -> int:
    if size < SMALLEST_EGRESS:
        raise ValueError(f"must be at least {SMALLEST_EGRESS} bytes (1Ki)")
    return size


def _varying(word: str) -> str:
    kind, _, header = (part.strip() for part in word.partition(":"))
    if word in ("identity", "principal", "session"):
        return word
    if kind == "header" and re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", header):
        return f"header:{header}"
    raise ValueError("must be identity, principal, session or header:NAME")


Vary = Annotated[list[Annotated[str, AfterValidator(_varying)]], Listed]


class ToolAuth(Section):
    """Who may call a tool."""

    plugin: Text = Field(
        description="What decides: `allow_all`, `api_key`, `jwt`, or a function as `file.py#function`."
    )
    policy: Annotated[dict[str, Any], Spelled("mapping of names to values")] = Field(
        default_factory=dict,
        repr=False,
        description="What the plugin goes by; may hold `{{ env.NAME }}`, its values are secrets.",
    )

    @field_validator("plugin")
    @classmethod
    def _is_known(cls, value: str) -> str:
        name = value.strip()
        if name.lower() in AUTH_PLUGINS:
            return name.lower()
        if ".py" not in name:
            raise ValueError(
                "is not a plugin: it must be allow_all, api_key, jwt or a function as file.py#function"
            )
        return name

    @field_validator("policy")
    @classmethod
    def _is_filled_in(cls, policy: dict[str, Any]) -> dict[str, Any]:
        """A placeholder that stayed would be taken literally, and so would be a key that everybody knows."""
        for name, value in policy.items():
            if _holds_placeholder(value):
                raise ValueError(
                    f"{name} holds a placeholder that is neither ${{NAME}} nor {{{{ env.NAME }}}}"
                )
        return policy


def _holds_placeholder(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_holds_placeholder(member) for pair in value.items() for member in pair)
    if isinstance(value, list):
        return any(map(_holds_placeholder, value))
    return isinstance(value, str) and ("{{" in value or "${" in value)


class Mappers(Section):
    """Functions that change what goes to a tool and what comes back."""

    input: CodeReference = Field(default=None, description="Makes the arguments anew.")
    output: CodeReference = Field(default=None, description="Makes the result anew.")


class RateSettings(Section):
    """How often a tool may be called."""

    window: Duration = Field(default=60, description="The time in which calls are counted, up to now.")
    max: Count = Field(description="Most calls in that time; more are refused, and do not count.")
    key: RateKey = Field(
        default="identity",
        description="Whose calls count together: those of an `identity` that auth found (without one: of a "
        "`principal`), of a `principal`, of a `session`, or all of the `tool`.",
    )


class ConcurrencySettings(Section):
    """How many calls of a tool may run at once."""

    max_active: Count = Field(description="Most calls that run at the same time.")
    max_queue: Annotated[int, Field(ge=0), Spelled("whole number")] = Field(
        default=0, description="Most calls that may wait for their turn; more are refused."
    )


class StageLimits(Section):
    """What calls of a tool may take; null sets no limit."""

    concurrency: ConcurrencySettings | None = Field(
        default=None, description="How many calls may run at once."
    )
    rate: RateSettings | None = Field(default=None, description="How often it may be called.")
    egress: Annotated[ByteSize, AfterValidator(_large_enough)] | None = Field(
        default=None, description="Most bytes of a result, at least `1Ki`; what is beyond is left out."
    )
    timeout: Duration | None = Field(
        default=None,
        description="How long a call of a hosted tool may take, all stages together; null: 30 s, or the "
        "`timeout_seconds` of its connector where those are more. Of an upstream's tool the stages have "
        "`tool_call_timeout_seconds`.",
    )

    def merged(self, later: StageLimits) -> StageLimits:
        """These limits, with what ``later`` says instead."""
        return self.model_copy(update=later.said)


class StageCache(Section):
    """Whether a tool's results are kept; a key that is left out follows `servers[].tools.cache`.

    A block that nothing enables, neither itself nor the server's, is refused.
    """

    enabled: bool | None = Field(default=None, description="Overrides `servers[].tools.cache.enabled`.")
    ttl: Duration | None = Field(default=None, description="Overrides `servers[].tools.cache.ttl`.")
    vary: Annotated[
        Vary | None, Spelled("list of `identity`, `principal`, `session`, `header:NAME`, or null")
    ] = Field(
        default=None,
        description="Callers who differ in these share no result; null: in `identity` if the tool has auth.",
    )

    def idle(self, server_keeps: bool) -> bool:
        """Tell whether it sets something about results that nobody keeps, which is a mistake."""
        return bool(self.said) and self.enabled is None and not server_keeps


class ToolStateSync(Section):
    """What models are told about how long a tool's data stays true."""

    cache_control: CacheControl | None = Field(
        default=None, description="What may be kept of its results; null: what `state_sync` says."
    )
    invalidates: Entries = Field(
        default_factory=list, description="Tools, as globs, whose data a success makes stale."
    )


class StageErrors(Section):
    """How failures look; null keeps what holds one level up."""

    mode: ErrorMode | None = Field(default=None, description="Overrides `core.errors.mode` here.")
    expose: Expose | None = Field(default=None, description="Overrides `core.errors.expose` here.")


class ToolStages(Section):
    """What calls pass on their way to the tools that a glob matches; a null key is one that is left out."""

    auth: ToolAuth | None = Field(
        default=None, description="Who may call them; null: whoever may call the server."
    )
    mappers: Mappers = Field(default_factory=Mappers, description="Functions around the call.")
    # BaseModel has a method of the name that the file uses.
    validated: bool = Field(
        default=False,
        alias="validate",
        description="Checks arguments against the tool's schema before the upstream does.",
    )
    middleware: Entries = Field(
        default_factory=list,
        description="Functions around the execution, as `file.py#function`; first is outermost.",
    )
    limits: StageLimits = Field(default_factory=StageLimits, description="What calls may take.")
    cache: StageCache = Field(
        default_factory=StageCache, description="Keeping results, of tools with `readOnlyHint` only."
    )
    presenter: OptionalText = Field(
        default=None, description="Name in `presenters` of what becomes of the tool's data."
    )
    state_sync: ToolStateSync = Field(
        default_factory=ToolStateSync, description="What models are told about how long the data stays true."
    )
    errors: StageErrors = Field(default_factory=StageErrors, description="How failures look.")

    def merged(self, others: Sequence[ToolStages]) -> ToolStages:
        """These stages with what each of the others says instead, key by key; the last one's word counts."""
        merged = self
        for other in others:
            merged = merged.model_copy(update=other.said)
        return merged
