"""An adapter process whose tools take and produce files on a real disk, and an upstream that does what a test says."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from adapter import log
from adapter.files.shelf import Shelf
from adapter.relay.call.get_streams import SubscriptionStage, TaskTexts
from adapter.relay.exchange import ClientRequest
from adapter.relay.exchange import ClientResponse as Left
from adapter.relay.files.artifact_capture import ArtifactKeeper, ProducerRule
from adapter.relay.files.artifact_members import ArtifactMembers
from adapter.relay.files.artifact_producer import Producer
from adapter.relay.files.artifact_resources import (
    CapabilityStage,
    Document,
    ResourceList,
    ResourceRead,
    ResourceTemplates,
)
from adapter.relay.files.file_registry import FileRegistry
from adapter.relay.files.large_results import (
    LargeResultRule,
    LargeResults,
    LargeResultStage,
    TaskTools,
)
from adapter.relay.files.read_artifact_tool import ABOVE, ReadArtifactTool, ReadRule
from adapter.relay.files.rounds import RoundLimits, Rounds
from adapter.relay.files.scopes import Scopes
from adapter.relay.files.signed_urls import Credentials
from adapter.relay.files.upload_batch import FileLimits
from adapter.relay.files.upload_consumer import Consumer, HandleSchemes
from adapter.relay.files.upload_offers import UploadOffers
from adapter.relay.notifications import Notifications
from adapter.relay.param_headers import ParamHeaders
from adapter.relay.sessions.session_map import SessionLimits, Sessions, client_infos
from adapter.relay.stages import Call, StageEntry, StageTable
from adapter.relay.tools.catalogue_reader import Offered
from adapter.rules.access.principals import Scope
from adapter.rules.files.file_records import FileKind, FileRecord
from adapter.rules.files.locators import Locator, Mode
from adapter.rules.files.quota import Limits
from adapter.rules.files.redaction import Redaction
from adapter.rules.tools.lists import announced
from adapter.settings.servers.file_adapters import UploadConsumer
from adapter.settings.storage import Uploads
from adapter.state.port import Store
from adapter.state.sqlite import MemoryStore
from adapter.upstream.port import UpstreamReply, UpstreamRequest
from adapter.wire.envelope import parse
from adapter.wire.signed_urls import artifact_uri, upload_handle
from tests.relay.relaying import Clock, Relaying, scope_of, whole
from tests.scripted import ScriptedAnswer, ScriptedReply

BASE = "http://adapter.test"
READ = UploadConsumer(type="upload_consumer", tools=["read"], file_path_argument="path")
WRITE = ProducerRule(server="one", tool="write", argument="filename", locator=Locator("none"))
UPLOADS = Uploads(max_file_bytes=1 << 20, max_files=10, ttl_seconds=100.0, stall_timeout_seconds=1.0)
DOCUMENT = Document("doc://guide.md", "guide.md", "Guide", "# How")
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(200)
SSE = (("Content-Type", "text/event-stream"),)

Act = Callable[[UpstreamRequest], ScriptedAnswer]


class Acting:
    """An Upstream that answers each request as its function does, and remembers the requests."""

    def __init__(self, act: Act) -> None:
        self._act = act
        self.requests: list[UpstreamRequest] = []
        self.replies: list[ScriptedReply] = []

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        self.requests.append(request)
        answer = self._act(request)
        if answer.after is not None:
            await answer.after.wait()
        self.replies.append(ScriptedReply(answer))
        return self.replies[-1]

    async def close(self) -> None:
        """Nothing is open."""


def producing(
    mode: Mode = "none", key: str | None = None, regexes: Sequence[str] = (), **more: Any
) -> ProducerRule:
    """The rule of the tool ``write`` with that locator; ``more`` are other fields of it."""
    return replace(WRITE, locator=Locator(mode, key, regexes), **more)


@dataclass
class Tools:
    """One process. Its tools are ``read`` (a consumer), ``write`` (a producer), ``convert`` (both) and any other
    (piped).

    ``opened`` are answers that are closed at the end.
    """

    root: Path
    act: Act
    consuming: UploadConsumer = READ
    producing: ProducerRule = WRITE
    limits: Limits = field(default_factory=lambda: Limits(None, None, None, "lru_uploads_then_artifacts"))
    allowed_roots: Sequence[Path] = ()
    store: Store = field(default_factory=MemoryStore)
    clock: Clock = field(default_factory=lambda: Clock(time.time()))
    session: str = ""
    resource_limit: int = 1000
    downloads: bool = True
    round_limits: RoundLimits = field(default_factory=lambda: RoundLimits(ttl=1000.0))
    opened: list[Left] = field(default_factory=list)
    members: ArtifactMembers = field(default_factory=ArtifactMembers)
    large: LargeResultRule | None = None
    offers: Callable[[Call], Awaitable[Offered]] | None = None

    def __post_init__(self) -> None:
        self.files = Shelf(
            self.root,
            allowed_roots=self.allowed_roots,
            private=(),
            lock="shared" if self.store.shared else "exclusive",
        )
        self.registry = FileRegistry(
            self.store,
            self.files,
            FileLimits(self.limits, UPLOADS, artifact_ttl=100.0, sweep_grace=300.0),
            self.clock,
            log.get_logger("test"),
        )
        self.credentials = Credentials(self.store, configured=b"secret", ttl=120.0, clock=self.clock)
        self.rounds = Rounds(self.registry, self.credentials, self.round_limits)
        scopes = Scopes(self.store, per_principal=False, clock=self.clock)
        self.offers_of_uploads = UploadOffers(self.credentials, scopes, 100.0)
        self.mirrors = ParamHeaders()
        self.notifications = notifications = Notifications()
        self.upstream = Acting(self.act)
        consuming = self.consuming
        if self.producing.edits:
            consuming = consuming.model_copy(update={"edits": True})
        read = "one", consuming, HandleSchemes()
        consumer = Consumer(*read, self.registry, self.mirrors, self.offers_of_uploads)
        self.keeper = partial(
            ArtifactKeeper, registry=self.registry, links=self.credentials, notifications=notifications
        )
        producer = Producer(self.keeper(self.producing), self.mirrors, self.clock, self.members)
        self.relaying = Relaying(self.upstream, self._stages(consumer, producer), self.store, self.clock)
        self.clients.sessions = self.relaying.sessions
        self.relaying.relay.get_streams.notifications = notifications

    def _stages(self, consumer: Consumer, producer: Producer) -> StageTable:
        announcing = CapabilityStage(partial(announced, tools=True, resources=True, changing=True))
        listed = ResourceList("one", self.registry, (DOCUMENT,), "artifact://", exposed=True)
        links = self.credentials if self.downloads else None
        read = ResourceRead(self.registry, (DOCUMENT,), "artifact://", limit=self.resource_limit, links=links)
        texts = TaskTexts(Redaction(self.files.roots, {}))
        producers = ("write", "convert", "read") if self.producing.edits else ("write", "convert")
        reading = ReadRule("one", most=ABOVE if self.large is None else self.large.terms.above)
        self.clients = client_infos(Sessions(self.store, SessionLimits(), self.clock))
        reader = ReadArtifactTool(reading, self.registry, self.clients)
        self.tasks: TaskTools = TaskTools(100)
        large = None if self.large is None else LargeResults(partial(self._large, self.large), self.tasks)
        table = StageTable(
            [
                *(large.entries() if large is not None else ()),
                *(StageEntry("tools/call", "artifacts", producer, tool) for tool in producers),
                *(StageEntry("tools/call", "uploads", consumer, tool) for tool in ("read", "convert")),
                *(
                    StageEntry("tools/call", "rounds", self.rounds, tool)
                    for tool in ("read", "write", "convert")
                ),
                StageEntry("tools/call", "own", reader, reading.tool_name),
                StageEntry("initialize", "announce", announcing),
                StageEntry("server/discover", "announce", announcing),
                StageEntry("tasks/result", "redact", texts),
                StageEntry("resources/list", "artifacts", listed),
                StageEntry("resources/templates/list", "artifacts", ResourceTemplates()),
                StageEntry("resources/read", "artifacts", read, DOCUMENT.uri),
                StageEntry("resources/read", "artifacts", read, prefix="artifact://"),
                StageEntry("subscriptions/listen", "artifacts", SubscriptionStage(self.notifications)),
            ]
        )
        table.large = large
        return table

    def _large(self, rule: LargeResultRule, tool: str) -> LargeResultStage | None:
        if tool == "one_read_artifact":
            return None
        keeper = self.keeper(producing(argument=None, tool=tool, downloads=self.downloads))
        return LargeResultStage(rule, keeper, self.clients, self.offers, self.tasks)

    # --- the client -------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Open a session, unless the client brings one from before a restart."""
        self.session = self.session or await self.relaying.open()
        self.scope = await self.scope_of_session(self.session)

    async def scope_of_session(self, session_id: str) -> Scope:
        return scope_of(await self.relaying.sessions.find(session_id, "one", "anonymous"), "anonymous")

    async def call(self, tool: str, arguments: str, *, session: str | None = None) -> dict[str, Any]:
        """The response to a legacy call; ``arguments`` is JSON as the client spells it."""
        body = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}'
        return parsed(await self.post(body.encode(), session))

    async def post(self, body: bytes, session: str | None = None) -> bytes:
        """The whole answer to a legacy request, its stream too."""
        return await whole(await self.relaying.relay.handle(self.ask(body, session or self.session)))

    async def request(
        self, method: str, params: Mapping[str, Any], *, modern: bool = False
    ) -> dict[str, Any]:
        """The response to any request."""
        body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        ask = self.ask(body, None if modern else self.session)
        return parsed(await whole(await self.relaying.relay.handle(ask)))

    def ask(self, body: bytes, session: str | None, **more: object) -> ClientRequest:
        return self.relaying.ask(body, session, base=BASE, **more)

    # --- files ------------------------------------------------------------------------------------------------

    async def uploaded(
        self,
        data: bytes,
        name: str = "note.txt",
        *,
        scope: Scope | None = None,
        server: str = "one",
        batch: str | None = None,
    ) -> FileRecord:
        coming = await self.registry.begin(scope or self.scope, server, len(data), batch)
        try:
            coming.add(name, None)
            await coming.write(data)
            await coming.end_file()
            (record,) = await coming.keep((), None)
            return record
        finally:
            await coming.discard()

    async def handle(self, data: bytes, name: str = "note.txt") -> str:
        """The handle of a file that the client has uploaded."""
        record = await self.uploaded(data, name)
        return upload_handle(record.scope, record.id)

    async def artifacts(self) -> list[FileRecord]:
        return await self.registry.list(self.scope.id, FileKind.ARTIFACT)

    def on_disk(self) -> list[str]:
        """All that lies in the areas of files, below the root."""
        found = [*self.root.glob("uploads/**/*"), *self.root.glob("artifacts/**/*")]
        found += self.root.glob("staging/*/*")
        return sorted(str(path.relative_to(self.root)) for path in found)


