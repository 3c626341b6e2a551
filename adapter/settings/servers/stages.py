"""``servers[].stages``: stages around calls of tools. Hosted tools have the same keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from adapter.settings.section import (
    ByteSize,
    CodeReference,
    Count,
    Entries,
    Line,
    Listed,
    OptionalText,
    Seconds,
    Section,
    Spelled,
    Text,
)

CacheControl = Literal["no-store", "immutable"]


class SyncDefaults(Section):
    """Defaults for tools without a policy."""

    cache_control: CacheControl | None = None
    """Cache directive in their descriptions; null adds none."""


class SyncPolicy(Section):
    """Policy for the tools that a glob matches; the first policy that matches applies."""

    match: Line
    """Glob for tool names, or for `server.tool`: `*` matches one part, `**` any number of parts."""
    cache_control: CacheControl | None = None
    """Cache directive in their descriptions; null uses `state_sync.defaults`."""
    invalidates: Entries = Field(default_factory=list)
    """Globs for tools: a successful call makes their data outdated."""


class StateSyncSettings(Section):
    """Messages to models about outdated tool data."""

    defaults: SyncDefaults = Field(default_factory=SyncDefaults)
    wording: Literal["element", "system"] = "element"
    """Form of the message about outdated data: an XML `element`, or a `system` sentence."""
    policies: list[SyncPolicy] = Field(default_factory=list)
    """Policies for tools."""
    observer: CodeReference = None
    """Function that is called when data becomes outdated."""


AUTH_PLUGINS = ("allow_all", "api_key", "jwt")
"""The built-in plugins; any other plugin is the user's own function."""

SMALLEST_EGRESS = 1024
"""Minimum value of a limit for results, in bytes: the message about the cut must fit."""

RateKey = Literal["identity", "principal", "session", "tool"]
ErrorMode = Literal["result", "jsonrpc"]


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


def _is_known(value: str) -> str:
    name = value.strip()
    if name.lower() in AUTH_PLUGINS:
        return name.lower()
    if ".py" not in name:
        raise ValueError(
            "is not a plugin: it must be allow_all, api_key, jwt or a function as file.py#function"
        )
    return name


def _is_filled_in(policy: dict[str, Any]) -> dict[str, Any]:
    """Refuse a remaining placeholder: used literally, it would be a key that everybody knows."""
    for name, value in policy.items():
        if _holds_placeholder(value):
            raise ValueError(f"{name} holds a placeholder that is neither ${{NAME}} nor {{{{ env.NAME }}}}")
    return policy


class ToolAuth(Section):
    """Authentication for a tool."""

    plugin: Annotated[Text, AfterValidator(_is_known)]
    """Plugin: `allow_all`, `api_key`, `jwt`, or a function as `file.py#function`."""
    policy: Annotated[
        dict[str, Any], Spelled("mapping of names to values"), AfterValidator(_is_filled_in)
    ] = Field(default_factory=dict, repr=False)
    """Options of the plugin; may contain `{{ env.NAME }}`. The values are secrets."""


def _holds_placeholder(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_holds_placeholder(member) for pair in value.items() for member in pair)
    if isinstance(value, list):
        return any(map(_holds_placeholder, value))
    return isinstance(value, str) and ("{{" in value or "${" in value)


class Mappers(Section):
    """Functions that change arguments and results."""

    input: CodeReference = None
    """Function that returns new arguments."""
    output: CodeReference = None
    """Function that returns a new result."""


class RateSettings(Section):
    """Rate limit of a tool."""

    window: Seconds = 60
    """Length of the sliding window in which calls are counted."""
    max: Count
    """Maximum number of calls in that window; more are refused and are not counted."""
    key: RateKey = "identity"
    """Calls that are counted together: of one `identity` from auth, one `principal`, one `session`, or of the `tool`.
    """

    shared: bool = False
    """Count the calls of all replicas together, at the cost of a request to the state store for each."""


