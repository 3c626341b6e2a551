"""``servers[]``: the MCP servers and their mounts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from adapter.settings.section import (
    BlankIsNull,
    Count,
    HeaderNames,
    HttpUrl,
    Id,
    OffWord,
    OnWord,
    OptionalText,
    Seconds,
    Section,
    TextList,
    UrlPath,
    hosts,
)
from adapter.settings.servers.file_adapters import ArtifactProducer, FileAdapter, UploadConsumer
from adapter.settings.servers.hosted_tools import Tools, ToolSettings
from adapter.settings.servers.policies import (
    AccessEntries,
    DefinitionPinningOverride,
    DescriptionPolicyOverride,
    MetadataSanitizationOverride,
    ToolDefaultsOverride,
    ToolPatterns,
    UpstreamPingOverride,
)
from adapter.settings.servers.stages import StageErrors, ToolStages
from adapter.settings.servers.upstream_auth import UpstreamAuth

Transport = Literal["streamable_http", "sse", "stdio", "hosted"]


class TransportKind(NamedTuple):
    """``needs`` is the setting of ``upstream`` without which there is nothing to reach; None for tools that run here.

    ``network`` is what OpenTelemetry calls it, empty for what is in this process. ``headers``: its requests have
    headers of HTTP. ``own_http``: each request of a client is one of HTTP; else those of a session share one channel.
    """

    needs: Literal["url", "command"] | None
    network: str
    headers: bool = False
    own_http: bool = False


TRANSPORTS: Mapping[Transport, TransportKind] = {
    "streamable_http": TransportKind("url", "tcp", headers=True, own_http=True),
    "sse": TransportKind("url", "tcp", headers=True),
    "stdio": TransportKind("command", "pipe"),
    "hosted": TransportKind(None, ""),
}

_SPELLINGS = {
    "http": "streamable_http",
    "streamable-http": "streamable_http",
    "streamablehttp": "streamable_http",
}

ProcessMode = Literal["per_session", "per_principal", "shared"]


def _transport(value: object) -> object:
    if not isinstance(value, str):
        return value
    word = value.strip().lower()
    return _SPELLINGS.get(word, word)


class ClientHeaders(Section):
    """Client headers that are forwarded to the upstream."""

    required: HeaderNames = Field(default_factory=list)
    """Headers that every request must have, otherwise it gets 400."""
    passthrough: HeaderNames = Field(default_factory=list)
    """Client headers that are forwarded, in addition to the standard ones in `docs/headers.md`."""


class ServerHeaders(Section):
    """Headers of the upstream's answers that are forwarded: all except those that `docs/headers.md` lists."""

    drop: HeaderNames = Field(default_factory=list)
    """Additional headers that are removed."""
    passthrough: HeaderNames = Field(default_factory=list)
    """Headers of that list that are forwarded anyway; connection headers never are."""


def _fit_into_an_environment(variables: dict[str, str]) -> dict[str, str]:
    for name, value in variables.items():
        if not name or "=" in name or "\0" in name:
            raise ValueError(f"{name!r} is not the name of an environment variable")
        if "\0" in value:
            raise ValueError(f"the value of {name} contains a NUL character")
    return variables


def _fit_into_a_request(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) is None:
            raise ValueError(f"{name!r} is not the name of an HTTP header")
        if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value):
            raise ValueError(f"the value of {name} contains a control character")
    return headers


class UpstreamSettings(Section):
    """Connection to the upstream."""

    transport: Annotated[Transport, BeforeValidator(_transport)] = "streamable_http"
    """Transport of the upstream. `sse` is that of 2024-11-05, `stdio` starts `command`, `hosted` runs
    `servers[].tools`; `http` and `streamable-http` mean the default.
    """
    url: Annotated[HttpUrl | None, BlankIsNull] = None
    """URL of the upstream's MCP endpoint, of its event stream for sse; required for both."""
    insecure_tls: bool = False
    """Do not verify the upstream's certificate."""
    static_headers: Annotated[dict[str, str], AfterValidator(_fit_into_a_request)] = Field(
        default_factory=dict, repr=False
    )
    """Headers added to every request to the upstream; their values are secrets."""
    auth: UpstreamAuth = Field(default_factory=UpstreamAuth)
    command: OptionalText = None
    """Program of a stdio server: a name in PATH, or a path relative to the settings file."""
    args: list[str] = Field(default_factory=list)
    """Arguments of the program, one entry each."""
    env: Annotated[dict[str, str], AfterValidator(_fit_into_an_environment)] = Field(
        default_factory=dict, repr=False
    )
    """Environment variables of the program; their values are secrets."""
    inherit_env: TextList = Field(default_factory=list)
    """Further variables of the adapter's environment that the program gets; `*` at the end stands for any characters.
    """
    cwd: Annotated[Path | None, BlankIsNull] = None
    """Working directory of the program; null: that of the adapter."""
    process: ProcessMode = "per_session"
    """Clients that share one process of a stdio server; `docs/stdio.md` compares the modes."""
    max_processes: Count = 100
    """Maximum number of processes of this server at the same time."""
    idle_ttl_seconds: Annotated[Seconds | None, BlankIsNull] = 1800
    """Time without a request or open stream after which a process is stopped; null: never."""
    start_timeout_seconds: Seconds = 60
    """Time within which a started process must answer its first request."""
    stop_grace_seconds: Seconds = 5
    """Time within which a process must end by itself; then it is killed."""
    bridge: Literal["auto", "never"] = "auto"
    """Requests in an era that the server does not speak: `auto` [translates](eras.md) them, `never` passes them on.
    """
    client_headers: ClientHeaders = Field(default_factory=ClientHeaders)
    server_headers: ServerHeaders = Field(default_factory=ServerHeaders)

    @property
    def kind(self) -> TransportKind:
        """The facts that follow from the transport."""
        return TRANSPORTS[self.transport]


