"""The parts that move files, and the stages of the tools that take or produce them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from structlog.typing import FilteringBoundLogger

from adapter.app import file_parts
from adapter.edge.files.downloads import DownloadRoute
from adapter.edge.files.ownership import Claims
from adapter.edge.files.uploads import UploadLimits, UploadRoute
from adapter.edge.http.access import Guard
from adapter.edge.http.branches import Branch
from adapter.files.port import FileStore
from adapter.relay.call.subscriptions import SubscriptionStage, TaskTexts
from adapter.relay.files.artifact_producer import Producer, ProducerRule
from adapter.relay.files.artifact_resources import Announcing, ResourceList, ResourceRead, ResourceTemplates
from adapter.relay.files.artifact_view import ArtifactShowing, FileAccess
from adapter.relay.files.file_registry import FileRegistry
from adapter.relay.files.rounds import RoundLimits, Rounds, RoundStage
from adapter.relay.files.signed_urls import Credentials, Links
from adapter.relay.files.upload_consumer import Consumer, ConsumerRule, HandleSchemes
from adapter.relay.files.upload_helper_tool import HelperTool, Offer, definition, workflow
from adapter.relay.notifications import Notifications
from adapter.relay.param_headers import ParamHeaders
from adapter.relay.sessions.scopes import Scopes
from adapter.relay.sessions.session_map import Sessions
from adapter.relay.stages import Plan, Stages
from adapter.rules.access.principals import Scope
from adapter.rules.files.file_records import FileKind, FileRecord
from adapter.rules.files.locators import Locator
from adapter.rules.files.redaction import Redaction
from adapter.rules.tools.definitions import announced
from adapter.settings.root import Settings
from adapter.settings.servers.file_adapters import ArtifactProducer, UploadConsumer
from adapter.settings.servers.server import ServerSettings
from adapter.state.port import Store

LINK_TTL = 600.0
"""Seconds for which a link to a file is good where the file itself has no time to live."""


@dataclass(slots=True)
class Filing:
    """Everything about files, built once. ``active``: some server has tools that take or produce them."""

    settings: Settings
    scopes: Scopes
    notifications: Notifications
    files: FileStore
    registry: FileRegistry
    credentials: Credentials
    links: Links
    clock: Callable[[], float]
    rounds: Rounds
    log: FilteringBoundLogger
    active: bool
    mirrors: dict[str, ParamHeaders] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        settings: Settings,
        store: Store,
        scopes: Scopes,
        notifications: Notifications,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> Filing:
        files = file_parts.shelf(settings)
        credentials = Credentials(
            store,
            configured=file_parts.secret(settings),
            ttl=settings.core.auth.signed_upload_ttl_seconds,
            clock=clock,
        )
        links = Links(
            credentials,
            route=settings.core.upload_path,
            ttl=LINK_TTL if settings.artifacts.ttl_seconds is None else settings.artifacts.ttl_seconds,
            clock=clock,
        )
        registry = file_parts.registry(settings, store, files, clock, log)
        registry.on_gone.append(partial(_tell_gone, notifications))
        limits = RoundLimits(settings.sessions.round_ttl_seconds, settings.sessions.max_rounds)
        return cls(
            settings=settings,
            scopes=scopes,
            notifications=notifications,
            files=files,
            registry=registry,
            credentials=credentials,
            links=links,
            clock=clock,
            rounds=Rounds(store, registry, files, credentials, limits, clock, log),
            log=log,
            active=any(entry.adapters for entry in settings.servers),
        )

    # --- life -------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Raises StoreUnavailable, StorageFailed."""
        await self.scopes.open()
        await self.credentials.open()
        if self.active:
            await self.registry.open()
            await self.rounds.open()

    async def close(self) -> None:
        """Raises StoreUnavailable."""
        if self.active:
            await self.registry.close()

    async def tidy(self) -> None:
        """One round of the janitor. Raises StoreUnavailable, StorageFailed."""
        await self.credentials.expire()
        if self.active:
            await self.rounds.expire()
            await self.registry.tidy(self.scopes.gone)
            await self.scopes.tidy()

    async def end_session(self, key: str) -> None:
        """A session has ended for good: what it owned is dropped. Raises StoreUnavailable."""
        scope = self.scopes.of_session_key(key)
        if self.active:
            await self.registry.drop_scope(scope.id)
            await self.rounds.end_scope(scope.id)
            await self.scopes.forget(scope)

    # --- routes -----------------------------------------------------------------------------------------------

    def branches(self, sessions: Sessions, guard: Guard) -> Sequence[Branch]:
        """The file routes beside the mounts."""
        if not self.active:
            return ()
        settings = self.settings
        claims = Claims(sessions, self.scopes, guard)
        limits = UploadLimits(
            max_file_bytes=settings.uploads.max_file_bytes,
            max_files=settings.uploads.max_files,
            quota=settings.sessions.max_total_session_size,
            require_sha256=settings.uploads.require_sha256,
            stall_timeout=settings.uploads.stall_timeout_seconds,
        )
        takers = [entry.id for entry in settings.servers if self._offer(entry) is not None]
        uploads = UploadRoute(
            self.registry, self.credentials, self.scopes, claims, takers, limits, settings.uploads.uri_scheme
        )
        every = [entry.id for entry in settings.servers]
        downloads = DownloadRoute(self.registry, self.credentials, claims, every)
        routes = [uploads.branch(settings.core.upload_path), downloads.deliveries(settings.core.upload_path)]
        return [*routes, downloads.artifacts()] if settings.core.allow_artifacts_download else routes

    # --- plans ------------------------------------------------------------------------------------------------

    def plan(self, entry: ServerSettings) -> Plan:
        """The stages of one server's requests; an empty plan where it has nothing to do with files."""
        named: dict[tuple[str, str | None], Stages] = {}
        for tool in dict.fromkeys(tool for adapter in entry.adapters for tool in adapter.tools):
            if stages := self._stages(entry, tool):
                named["tools/call", tool] = (RoundStage(self.rounds), *stages)
        offer = self._offer(entry)
        if offer is not None:
            named["tools/call", offer.tool_name] = (HelperTool(offer, self.credentials, self.scopes),)
        return self._with_lists(entry, named, offer) if named else Plan()

    def _with_lists(
        self, entry: ServerSettings, named: dict[tuple[str, str | None], Stages], offer: Offer | None
    ) -> Plan:
        artifacts = self.settings.artifacts
        exposed = self._exposes(entry)
        documents = (workflow(offer),) if offer is not None else ()
        resources = exposed or bool(documents)
        announce = partial(announced, tools=offer is not None, resources=resources, changing=exposed)
        texts = TaskTexts(Redaction(self.files.roots, {}))
        methods: dict[str, Stages] = {
            "server/discover": (Announcing(announce),),
            "tasks/get": (texts,),
            "tasks/result": (texts,),
        }
        prefixed: dict[str, dict[str, Stages]] = {}
        if resources:
            listed = ResourceList(entry.id, self.registry, documents, artifacts.uri_scheme, exposed=exposed)
            links = self.links if self.settings.core.allow_artifacts_download else None
            read = ResourceRead(
                self.registry,
                documents,
                artifacts.uri_scheme,
                limit=artifacts.max_resource_bytes,
                links=links,
            )
            methods["resources/list"] = (listed,)
            if exposed:
                methods["subscriptions/listen"] = (SubscriptionStage(self.notifications),)
            methods["resources/templates/list"] = (ResourceTemplates(),)
            named |= {("resources/read", document.uri): (read,) for document in documents}
            if exposed:
                prefixed["resources/read"] = {artifacts.uri_scheme: (read,)}
        return Plan(named, methods, prefixed, announce)

    def _stages(self, entry: ServerSettings, tool: str) -> tuple[Consumer | Producer, ...]:
        """The stages of one tool: what it is given is put in its place before it is told where to write."""
        adapters = [adapter for adapter in entry.adapters if tool in adapter.tools]
        stages = [self._stage(entry, adapter, tool) for adapter in adapters]
        consumers = tuple(stage for stage in stages if isinstance(stage, Consumer))
        return *consumers, *(stage for stage in stages if isinstance(stage, Producer))

    def _stage(
        self, entry: ServerSettings, adapter: UploadConsumer | ArtifactProducer, tool: str
    ) -> Consumer | Producer | None:
        """The stage of one tool's entry; None where its feature is turned off."""
        if isinstance(adapter, UploadConsumer):
            return self._consumer(entry, adapter) if self.settings.uploads.enabled else None
        finds = adapter.output_path_argument is not None or adapter.output_locator.mode != "none"
        keeps = self.settings.artifacts.enabled and adapter.persist and finds
        return self._producer(entry, adapter, tool) if keeps else None

    def _consumer(self, entry: ServerSettings, adapter: UploadConsumer) -> Consumer:
        rule = ConsumerRule(
            server=entry.id,
            argument=adapter.file_path_argument,
            helper=f"{entry.id}_get_upload_url",
            delivery="file_uri" if adapter.uri_prefix else adapter.delivery,
            inline_limit=adapter.max_inline_bytes,
            plain_paths=adapter.allow_plain_paths,
            schemes=HandleSchemes(_scheme(self.settings, adapter), self.settings.artifacts.uri_scheme),
        )
        return Consumer(rule, self._access, self.mirrors_of(entry))

    def _producer(self, entry: ServerSettings, adapter: ArtifactProducer, tool: str) -> Producer:
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
            locator=Locator(locator.mode, locator.output_path_key, locator.output_path_regexes),
            required=adapter.required,
            capture_limit=file_parts.capture_limit(self.settings, self._patience(entry, adapter)),
            showing=showing,
        )
        return Producer(rule, self._access, self.mirrors_of(entry), self.notifications, self.clock, self.log)

    @property
    def _access(self) -> FileAccess:
        return FileAccess(self.registry, self.files, self.links)

    def _patience(self, entry: ServerSettings, adapter: ArtifactProducer) -> float | None:
        own = adapter.overrides.tool_call_timeout_seconds
        return self.settings.tool_defaults_for(entry).tool_call_timeout_seconds if own is None else own

    def _exposes(self, entry: ServerSettings) -> bool:
        artifacts = self.settings.artifacts
        producers = [adapter for adapter in entry.adapters if isinstance(adapter, ArtifactProducer)]
        exposing = any(adapter.persist and adapter.expose_as_resource for adapter in producers)
        return artifacts.enabled and artifacts.expose_as_resources and exposing

    def _offer(self, entry: ServerSettings) -> Offer | None:
        consumers = [adapter for adapter in entry.adapters if isinstance(adapter, UploadConsumer)]
        if not consumers or not self.settings.uploads.enabled:
            return None
        return Offer(
            server=entry.id,
            route=self.settings.core.upload_path,
            max_file_bytes=self.settings.uploads.max_file_bytes,
            max_files=self.settings.uploads.max_files,
            sha256_required=self.settings.uploads.require_sha256,
            consumers=tuple((tool, each.file_path_argument) for each in consumers for tool in each.tools),
        )

    def own_tools(self, entry: ServerSettings) -> tuple[dict[str, Any], ...]:
        """The tools that the adapter itself offers on a server."""
        offer = self._offer(entry)
        return () if offer is None else (definition(offer),)

    def mirrors_of(self, entry: ServerSettings) -> ParamHeaders:
        return self.mirrors.setdefault(entry.id, ParamHeaders())


def _tell_gone(notifications: Notifications, record: FileRecord) -> None:
    if record.kind is FileKind.ARTIFACT and record.exposed:
        notifications.resources_changed(Scope(record.scope, record.owner))


def _scheme(settings: Settings, adapter: UploadConsumer) -> str:
    """The URI scheme of handles in this argument: its own if the file sets one, else that of all handles."""
    said = "uri_scheme" in adapter.model_fields_set
    return adapter.uri_scheme if said else settings.uploads.uri_scheme
