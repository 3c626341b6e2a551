"""The file routes as a real server on a real socket, over a real store of files; and forms, byte by byte."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import orjson

from adapter.edge.files.downloads import Claims, DownloadRoute
from adapter.edge.files.uploads import UploadRoute
from adapter.edge.http.access import Guard
from adapter.edge.http.listener import Listener
from adapter.edge.mcp.endpoint import Endpoint
from adapter.edge.router import Front
from adapter.files.shelf import Shelf
from adapter.log import get_logger
from adapter.relay.files.file_registry import FileRegistry
from adapter.relay.files.file_transactions import NewFile
from adapter.relay.files.scopes import Scopes
from adapter.relay.files.signed_urls import Credentials
from adapter.relay.files.upload_batch import FileLimits
from adapter.relay.files.upload_offers import UploadOffers
from adapter.relay.sessions.session_map import SessionLimits, Sessions
from adapter.rules.access.principals import ANONYMOUS, Principals, Scope
from adapter.rules.access.sessions import (
    Handshake,
    SessionRecord,
    SessionState,
    SessionTimes,
    UpstreamSession,
)
from adapter.rules.files.file_records import FileKind, FileRecord, Place
from adapter.rules.files.filenames import stored_name
from adapter.rules.files.quota import Limits
from adapter.settings.core import Core, CorsSettings
from adapter.settings.storage import Uploads
from adapter.state.sqlite import MemoryStore
from tests.edge.raw import Head, RawClient

MIB = 1024 * 1024
BOUNDARY = "----boundary"
FORM = f"multipart/form-data; boundary={BOUNDARY}"
SERVER = "desk"
PAGE = "https://page.example"


def part(content: bytes, *fields: str) -> bytes:
    """One part of a form, with header fields as they stand."""
    head = "".join(f"{field}\r\n" for field in fields)
    return f"--{BOUNDARY}\r\n{head}\r\n".encode() + content + b"\r\n"


def file_part(content: bytes, filename: str = "a.txt", media_type: str = "text/plain") -> bytes:
    disposition = f'Content-Disposition: form-data; name="file"; filename="{filename}"'
    return part(content, disposition, f"Content-Type: {media_type}")


def field_part(name: str, value: str) -> bytes:
    return part(value.encode(), f'Content-Disposition: form-data; name="{name}"')


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Clock:
    """The time, and how far a test has moved it on."""

    ahead: float = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@dataclass
class Desk:
    """The running routes, and what stands behind them."""

    port: int
    root: Path
    clock: Clock
    shelf: Shelf
    registry: FileRegistry
    credentials: Credentials
    scopes: Scopes
    sessions: Sessions
    offers: UploadOffers

    def client(self) -> RawClient:
        return RawClient(self.port)

    async def session(self, principal: str = ANONYMOUS, server: str = SERVER) -> tuple[str, Scope]:
        """The id of a new session, and the scope that it owns."""
        now = self.clock()
        record = SessionRecord(
            server,
            principal,
            Handshake(b""),
            UpstreamSession(None, "2025-11-25"),
            SessionState.OPEN,
            SessionTimes(now, now),
        )
        session_id = await self.sessions.create(record)
        scope = self.scopes.of(await self.sessions.find(session_id, server, principal), principal)
        await self.scopes.remember(scope)
        return session_id, scope

    def upload_path(self, scope: Scope, server: str = SERVER) -> str:
        """The path of a fresh upload URL, with its signature."""
        return f"/upload/{server}?{self.credentials.issue(server, scope.id)[0]}"

    async def artifact(self, scope: Scope, content: bytes, filename: str = "shot.png") -> FileRecord:
        """An artifact that the scope holds."""
        staging = self.shelf.stage()
        await staging.write(content)
        measure = await staging.finish()
        file_id = hashlib.md5(filename.encode()).hexdigest()
        place = Place(FileKind.ARTIFACT, scope.id, file_id, stored_name(filename))
        return await self.registry.keep_artifact(scope, place, NewFile(SERVER, filename, measure), staging)

    def artifact_path(self, record: FileRecord, *, signed: bool = True, ttl: float = 60) -> str:
        return "/artifacts/" + self._behind(record, "download" if signed else None, ttl)

    def delivery_path(self, record: FileRecord, *, purpose: str = "delivery", ttl: float = 60) -> str:
        return "/upload/" + self._behind(record, purpose, ttl)

    def _behind(self, record: FileRecord, purpose: str | None, ttl: float) -> str:
        path = f"{record.server}/{record.scope}/{record.id}/{quote(record.filename, safe='')}"
        if purpose is None:
            return path
        file = record.server, record.scope, record.id
        return f"{path}?{self.credentials.file_query(purpose, file, self.clock() + ttl)}"

    async def uploaded(self, scope: Scope, content: bytes, filename: str = "a.txt") -> FileRecord:
        async with self.client() as client:
            _, answer = await send_form(client, self.upload_path(scope), form(file_part(content, filename)))
        record = await self.registry.find(scope.id, FileKind.UPLOAD, answer["upload"]["upload_id"])
        assert record is not None
        return record

    async def read(self, record: FileRecord) -> bytes:
        with contextlib.closing(await self.registry.read(record)) as opened:
            return await opened.read(0, record.content.size)

    def files(self) -> list[Path]:
        """What lies on disk, finished or not."""
        places = (self.root / "uploads", self.root / "artifacts", self.root / "staging")
        return sorted(file for place in places for file in place.rglob("*") if file.is_file())


async def send_form(client: RawClient, path: str, body: bytes, **fields: str) -> tuple[Head, dict[str, Any]]:
    """Post a whole form; the answer's head and JSON."""
    head, text = await client.request("POST", body, path, **{"content_type": FORM, **fields})
    return head, orjson.loads(text)


