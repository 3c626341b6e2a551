"""The files of the adapter, and the stages of the tools that take or produce them, or whose large results are kept.
Loaded where files are active.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING

from adapter.app.attaching import Attaching, file_parameters
from adapter.app.base import Base, SessionStack
from adapter.app.file_keeping import build_registry, build_shelf, takes_uploads
from adapter.app.files import FileSecrets, ServerFiles
from adapter.app.servers import read_timeouts
from adapter.edge.files.downloads import Claims, DownloadRoute
from adapter.edge.files.uploads import UploadRoute
from adapter.edge.http.access import Guard
from adapter.edge.http.request import Branch
from adapter.files.port import CaptureLimit
from adapter.relay.call.call_gate import Cancellations
from adapter.relay.call.get_streams import SubscriptionStage, TaskTexts
from adapter.relay.cleanup import CleanupTask
from adapter.relay.files.artifact_capture import ArtifactKeeper, ProducerRule
from adapter.relay.files.artifact_producer import Producer
from adapter.relay.files.artifact_resources import (
    CapabilityStage,
    Document,
    ResourceList,
    ResourceRead,
    ResourceTemplates,
)
from adapter.relay.files.attachments import AttachedFiles, AttachmentStage
from adapter.relay.files.large_results import (
    LargeResultRule,
    LargeResults,
    LargeResultStage,
    TaskTools,
)
from adapter.relay.files.read_artifact_tool import (
    ABOVE,
    LARGEST_ANSWER,
    SMALLEST_ANSWER,
    ReadArtifactTool,
    ReadRule,
)
from adapter.relay.files.read_artifact_tool import definition as reading_definition
from adapter.relay.files.rounds import RoundLimits, Rounds
from adapter.relay.files.upload_consumer import Consumer, HandleSchemes
from adapter.relay.files.upload_offers import UploadOffers
from adapter.relay.files.upload_tools import (
    HelperTool,
    Offer,
    UploadStatusTool,
    definition,
    status_tool,
    workflow,
)
from adapter.relay.files.widgets import WidgetList, WidgetRead
from adapter.relay.sessions.session_map import client_infos
from adapter.relay.stages import StageEntry
from adapter.rules.access.principals import Scope
from adapter.rules.clients.hosts import FILES_WIDGET, UPLOAD_WIDGET
from adapter.rules.files.file_records import FileKind, FileRecord
from adapter.rules.files.locators import Locator
from adapter.rules.files.redaction import Redaction
from adapter.rules.results.large_results import Terms
from adapter.rules.tools.lists import announced
from adapter.settings.root import Settings
from adapter.settings.servers.file_adapters import ArtifactProducer, UploadConsumer
from adapter.settings.servers.server import ServerSettings
from adapter.upstream.outgoing import FileHttp

if TYPE_CHECKING:
    from adapter.app.files import Offers
    from adapter.relay.call.audit_trail import AuditTrail
    from adapter.rules.calls.tracing import Tracer

KEPT_STAGES = 1024
"""Tools of one server whose stage is kept; names come from clients."""

KEPT_TASKS = 10_000
"""Tasks of one server whose tool is remembered; the result of another one is that of any tool."""


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
        self.clients = client_infos(sessions.sessions)
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

    def assembled(self, entry: ServerSettings) -> ServerFiles:
        """See FileSecrets."""
        return FileStages(self, entry)


class FileStages(ServerFiles):
    """Assembles what concerns files at one server."""

    def __init__(self, files: KeptFiles, entry: ServerSettings) -> None:
        super().__init__()
        self.files, self.entry, self.settings = files, entry, files.settings
        if entry.hosts.openai_file_params != "off":
            always = entry.hosts.openai_file_params == "on"
            parameters = file_parameters(files.settings, entry)
            self.attaching = Attaching(parameters, files.clients, always)
        self.offer = self._offer() if takes_uploads(files.settings, entry) else None
        self.exposed = self._exposes()
        self.links = files.credentials if files.settings.core.allow_artifacts_download else None
        artifacts = self.settings.artifacts
        attached = ((tool, self._attached(each, tool)) for each in entry.consumers for tool in each.tools)
        self.before_plans = {tool: stage for tool, stage in attached if stage is not None}
        entries: list[StageEntry] = []
        for tool in dict.fromkeys(tool for adapter in entry.adapters for tool in adapter.tools):
            entries += self._of_tool(tool)
        entries += self._of_own_tools()
        widgets = self._widgets()
        documents = () if self.offer is None else (workflow(self.offer),)
        if widgets:
            entries.append(StageEntry("tools/list", "own", WidgetList(widgets, self.files.sessions.sessions)))
            entries += [
                StageEntry("resources/read", "artifacts", WidgetRead(uri, _widget), uri)
                for uri in dict.fromkeys(widgets.values())
            ]
        self.entries = [*entries, *self._of_lists(documents)] if entries else []
        self.documents = frozenset([*(each.uri for each in documents), *widgets.values()])
        self.artifacts = f"{artifacts.uri_scheme}sessions/" if self.exposed else None
        if entry.shortens:
            self.large = self._shortening

    def _attached(self, adapter: UploadConsumer, tool: str) -> AttachmentStage | None:
        """The stage that takes files which hosts attach to calls of a tool; None where they attach none."""
        attaching = self.attaching
        if attaching is None or tool not in attaching.parameters:
            return None
        return attaching.stage(tool, _scheme(self.settings, adapter), self._attachments)

    @cached_property
    def _attachments(self) -> AttachedFiles:
        files, uploads = self.files, self.settings.uploads
        return AttachedFiles(
            self.entry.id,
            files.registry,
            files.scopes,
            uploads,
            FileHttp(self.entry.hosts.file_url_allow, uploads.stall_timeout_seconds).open,
            files.uploaded,
            self._cancellations,
        )

    @cached_property
    def _cancellations(self) -> Cancellations:
        self.cancelled = cancellations = Cancellations()
        return cancellations

    def _of_own_tools(self) -> Iterator[StageEntry]:
        """The stages of the tools that the adapter itself offers."""
        files, offer, reading = self.files, self.offer, reading_rule(self.settings, self.entry)
        if reading is not None:
            read = ReadArtifactTool(reading, files.registry, files.clients)
            self.own_tools = (reading_definition(reading),)
            yield StageEntry("tools/call", "own", read, reading.tool_name)
        if offer is not None:
            status = UploadStatusTool(offer, files.offers, files.registry, self._cancellations)
            self.own_tools = (definition(offer), status_tool(offer), *self.own_tools)
            yield StageEntry("tools/call", "own", HelperTool(offer, files.offers), offer.tool_name)
            yield StageEntry("tools/call", "own", status, offer.status_tool_name, speaks=True)

    def _widgets(self) -> dict[str, str]:
        """The widgets of tools: that of files needs downloads, which are all that it can show."""
        widgets: dict[str, str] = {}
        if self.settings.artifacts.enabled and self.links is not None:
            writing = [each.tools for each in self.entry.consumers if self._edits(each)]
            writing += [each.tools for each in self.entry.producers if self._writes(each)]
            widgets = {tool: FILES_WIDGET for tools in writing for tool in tools}
        if self.offer is not None:
            widgets[self.offer.tool_name] = UPLOAD_WIDGET
        return widgets

    def _of_tool(self, tool: str) -> list[StageEntry]:
        """The stages of one tool, which may take a file and produce another one."""
        takers = self.entry.consumers if self.settings.uploads.enabled else []
        takers = [each for each in takers if tool in each.tools]
        writers = [each for each in self.entry.producers if tool in each.tools and each.persist]
        edits = any(map(self._edits, takers))
        if edits and not writers:
            # What the tool makes of its file is kept as what others write.
            writers = [ArtifactProducer(type="artifact_producer", tools=[tool])]
        found = [StageEntry("tools/call", "uploads", self._consumer(each, tool), tool) for each in takers]
        for each in writers:
            if edits or self._writes(each):
                producer = self._producer(each, tool, edits=edits)
                found.append(StageEntry("tools/call", "artifacts", producer, tool))
        return [StageEntry("tools/call", "rounds", self.files.rounds, tool), *found] if found else []

    def _writes(self, adapter: ArtifactProducer) -> bool:
        """Tell whether files are kept that its tools write."""
        finds = adapter.output_path_argument is not None or adapter.output_locator.mode != "none"
        return self.settings.artifacts.enabled and adapter.persist and finds

    def _edits(self, adapter: UploadConsumer) -> bool:
        """Tell whether what its tools make of their files is kept."""
        return self.settings.uploads.enabled and self.settings.artifacts.enabled and adapter.edits is True

    def _of_lists(self, documents: tuple[Document, ...]) -> list[StageEntry]:
        exposed, files, artifacts = self.exposed, self.files, self.settings.artifacts
        resources = exposed or bool(documents)
        announcing = CapabilityStage(
            partial(announced, tools=bool(self.own_tools), resources=resources, changing=exposed)
        )
        texts = TaskTexts(Redaction(files.files.roots, {}))
        entries = [
            StageEntry("initialize", "announce", announcing),
            StageEntry("server/discover", "announce", announcing),
            StageEntry("tasks/get", "redact", texts),
            StageEntry("tasks/result", "redact", texts),
        ]
        if not resources:
            return entries
        listed = ResourceList(self.entry.id, files.registry, documents, artifacts.uri_scheme, exposed=exposed)
        most = artifacts.max_resource_bytes
        read = ResourceRead(files.registry, documents, artifacts.uri_scheme, limit=most, links=self.links)
        entries += [
            StageEntry("resources/list", "artifacts", listed),
            StageEntry("resources/templates/list", "artifacts", ResourceTemplates()),
            *(StageEntry("resources/read", "artifacts", read, document.uri) for document in documents),
        ]
        if exposed:
            subscription = SubscriptionStage(files.sessions.notifications)
            entries += [
                StageEntry("subscriptions/listen", "artifacts", subscription),
                StageEntry("resources/read", "artifacts", read, prefix=artifacts.uri_scheme),
            ]
        return entries

    def _consumer(self, adapter: UploadConsumer, tool: str) -> Consumer:
        schemes = HandleSchemes(_scheme(self.settings, adapter), self.settings.artifacts.uri_scheme)
        registry, mirrors, offers = self.files.registry, self.mirrors, self.files.offers
        attached = self._attached(adapter, tool)
        return Consumer(self.entry.id, adapter, schemes, registry, mirrors, offers, attached)

    def _shortening(self, offers: Offers | None) -> LargeResults:
        """The stages of the server's tools whose large results become artifacts; ``offers`` gives their definitions."""
        files, entry, limit = self.files, self.entry, capture_limit(self.settings, None)
        hosted, tasks = {tool.name: tool for tool in entry.tools.define}, TaskTools(KEPT_TASKS)

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
                exposed=self.exposed,
                downloads=self.links is not None,
                scheme=self.settings.artifacts.uri_scheme,
            )
            return LargeResultStage(rule, files.keeper(kept), files.clients, offers, tasks)

        return LargeResults(lru_cache(KEPT_STAGES)(stage_of), tasks)

    def _producer(self, adapter: ArtifactProducer, tool: str, *, edits: bool) -> Producer:
        artifacts, defaults = self.settings.artifacts, self.settings.tool_defaults_for(self.entry)
        locator, timeouts = adapter.output_locator, read_timeouts(self.entry)
        patience = timeouts.get(tool)
        rule = ProducerRule(
            server=self.entry.id,
            tool=tool,
            argument=adapter.output_path_argument,
            locator=Locator(
                locator.mode, locator.output_path_key, locator.output_path_regexes, locator.every
            ),
            edits=edits,
            required=adapter.required,
            limit=capture_limit(
                self.settings, defaults.tool_call_timeout_seconds if patience is None else patience
            ),
            exposed=self.exposed and adapter.expose_as_resource,
            downloads=self.links is not None,
            raw_limit=artifacts.max_resource_bytes if self._embeds(adapter, tool) else None,
            scheme=artifacts.uri_scheme,
        )
        members = self.members if artifacts.in_structured_content == "auto" else None
        return Producer(self.files.keeper(rule), self.mirrors, self.files.base.clock, members)

    def _embeds(self, producer: ArtifactProducer, tool: str) -> bool:
        """Tell whether results have the content of what the tool wrote. The entry that writes its file decides before
        those whose files it edits.
        """
        said = (producer.overrides.allow_raw_output, producer.allow_raw_output)
        editors = (each for each in self.entry.consumers if tool in each.tools and self._edits(each))
        others = (each.overrides.allow_raw_output for each in editors)
        default = self.settings.tool_defaults_for(self.entry).allow_raw_output
        return next((each for each in (*said, *others) if each is not None), default)

    def _exposes(self) -> bool:
        artifacts, entry = self.settings.artifacts, self.entry
        exposing = any(each.persist and each.expose_as_resource for each in entry.producers)
        exposing = exposing or any(map(self._edits, entry.consumers)) or entry.shortens
        return artifacts.enabled and artifacts.expose_as_resources and exposing

    def _offer(self) -> Offer:
        return Offer(
            server=self.entry.id,
            route=self.settings.core.upload_path,
            settings=self.settings.uploads,
            consumers=tuple(
                (tool, each.file_path_argument) for each in self.entry.consumers for tool in each.tools
            ),
        )


def reading_rule(settings: Settings, entry: ServerSettings) -> ReadRule | None:
    """The rule for reading artifacts of a server; None where none of its tools has any."""
    writes = any(each.edits for each in entry.consumers) or any(each.persist for each in entry.producers)
    if not settings.artifacts.enabled or not (writes or entry.shortens):
        return None
    sections = (stages.large_results for stages in entry.stages.values())
    most = min((section.above for section in sections if section), default=ABOVE)
    rule = ReadRule(entry.id, settings.artifacts.uri_scheme)
    egress = entry.stages_for(rule.tool_name).limits.egress
    # What leaves cut would be lost, as the answer says how to go on behind it.
    least = most if egress is None else max(SMALLEST_ANSWER, egress)
    return rule._replace(most=min(most, least, LARGEST_ANSWER))


def _widget(uri: str) -> str:
    # Late: few clients show widgets.
    from adapter.edge.files import pages

    return pages.upload_widget() if uri == UPLOAD_WIDGET else pages.files_widget()


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