@asynccontextmanager
async def tools(root: Path, act: Act, **more: Any) -> AsyncIterator[Tools]:
    """A process that serves a client with an open session until the block ends."""
    process = Tools(root, act, **more)
    await process.credentials.open()
    await process.registry.open()
    await process.rounds.open()
    try:
        await process.connect()
        yield process
    finally:
        for answer in process.opened:
            await answer.close()
        await process.relaying.background.close()
        await process.registry.close()


def parsed(response: bytes) -> dict[str, Any]:
    """The last message of an answer, JSON or events."""
    read: dict[str, Any] = parse(response.strip().rpartition(b"data: ")[2])
    return read


def arguments_of(request: UpstreamRequest) -> Any:
    """What the upstream was called with."""
    return orjson.loads(request.body)["params"]["arguments"]


def result(members: str) -> bytes:
    """The response to request 1 with these members (JSON) in its result."""
    return f'{{"jsonrpc":"2.0","id":1,"result":{{{members}}}}}'.encode()


def said(text: str) -> bytes:
    """The response to request 1 with one text block."""
    return result(f'"content":[{{"type":"text","text":{orjson.dumps(text).decode()}}}]')


def answering(members: str) -> Act:
    """An upstream that answers everything with these members of a result."""
    return lambda request: ScriptedAnswer(chunks=[result(members)])


def saying(text: str) -> Act:
    return lambda request: ScriptedAnswer(chunks=[said(text)])


def uri_of(record: FileRecord) -> str:
    return artifact_uri(record.scope, record.id, record.filename)


def told(request: UpstreamRequest) -> Path:
    """Where the tool was told to write."""
    return Path(arguments_of(request)["filename"])


def writing(data: bytes, answer: bytes | None = None) -> Act:
    """A tool that writes where it is told, and says where that was."""

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        told(request).write_bytes(data)
        return ScriptedAnswer(chunks=[said(f"Saved {told(request)}.") if answer is None else answer])

    return act


def artifact_of(response: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = response["result"]["_meta"]["artifact"]
    return found


def error_of(response: dict[str, Any]) -> str:
    """Why nothing was captured of a call that did not fail."""
    assert "isError" not in response["result"] and "artifact" not in response["result"]["_meta"]
    sentence: str = response["result"]["_meta"]["artifact_error"]
    return sentence
