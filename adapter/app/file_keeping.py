"""The store of files, the routes to it, and the stages that put large results there. Loaded where files are active, or
shown by the console.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from adapter.app.base import Base, SessionStack
from adapter.app.files import FileSecrets
from adapter.edge.files.downloads import Claims, DownloadRoute
from adapter.edge.files.uploads import UploadRoute
from adapter.edge.http.access import Guard
from adapter.edge.http.request import Branch
from adapter.files.port import CaptureLimit
from adapter.files.shelf import Shelf
from adapter.relay.cleanup import CleanupTask
from adapter.relay.files.artifact_capture import ArtifactKeeper, ProducerRule
from adapter.relay.files.file_registry import FileRegistry
from adapter.relay.files.large_results import (
    LargeResultRule,
    LargeResults,
    LargeResultStage,
    TaskTools,
)
from adapter.relay.files.read_artifact_tool import ABOVE, LARGEST_ANSWER, SMALLEST_ANSWER, ReadRule
from adapter.relay.files.rounds import RoundLimits, Rounds
from adapter.relay.files.upload_batch import FileLimits
from adapter.relay.files.upload_offers import UploadOffers
from adapter.relay.sessions.session_map import client_infos
from adapter.relay.stages import Call
from adapter.relay.tools.catalogue_reader import Offered
from adapter.rules.access.principals import Scope
from adapter.rules.files.file_records import FileKind, FileRecord
from adapter.rules.files.locators import Locator
from adapter.rules.files.quota import Limits
from adapter.rules.results.large_results import Terms
from adapter.settings.root import Settings
from adapter.settings.servers.file_adapters import UploadConsumer
from adapter.settings.servers.server import ServerSettings

if TYPE_CHECKING:
    from adapter.relay.call.audit_trail import AuditTrail
    from adapter.rules.calls.tracing import Tracer


class KeptFiles(FileSecrets):
    """Keeps files: on disk, in a registry, and within the rounds of calls that ask their client for more."""

    active = True

    def __init__(self, base: Base, sessions: SessionStack) -> None:
        super().__init__(base, sessions)
        settings = base.settings
        self.files = build_shelf(settings)
        self.registry = build_registry(base, self.files)
        self.registry.on_gone.append(self._tell_gone)
        self._takers: set[str] = set()
        self._served: set[str] = set()
        self._follow()
        base.on_change.append(self._follow)
        self.offers = UploadOffers(self.credentials, self.scopes, settings.uploads.ttl_seconds or 0.0)
        limits = RoundLimits(settings.sessions.round_ttl_seconds, settings.sessions.max_rounds)
        self.rounds = Rounds(self.registry, self.credentials, limits)
        sessions.sessions.on_end.append(self._end_session)
        base.tasks.append(CleanupTask("own files", self.tidy_own, alone=False))

    def _follow(self) -> None:
        """Take uploads and send files for the servers of now, the former of those with tools that take any."""
        servers = self.settings.servers
        for ids, entries in (
            (self._takers, [each for each in servers if takes_uploads(self.settings, each)]),
            (self._served, servers),
        ):
            ids.clear()
            ids.update(entry.id for entry in entries)

    async def open(self) -> None:
        """See FileSecrets."""
        await super().open()
        await self.registry.open()
        await self.rounds.open()

    async def close(self) -> None:
        """See FileSecrets."""
        await self.registry.close()

    def stop_waiting(self) -> None:
        """See FileSecrets."""
        self.offers.stop_waiting()

    async def tidy_own(self) -> None:
        """Write down what was used here, and forget what was not, and the rounds that waited here too long.

        Raises StoreUnavailable, StorageFailed.
        """
        await self.rounds.expire_known()
        await self.registry.tidy_own()

    async def tidy(self) -> None:
        """See FileSecrets."""
        await super().tidy()
        await self.offers.expire()
        await self.rounds.expire()
        await self.registry.tidy(self.scopes.gone)
        await self.scopes.tidy()

    async def _end_session(self, key: str) -> None:
        """Drop what a session owned that has ended for good. Raises StoreUnavailable."""
        scope = self.scopes.of_session_key(key)
        kept = bool(self._takers) and await self.scopes.is_kept(scope)
        if kept:
            uploads = await self.registry.list(scope.id, FileKind.UPLOAD)
            stay = await self.offers.outliving({each.batch for each in uploads if each.batch is not None})
            await self.registry.drop_scope(scope.id, offered=False, but=stay)
        else:
            await self.registry.drop_scope(scope.id)
        await self.rounds.end_scope(scope.id)
        if not kept:
            await self.scopes.forget(scope)

    def _tell_gone(self, record: FileRecord) -> None:
        if record.kind is FileKind.ARTIFACT and record.exposed:
            self.sessions.notifications.resources_changed(Scope(record.scope, record.owner))

    async def uploaded(self, record: FileRecord) -> None:
        """Count and record a file that was uploaded, or attached to a call."""
        for told in self.on_upload:
            await told(record)

    def keeper(self, rule: ProducerRule) -> ArtifactKeeper:
        """What keeps the artifacts of one tool."""
        return ArtifactKeeper(rule, self.registry, self.credentials, self.sessions.notifications)

    def branches(self, guard: Guard, trail: AuditTrail | None, tracing: Tracer | None) -> Sequence[Branch]:
        """See FileSecrets."""
        settings = self.settings
        claims = Claims(self.sessions.sessions, self.scopes, guard)
        quota = settings.sessions.max_total_session_size
        uploads = UploadRoute(
            self.registry, self.offers, claims, self._takers, settings.uploads, quota, self.uploaded
        )
        downloads = DownloadRoute(self.registry, self.credentials, claims, self._served)
        if trail is not None:
            from adapter.relay.call.audit_trail import DOWNLOADED, UPLOADED

            self.on_upload.append(partial(trail.file, UPLOADED))
            downloads.record = partial(trail.file, DOWNLOADED)
        path = settings.core.upload_path
        routes = [*uploads.branches(path), *downloads.deliveries(path)]
        if settings.core.allow_artifacts_download:
            routes += downloads.artifacts()
        if tracing is None:
            return routes
        # Late: few ask for traces.
        from adapter.edge.telemetry import traced

        return tuple(traced(routes, tracing))


def takes_uploads(settings: Settings, entry: ServerSettings) -> bool:
    """Tell whether some tool of the server takes files."""
    return settings.uploads.enabled and any(isinstance(each, UploadConsumer) for each in entry.adapters)


def build_shelf(settings: Settings) -> Shelf:
    storage, lock = settings.storage, settings.root_lock
    if lock == "exclusive" and settings.has_other_workers:
        # Of several processes that keep all others away, the one that starts them has the lock.
        lock = None
    configured = storage.artifact_locator_policy == "allow_configured_roots"
    return Shelf(
        storage.root,
        allowed_roots=storage.artifact_locator_allowed_roots if configured else (),
        private=(settings.state_path,),
        lock=lock,
        copies=storage.max_size,
    )


def build_registry(base: Base, files: Shelf) -> FileRegistry:
    settings, storage = base.settings, base.settings.storage
    quota = Limits(
        scope_bytes=settings.sessions.max_total_session_size,
        total_bytes=storage.max_size,
        artifacts=settings.artifacts.max_per_session,
        policy=settings.sessions.eviction_policy,
    )
    grace = storage.orphan_sweeper_grace_seconds if storage.orphan_sweeper_enabled else None
    limits = FileLimits(quota, settings.uploads, settings.artifacts.ttl_seconds, grace)
    return FileRegistry(base.store, files, limits, base.clock, base.log)


# --- large results -----------------------------------------------------------------------------------------


KEPT_STAGES = 1024
"""Tools of one server whose stage is kept; names come from clients."""

KEPT_TASKS = 10_000
"""Tasks of one server whose tool is remembered; the result of another one is that of any tool."""


def reading_rule(settings: Settings, entry: ServerSettings) -> ReadRule | None:
    """The rule for reading artifacts of a server; None where none of its tools has any."""
    writes = any(each.edits if each.type == "upload_consumer" else each.persist for each in entry.adapters)
    if not settings.artifacts.enabled or not (writes or entry.shortens):
        return None
    sections = (stages.large_results for stages in entry.stages.values())
    most = min((section.above for section in sections if section), default=ABOVE)
    rule = ReadRule(entry.id, settings.artifacts.uri_scheme)
    egress = entry.stages_for(rule.tool_name).limits.egress
    # What leaves cut would be lost, as the answer says how to go on behind it.
    least = most if egress is None else max(SMALLEST_ANSWER, egress)
    return rule._replace(most=min(most, least, LARGEST_ANSWER))


def shortening(
    files: KeptFiles,
    entry: ServerSettings,
    offers: Callable[[Call], Awaitable[Offered]] | None,
    limit: CaptureLimit,
    *,
    exposed: bool,
) -> LargeResults:
    """The stages of one server's tools; ``offers`` gives their definitions. What is kept has at most ``limit``."""
    hosted = {tool.name: tool for tool in entry.tools.define}
    clients, tasks = client_infos(files.sessions.sessions), TaskTools(KEPT_TASKS)
    artifacts, downloads = files.settings.artifacts, files.settings.core.allow_artifacts_download

    def stage_of(tool: str) -> LargeResultStage | None:
        stages = entry.stages_of(hosted[tool]) if tool in hosted else entry.stages_for(tool)
        section = stages.large_results
        if section is None:
            return None
        terms = Terms(section.above, section.preview, f"{entry.id}_read_artifact")
        rule = LargeResultRule(terms, section.hosts, stages.limits.egress)
        kept = ProducerRule(
            entry.id,
            tool,
            None,
            Locator("none"),
            limit=limit,
            exposed=exposed,
            downloads=downloads,
            scheme=artifacts.uri_scheme,
        )
        return LargeResultStage(rule, files.keeper(kept), clients, offers, tasks)

    return LargeResults(lru_cache(KEPT_STAGES)(stage_of), tasks)