@contextlib.asynccontextmanager
async def filing(
    root: Path,
    *,
    tokens: Mapping[str, str] | None = None,
    per_principal: bool = False,
    max_file_bytes: int = 4 * MIB,
    max_files: int = 5,
    quota: int | None = None,
    total: int | None = None,
    require_sha256: bool = False,
    stall_timeout: float = 5.0,
    queue_wait: float = 5.0,
    cors_origins: Sequence[str] = (),
    downloads: bool = True,
) -> AsyncIterator[Desk]:
    """The routes for server ``desk``; ``tokens`` by name turn authentication on."""
    store, clock, shelf, log = MemoryStore(), Clock(), Shelf(root), get_logger("adapter")
    settings = Uploads(
        max_file_bytes=max_file_bytes,
        max_files=max_files,
        require_sha256=require_sha256,
        stall_timeout_seconds=stall_timeout,
    )
    sessions = Sessions(store, SessionLimits(), clock)
    scopes = Scopes(store, per_principal=per_principal, clock=clock)
    credentials = Credentials(store, configured=None, ttl=120.0, clock=clock, page_ttl=900.0)
    registry = FileRegistry(
        store,
        shelf,
        FileLimits(
            Limits(scope_bytes=quota, total_bytes=total),
            settings.model_copy(update={"stall_timeout_seconds": queue_wait}),
            artifact_ttl=600.0,
            sweep_grace=300.0,
        ),
        clock,
        log,
    )
    digests = [(name, hashlib.sha256(token.encode()).digest()) for name, token in (tokens or {}).items()]
    cors = CorsSettings(enabled=True, allowed_origins=list(cors_origins))
    guard = Guard(Core(cors=cors), Principals(digests) if tokens else None)
    claims = Claims(sessions, scopes, guard)
    offers = UploadOffers(credentials, scopes, 120.0)

    async def nothing(_: FileRecord) -> None:
        """Nobody counts."""

    uploads = UploadRoute(registry, offers, claims, [SERVER], settings, quota, nothing)
    sending = DownloadRoute(registry, credentials, claims, [SERVER])
    own = sending.artifacts() if downloads else ()
    branches = [*uploads.branches("/upload"), *sending.deliveries("/upload"), *own]
    # No mount is served here, so nobody asks for an endpoint.
    front = Front(cast(Endpoint, None), {}, {}, guard, log, branches)
    for part_of_it in (scopes, credentials, registry):
        await part_of_it.open()
    listener = await Listener.open(front, "127.0.0.1", 0)
    try:
        port = listener.address[1]
        yield Desk(port, root, clock, shelf, registry, credentials, scopes, sessions, offers)
    finally:
        listener.close()
        await listener.drop()
        await registry.close()


@contextlib.asynccontextmanager
async def filed(root: Path, **more: Any) -> AsyncIterator[tuple[Desk, Scope]]:
    """The routes and the scope of a session; all else as for ``filing``."""
    async with filing(root, **more) as desk:
        yield desk, (await desk.session())[1]
