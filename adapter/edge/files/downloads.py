"""The download routes: artifacts for whoever has a link or owns them, any file for a tool that was given a link.

The files that a request without a signed link may reach: those of its own session, or of its principal.
"""

from __future__ import annotations

import contextlib
import hmac
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

import orjson

from adapter.edge.http.access import Guard
from adapter.edge.http.request import (
    Branch,
    Fields,
    Names,
    Reply,
    Request,
    SignedBranch,
    query_of,
    takes_html,
)
from adapter.errors import (
    AdapterError,
    CredentialRefused,
    FileGone,
    NotFound,
    SessionMissing,
    SessionUnknown,
    Unauthorized,
)
from adapter.files.port import OpenFile
from adapter.relay.files.file_registry import FileRegistry
from adapter.relay.files.scopes import Scopes
from adapter.relay.files.signed_urls import DOWNLOADS, Credentials
from adapter.relay.sessions.session_map import Sessions
from adapter.rules.access.principals import ANONYMOUS, Scope
from adapter.rules.access.sessions import session_key, well_formed
from adapter.rules.files.file_records import FileKind, FileRecord, RecordFile
from adapter.rules.files.filenames import content_disposition
from adapter.rules.files.media_types import is_safe_to_open
from adapter.wire.http_ranges import Unsatisfiable, if_range_allows, not_modified, read_range
from adapter.wire.signed_urls import FilePath

SESSION_FIELD = "Mcp-Session-Id"

_NO_CLAIM = "Use a signed link from the server's tools, or send the id of your own session in Mcp-Session-Id."


class Claims:
    """Reads who owns what out of header fields alone."""

    def __init__(self, sessions: Sessions, scopes: Scopes, guard: Guard) -> None:
        self._sessions = sessions
        self._scopes = scopes
        self._guard = guard

    async def own(self, headers: Fields, server: str) -> Scope:
        """The scope of the session whose own id the request carries; without an id, that of its principal.

        Raises Unauthorized, and CredentialRefused where the id is not one of this principal and server, or where
        nothing says who asks.
        """
        principal = self._guard.identify(headers, server).principal
        session_id = headers.get(SESSION_FIELD)
        if session_id is None and principal == ANONYMOUS:
            raise CredentialRefused(_NO_CLAIM)
        if session_id is None:
            return self._scopes.of(None, principal)
        try:
            session = await self._sessions.find(session_id, server, principal)
        except (SessionMissing, SessionUnknown):
            raise CredentialRefused(_NO_CLAIM) from None
        return self._scopes.of(session, principal)

    async def check_owns(self, headers: Fields, server: str, scope_id: str) -> None:
        """Raises Unauthorized or CredentialRefused where nothing valid says who asks, FileGone where that is known and
        the scope is neither the session's nor the principal's.
        """
        principal = self._guard.identify(headers, server).principal
        if principal != ANONYMOUS and _same(self._scopes.of(None, principal).id, scope_id):
            return
        try:
            owned = await self.own(headers, server)
        except CredentialRefused:
            if principal == ANONYMOUS:
                raise
            raise FileGone() from None
        if not _same(owned.id, scope_id):
            raise FileGone()

    async def check_names(self, headers: Fields, server: str, scope_id: str) -> None:
        """Raises CredentialRefused where the request carries a session id, and one that is another scope's.

        The public id of the scope is as good as the own id of its session, for it proves nothing here.
        """
        said = headers.get(SESSION_FIELD)
        if said is None or _same(said, scope_id):
            return
        if well_formed(said) and _same(self._scopes.of_session_key(session_key(said)).id, scope_id):
            return
        # Where a principal owns the files, only the session knows which.
        try:
            await self._guard.verify(headers)
            owned = await self.own(headers, server)
        except Unauthorized:
            raise CredentialRefused() from None
        if not _same(owned.id, scope_id):
            raise CredentialRefused()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))


_ID = re.compile(r"[0-9a-f]{32}")
_SMALL = 128 * 1024
_METHODS = ("GET", "HEAD")
_EXPOSED = ("Accept-Ranges", "Content-Disposition", "Content-Length", "Content-Range", "ETag")
_SIGNED = frozenset({"exp", "sig"})
_CONFIRMED = "download"
"""The parameter by which a person says that they want the file itself."""


