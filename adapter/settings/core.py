"""``core``: the address of the adapter, its callers, and defaults for all servers."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from adapter.settings.auth import Auth
from adapter.settings.section import (
    BlankIsNull,
    ByteSize,
    Count,
    HttpUrl,
    Networks,
    OptionalText,
    Seconds,
    SecondsOrZero,
    Section,
    Text,
    TextList,
    UrlPath,
    hosts,
    is_loopback,
)
from adapter.settings.servers.policies import (
    DefinitionPinning,
    DescriptionPolicy,
    MetadataSanitization,
    ToolDefaults,
    ToolPatterns,
    UpstreamPing,
)
from adapter.settings.telemetry import AuditSettings

SHORTEST_SECRET = 32

LogLevel = Literal["debug", "info", "warning", "error", "critical"]


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


Auto = Annotated[Literal["auto"], BeforeValidator(_lower)]


class CorsSettings(Section):
    """CORS for browser clients of other origins."""

    enabled: bool = False
    """Answer preflight requests and add CORS headers."""
    allowed_origins: TextList = Field(default_factory=list)
    """Origins that may read answers; `*` allows any, an empty list none."""


def _code(value: object) -> object:
    """Convert text from variables and flags."""
    return int(value) if isinstance(value, str) and value.strip() in ("-32601", "-32602") else value


class Errors(Section):
    """Form of errors that clients get."""

    legacy_status: Literal["ok", "http"] = "ok"
    """Status of failed requests of legacy clients. `ok`: 200 with a JSON-RPC error. `http`: the statuses of modern
    clients.
    """
    unknown_tool_code: Annotated[Literal[-32601, -32602], BeforeValidator(_code)] = -32601
    """JSON-RPC code for an unknown tool of a hosted server."""
    mode: Literal["result", "jsonrpc"] = "result"
    """Answer to a call that fails in a stage: an error `result`, or a JSON-RPC error (`jsonrpc`)."""
    expose: Literal["message", "safe"] = "message"
    """Part of an exception that clients see: its first line (`message`), or only that the call failed (`safe`)."""


class UpstreamConnections(Section):
    """Connections to one upstream."""

    max_connections: Count = 512
    """Maximum number of running calls to one upstream, and four times as many streams."""
    max_answer_bytes: ByteSize = 48 * 1024**2
    """Maximum size of an answer or event that the adapter must read."""

    @property
    def max_streams(self) -> int:
        """Return the maximum number of streams that clients keep open to one upstream, in addition to calls."""
        return 4 * self.max_connections


def _is_an_id(value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", value):
        raise ValueError("must be 1 to 64 letters, digits, dots, underscores and hyphens")
    return value


def _is_an_address(value: str | None) -> str | None:
    if value is None:
        return None
    parts = _parts(value if "://" in value else f"http://{value}")
    if parts is None or parts[2]:
        raise ValueError("must be a URL without a path, a host, or a host:port")
    return value.rstrip("/")


class ReplicaSettings(Section):
    """This process among several that share a state store."""

    id: Annotated[Text | None, BlankIsNull, AfterValidator(_is_an_id)] = None
    """Name of this process, different from all others; null: a random one. 1 to 64 letters, digits, `.`, `_` and `-`.
    """
    address: Annotated[OptionalText, AfterValidator(_is_an_address)] = None
    """Address at which other processes reach this one: a URL, or a host with or without a port. Null: the address
    that is bound, or the host's own.
    """


def _parts(url: str) -> tuple[str, int | None, str] | None:
    """Host, port and whatever follows them of a URL; None for what is none."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or "@" in parts.netloc
        or re.search(r"\s", url)
    ):
        return None
    return parts.hostname, port, parts.path.strip("/") + parts.query + parts.fragment


def _cannot_be_guessed(value: SecretStr | None) -> SecretStr | None:
    if value is not None and len(value.get_secret_value()) < SHORTEST_SECRET:
        raise ValueError(f"must have at least {SHORTEST_SECRET} characters")
    return value


def _is_a_base(value: str | None) -> str | None:
    parts = urlsplit(value or "")
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("must be a base URL without user, query or fragment")
    return value.rstrip("/") if value else None


def _are_origins(values: list[str] | None) -> list[str] | None:
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


