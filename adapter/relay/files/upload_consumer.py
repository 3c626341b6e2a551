"""The upload consumer: handles in a tool's argument become what the tool can read.

Source of the rules: a handle is checked against the scope and the server; one of another scope, one that expired
and one that never was give the same answer.
"""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath
from typing import NamedTuple

from adapter.errors import FileChanged, FileGone
from adapter.relay.files.attachments import AttachmentStage, HandleRefused
from adapter.relay.files.file_registry import FileRegistry
from adapter.relay.files.rounds import ARTIFACT, COPIES, DELIVERED, EDITED, noted_earlier
from adapter.relay.files.signed_urls import Credentials
from adapter.relay.files.upload_offers import UploadOffers
from adapter.relay.param_headers import ParamHeaders
from adapter.relay.replies import edited
from adapter.relay.stages import Call
from adapter.rules.calls.arguments import ambiguous, replaced, values
from adapter.rules.files.file_records import FileKind, FileRecord
from adapter.rules.files.redaction import Redaction
from adapter.rules.results.tool_results import tool_result, without_paths
from adapter.settings.servers.file_adapters import Delivery, UploadConsumer
from adapter.wire.signed_urls import Handle, parse_upload

HANDLES = "handles"
"""The note of a call that holds which handle each path stands for that the tool was given."""

INLINE_AT_MOST = 64 << 20
"""Bytes of all files together that one call delivers inline, unless a single one may have more: a short message could
name one file very often."""


class HandleSchemes(NamedTuple):
    """The beginnings of handles' URIs."""

    upload: str = "upload://"
    artifact: str = "artifact://"


@dataclass(eq=False, repr=False)
class Consumer:
    """The stage of the tools of one upload consumer, as its section of the settings says. With ``attached`` it takes
    files that a host attaches too.
    """

    server: str
    section: UploadConsumer
    schemes: HandleSchemes
    registry: FileRegistry
    mirrors: ParamHeaders
    offers: UploadOffers
    attached: AttachmentStage | None = None

    def __post_init__(self) -> None:
        self._form = self.section.form

    async def ask(self, call: Call) -> bytes | None:
        await self.mirrors.check(call)
        try:
            await self._resolve(call)
            call.withheld = self._withheld(call)
        except (HandleRefused, FileChanged, FileGone) as error:
            sentence = self._unknown() if isinstance(error, FileGone) else str(error)
            return tool_result(call.envelope.id_bytes, sentence, None, modern=call.modern, is_error=True)
        return None

    async def answer(self, call: Call, response: bytes) -> bytes:
        """The tool's own result; where it repeats a path that it was given, the handle stands there again."""
        if ARTIFACT in call.notes:
            return response  # its producer has done so, and has added what is to stay as it is
        return await edited(response, partial(without_paths, response, self._withheld(call)))

    def _withheld(self, call: Call) -> Redaction:
        return Redaction(self.registry.cache.files.roots, call.notes.get(HANDLES, {}))

    async def _resolve(self, call: Call) -> None:
        """Put what is delivered in the place of each handle. Raises HandleRefused, FileChanged, FileGone."""
        argument = self.section.file_path_argument
        if self.attached is not None and self.attached.parameter.mark in call.request:
            await self.attached.take(call)
        if not self.section.allow_plain_paths and ambiguous(call.request, argument):
            raise HandleRefused(
                f"{argument} can be read in more than one way here. Write it exactly once in this spelling, with the "
                f"objects and lists of the tool's schema; call {self.server}_get_upload_url to get a handle."
            )
        delivered = []
        delivery = _Delivery(self.section, self._form, self.registry, self.offers.credentials)
        for found in values(call.request, argument):
            path, value = found.path, found.value
            record = await self._record(call, value)
            if record is not None:
                assert isinstance(value, str), "a handle was read from it"
                text = await delivery.of(call, record, value)
                delivered.append((found, text))
                self.mirrors.rewrite(call, path[2:], value, text)
            elif not self._passes(value):
                raise HandleRefused(self._unknown())
        if delivered:
            call.request = replaced(call.request, delivered)

    async def _record(self, call: Call, value: object) -> FileRecord | None:
        """The record of the one handle that ``value`` is, if this call may use it."""
        if not isinstance(value, str):
            return None
        handle = parse_upload(value, self.schemes.upload)
        if handle is None:
            return await self.registry.find_artifact(call.scope.id, value, self.schemes.artifact)
        if handle.scope != call.scope.id:
            return await self._offered(call, handle)
        record = await self.registry.find(handle.scope, FileKind.UPLOAD, handle.id)
        # An upload was meant for one server; an artifact may be handed on.
        return record if record is not None and record.server == self.server else None

    async def _offered(self, call: Call, handle: Handle) -> FileRecord | None:
        """The record of a file that came by an offer: its handle names the batch, and is good in other sessions too.

        In the scope that owns the file it is good also when the offer is over, for as long as the file lives.
        """
        server, principal = self.server, call.origin.caller.principal
        known = await self.offers.find_of(server, principal, handle.scope)
        scope = call.scope.id if known is None else known.offer.scope
        record = await self.registry.find(scope, FileKind.UPLOAD, handle.id)
        if record is None or record.batch != handle.scope or record.server != server:
            return None
        if known is not None:
            await self.offers.use(known)
        return record

    def _passes(self, value: object) -> bool:
        """Tell whether a value that is no handle of a file here may stay as it is."""
        if not self.section.allow_plain_paths or not isinstance(value, str):
            return False
        return not value.strip().lower().startswith(self.schemes)

    def _unknown(self) -> str:
        argument = self.section.file_path_argument
        return (
            f"{argument} must be the handle of an uploaded file ({self.schemes.upload}…); this is not a handle, or "
            f"its file has expired. Call {self.server}_get_upload_url to get an upload URL, upload the file there, "
            f"and pass the upload_handle of the answer as {argument}. If you have an upload_id, "
            f"{self.server}_upload_status tells the handles that are good here."
        )


