"""The upload route: files of a form become uploads of a scope, all of them or none (FILES §1)."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import orjson

from adapter.edge.files.downloads import Claims
from adapter.edge.files.multipart import Event, FileBegins, Form, Mark, boundary_of
from adapter.edge.http.bodies import Body
from adapter.edge.http.request import Branch, Names, Request, SignedBranch, query_of, takes_html
from adapter.errors import (
    AdapterError,
    CredentialRefused,
    FileTooLarge,
    MethodNotAllowed,
    NotFound,
    NotMultipart,
    QuotaReached,
    StoreUnavailable,
    UploadRefused,
    UploadStalled,
)
from adapter.relay.files.file_registry import FileRegistry
from adapter.relay.files.upload_batch import UploadBatch
from adapter.relay.files.upload_offers import KnownOffer, UploadOffers
from adapter.rules.access.principals import ANONYMOUS, Scope
from adapter.rules.files.file_records import FileRecord, RecordFile, shown_upload
from adapter.settings.storage import Uploads
from adapter.wire.signed_urls import UploadCredential

T = TypeVar("T")

_SIGNED = frozenset({"sid", "exp", "nonce", "sig"})
_BESIDE_BATCH = 64 * 1024
_BESIDE_FILE = 1024
"""Bytes of a form that may be no file's: for the whole, and for each file it may hold."""

_KEPT_FREE = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class OpenedBranch(Branch):
    """The branch of people who open a link. What it answers is everybody's."""

    def names(self, request: Request) -> Names | None:
        found = Branch.names(self, request) if request.method in self.methods else None
        return found if found is not None and takes_html(request) else None