@dataclass(eq=False, repr=False)
class DownloadRoute:
    """Sends files of ``servers`` (ids), always as attachments: what a tool wrote never runs as a page of ours.

    ``record`` is called for each file before the first of its bytes leaves; None where no record is kept.
    """

    registry: FileRegistry
    credentials: Credentials
    claims: Claims
    servers: Collection[str]
    record: RecordFile | None = None

    def artifacts(self) -> tuple[Branch, Branch]:
        """``/artifacts/{server_id}/{scope}/{artifact_id}/{filename}``, where ``core.allow_artifacts_download``."""
        return _branches(DOWNLOADS, self._serve_artifact)

    def deliveries(self, upload_path: str) -> tuple[Branch, Branch]:
        """``{upload_path}/{server_id}/{scope}/{file_id}/{filename}``: uploads and artifacts that a tool was handed."""
        return _branches(upload_path, self._serve_delivery)

    async def _serve_artifact(self, request: Request, names: Names) -> None:
        server, scope, file_id, _ = names
        query = query_of(request)
        signed = not _SIGNED.isdisjoint(query)
        by_person = request.headers.lower.get("sec-fetch-mode") == "navigate" and takes_html(request)
        try:
            self._check_server(server)
            if signed:
                self.credentials.check_file("download", (server, scope, file_id), query)
            else:
                await self.claims.check_owns(request.headers, server, scope)
            record = await self._find(names, FileKind.ARTIFACT)
        except AdapterError as error:
            if not by_person:
                raise
            # Late: most links are only ever used by programs.
            from adapter.edge.files import pages

            pages.file_failed_page(request, error)
            return
        if (
            by_person
            and signed
            and _CONFIRMED not in query
            and not is_safe_to_open(record.content.media_type)
        ):
            from adapter.edge.files import pages

            pages.file_page(request, record, f"{_CONFIRMED}=1")
            return
        await self._send(request, record)

    async def _serve_delivery(self, request: Request, names: Names) -> None:
        server, scope, file_id, _ = names
        self._check_server(server)
        await self._check_delivery((server, scope, file_id), query_of(request))
        await self._send(request, await self._find(names, *FileKind))

    async def _check_delivery(self, file: FilePath, query: Mapping[str, str]) -> None:
        """Raises CredentialRefused unless the link is in time, or belongs to a call that waits for its user."""
        try:
            self.credentials.check_file("delivery", file, query)
        except CredentialRefused:
            if not self.credentials.is_genuine("delivery", file, query):
                raise
            # The call may wait in another replica, or since before a restart.
            await self.registry.read_again(file[1])
            self.credentials.check_file("delivery", file, query)

    def _check_server(self, server: str) -> None:
        if server not in self.servers:
            raise NotFound("No server with this id has files here.")

    async def _find(self, names: Names, *kinds: FileKind) -> FileRecord:
        server, scope, file_id, filename = names
        if _ID.fullmatch(scope) is None or _ID.fullmatch(file_id) is None:
            raise FileGone()
        for kind in kinds:
            record = await self.registry.find(scope, kind, file_id)
            if record is not None and record.server == server and record.filename == filename:
                return record
        raise FileGone()

    async def _send(self, request: Request, record: FileRecord) -> None:
        etag = f'"{record.content.sha256}"'
        fields = [("ETag", etag), ("Cache-Control", "private"), ("Accept-Ranges", "bytes")]
        if not_modified(request.headers.get("If-None-Match"), etag):
            request.reply.send(304, fields)
            return
        asked = _asked(request, record.content.size, etag)
        if isinstance(asked, Unsatisfiable):
            body = orjson.dumps(
                {"detail": f"The range begins after the end of the file, which has {asked.size} bytes."}
            )
            unsatisfied = [("Content-Range", f"bytes */{asked.size}"), ("Content-Type", "application/json")]
            request.reply.send(416, fields + unsatisfied, body)
            return
        fields += [
            ("Content-Type", record.content.media_type),
            ("Content-Disposition", content_disposition(record.filename)),
            ("X-Content-Type-Options", "nosniff"),
            ("Content-Security-Policy", "sandbox; default-src 'none'"),
        ]
        if asked is not None:
            first, length = asked
            fields.append(("Content-Range", f"bytes {first}-{first + length - 1}/{record.content.size}"))
        await self._stream(request, record, asked, fields)

    async def _stream(
        self,
        request: Request,
        record: FileRecord,
        asked: tuple[int, int] | None,
        fields: list[tuple[str, str]],
    ) -> None:
        first, length = asked or (0, record.content.size)
        with contextlib.closing(await self.registry.read(record)) as opened:
            if self.record is not None and request.method != "HEAD":
                await self.record(record)
            request.reply.begin(206 if asked else 200, fields, length)
            if request.method != "HEAD":
                await _send_bytes(request.reply, opened, first, length)
            request.reply.end()


def _branches(prefix: str, serve: Callable[[Request, Names], Awaitable[None]]) -> tuple[Branch, Branch]:
    """The branch of signed links, which pages of every origin may use, and that of all other requests."""
    signed = SignedBranch(prefix, 4, _METHODS, _EXPOSED, serve, public=True)
    return signed, Branch(prefix, 4, _METHODS, _EXPOSED, serve)


async def _send_bytes(reply: Reply, opened: OpenFile, first: int, length: int) -> None:
    # A little leaves with the head in one write; for much the kernel spares the way through this process.
    if length > _SMALL:
        await reply.write_file(opened, first, length)
        return
    async for piece in opened.pieces(first, length):
        await reply.write(piece)


def _asked(request: Request, size: int, etag: str) -> tuple[int, int] | Unsatisfiable | None:
    """The range to answer with; HEAD knows none (RFC 9110 §14.2)."""
    if request.method != "GET" or not if_range_allows(request.headers.get("If-Range"), etag):
        return None
    return read_range(request.headers.get("Range"), size)