@dataclass(eq=False, repr=False)
class _Delivery:
    """The texts that replace the handles of one call. A file that is named twice is delivered once."""

    section: UploadConsumer
    form: Delivery
    registry: FileRegistry
    links: Credentials
    _texts: dict[str, str] = field(default_factory=dict, init=False)
    _inline: int = field(default=0, init=False)

    async def of(self, call: Call, record: FileRecord, handle: str) -> str:
        """The text for a file, which is kept until the call is over.

        Raises HandleRefused, FileChanged, FileGone, StorageFailed, StorageFull.
        """
        text = self._texts.get(record.key)
        if text is None:
            call.defer(await self.registry.hold(record))
            text = self._texts[record.key] = await self._text(call, record, handle)
            link = text if self.form == "url" else None
            call.notes.setdefault(DELIVERED, {})[record.key] = link
        if self.form in ("base64", "data_uri"):
            self._inline += record.content.size
            most = max(INLINE_AT_MOST, self.section.max_inline_bytes)
            if self._inline > most:
                raise HandleRefused(f"The files have more than the {most} bytes that one call may contain.")
        return text

    async def _text(self, call: Call, record: FileRecord, handle: str) -> str:
        match self.form:
            case "path":
                return await self._path(call, record, handle)
            case "file_uri":
                return PurePosixPath(await self._path(call, record, handle)).as_uri()
            case "url":
                await self.registry.confirm(record)
                earlier: str | None = (noted_earlier(call, DELIVERED) or {}).get(record.key)
                return earlier or self.links.delivery(call.origin.base, record)
            case "base64":
                return await self._base64(record)
            case "data_uri":
                return f"data:{record.content.media_type};base64,{await self._base64(record)}"

    async def _path(self, call: Call, record: FileRecord, handle: str) -> str:
        """A path that stands for ``handle``: of the stored file, or of a copy that is this call's own."""
        copy = None
        if self.section.edits is False:
            await self.registry.confirm(record)
        else:
            copies = call.notes.setdefault(COPIES, {})
            copy = copies.get(record.key)  # the tool's other consumer may have been given the same file
            if copy is None:
                copy = (noted_earlier(call, COPIES) or {}).get(record.key) or secrets.token_hex(16)
                await self.registry.lend(record, copy)
                call.defer(partial(self.registry.cache.files.give_back, record.place, copy))
                copies[record.key] = copy
            if self.section.edits:
                call.notes.setdefault(EDITED, set()).add(record.key)
        path = self.registry.cache.files.path_of(record.place, copy)
        call.notes.setdefault(HANDLES, {})[path] = handle
        return path

    async def _base64(self, record: FileRecord) -> str:
        limit = self.section.max_inline_bytes
        if record.content.size > limit:
            raise HandleRefused(
                f"The file {record.filename} has {record.content.size} bytes; this tool takes files of at "
                f"most {limit} "
                "bytes (max_inline_bytes of its adapter)."
            )
        return base64.b64encode(await self.registry.whole(record)).decode("ascii")
