"""The whole file: its sections, and the values that come from more than one of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, Field, PrivateAttr
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from adapter.settings.console import Console
from adapter.settings.core import Core, Errors
from adapter.settings.presenters import PresenterSettings
from adapter.settings.problems import Problem, traced
from adapter.settings.servers.ping import UpstreamPing
from adapter.settings.servers.server import ServerSettings
from adapter.settings.servers.stages import StateSyncSettings, ToolStages
from adapter.settings.servers.tool_policies import (
    DefinitionPinning,
    DescriptionPolicy,
    MetadataSanitization,
    ToolDefaults,
)
from adapter.settings.sessions import SessionsSettings
from adapter.settings.state import StatePersistence
from adapter.settings.storage import Artifacts, Storage, Uploads
from adapter.settings.telemetry import TelemetrySettings
from adapter.settings.validation import ConnectorSettings, ContextSettings, Validation


class Settings(BaseSettings):
    """Everything the adapter was told. Build it with ``load``, which also judges what no field can."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True)

    core: Core = Field(default_factory=Core, description="Where the adapter listens and whom it serves.")
    telemetry: TelemetrySettings = Field(
        default_factory=TelemetrySettings, description="Metrics, traces and logs over OTLP."
    )
    state_persistence: StatePersistence = Field(
        default_factory=StatePersistence, description="Where sessions and records are kept."
    )
    storage: Storage = Field(default_factory=Storage, description="Where files lie.")
    sessions: SessionsSettings = Field(
        default_factory=SessionsSettings, description="How many, how long, and what they may hold."
    )
    uploads: Uploads = Field(default_factory=Uploads, description="Files that clients stage for tools.")
    artifacts: Artifacts = Field(default_factory=Artifacts, description="Files that tools produce.")
    connectors: list[ConnectorSettings] = Field(
        default_factory=list, description="The databases that hosted tools ask, opened at start."
    )
    presenters: dict[str, PresenterSettings] = Field(
        default_factory=dict,
        description="What becomes of the data of tools, by the name that tools know it by.",
    )
    validation: Validation = Field(
        default_factory=Validation, description="What it may cost to check values against JSON Schemas."
    )
    state_sync: StateSyncSettings = Field(
        default_factory=StateSyncSettings,
        description="What models are told about how long the data of tools stays true.",
    )
    context: ContextSettings = Field(
        default_factory=ContextSettings, description="What functions of the user's are given beside a call."
    )
    console: Console = Field(
        default_factory=Console, description="The page to explore tools with, and the HTTP API behind it."
    )
    servers: list[ServerSettings] = Field(
        default_factory=list, description="The upstream MCP servers; at least one."
    )

    _directory: Path = PrivateAttr(default=Path())
    _files: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the signature is pydantic-settings'
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - as above
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - as above
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - as above
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what ``load`` gives: it has merged file, environment and flags, and knows which is which."""
        return (init_settings,)

    @property
    def directory(self) -> Path:
        """The directory of the settings file: scripts and databases of hosted tools are found from there."""
        return self._directory

    def found_in(self, directory: Path, files: Mapping[str, str]) -> Settings:
        """The same settings, as those of a file in ``directory``; ``files`` as ``problems.traced`` takes them."""
        found = self.model_copy()
        found._directory, found._files = directory, files
        return found

    def traced(self, problem: Problem) -> Problem:
        """The problem at the place where people wrote what is wrong, which may be the file of a single tool."""
        return traced(problem, self._files)

    @property
    def state_path(self) -> Path:
        """The SQLite file of ``state_persistence.type: disk``."""
        return self.state_persistence.disk.local_path or self.storage.root / "state" / "adapter.sqlite3"

    def ping_for(self, server: ServerSettings) -> UpstreamPing:
        """``core.upstream_ping`` with what this server says instead."""
        return self.core.upstream_ping.model_copy(update=_said(server.upstream_ping))

    def tool_defaults_for(self, server: ServerSettings) -> ToolDefaults:
        """``core.defaults`` with what this server says instead."""
        return self.core.defaults.model_copy(update=_said(server.tool_defaults))

    def pinning_for(self, server: ServerSettings) -> DefinitionPinning:
        """``core.tool_definition_pinning`` with what this server says instead."""
        return self.core.tool_definition_pinning.model_copy(update=_said(server.tool_definition_pinning))

    def code_mode_for(self, server: ServerSettings) -> bool:
        """``core.code_mode_enabled``, or what this server says instead."""
        said = server.code_mode_enabled
        return self.core.code_mode_enabled if said is None else said

    def sanitization_for(self, server: ServerSettings) -> MetadataSanitization:
        """``core.tool_metadata_sanitization`` with what this server says instead."""
        return self.core.tool_metadata_sanitization.model_copy(
            update=_said(server.tool_metadata_sanitization)
        )

    def descriptions_for(self, server: ServerSettings) -> DescriptionPolicy:
        """``core.tool_description_policy`` with what this server says instead."""
        return self.core.tool_description_policy.model_copy(update=_said(server.tool_description_policy))

    def errors_for(self, server: ServerSettings, stages: ToolStages | None = None) -> Errors:
        """``core.errors`` with what this server, and then the stages of one of its tools, say instead."""
        said = server.errors.said if stages is None else server.errors.said | stages.errors.said
        return self.core.errors.model_copy(update=said)


def _said(override: BaseModel) -> dict[str, object]:
    return {name: value for name, value in override if value is not None}
