"""The store of files, the routes to it, and the stages of the tools that take or produce files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from structlog.typing import FilteringBoundLogger

from adapter.app.files import FileParts
from adapter.app.relay import Runtime
from adapter.app.servers import read_timeouts
from adapter.edge.files.downloads import DownloadRoute
from adapter.edge.files.ownership import Claims
from adapter.edge.files.uploads import UploadLimits, UploadRoute
from adapter.edge.http.access import Guard
from adapter.edge.http.request import Branch
from adapter.files.port import CaptureLimit, FileStore
from adapter.files.shelf import Shelf
from adapter.relay.call.get_streams import SubscriptionStage, TaskTexts
from adapter.relay.files.artifact_producer import Producer, ProducerRule
from adapter.relay.files.artifact_resources import (
    Announcing,
    Document,
    ResourceList,
    ResourceRead,
    ResourceTemplates,
)
from adapter.relay.files.artifact_view import ArtifactShowing
from adapter.relay.files.file_registry import FileLimits, FileRegistry
from adapter.relay.files.round_stage import RoundStage
from adapter.relay.files.upload_batch import BatchLimits
from adapter.relay.files.upload_consumer import Consumer, ConsumerRule, HandleSchemes
from adapter.relay.files.upload_helper_tool import HelperTool, Offer, definition, workflow
from adapter.relay.notifications import Notifications
from adapter.relay.param_headers import ParamHeaders
from adapter.relay.stages import StageEntry
from adapter.rules.access.principals import Scope
from adapter.rules.files.file_records import FileKind, FileRecord
from adapter.rules.files.locators import Locator
from adapter.rules.files.quota import Limits
from adapter.rules.files.redaction import Redaction
from adapter.rules.tools.lists import announced
from adapter.settings.root import Settings
from adapter.settings.servers.file_adapters import ArtifactProducer, UploadConsumer
from adapter.settings.servers.server import ServerSettings
from adapter.state.port import Store


def build_routes(parts: FileParts, guard: Guard) -> Sequence[Branch]:
    """Build the file routes beside the mounts."""
    settings = parts.settings
    claims = Claims(parts.sessions, parts.scopes, guard)
    limits = UploadLimits(
        max_file_bytes=settings.uploads.max_file_bytes,
        max_files=settings.uploads.max_files,
        quota=settings.sessions.max_total_session_size,
        require_sha256=settings.uploads.require_sha256,
        stall_timeout=settings.uploads.stall_timeout_seconds,
    )
    takers = [entry.id for entry in settings.servers if takes_uploads(settings, entry)]
    uploads = UploadRoute(
        parts.registry, parts.credentials, parts.scopes, claims, takers, limits, settings.uploads.uri_scheme
    )
    every = [entry.id for entry in settings.servers]
    downloads = DownloadRoute(parts.registry, parts.credentials, claims, every)
    if parts.trail is not None:
        from adapter.relay.call.audit_trail import DOWNLOADED, UPLOADED

        uploads.record = partial(parts.trail.file, UPLOADED)
        downloads.record = partial(parts.trail.file, DOWNLOADED)
    uploads.count = parts.on_upload
    routes = [uploads.branch(settings.core.upload_path), downloads.deliveries(settings.core.upload_path)]
    return [*routes, downloads.artifacts()] if settings.core.allow_artifacts_download else routes


def takes_uploads(settings: Settings, entry: ServerSettings) -> bool:
    """Tell whether some tool of the server takes files."""
    return settings.uploads.enabled and any(isinstance(each, UploadConsumer) for each in entry.adapters)


def tell_gone(notifications: Notifications, record: FileRecord) -> None:
    if record.kind is FileKind.ARTIFACT and record.exposed:
        notifications.resources_changed(Scope(record.scope, record.owner))


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
        atomic=storage.atomic_writes,
        lock=lock,
        copies=storage.max_size,
    )


def build_registry(
    settings: Settings, store: Store, files: FileStore, clock: Callable[[], float], log: FilteringBoundLogger
) -> FileRegistry:
    storage = settings.storage
    quota = Limits(
        scope_bytes=settings.sessions.max_total_session_size,
        total_bytes=storage.max_size,
        artifacts=settings.artifacts.max_per_session,
        policy=settings.sessions.eviction_policy,
    )
    limits = FileLimits(
        quota,
        BatchLimits(settings.uploads.max_file_bytes, settings.uploads.max_files, quota.scope_bytes),
        upload_ttl=settings.uploads.ttl_seconds,
        artifact_ttl=settings.artifacts.ttl_seconds,
        queue_wait=settings.uploads.stall_timeout_seconds,
        sweep_grace=storage.orphan_sweeper_grace_seconds if storage.orphan_sweeper_enabled else None,
    )
    return FileRegistry(store, files, limits, clock, log)


class StagesOfFiles:
    """Assembles the stages of tools that take or produce files."""

    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        parts: FileParts,
        mirrors_of: Callable[[ServerSettings], ParamHeaders],
    ) -> None:
        self.settings = settings
        self.parts = parts
        self._runtime = runtime
        self._mirrors_of = mirrors_of

    def entries(self, entry: ServerSettings) -> list[StageEntry]:
        """The stages of one server's requests that concern files; none where it has nothing to do with them."""
        entries: list[StageEntry] = []
        for tool in dict.fromkeys(tool for adapter in entry.adapters for tool in adapter.tools):
            entries += self._of_tool(entry, tool)
        offer = self._offer(entry)
        if offer is not None:
            helper = HelperTool(offer, self.parts.credentials, self.parts.scopes)
            entries.append(StageEntry("tools/call", "own", helper, offer.tool_name))
        return [*entries, *self._of_lists(entry, offer)] if entries else []

    def _of_tool(self, entry: ServerSettings, tool: str) -> list[StageEntry]:
        """The stages of one tool, which may take a file and produce another one."""
        adapters = [adapter for adapter in entry.adapters if tool in adapter.tools]
        edits = any(self._edits(adapter) for adapter in adapters)
        if edits and not any(
            isinstance(adapter, ArtifactProducer) and adapter.persist for adapter in adapters
        ):
            # What the tool makes of its file is kept as what others write.
            adapters.append(ArtifactProducer(type="artifact_producer", tools=[tool]))
        found: list[StageEntry] = []
        for adapter in adapters:
            if (stage := self._stage(entry, adapter, tool, edits=edits)) is not None:
                slot = "uploads" if isinstance(stage, Consumer) else "artifacts"
                found.append(StageEntry("tools/call", slot, stage, tool))
        return (
            [StageEntry("tools/call", "rounds", RoundStage(self.parts.rounds), tool), *found] if found else []
        )

    def _edits(self, adapter: UploadConsumer | ArtifactProducer) -> bool:
        """Tell whether what its tools make of their files is kept."""
        enabled = self.settings.uploads.enabled and self.settings.artifacts.enabled
        return enabled and isinstance(adapter, UploadConsumer) and adapter.edits is True

    def _of_lists(self, entry: ServerSettings, offer: Offer | None) -> list[StageEntry]:
        exposed = self._exposes(entry)
        documents = (workflow(offer),) if offer is not None else ()
        resources = exposed or bool(documents)
        announcing = Announcing(
            partial(announced, tools=offer is not None, resources=resources, changing=exposed)
        )
        texts = TaskTexts(Redaction(self.parts.files.roots, {}))
        entries = [
            StageEntry("initialize", "announce", announcing),
            StageEntry("server/discover", "announce", announcing),
            StageEntry("tasks/get", "redact", texts),
            StageEntry("tasks/result", "redact", texts),
        ]
        return [*entries, *self._of_resources(entry, documents, exposed=exposed)] if resources else entries

    def _of_resources(
        self, entry: ServerSettings, documents: tuple[Document, ...], *, exposed: bool
    ) -> list[StageEntry]:
        artifacts = self.settings.artifacts
        listed = ResourceList(entry.id, self.parts.registry, documents, artifacts.uri_scheme, exposed=exposed)
        links = self.parts.links if self.settings.core.allow_artifacts_download else None
        read = ResourceRead(
            self.parts.registry,
            documents,
            artifacts.uri_scheme,
            limit=artifacts.max_resource_bytes,
            links=links,
        )
        entries = [
            StageEntry("resources/list", "artifacts", listed),
            StageEntry("resources/templates/list", "artifacts", ResourceTemplates()),
            *(StageEntry("resources/read", "artifacts", read, document.uri) for document in documents),
        ]
        if exposed:
            subscription = SubscriptionStage(self.parts.notifications)
            entries += [
                StageEntry("subscriptions/listen", "artifacts", subscription),
                StageEntry("resources/read", "artifacts", read, prefix=artifacts.uri_scheme),
            ]
        return entries

    def _stage(
        self, entry: ServerSettings, adapter: UploadConsumer | ArtifactProducer, tool: str, *, edits: bool
    ) -> Consumer | Producer | None:
        """The stage of one tool's entry; None if its feature is turned off."""
        if isinstance(adapter, UploadConsumer):
            return self._consumer(entry, adapter) if self.settings.uploads.enabled else None
        finds = edits or adapter.output_path_argument is not None or adapter.output_locator.mode != "none"
        keeps = self.settings.artifacts.enabled and adapter.persist and finds
        return self._producer(entry, adapter, tool, edits=edits) if keeps else None

    def _consumer(self, entry: ServerSettings, adapter: UploadConsumer) -> Consumer:
        rule = ConsumerRule(
            server=entry.id,
            argument=adapter.file_path_argument,
            helper=f"{entry.id}_get_upload_url",
            delivery="file_uri" if adapter.uri_prefix else adapter.delivery,
            inline_limit=adapter.max_inline_bytes,
            plain_paths=adapter.allow_plain_paths,
            edits=adapter.edits,
            schemes=HandleSchemes(_scheme(self.settings, adapter), self.settings.artifacts.uri_scheme),
        )
        return Consumer(rule, self.parts.access, self._mirrors_of(entry))

    def _producer(
        self, entry: ServerSettings, adapter: ArtifactProducer, tool: str, *, edits: bool
    ) -> Producer:
        artifacts, locator = self.settings.artifacts, adapter.output_locator
        raw = adapter.overrides.allow_raw_output
        if raw is None:
            raw = adapter.allow_raw_output
        if raw is None:
            raw = self.settings.tool_defaults_for(entry).allow_raw_output
        showing = ArtifactShowing(
            exposed=self._exposes(entry) and adapter.expose_as_resource,
            downloads=self.settings.core.allow_artifacts_download,
            raw_limit=artifacts.max_resource_bytes if raw else None,
            scheme=artifacts.uri_scheme,
        )
        rule = ProducerRule(
            server=entry.id,
            tool=tool,
            argument=adapter.output_path_argument,
            locator=Locator(
                locator.mode, locator.output_path_key, locator.output_path_regexes, locator.every
            ),
            edits=edits,
            required=adapter.required,
            capture_limit=capture_limit(self.settings, self._patience(entry, tool)),
            showing=showing,
        )
        return Producer(
            rule,
            self.parts.access,
            self._mirrors_of(entry),
            self.parts.notifications,
            self._runtime.clock,
            self._runtime.log,
        )

    def _patience(self, entry: ServerSettings, tool: str) -> float | None:
        own = read_timeouts(entry).get(tool)
        return self.settings.tool_defaults_for(entry).tool_call_timeout_seconds if own is None else own

    def _exposes(self, entry: ServerSettings) -> bool:
        artifacts = self.settings.artifacts
        producers = [adapter for adapter in entry.adapters if isinstance(adapter, ArtifactProducer)]
        exposing = any(adapter.persist and adapter.expose_as_resource for adapter in producers)
        exposing = exposing or any(map(self._edits, entry.adapters))
        return artifacts.enabled and artifacts.expose_as_resources and exposing

    def _offer(self, entry: ServerSettings) -> Offer | None:
        if not takes_uploads(self.settings, entry):
            return None
        consumers = [adapter for adapter in entry.adapters if isinstance(adapter, UploadConsumer)]
        return Offer(
            server=entry.id,
            route=self.settings.core.upload_path,
            max_file_bytes=self.settings.uploads.max_file_bytes,
            max_files=self.settings.uploads.max_files,
            sha256_required=self.settings.uploads.require_sha256,
            consumers=tuple((tool, each.file_path_argument) for each in consumers for tool in each.tools),
        )

    def own_resources(self, entry: ServerSettings) -> tuple[frozenset[str], str | None]:
        """The URIs of the adapter's own documents on a server, and the beginning of those of artifacts, if any."""
        offer = self._offer(entry)
        documents = frozenset[str]() if offer is None else frozenset({workflow(offer).uri})
        return documents, f"{self.settings.artifacts.uri_scheme}sessions/" if self._exposes(entry) else None

    def own_tools(self, entry: ServerSettings) -> tuple[dict[str, Any], ...]:
        """The tools that the adapter itself offers on a server."""
        offer = self._offer(entry)
        return () if offer is None else (definition(offer),)


def _scheme(settings: Settings, adapter: UploadConsumer) -> str:
    """The URI scheme of handles in this argument: its own if the file sets one, else that of all handles."""
    own = "uri_scheme" in adapter.model_fields_set
    return adapter.uri_scheme if own else settings.uploads.uri_scheme


def capture_limit(settings: Settings, patience: float | None) -> CaptureLimit:
    """The lowest limit for a large file of a tool, so that no file is read only to be refused.

    ``patience`` is the time in seconds for which its call may be silent.
    """
    most = [
        (settings.artifacts.max_file_bytes, "artifacts.max_file_bytes"),
        (settings.sessions.max_total_session_size, "sessions.max_total_session_size"),
        (settings.storage.max_size, "storage.max_size"),
    ]
    size, setting = min((size, setting) for size, setting in most if size is not None)
    return CaptureLimit(size, setting, patience)
