"""The whole file: its sections, and values that combine several of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from adapter.settings.core import Core, Errors
from adapter.settings.mounts import MountSettings
from adapter.settings.pipeline import ConnectorSettings, Console, ContextSettings, PresenterSettings
from adapter.settings.section import Problem, traced
from adapter.settings.servers.policies import (
    DefinitionPinning,
    DescriptionPolicy,
    MetadataSanitization,
    ToolDefaults,
    UpstreamPing,
)
from adapter.settings.servers.server import ServerSettings
from adapter.settings.servers.stages import StateSyncSettings, ToolStages
from adapter.settings.storage import Artifacts, SessionsSettings, StatePersistence, Storage, Uploads
from adapter.settings.telemetry import TelemetrySettings


class Settings(BaseModel):
    """All settings."""

    # Made by load, which also checks what no single field can check. Editors show people the sentence above.

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    core: Core = Field(default_factory=Core)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings)
    state_persistence: StatePersistence = Field(default_factory=StatePersistence)
    storage: Storage = Field(default_factory=Storage)
    sessions: SessionsSettings = Field(default_factory=SessionsSettings)
    uploads: Uploads = Field(default_factory=Uploads)
    artifacts: Artifacts = Field(default_factory=Artifacts)
    connectors: list[ConnectorSettings] = Field(default_factory=list)
    """Databases of hosted tools, opened at start."""
    presenters: dict[str, PresenterSettings] = Field(default_factory=dict)
    """Filters and additions for tool data, by name; tools refer to the name."""
    state_sync: StateSyncSettings = Field(default_factory=StateSyncSettings)
    context: ContextSettings = Field(default_factory=ContextSettings)
    console: Console = Field(default_factory=Console)
    servers: list[ServerSettings] = Field(default_factory=list)
    """The MCP servers; at least one is required."""
    mounts: list[MountSettings] = Field(default_factory=list)
    """Merged mounts: several servers at one address."""

    _directory: Path = PrivateAttr(default=Path())
    _files: Mapping[str, str] = PrivateAttr(default_factory=dict)
    _retired: Sequence[Problem] = PrivateAttr(default=())
    _for_worker: bool = PrivateAttr(default=False)

    @property
    def directory(self) -> Path:
        """The directory of the settings file; paths of scripts and databases of hosted tools are relative to it."""
        return self._directory

    @property
    def retired(self) -> Sequence[Problem]:
        """A caution for each key of the file that sets nothing any more."""
        return self._retired

    def found_in(
        self, directory: Path, files: Mapping[str, str], retired: Sequence[Problem] = ()
    ) -> Settings:
        """The same settings, as those of a file in ``directory`` with such keys; ``files`` as ``problems.traced`` takes
        them.
        """
        found = self.model_copy()
        found._directory, found._files, found._retired = directory, files, retired
        return found

    def for_worker(self) -> Settings:
        """The same settings, for a worker of a supervisor."""
        found = self.model_copy()
        found._for_worker = True
        return found

    @property
    def has_other_workers(self) -> bool:
        """True where other processes of this host use the same state and files.

        Also of a worker whose settings want but one: until all workers have been replaced it is not alone, and the
        supervisor keeps the lock on ``storage.root``.
        """
        return self._for_worker or worker_count(self.core.workers) > 1

    def traced(self, problem: Problem) -> Problem:
        """The problem with the place of its cause, which may be the file of a single tool."""
        return traced(problem, self._files)

    @property
    def shares_state(self) -> bool:
        """True where several processes may use one state store."""
        return self.state_persistence.type == "redis"

    @property
    def root_lock(self) -> Literal["exclusive", "shared"] | None:
        """The lock on ``storage.root``: of one process alone, of all that share their state, or none."""
        if self.storage.lock_mode not in ("auto", "file"):
            return None
        return "shared" if self.shares_state else "exclusive"

    @property
    def state_path(self) -> Path:
        """The SQLite file of ``state_persistence.type: disk``."""
        return self.state_persistence.disk.local_path or self.storage.root / "state" / "adapter.sqlite3"

    @property
    def snapshot_path(self) -> Path | None:
        """The SQLite file that keeps ``state_persistence.type: memory``; None where nobody asks for one."""
        state = self.state_persistence
        if state.type != "memory" or not (state.disk.local_path or "snapshot_interval_seconds" in state.said):
            return None
        return state.disk.local_path or self.storage.root / "state" / "snapshot.sqlite3"

    @property
    def state_file(self) -> Path | None:
        """The SQLite file that no other adapter may use; None where there is none."""
        return self.state_path if self.state_persistence.type == "disk" else self.snapshot_path

    @property
    def state_file_setting(self) -> str:
        """The name of the setting that chooses another such file."""
        own = self.state_persistence.disk.local_path is not None
        return "state_persistence.disk.local_path" if own else "storage.root"

    @property
    def asks_for_plans(self) -> bool:
        """Tell whether the adapter hosts tools, or has stages or code of the user's around the tools of others."""
        anywhere = (
            self.connectors
            or self.presenters
            or self.state_sync.said
            or self.context.factory
            or self.console.auth_hook
        )
        return bool(anywhere) or any(
            server.upstream.kind.needs is None or server.stages for server in self.servers
        )

    def members_of(self, mount: MountSettings) -> list[ServerSettings]:
        """The servers of a merged mount, in its order."""
        by_id = {server.id: server for server in self.servers}
        return list(self.servers) if mount.has_all else [by_id[server] for server in mount.servers]

    def ping_for(self, server: ServerSettings) -> UpstreamPing:
        """``core.upstream_ping`` with the overrides of this server."""
        return self.core.upstream_ping.overridden(server.upstream_ping)

    def tool_defaults_for(self, server: ServerSettings) -> ToolDefaults:
        """``core.defaults`` with the overrides of this server."""
        return self.core.defaults.overridden(server.tool_defaults)

    def pinning_for(self, server: ServerSettings) -> DefinitionPinning:
        """``core.tool_definition_pinning`` with the overrides of this server."""
        return self.core.tool_definition_pinning.overridden(server.tool_definition_pinning)

    def code_mode_for(self, server: ServerSettings) -> bool:
        """``core.code_mode_enabled``, or the override of this server."""
        own = server.code_mode_enabled
        return self.core.code_mode_enabled if own is None else own

    def sanitization_for(self, server: ServerSettings) -> MetadataSanitization:
        """``core.tool_metadata_sanitization`` with the overrides of this server."""
        return self.core.tool_metadata_sanitization.overridden(server.tool_metadata_sanitization)

    def descriptions_for(self, server: ServerSettings) -> DescriptionPolicy:
        """``core.tool_description_policy`` with the overrides of this server."""
        return self.core.tool_description_policy.overridden(server.tool_description_policy)

    def errors_for(self, server: ServerSettings, stages: ToolStages | None = None) -> Errors:
        """``core.errors`` with the overrides of this server, and then of the stages of one of its tools."""
        return self.core.errors.overridden(server.errors, *(() if stages is None else (stages.errors,)))


_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Microseconds of processor time and of the period they are for, or ``max`` (Linux, control groups v2)."""


def worker_count(workers: int | str, quota: Path = _QUOTA) -> int:
    """The number itself, or for ``auto`` that of the processor cores that this process may use, at least 1."""
    if isinstance(workers, int):
        return workers
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _cores_within(quota) or cores))


def _cores_within(quota: Path) -> int | None:
    """The cores that a container may use, rounded up; None where there is no limit, or none can be read."""
    try:
        allowed, period = quota.read_text().split()
        return ceil(int(allowed) / int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return None