@dataclass(eq=False, repr=False)
class UploadRoute:
    """Takes uploads for ``servers`` (ids). ``quota``: bytes that a scope may hold; None sets no limit.

    ``on_kept`` is called for each file before its sender is answered.
    """

    registry: FileRegistry
    offers: UploadOffers
    claims: Claims
    servers: Collection[str]
    settings: Uploads
    quota: int | None
    on_kept: RecordFile

    def __post_init__(self) -> None:
        self._beside = _BESIDE_BATCH + _BESIDE_FILE * self.settings.max_files
        _keep_freed_memory()

    def branches(self, upload_path: str) -> tuple[Branch, ...]:
        """``POST {upload_path}/{server_id}``, for signed links by themselves, and for people who open one.

        A signature is all the right that a request needs, so it may come from any page. A link that a person opens may
        have lost it on its way; they are told.
        """
        return (
            SignedBranch(upload_path, 1, ("GET", "HEAD", "POST"), (), self._serve_link, public=True),
            OpenedBranch(upload_path, 1, ("GET", "HEAD"), (), self._serve_link, public=True),
            Branch(upload_path, 1, ("POST",), (), self._serve),
        )

    async def _serve(self, request: Request, names: Names) -> None:
        (server,) = names
        answer = await self._receive_all(request, server)
        fields = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]
        request.reply.send(200, fields, orjson.dumps(answer))

    async def _serve_link(self, request: Request, names: Names) -> None:
        (server,) = names
        if not takes_html(request):
            if request.method != "POST":
                request.reply.extra += (("Allow", "POST, OPTIONS"),)
                raise MethodNotAllowed()
            await self._serve(request, names)
            return
        # Late: most links are only ever used by programs.
        from adapter.edge.files import pages

        try:
            if request.method == "POST":
                answer = await self._receive_all(request, server)
                pages.received_page(request, answer["uploads"])
            else:
                await self._show(request, server)
        except AdapterError as error:
            pages.upload_failed_page(request, error)

    async def _show(self, request: Request, server: str) -> None:
        """Answer with the page of a link that is still good. Looking at it uses nothing up."""
        from adapter.edge.files import pages

        self._check_server(server)
        if not _is_signed(request):
            raise CredentialRefused()
        _, credential = await self._admit(request, server)
        assert credential is not None, "the link is signed"
        time = credential.expires, self.offers.credentials.left(credential)
        pages.upload_page(request, server, self.settings, self.quota, time)

    def _check_server(self, server: str) -> None:
        if server not in self.servers:
            raise NotFound("No server with this id accepts uploads.")

    async def _receive_all(self, request: Request, server: str) -> dict[str, Any]:
        """Keep the files of a request, and return what its sender is told."""
        self._check_server(server)
        scope, credential = await self._admit(request, server)
        form = self._form(request)
        self._check_length(request.body.announced)
        # The offer that the credential belongs to, if any is left.
        offered = None if credential is None else await self.offers.find(credential.nonce)
        name = None if offered is None else offered.batch
        batch = await self.registry.begin(scope, server, request.body.announced, name)
        try:
            if credential is None or offered is None:
                await self._receive(request.body, form, batch)
                records = await self._keep(batch, form, credential)
                owner = scope.id
            else:
                async with self.offers.arriving(offered, batch):
                    await self._receive(request.body, form, batch)
                    if credential.page or await self.offers.scopes.has_ended(scope):
                        # A later session is to use them.
                        await self.offers.outlive(offered)
                    records = await self._keep(batch, form, credential)
                    await self._prolong(offered, records, page=credential.page)
                owner = _named(offered, credential)
        finally:
            await batch.discard()
        for each in records:
            await self.on_kept(each)
        return self._answer(server, scope, owner, records)

    async def _keep(
        self, batch: UploadBatch, form: Form, credential: UploadCredential | None
    ) -> list[FileRecord]:
        spend = None if credential is None else partial(self.offers.credentials.spend, credential)
        return await batch.keep(form.digests, spend)

    async def _prolong(self, offered: KnownOffer, records: list[FileRecord], *, page: bool) -> None:
        """Keep what a person has uploaded for as long as they had time to upload it: their chat may be slow too."""
        # The files are held and the link is used up: a sender who was told of a failure now could not try again.
        with contextlib.suppress(StoreUnavailable):
            if page:
                await self.registry.keep(records, self.offers.credentials.page_ttl)
            await self.offers.use(offered)

    # --- before the body --------------------------------------------------------------------------------------

    async def _admit(self, request: Request, server: str) -> tuple[Scope, UploadCredential | None]:
        """The scope that will own the files, and the credential that this uses up.

        Raises CredentialRefused, Unauthorized.
        """
        query = query_of(request)
        if _SIGNED.isdisjoint(query):
            scope = await self.claims.own(request.headers, server)
            await self.offers.scopes.remember(scope)
            return scope, None
        credential = await self.offers.credentials.check(server, query)
        await self.claims.check_names(request.headers, server, credential.scope)
        found = await self.offers.scopes.find(credential.scope)
        if found is None:
            raise CredentialRefused()
        return found, credential

    def _form(self, request: Request) -> Form:
        if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
            raise NotMultipart("Send the form without a Content-Encoding.")
        return Form(boundary_of(request.headers.get("Content-Type")), beside=self._beside)

    def _check_length(self, length: int | None) -> None:
        """Refuse what cannot end well, before it is read. Raises FileTooLarge, QuotaReached."""
        limits = self.settings
        least = (length or 0) - self._beside
        if least > limits.max_files * limits.max_file_bytes:
            raise FileTooLarge(
                f"The upload is larger than {limits.max_files} files (uploads.max_files) of "
                f"{limits.max_file_bytes} bytes (uploads.max_file_bytes)."
            )
        if self.quota is not None and least > self.quota:
            raise QuotaReached(
                f"The upload is larger than the {self.quota} bytes that sessions.max_total_session_size allows."
            )

    # --- the body ---------------------------------------------------------------------------------------------

    async def _receive(self, body: Body, form: Form, batch: UploadBatch) -> None:
        files = 0
        chunk = await self._read(body)
        while chunk:
            files += await self._take(form.feed(chunk), batch)
            del chunk  # a slow sender's last one would stay in memory until its next one has come
            chunk = await self._fill(body, form, batch) or await self._read(body)
        form.end()
        if not files:
            raise UploadRefused("The form has no part named file.")
        if self.settings.require_sha256 and not form.digests:
            raise UploadRefused("uploads.require_sha256 is set: send a field named sha256 for each file.")

    async def _take(self, events: list[Event], batch: UploadBatch) -> int:
        """Do to the batch what the form says; how many files began."""
        files = 0
        for event in events:
            if isinstance(event, bytes):
                await batch.write(event)
            elif isinstance(event, FileBegins):
                files += 1
                batch.add(event.filename, event.media_type)
            elif event is Mark.FILE_ENDS:
                await batch.end_file()
        return files

    async def _fill(self, body: Body, form: Form, batch: UploadBatch) -> bytes:
        """Let threads take content of a file from the socket, if much is still to come: what they read behind it."""
        source = body.socket() if form.amid_file else None
        if source is None:
            return b""
        content = form.content(source.receive)
        with contextlib.closing(source):
            while not content.ended and source.left:
                # What was received, and held back for a delimiter that it may begin, can turn out to be content too.
                if await batch.fill(content, source.left + len(content.rest)) is None:
                    break
                if source.empty and not content.ended:
                    await self._waited_for(source.wait(self.settings.stall_timeout_seconds))
        return content.rest

    async def _read(self, body: Body) -> bytes:
        return await self._waited_for(body.piece(self.settings.stall_timeout_seconds))

    async def _waited_for(self, coming: Awaitable[T]) -> T:
        try:
            return await coming
        except TimeoutError:
            raise UploadStalled(
                f"The upload sent nothing for {self.settings.stall_timeout_seconds:g} s, "
                "longer than uploads.stall_timeout_seconds allows."
            ) from None

    def _answer(self, server: str, scope: Scope, owner: str, records: list[FileRecord]) -> dict[str, Any]:
        """The answer to a sender. Handles name ``owner``: the scope, or the batch if they are good in every session."""
        uploads = [
            shown_upload(owner, record, self.settings.uri_scheme, upload_id=record.id) for record in records
        ]
        handles = [upload["upload_handle"] for upload in uploads]
        answer = {
            "server_id": server,
            "session_id": scope.id,
            "uploads": uploads,
            "upload_handles": handles,
            "count": len(uploads),
        }
        if len(uploads) == 1:
            answer |= {"upload_handle": handles[0], "upload": uploads[0]}
        return answer


def _named(offered: KnownOffer, credential: UploadCredential) -> str:
    """The owner that handles name: the batch, if they are good in every session.

    Where nobody is known, a program that uploaded has handles for the session that asked; in others the upload's id
    gives some. A person has nothing but what the page shows, and may go back to any session.
    """
    known = offered.offer.principal != ANONYMOUS
    return offered.batch if known or credential.page else offered.offer.scope


def _is_signed(request: Request) -> bool:
    return not _SIGNED.isdisjoint(query_of(request))


def _keep_freed_memory() -> None:
    """Let the process keep what uploads free, instead of asking the kernel for it again with every piece.

    glibc learns from the largest block that was freed how much free memory to keep: twice as much. Else every
    byte of an upload comes on a fresh page: 270,000 page faults for each GiB instead of 5,000. Other allocators
    do not mind.
    """
    bytearray(_KEPT_FREE // 2)
