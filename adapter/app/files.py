"""The parts that move files, and what stands for them where no server has tools that take or produce any."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from adapter.app.base import Base, SessionStack
from adapter.relay.cleanup import CleanupTask
from adapter.relay.files.artifact_members import ArtifactMembers
from adapter.relay.files.signed_urls import Credentials
from adapter.relay.param_headers import ParamHeaders
from adapter.relay.stages import Gate, Stage, StageEntry
from adapter.settings.root import Settings
from adapter.settings.servers.server import ServerSettings

if TYPE_CHECKING:
    from adapter.app.attaching import Attaching
    from adapter.edge.http.access import Guard
    from adapter.edge.http.request import Branch
    from adapter.relay.call.audit_trail import AuditTrail
    from adapter.relay.files.file_registry import FileRegistry
    from adapter.relay.files.large_results import LargeResults
    from adapter.relay.stages import Call
    from adapter.relay.tools.catalogue_reader import Offered
    from adapter.rules.calls.tracing import Tracer
    from adapter.rules.files.file_records import RecordFile

    Offers: TypeAlias = Callable[[Call], Awaitable[Offered]]


LINK_TTL = 600.0
"""Seconds for which a link to a file is good where the file itself has no time to live."""


class ServerFiles:
    """What concerns files at one server; by itself, nothing does.

    ``entries`` are stages of its requests, ``before_plans`` those before the plans of tools, by tool, and ``large``
    makes those of tools whose large results become artifacts, out of what gives their definitions. ``own_tools`` are
    offered by the adapter itself, and ``cancelled`` hears which calls of them a client gives up; None where none takes
    long. Its own ``documents`` are at these URIs, and those of ``artifacts`` begin so, if there are any. ``attaching``
    tells how hosts exchange files with its tools; None where they are told of nothing.
    """

    entries: Sequence[StageEntry] = ()
    own_tools: Sequence[dict[str, Any]] = ()
    before_plans: Mapping[str, Stage] = MappingProxyType({})
    documents: frozenset[str] = frozenset()
    artifacts: str | None = None
    attaching: Attaching | None = None
    cancelled: Gate | None = None
    large: Callable[[Offers | None], LargeResults] | None = None

    def __init__(self) -> None:
        self.mirrors, self.members = ParamHeaders(), ArtifactMembers()


class FileSecrets:
    """Keeps no files, but the secrets of scopes and links. ``file_stages`` has what keeps files; it is loaded where
    they are ``active``, and only there is a ``registry``.
    """

    active = False
    registry: FileRegistry

    def __init__(self, base: Base, sessions: SessionStack) -> None:
        self.base = base
        self.scopes = sessions.scopes
        self.sessions = sessions
        core, ttl = base.settings.core, base.settings.artifacts.ttl_seconds
        self.credentials = Credentials(
            base.store,
            _secret(base.settings),
            core.auth.signed_upload_ttl_seconds,
            base.clock,
            page_ttl=base.settings.uploads.page_ttl_seconds,
            file_ttl=LINK_TTL if ttl is None else ttl,
            route=core.upload_path,
        )
        self.on_upload: list[RecordFile] = []
        """Called with each file that was uploaded, or attached to a call, before its sender is answered."""
        self._of: dict[str, ServerFiles] = {}
        base.by_server.append(self._of)
        base.rereads.append(self.read_secrets)
        base.tasks.append(CleanupTask("files", self.tidy))

    @property
    def settings(self) -> Settings:
        """The settings of now."""
        return self.base.settings

    async def open(self) -> None:
        """Open the registry of files and its keys. Raises StoreUnavailable, StorageFailed."""
        await self.read_secrets()

    async def read_secrets(self) -> None:
        """Read the secrets of ids and links from the store. Raises StoreUnavailable."""
        await self.scopes.open()
        await self.credentials.open()

    async def close(self) -> None:
        """Write what is still waiting. Raises StoreUnavailable."""

    def stop_waiting(self) -> None:
        """Answer calls at once that wait for files: the adapter stops."""

    async def tidy(self) -> None:
        """Delete expired files, links and rounds of all replicas. Raises StoreUnavailable, StorageFailed."""
        await self.credentials.expire()

    def of(self, entry: ServerSettings) -> ServerFiles:
        """What concerns files at one server."""
        found = self._of.get(entry.id)
        if found is None:
            found = self._of[entry.id] = self.assembled(entry)
        return found

    def assembled(self, entry: ServerSettings) -> ServerFiles:  # noqa: ARG002  (nothing is kept)
        """The same, when it is first asked for."""
        return ServerFiles()

    def branches(
        self,
        guard: Guard,  # noqa: ARG002  (as above)
        trail: AuditTrail | None,  # noqa: ARG002 - as where files are kept
        tracing: Tracer | None,  # noqa: ARG002 - as where files are kept
    ) -> Sequence[Branch]:
        """The file routes beside the mounts. ``trail`` records uploads and downloads, ``tracing`` a span of each
        request; None where nothing is recorded.
        """
        return ()


def _secret(settings: Settings) -> bytes | None:
    """The secret that links are signed with; None means a secret of the store's own.

    It is a digest, so that no signature uses a token.
    """
    secret = settings.core.auth.signing_secret or settings.core.auth.token
    return None if secret is None else hashlib.sha256(secret.get_secret_value().encode()).digest()
