"""The stages of the tools that take or produce files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from adapter.app.attaching import Attaching, file_parameters
from adapter.app.base import Base, SessionStack
from adapter.app.file_keeping import KeptFiles, reading_rule, shortening, takes_uploads
from adapter.app.servers import read_timeouts
from adapter.files.port import CaptureLimit
from adapter.relay.call.call_gate import Cancellations
from adapter.relay.call.get_streams import SubscriptionStage, TaskTexts
from adapter.relay.files.artifact_capture import ProducerRule
from adapter.relay.files.artifact_producer import Producer
from adapter.relay.files.artifact_resources import (
    CapabilityStage,
    Document,
    ResourceList,
    ResourceRead,
    ResourceTemplates,
)
from adapter.relay.files.attachments import AttachedFiles, AttachmentStage
from adapter.relay.files.large_results import LargeResults
from adapter.relay.files.read_artifact_tool import ReadArtifactTool
from adapter.relay.files.read_artifact_tool import definition as reading_definition
from adapter.relay.files.upload_consumer import Consumer, ConsumerRule, HandleSchemes
from adapter.relay.files.upload_helper_tool import HelperTool, Offer, definition, workflow
from adapter.relay.files.upload_status_tool import UploadStatusTool, status_tool
from adapter.relay.files.widgets import WidgetList, WidgetRead
from adapter.relay.sessions.client_facts import client_infos, client_names
from adapter.relay.stages import Call, Gate, Stage, StageEntry
from adapter.relay.tools.catalogue_reader import Offered
from adapter.rules.files.locators import Locator
from adapter.rules.files.mcp_apps import FILES_WIDGET, UPLOAD_WIDGET
from adapter.rules.files.redaction import Redaction
from adapter.rules.tools.lists import announced
from adapter.settings.root import Settings
from adapter.settings.servers.file_adapters import ArtifactProducer, UploadConsumer
from adapter.settings.servers.server import ServerSettings
from adapter.upstream.outgoing import FileHttp


class ActiveFiles(KeptFiles):
    """Keeps files, and assembles the stages of tools that take or produce them."""

    def __init__(self, base: Base, sessions: SessionStack) -> None:
        super().__init__(base, sessions)
        self._cancellations: dict[str, Cancellations] = {}
        self._names = client_names(sessions.sessions)
        self._attaching: dict[str, Attaching] = {}
        self._attachments: dict[str, AttachedFiles] = {}
        base.by_server += [self._cancellations, self._attaching, self._attachments]

    def attaching(self, entry: ServerSettings) -> Attaching | None:
        """See FileSecrets."""
        if entry.hosts.openai_file_params == "off":
            return None
        parameters = file_parameters(self.settings, entry)
        always = entry.hosts.openai_file_params == "on"
        return self._attaching.setdefault(entry.id, Attaching(entry.id, parameters, self._names, always))

    def before_plans(self, entry: ServerSettings) -> dict[str, Stage]:
        """See FileSecrets."""
        found = ((tool, self._attached(entry, each, tool)) for each in entry.adapters for tool in each.tools)
        return {tool: stage for tool, stage in found if stage is not None}

    def _attached(
        self, entry: ServerSettings, adapter: UploadConsumer | ArtifactProducer, tool: str
    ) -> AttachmentStage | None:
        """The stage that takes files which hosts attach to calls of a tool; None where they attach none."""
        attaching = self.attaching(entry)
        if not isinstance(adapter, UploadConsumer) or attaching is None or tool not in attaching.parameters:
            return None
        attachments = self._attachments.get(entry.id)
        if attachments is None:
            uploads = self.settings.uploads
            download = FileHttp(entry.hosts.file_url_allow, uploads.stall_timeout_seconds).open
            attachments = self._attachments[entry.id] = AttachedFiles(
                self.registry, self.scopes, uploads, download, self.uploaded, self._cancellations_of(entry)
            )
        return AttachmentStage(attachments, attaching.rule(tool, _scheme(self.settings, adapter)))

    def entries(self, entry: ServerSettings) -> list[StageEntry]:
        """See FileSecrets."""
        entries: list[StageEntry] = []
        for tool in dict.fromkeys(tool for adapter in entry.adapters for tool in adapter.tools):
            entries += self._of_tool(entry, tool)
        reading = reading_rule(self.settings, entry)
        if reading is not None:
            read = ReadArtifactTool(reading, self.registry, client_infos(self.sessions.sessions))
            entries.append(StageEntry("tools/call", "own", read, reading.tool_name))
        offer = self._offer(entry)
        if offer is not None:
            status = UploadStatusTool(offer, self.offers, self.registry, self._cancellations_of(entry))
            entries += [
                StageEntry("tools/call", "own", HelperTool(offer, self.offers), offer.tool_name),
                StageEntry("tools/call", "own", status, offer.status_tool_name, speaks=True),
            ]
        if widgets := self._widgets(entry):
            listed = WidgetList(widgets, self.sessions.sessions)
            entries.append(StageEntry("tools/list", "own", listed))
            entries += [
                StageEntry("resources/read", "artifacts", WidgetRead(uri, _MAKE_WIDGET[uri]), uri)
                for uri in dict.fromkeys(widgets.values())
            ]
        return [*entries, *self._of_lists(entry, offer)] if entries else []

    def _widgets(self, entry: ServerSettings) -> dict[str, str]:
        """The widgets of tools: that of files needs downloads, which are all that it can show."""
        widgets: dict[str, str] = {}
        if self.settings.artifacts.enabled and self.settings.core.allow_artifacts_download:
            widgets = {
                tool: FILES_WIDGET for each in filter(self._writes, entry.adapters) for tool in each.tools
            }
        if (offer := self._offer(entry)) is not None:
            widgets[offer.tool_name] = UPLOAD_WIDGET
        return widgets

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
        return [StageEntry("tools/call", "rounds", self.rounds, tool), *found] if found else []

    def _writes(self, adapter: UploadConsumer | ArtifactProducer) -> bool:
        """Tell whether files are kept that its tools write."""
        if isinstance(adapter, UploadConsumer):
            return self._edits(adapter)
        finds = adapter.output_path_argument is not None or adapter.output_locator.mode != "none"
        return self.settings.artifacts.enabled and adapter.persist and finds

    def _edits(self, adapter: UploadConsumer | ArtifactProducer) -> bool:
        """Tell whether what its tools make of their files is kept."""
        enabled = self.settings.uploads.enabled and self.settings.artifacts.enabled
        return enabled and isinstance(adapter, UploadConsumer) and adapter.edits is True

    def _of_lists(self, entry: ServerSettings, offer: Offer | None) -> list[StageEntry]:
        exposed = self._exposes(entry)
        documents = (workflow(offer),) if offer is not None else ()
        resources = exposed or bool(documents)
        announcing = CapabilityStage(
            partial(announced, tools=bool(self.own_tools(entry)), resources=resources, changing=exposed)
        )
        texts = TaskTexts(Redaction(self.files.roots, {}))
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
        listed = ResourceList(entry.id, self.registry, documents, artifacts.uri_scheme, exposed=exposed)
        links = self.links if self.settings.core.allow_artifacts_download else None
        read = ResourceRead(
            self.registry,
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
            subscription = SubscriptionStage(self.sessions.notifications)
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
            return self._consumer(entry, adapter, tool) if self.settings.uploads.enabled else None
        keeps = self._writes(adapter) or (edits and adapter.persist)
        return self._producer(entry, adapter, tool, edits=edits) if keeps else None

    def _consumer(self, entry: ServerSettings, adapter: UploadConsumer, tool: str) -> Consumer:
        rule = ConsumerRule(
            server=entry.id,
            argument=adapter.file_path_argument,
            delivery="file_uri" if adapter.uri_prefix else adapter.delivery,
            inline_limit=adapter.max_inline_bytes,
            plain_paths=adapter.allow_plain_paths,
            edits=adapter.edits,
            schemes=HandleSchemes(_scheme(self.settings, adapter), self.settings.artifacts.uri_scheme),
        )
        attached = self._attached(entry, adapter, tool)
        return Consumer(rule, self.access, self.mirrors_of(entry), attached, self.offers)

    def _producer(
        self, entry: ServerSettings, adapter: ArtifactProducer, tool: str, *, edits: bool
    ) -> Producer:
        artifacts, locator = self.settings.artifacts, adapter.output_locator
        raw = adapter.overrides.allow_raw_output
        if raw is None:
            raw = adapter.allow_raw_output
        if raw is None:
            raw = self.settings.tool_defaults_for(entry).allow_raw_output
        rule = ProducerRule(
            server=entry.id,
            tool=tool,
            argument=adapter.output_path_argument,
            locator=Locator(
                locator.mode, locator.output_path_key, locator.output_path_regexes, locator.every
            ),
            edits=edits,
            required=adapter.required,
            limit=capture_limit(self.settings, self._patience(entry, tool)),
            exposed=self._exposes(entry) and adapter.expose_as_resource,
            downloads=self.settings.core.allow_artifacts_download,
            raw_limit=artifacts.max_resource_bytes if raw else None,
            scheme=artifacts.uri_scheme,
        )
        members = self.members_of(entry) if artifacts.in_structured_content == "auto" else None
        return Producer(self.keeper(rule), self.mirrors_of(entry), self.base.clock, members)

    def _patience(self, entry: ServerSettings, tool: str) -> float | None:
        own = read_timeouts(entry).get(tool)
        return self.settings.tool_defaults_for(entry).tool_call_timeout_seconds if own is None else own

    def _exposes(self, entry: ServerSettings) -> bool:
        artifacts = self.settings.artifacts
        producers = [adapter for adapter in entry.adapters if isinstance(adapter, ArtifactProducer)]
        exposing = any(adapter.persist and adapter.expose_as_resource for adapter in producers)
        exposing = exposing or any(map(self._edits, entry.adapters)) or entry.shortens
        return artifacts.enabled and artifacts.expose_as_resources and exposing

    def _offer(self, entry: ServerSettings) -> Offer | None:
        if not takes_uploads(self.settings, entry):
            return None
        consumers = [adapter for adapter in entry.adapters if isinstance(adapter, UploadConsumer)]
        return Offer(
            server=entry.id,
            route=self.settings.core.upload_path,
            settings=self.settings.uploads,
            consumers=tuple((tool, each.file_path_argument) for each in consumers for tool in each.tools),
        )

    def own_resources(self, entry: ServerSettings) -> tuple[frozenset[str], str | None]:
        """The URIs of the adapter's own documents on a server, and the beginning of those of artifacts, if any."""
        offer = self._offer(entry)
        documents = frozenset[str]() if offer is None else frozenset({workflow(offer).uri})
        documents |= set(self._widgets(entry).values())
        return documents, f"{self.settings.artifacts.uri_scheme}sessions/" if self._exposes(entry) else None

    def own_tools(self, entry: ServerSettings) -> tuple[dict[str, Any], ...]:
        """The tools that the adapter itself offers on a server."""
        offer, reading = self._offer(entry), reading_rule(self.settings, entry)
        uploads = () if offer is None else (definition(offer), status_tool(offer))
        return uploads if reading is None else (*uploads, reading_definition(reading))

    def cancelled(self, entry: ServerSettings) -> Gate | None:
        """See FileSecrets; ``entries`` comes first."""
        return self._cancellations.get(entry.id)

    def _cancellations_of(self, entry: ServerSettings) -> Cancellations:
        return self._cancellations.setdefault(entry.id, Cancellations())

    def large_results(
        self, entry: ServerSettings, offers: Callable[[Call], Awaitable[Offered]] | None
    ) -> LargeResults | None:
        """See FileSecrets."""
        limit = capture_limit(self.settings, None)
        return (
            shortening(self, entry, offers, limit, exposed=self._exposes(entry)) if entry.shortens else None
        )


def _upload_widget() -> str:
    # Late: few clients show widgets.
    from adapter.edge.files.pages import upload_widget

    return upload_widget()


def _files_widget() -> str:
    from adapter.edge.files.pages import files_widget

    return files_widget()


_MAKE_WIDGET = {UPLOAD_WIDGET: _upload_widget, FILES_WIDGET: _files_widget}


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