class HostSettings(Section):
    """Extensions of MCP that only some hosts understand, for the tools of this server."""

    openai_file_params: Annotated[Literal["auto", "on", "off"], OnWord, OffWord] = "auto"
    """Take files that ChatGPT attaches (`openai/fileParams`): `auto` for clients that are known to do so, `on` for
    all.
    """
    file_url_allow: Annotated[TextList, hosts("files")] = Field(default_factory=list)
    """Hosts (`name` or `name:port`) with private addresses from which such files may be fetched."""


class ServerSettings(Section):
    """One MCP server and its mount."""

    id: Id
    """Unique name of the server: letters, digits, `_` and `-`."""
    mount_path: UrlPath = Field(default="", json_schema_extra={"shown": "`/mcp/{id}`"})
    """Unique path at which clients reach this server."""
    upstream: UpstreamSettings
    """Connection to the upstream."""
    upstream_ping: UpstreamPingOverride = Field(default_factory=UpstreamPingOverride)
    tool_defaults: ToolDefaultsOverride = Field(default_factory=ToolDefaultsOverride)
    tools: Tools = Field(default_factory=Tools)
    stages: dict[str, ToolStages] = Field(default_factory=dict)
    """Stages of tools, by globs for their names (`*`, `?`). The last glob that sets a key wins; a tool's own
    definition wins over all.
    """
    errors: StageErrors = Field(default_factory=StageErrors)
    adapters: list[FileAdapter] = Field(default_factory=list)
    """Tools that take or produce files."""
    hosts: HostSettings = Field(default_factory=HostSettings)
    in_mounts: bool = False
    """Allow the server in merged mounts although it gets credentials or headers of the client."""
    access: AccessEntries = None
    """Rules for who may use which tools, resources and prompts ([policies](policies.md)); null allows everything,
    else what no rule allows is hidden.
    """
    disabled_tools: ToolPatterns = Field(default_factory=list)
    """Hidden tools: exact names, or expressions that match whole names."""
    code_mode_enabled: bool | None = None
    """Overrides `core.code_mode_enabled` for this server."""
    shorten_descriptions: bool | None = None
    """Overrides `core.shorten_descriptions` for this server."""
    short_description_max_tokens: Count | None = None
    """Overrides `core.short_description_max_tokens` for this server."""
    tool_description_policy: DescriptionPolicyOverride = Field(default_factory=DescriptionPolicyOverride)
    tool_metadata_sanitization: MetadataSanitizationOverride = Field(
        default_factory=MetadataSanitizationOverride
    )
    tool_definition_pinning: DefinitionPinningOverride = Field(default_factory=DefinitionPinningOverride)
    tools_lock: Annotated[Path | None, BlankIsNull] = None
    """Lock file with the tool definitions that every session starts from."""

    @model_validator(mode="before")
    @classmethod
    def _mount_follows_id(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("mount_path") is None and isinstance(data.get("id"), str):
            return {**data, "mount_path": f"/mcp/{data['id'].strip()}"}
        return data

    @property
    def consumers(self) -> list[UploadConsumer]:
        """The entries of tools that take files."""
        return [each for each in self.adapters if isinstance(each, UploadConsumer)]

    @property
    def producers(self) -> list[ArtifactProducer]:
        """The entries of tools that write files."""
        return [each for each in self.adapters if isinstance(each, ArtifactProducer)]

    @property
    def shortens(self) -> bool:
        """Tell whether large results of any of its tools become artifacts."""
        return any(each.large_results for each in self.stages.values())

    @property
    def has_files(self) -> bool:
        """Tell whether files of its callers are kept."""
        return bool(self.adapters) or self.shortens

    def stages_for(self, tool: str) -> ToolStages:
        """The stages of all matching globs for the tool of this name, merged."""
        return ToolStages().overridden(*(stages for glob, stages in self.stages.items() if fits(tool, glob)))

    def stages_of(self, tool: ToolSettings) -> ToolStages:
        """The same for a hosted tool; keys in its own definition win, and each limit by itself."""
        shared, own = self.stages_for(tool.name), tool.stages
        return shared.overridden(own).model_copy(update={"limits": shared.limits.overridden(own.limits)})


def fits(tool: str, glob: str) -> bool:
    """Tell whether a glob of ``stages`` matches the tool of this name."""
    # Here a bracket is a bracket; for fnmatch it begins a set of characters.
    return fnmatchcase(tool, glob.replace("[", "[[]"))
