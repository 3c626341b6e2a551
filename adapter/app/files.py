"""The parts that move files. Their code is loaded when some server has tools that take or produce files, or when the
console shows what is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from adapter.app.relay import Runtime, SessionParts
from adapter.relay.files.signed_urls import Credentials, Links
from adapter.relay.param_headers import ParamHeaders
from adapter.relay.stages import StageEntry
from adapter.settings.root import Settings
from adapter.settings.servers.server import ServerSettings
from adapter.state.port import Store

if TYPE_CHECKING:
    from adapter.app.file_stages import StagesOfFiles
    from adapter.edge.http.access import Guard
    from adapter.edge.http.request import Branch
    from adapter.files.shelf import Shelf
    from adapter.relay.call.audit_trail import AuditTrail
    from adapter.relay.files.artifact_view import FileAccess
    from adapter.relay.files.file_registry import FileRegistry
    from adapter.relay.files.rounds import Rounds
    from adapter.rules.files.file_records import RecordFile

LINK_TTL = 600.0
"""Seconds for which a link to a file is good where the file itself has no time to live."""


class FileParts:
    """The parts that keep files. ``active``: some server has tools that take or produce them.

    ``trail`` records uploads and downloads; None where no record is kept.
    """

    def __init__(self, settings: Settings, store: Store, runtime: Runtime, sessions: SessionParts) -> None:
        clock = runtime.clock
        ttl = settings.artifacts.ttl_seconds
        self.settings = settings
        self.scopes = sessions.scopes
        self.notifications = sessions.notifications
        self.credentials = Credentials(
            store,
            configured=_secret(settings),
            ttl=settings.core.auth.signed_upload_ttl_seconds,
            clock=clock,
        )
        self.links = Links(
            self.credentials,
            route=settings.core.upload_path,
            ttl=LINK_TTL if ttl is None else ttl,
            clock=clock,
        )
        self.trail: AuditTrail | None = None
        self.on_upload: RecordFile | None = None
        """Is told of each file that was uploaded; None where nobody counts."""
        self.active = any(entry.adapters for entry in settings.servers)
        self.sessions = sessions.sessions
        self._store = store
        self._runtime = runtime
        self.sessions.on_end.append(self.end_session)

    @cached_property
    def files(self) -> Shelf:
        """The files on disk."""
        from adapter.app.file_stages import build_shelf

        return build_shelf(self.settings)

    @cached_property
    def registry(self) -> FileRegistry:
        """The records of all files."""
        from adapter.app.file_stages import build_registry, tell_gone

        registry = build_registry(
            self.settings, self._store, self.files, self._runtime.clock, self._runtime.log
        )
        registry.on_gone.append(partial(tell_gone, self.notifications))
        return registry

    @cached_property
    def access(self) -> FileAccess:
        """The reading of artifacts, for the answers that show them."""
        from adapter.relay.files.artifact_view import FileAccess

        return FileAccess(self.registry, self.files, self.links)

    @cached_property
    def rounds(self) -> Rounds:
        """The rounds of calls that ask their client for more."""
        from adapter.relay.files.rounds import RoundLimits, Rounds

        sessions = self.settings.sessions
        limits = RoundLimits(sessions.round_ttl_seconds, sessions.max_rounds)
        clock, log = self._runtime.clock, self._runtime.log
        return Rounds(self._store, self.registry, self.files, self.credentials, limits, clock, log)

    async def open(self) -> None:
        """Open the registry of files and its keys. Raises StoreUnavailable, StorageFailed."""
        await self.read_secrets()
        if self.active:
            await self.registry.open()
            await self.rounds.open()

    async def read_secrets(self) -> None:
        """Read the secrets of ids and links from the store. Raises StoreUnavailable."""
        await self.scopes.open()
        await self.credentials.open()

    async def close(self) -> None:
        """Write what is still waiting. Raises StoreUnavailable."""
        if self.active:
            await self.registry.close()

    async def tidy_own(self) -> None:
        """Write down what was used here, and forget what was not, and the rounds that waited here too long.

        Raises StoreUnavailable, StorageFailed.
        """
        if self.active:
            await self.rounds.expire_known()
            await self.registry.tidy_own()

    async def tidy(self) -> None:
        """Delete expired files, links and rounds of all replicas. Raises StoreUnavailable, StorageFailed."""
        await self.credentials.expire()
        if self.active:
            await self.rounds.expire()
            await self.registry.tidy(self.scopes.gone)
            await self.scopes.tidy()

    async def end_session(self, key: str) -> None:
        """Drop what a session owned that has ended for good. Raises StoreUnavailable."""
        scope = self.scopes.of_session_key(key)
        if self.active:
            await self.registry.drop_scope(scope.id)
            await self.rounds.end_scope(scope.id)
            await self.scopes.forget(scope)

    def branches(self, guard: Guard) -> Sequence[Branch]:
        """The file routes beside the mounts."""
        if not self.active:
            return ()
        from adapter.app.file_stages import build_routes

        return build_routes(self, guard)


def _secret(settings: Settings) -> bytes | None:
    """The secret that links are signed with; None means a secret of the store's own.

    It is a digest, so that no signature uses a token.
    """
    secret = settings.core.auth.signing_secret or settings.core.auth.token
    return None if secret is None else hashlib.sha256(secret.get_secret_value().encode()).digest()


class FileStages:
    """The stages of tools that take or produce files, and none for servers without such tools."""

    def __init__(self, settings: Settings, runtime: Runtime, parts: FileParts) -> None:
        self.settings = settings
        self.parts = parts
        self._runtime = runtime
        self._mirrors: dict[str, ParamHeaders] = {}

    def entries(self, entry: ServerSettings) -> list[StageEntry]:
        """The stages of one server's requests that concern files; none where it has nothing to do with them."""
        return self._stages.entries(entry) if entry.adapters else []

    def own_tools(self, entry: ServerSettings) -> tuple[dict[str, Any], ...]:
        """The tools that the adapter itself offers on a server."""
        return self._stages.own_tools(entry) if entry.adapters else ()

    def own_resources(self, entry: ServerSettings) -> tuple[frozenset[str], str | None]:
        """The URIs of the adapter's own documents on a server, and the beginning of those of artifacts, if any."""
        return self._stages.own_resources(entry) if entry.adapters else (frozenset(), None)

    def mirrors_of(self, entry: ServerSettings) -> ParamHeaders:
        return self._mirrors.setdefault(entry.id, ParamHeaders())

    @cached_property
    def _stages(self) -> StagesOfFiles:
        from adapter.app.file_stages import StagesOfFiles

        return StagesOfFiles(self.settings, self._runtime, self.parts, self.mirrors_of)
