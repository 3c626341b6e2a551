"""``core``: where the adapter listens, whom it serves, and what holds for all servers."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, field_validator, model_validator

from adapter.settings.auth import Auth
from adapter.settings.section import (
    BlankIsNull,
    ByteSize,
    ByteSizeOrZero,
    Count,
    HttpUrl,
    Networks,
    Seconds,
    SecondsOrZero,
    Section,
    Text,
    TextList,
    UrlPath,
)
from adapter.settings.servers.ping import UpstreamPing
from adapter.settings.servers.tool_policies import (
    DefinitionPinning,
    DescriptionPolicy,
    MetadataSanitization,
    ToolDefaults,
    ToolPatterns,
)

LogLevel = Literal["debug", "info", "warning", "error", "critical"]


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


class CorsSettings(Section):
    """Browser clients of other origins."""

    enabled: bool = Field(default=False, description="Answers preflight requests and adds CORS headers.")
    allowed_origins: TextList = Field(
        default_factory=list, description="Origins that may read answers, `*` for any; empty allows none."
    )
    allowed_methods: TextList = Field(
        default_factory=lambda: ["GET", "POST", "DELETE", "OPTIONS"],
        description="Methods a preflight answer allows.",
    )
    allowed_headers: TextList = Field(
        default_factory=lambda: ["*"],
        description="Request headers a preflight answer allows; `Mcp-Session-Id` and "
        "`MCP-Protocol-Version` always are.",
    )
    allow_credentials: bool = Field(
        default=False, description="Lets browsers send cookies and credentials along."
    )
    max_age_seconds: SecondsOrZero = Field(
        default=600, description="How long a browser may remember a preflight answer."
    )

    @model_validator(mode="after")
    def _credentials_need_names(self) -> CorsSettings:
        if self.allow_credentials and "*" in self.allowed_origins:
            raise ValueError("allow_credentials needs the origins by name: allowed_origins must not hold *")
        return self


def _code(value: object) -> object:
    """Variables and flags hold text."""
    return int(value) if isinstance(value, str) and value.strip() in ("-32601", "-32602") else value


class Errors(Section):
    """How failures look to clients."""

    legacy_status: Literal["ok", "http"] = Field(
        default="ok",
        description="`ok` answers failed requests of legacy clients with status 200 and a JSON-RPC error, "
        "because a 429, 502 or 503 ends the connection of several clients; `http` gives them those statuses.",
    )
    unknown_tool_code: Annotated[Literal[-32601, -32602], BeforeValidator(_code)] = Field(
        default=-32601, description="JSON-RPC code for a tool that a hosted server does not have."
    )
    mode: Literal["result", "jsonrpc"] = Field(
        default="result",
        description="How the failure of a stage is answered: with a `result` that is an error, or with a JSON-RPC "
        "error.",
    )
    expose: Literal["message", "safe"] = Field(
        default="message",
        description="What clients read of the exceptions of hosted tools: the first line without credentials and "
        "paths, or (`safe`) only that the call failed.",
    )


class UpstreamConnections(Section):
    """The connections to one upstream."""

    max_connections: Count = Field(
        default=512, description="Calls to one upstream that are under way at the same time."
    )
    max_streams: Count = Field(
        default=2048,
        description="Streams that clients hold open to one upstream at the same time, besides its calls.",
    )
    max_answer_bytes: ByteSize = Field(
        default=64 * 1024**2,
        description="Largest answer or event of an upstream that the adapter reads; what is only passed on has no "
        "limit.",
    )
    connect_timeout_seconds: Seconds = Field(
        default=5, description="How long a connection to an upstream may take to open."
    )


class ClientTimeouts(Section):
    """Times that clients are given."""

    idle_seconds: Seconds = Field(default=75, description="How long a client's connection may lie idle.")
    head_seconds: Seconds = Field(
        default=15, description="How long the head of a request may take, from its first byte; then 408."
    )
    answer_stall_seconds: Seconds = Field(
        default=60,
        description="How long a client may take nothing of its answer; then the connection is broken off.",
    )
    body_silence_seconds: Seconds = Field(
        default=30,
        description="How long nothing of a body may come; then 408. Uploads have `uploads.stall_timeout_seconds`.",
    )
    min_body_bytes_per_second: ByteSizeOrZero = Field(
        default=1024,
        description="Least speed of a body, uploads too; below it 408. Only the time counts that is spent waiting for "
        "the client; 0 allows any speed.",
    )
    min_body_window_seconds: Seconds = Field(
        default=10, description="Over how many seconds of waiting that speed is measured."
    )
    min_body_grace_seconds: SecondsOrZero = Field(
        default=10, description="How many seconds of waiting for a body do not count."
    )


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches the address."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class Core(Section):
    """Where the adapter listens, whom it serves, and what holds for all servers."""

    host: Text = Field(
        default="127.0.0.1", description="Address to bind; `0.0.0.0` opens the adapter to the network."
    )
    port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=8932, description="TCP port to bind; 0 takes a free one."
    )
    log_level: Annotated[LogLevel, BeforeValidator(_lower)] = Field(
        default="info", description="Least severe level that is logged."
    )
    access_log: bool = Field(
        default=False, description="Writes one log line at level info for each exchange."
    )
    public_base_url: Annotated[HttpUrl | None, BlankIsNull] = Field(
        default=None,
        description="Base of every URL handed out; null takes scheme and Host of the request, where "
        "that Host is served.",
    )
    allowed_hosts: TextList | None = Field(
        default=None,
        description="Hosts that are served, others get 421; null serves loopback names when bound to "
        "loopback, else any. "
        "An entry without a port means any port.",
    )
    allowed_origins: TextList | None = Field(
        default=None,
        description="Origins that may call besides the same host and loopback, others get 403. "
        "An entry without a port means any port.",
    )
    trusted_proxies: Networks = Field(
        default_factory=list, description="Networks whose `X-Forwarded-Proto` and `X-Forwarded-Host` count."
    )
    max_request_bytes: ByteSize = Field(
        default=4 * 1024**2, description="Largest JSON-RPC body; a larger one gets 413 before it is read."
    )
    max_buffered_bytes: ByteSize = Field(
        default=256 * 1024**2,
        description="Most bytes of request bodies held in memory, all clients' together, decompressed ones too. "
        "Above it those over 16 KiB wait up to 10 s for room, then get 503; above a quarter more they get it at once. "
        "A few that have waited longest are still read to their end.",
    )
    max_connections: Count = Field(
        default=4096,
        description="Most clients' connections at the same time. 64 more are served health alone, anything else gets "
        "503 there.",
    )
    client_timeouts: ClientTimeouts = Field(
        default_factory=ClientTimeouts, description="Times that clients are given."
    )
    max_request_values: Annotated[int, Field(ge=10_000)] = Field(
        default=200_000,
        description="Most values in one JSON-RPC body, those in its arrays and objects among them, at least 10000; one "
        "with more gets 400.",
    )
    max_batch_members: Annotated[int, Field(ge=1, le=500)] = Field(
        default=100, description="Most messages in one JSON-RPC batch, up to 500; one with more gets 400."
    )
    max_tool_definition_bytes: ByteSize = Field(
        default=1024**2,
        description="Largest definition of one tool in a server's list; a tool with a larger one is hidden.",
    )
    max_tool_list_bytes: ByteSize = Field(
        default=32 * 1024**2,
        description="Largest page of a server's list of tools; a larger one is an error where lists are judged.",
    )
    max_tools: Count = Field(
        default=20_000,
        description="Most tools of one server, on all pages of its list; more are an error where lists are judged.",
    )
    max_start_wait_seconds: SecondsOrZero = Field(
        default=60, description="How long readiness waits for upstreams at start; the port opens at once."
    )
    shutdown_grace_seconds: SecondsOrZero = Field(
        default=10, description="How long running exchanges may finish after a stop was asked for."
    )
    cleanup_interval_seconds: Seconds | None = Field(
        default=60, description="Time between two runs of the janitor; null never runs it."
    )
    upstream_request_timeout_seconds: Seconds = Field(
        default=60, description="Silence of an upstream after which anything but a tool call fails."
    )
    upstream_metadata_cache_ttl_seconds: SecondsOrZero = Field(
        default=300,
        description="How long lists that the adapter reads for itself stay fresh, 0 has each call read them anew; "
        "clients never get a stale list.",
    )
    readiness: Literal["any", "all"] = Field(
        default="any", description="Whether `/readyz` needs any or all servers ready."
    )
    upload_path: UrlPath = Field(
        default="/upload", description="Path of the upload route, followed by the server's id."
    )
    allow_artifacts_download: bool = Field(
        default=False, description="Serves artifacts at `/artifacts/…` over HTTP."
    )
    code_mode_enabled: bool = Field(
        default=False,
        description="Shows clients three tools to search, describe and call instead of the whole list.",
    )
    shorten_descriptions: bool = Field(
        default=False, description="Shortens the descriptions of wrapped tools to one sentence."
    )
    short_description_max_tokens: Count = Field(
        default=16, description="Most words that `shorten_descriptions` keeps."
    )
    disabled_tools: ToolPatterns = Field(
        default_factory=list, description="Tools of any server that clients neither see nor call."
    )
    auth: Auth = Field(default_factory=Auth, description="Tokens that requests have to carry.")
    cors: CorsSettings = Field(default_factory=CorsSettings, description="Browser clients of other origins.")
    defaults: ToolDefaults = Field(default_factory=ToolDefaults, description="How tools are called.")
    upstream: UpstreamConnections = Field(
        default_factory=UpstreamConnections, description="The connections to each upstream."
    )
    upstream_ping: UpstreamPing = Field(default_factory=UpstreamPing, description="Watching upstreams.")
    errors: Errors = Field(default_factory=Errors, description="How failures look to clients.")
    tool_metadata_sanitization: MetadataSanitization = Field(
        default_factory=MetadataSanitization, description="Cleaning the text of tool definitions."
    )
    tool_description_policy: DescriptionPolicy = Field(
        default_factory=DescriptionPolicy, description="How much of the upstream's prose is passed on."
    )
    tool_definition_pinning: DefinitionPinning = Field(
        default_factory=DefinitionPinning, description="What a changed tool definition leads to."
    )

    @field_validator("public_base_url")
    @classmethod
    def _is_a_base(cls, value: str | None) -> str | None:
        parts = urlsplit(value or "")
        if parts.query or parts.fragment or "@" in parts.netloc:
            raise ValueError("must be a base URL without user, query or fragment")
        return value.rstrip("/") if value else None

    @field_validator("allowed_hosts")
    @classmethod
    def _are_hosts(cls, values: list[str] | None) -> list[str] | None:
        for value in values or []:
            if "/" in value or "*" in value:
                raise ValueError(
                    f"{value!r} is not a host: write adapter.example.com or adapter.example.com:8443"
                )
        return values

    @field_validator("allowed_origins")
    @classmethod
    def _are_origins(cls, values: list[str] | None) -> list[str] | None:
        for value in values or []:
            parts = urlsplit(value)
            if (
                parts.scheme not in ("http", "https")
                or not parts.hostname
                or parts.path.strip("/")
                or "*" in value
            ):
                raise ValueError(f"{value!r} is not an origin: write https://app.example.com")
        return [value.rstrip("/") for value in values] if values is not None else None
