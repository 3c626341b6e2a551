"""The parts that move files, and what stands for them where no server has tools that take or produce any."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
        self.credentials = Credentials(
            base.store,
            configured=_secret(base.settings),
            ttl=base.settings.core.auth.signed_upload_ttl_seconds,
            page_ttl=base.settings.uploads.page_ttl_seconds,
            clock=base.clock,
        )
        self.on_upload: RecordFile | None = None
        """Is told of each file that was uploaded; None where nobody counts."""
        self._mirrors: dict[str, ParamHeaders] = {}
        self._members: dict[str, ArtifactMembers] = {}
        base.by_server += [self._mirrors, self._members]
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

    def mirrors_of(self, entry: ServerSettings) -> ParamHeaders:
        return self._mirrors.setdefault(entry.id, ParamHeaders())

    def members_of(self, entry: ServerSettings) -> ArtifactMembers:
        return self._members.setdefault(entry.id, ArtifactMembers())

    def attaching(self, entry: ServerSettings) -> Attaching | None:  # noqa: ARG002  (nothing is kept)
        """How hosts exchange files with the tools of one server; None where they are told of nothing."""
        return None

    def before_plans(self, entry: ServerSettings) -> Mapping[str, Stage]:  # noqa: ARG002  (as above)
        """The stages that stand before the plans of tools, by tool."""
        return {}

    def entries(self, entry: ServerSettings) -> list[StageEntry]:  # noqa: ARG002  (nothing is kept)
        """The stages of one server's requests that concern files; none where it has nothing to do with them."""
        return []

    def own_tools(self, entry: ServerSettings) -> tuple[dict[str, Any], ...]:  # noqa: ARG002  (as above)
        """The tools that the adapter itself offers on a server."""
        return ()

    def cancelled(self, entry: ServerSettings) -> Gate | None:  # noqa: ARG002  (as above)
        """The gate that hears which calls of the adapter's own tools a client gives up; None where none takes long."""
        return None

    def large_results(
        self,
        entry: ServerSettings,  # noqa: ARG002  (as above)
        offers: Callable[[Call], Awaitable[Offered]] | None,  # noqa: ARG002  (as above)
    ) -> LargeResults | None:
        """The stages of tools whose large results become artifacts; ``offers`` gives their definitions."""
        return None

    def own_resources(self, entry: ServerSettings) -> tuple[frozenset[str], str | None]:  # noqa: ARG002  (as above)
        """The URIs of the adapter's own documents on a server, and the beginning of those of artifacts, if any."""
        return frozenset(), None

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