class Core(Section):
    """Address of the adapter, its callers, and defaults for all servers."""

    host: Text = "127.0.0.1"
    """Address to bind; `0.0.0.0` makes the adapter reachable from the network."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8932
    """TCP port to bind; 0 chooses a free port."""
    workers: Annotated[int, Field(ge=1, le=256)] | Auto = 1
    """Number of processes that serve; `auto`: one for each processor core. Limits of connections, memory and requests
    are for each of them.
    """
    watch: bool = True
    """Use the settings file when it changed ([operating](operating.md#changed-settings))."""
    log_level: Annotated[LogLevel, BeforeValidator(_lower)] = "info"
    """Lowest level that is logged."""
    access_log: bool = False
    """Write one log line at level info for each exchange."""
    public_base_url: Annotated[HttpUrl | None, BlankIsNull, AfterValidator(_is_a_base)] = None
    """Base of every URL that the adapter generates; null: scheme and Host of the request."""
    allowed_hosts: Annotated[TextList | None, hosts("adapter")] = None
    """Hosts that are served; others get 421. Null: loopback names if the adapter is bound to loopback, else any.
    Without a port: any port.
    """
    allowed_origins: Annotated[TextList | None, AfterValidator(_are_origins)] = None
    """Origins that may call, besides the same host and loopback; others get 403. Without a port: any port."""
    trusted_proxies: Networks = Field(default_factory=list)
    """Networks of proxies that may set `X-Forwarded-Proto` and `X-Forwarded-Host`."""
    max_request_bytes: ByteSize = 4 * 1024**2
    """Maximum size of a JSON-RPC body; a larger one gets 413 before it is read."""
    max_buffered_bytes: ByteSize = 256 * 1024**2
    """Memory for the request bodies of all clients together. Above it, bodies over 16 KiB wait up to 10 s and then
    get 503.
    """
    max_connections: Count = 4096
    """Maximum number of client connections; 64 more serve health routes only."""
    max_start_wait_seconds: SecondsOrZero = 60
    """Time that readiness waits for upstreams at start; the port opens at once."""
    shutdown_grace_seconds: SecondsOrZero = 10
    """Time for running requests to finish after the adapter was asked to stop."""
    cleanup_interval_seconds: Seconds | None = 60
    """Time between two cleanups of sessions and files; null disables the cleanup."""
    upstream_request_timeout_seconds: Seconds = 60
    """Silence of an upstream after which a request fails; tool calls have `core.defaults`."""
    upstream_metadata_cache_ttl_seconds: SecondsOrZero = 300
    """Time that the adapter uses a tool list before it reads it again; 0: each call."""
    readiness: Literal["any", "all"] = "any"
    """Number of servers that must be ready for `/readyz`: `any` or `all`."""
    upload_path: UrlPath = "/upload"
    """Path of the upload route; the server's id follows it."""
    allow_artifacts_download: bool = False
    """Serve artifacts at `/artifacts/…` over HTTP."""
    code_mode_enabled: bool = False
    """Show clients three tools (search, describe, call) instead of the whole list."""
    shorten_descriptions: bool = False
    """Shorten the descriptions of tools in `adapters` to one sentence."""
    short_description_max_tokens: Count = 16
    """Maximum number of words that `shorten_descriptions` keeps."""
    disabled_tools: ToolPatterns = Field(default_factory=list)
    """Tools of any server that clients can neither see nor call."""
    auth: Auth = Field(default_factory=Auth)
    secret: Annotated[SecretStr | None, BlankIsNull, AfterValidator(_cannot_be_guessed)] = None
    """Secret of all replicas, at least 32 characters. It seals [grants](grants.md) and shared sessions. Null: one
    generated in the state store, whose readers know it.
    """
    audit: AuditSettings = Field(default_factory=AuditSettings)
    """Audit log of calls ([policies](policies.md#audit-log))."""
    cors: CorsSettings = Field(default_factory=CorsSettings)
    defaults: ToolDefaults = Field(default_factory=ToolDefaults)
    upstream: UpstreamConnections = Field(default_factory=UpstreamConnections)
    replica: ReplicaSettings = Field(default_factory=ReplicaSettings)
    upstream_ping: UpstreamPing = Field(default_factory=UpstreamPing)
    errors: Errors = Field(default_factory=Errors)
    tool_metadata_sanitization: MetadataSanitization = Field(default_factory=MetadataSanitization)
    tool_description_policy: DescriptionPolicy = Field(default_factory=DescriptionPolicy)
    tool_definition_pinning: DefinitionPinning = Field(default_factory=DefinitionPinning)

    @property
    def exposure(self) -> str | None:
        """Name what lets callers on other machines reach the adapter, in words; None where nothing does."""
        if not is_loopback(self.host):
            return "core.host is not a loopback address"
        if self.public_base_url and not is_loopback(urlsplit(self.public_base_url).hostname or ""):
            return "core.public_base_url is set"
        return "core.trusted_proxies is set" if self.trusted_proxies else None