class ConcurrencySettings(Section):
    """Concurrency limit of a tool, in each replica."""

    max_active: Count
    """Maximum number of running calls."""
    max_queue: Annotated[int, Field(ge=0), Spelled("whole number")] = 0
    """Maximum number of waiting calls; more are refused."""


class StageLimits(Section):
    """Limits for calls of a tool; null sets no limit."""

    concurrency: ConcurrencySettings | None = None
    """Limit of simultaneous calls."""
    rate: RateSettings | None = None
    """Limit of calls in a time window."""
    egress: Annotated[ByteSize, AfterValidator(_large_enough)] | None = None
    """Maximum size of a result, at least `1Ki`; the rest is left out."""
    timeout: Seconds | None = None
    """Deadline of a hosted tool's call, for all stages; null: 30 s, or its connector's `timeout_seconds` if more."""


class LargeResults(Section):
    """Results that are too large to be shown whole: their parts become artifacts, of which the beginning is shown."""

    above: Annotated[ByteSize, Field(ge=8192)] = 64 << 10
    """Size of a result, as JSON, above which its largest parts become artifacts; at least `8Ki`."""
    hosts: bool = True
    """Lower `above` for a client that is known to show its model less ([files](files.md#large-results))."""
    preview: Annotated[ByteSize, Field(ge=256)] = 4 << 10
    """Size of what is shown of each such part, at most half of `above`."""

    def _contradictions(self) -> Iterator[str]:
        if self.preview > self.above // 2:
            yield "preview may be at most half of above"


class StageCache(Section):
    """Caching of a tool's results. A key that is left out has the value in `servers[].tools.cache`.

    The section is refused if neither it nor the server's section enables caching.
    """

    enabled: bool | None = None
    """Overrides `servers[].tools.cache.enabled`."""
    ttl: Seconds | None = None
    """Overrides `servers[].tools.cache.ttl`."""
    vary: Annotated[
        Vary | None, Spelled("list of `identity`, `principal`, `session`, `header:NAME`, or null")
    ] = None
    """Callers that differ in these share no result; null: `identity` if the tool has auth."""

    shared: bool = False
    """Share results with all replicas, at the cost of a request to the state store for each call."""

    def idle(self, server_keeps: bool) -> bool:
        """Tell whether it configures a cache that is not enabled, which is a mistake."""
        return bool(self.said) and self.enabled is None and not server_keeps


class ToolStateSync(Section):
    """Messages to models about outdated data of a tool."""

    cache_control: CacheControl | None = None
    """Cache directive in its description; null uses `state_sync`."""
    invalidates: Entries = Field(default_factory=list)
    """Globs for tools: a successful call makes their data outdated."""


class StageErrors(Section):
    """Form of errors; null keeps the value of the level above."""

    mode: ErrorMode | None = None
    """Overrides `core.errors.mode` here."""


class StageKeys(Section):
    """The stages that a tool may have, hosted or not."""

    auth: ToolAuth | None = None
    """Authentication; null allows everybody who may call the server."""
    mappers: Mappers = Field(default_factory=Mappers)
    middleware: Entries = Field(default_factory=list)
    """Functions around the execution, as `file.py#function`; the first is the outermost."""
    limits: StageLimits = Field(default_factory=StageLimits)
    cache: StageCache = Field(default_factory=StageCache)
    presenter: OptionalText = None
    """Name of an entry in `presenters`."""
    state_sync: ToolStateSync = Field(default_factory=ToolStateSync)
    errors: StageErrors = Field(default_factory=StageErrors)


class ToolStages(StageKeys):
    """Stages of the tools that a glob matches; null means that a key is not set."""

    # BaseModel has a method of the name that the file uses.
    validated: bool = Field(default=False, alias="validate")
    """Check arguments against the tool's schema before the upstream gets them."""
    cache: StageCache = Field(default_factory=StageCache)
    """Caching of results; only for tools with `readOnlyHint`."""
    large_results: LargeResults | None = None
    """Keep what is too large of a result as artifacts; null shows results whole."""
