"""Files that a host attaches to a call by URL: fetched at once, and kept as uploads of the caller.

Behind this the call is one with handles, and goes on as any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from adapter.errors import FileTooLarge, QuotaReached, StorageFull, UploadRefused
from adapter.relay.call.call_gate import Cancellations
from adapter.relay.files.file_registry import FileRegistry
from adapter.relay.files.scopes import Scopes
from adapter.relay.files.upload_batch import UploadBatch
from adapter.relay.stages import Call, Stage, Withdrawn
from adapter.rules.calls.arguments import ambiguous
from adapter.rules.files.attached_files import (
    AttachedFile,
    FileParameter,
    NotAttached,
    attached_file,
    attached_values,
    with_handles,
)
from adapter.rules.files.file_records import FileKind, RecordFile
from adapter.rules.last_used import LastUsed
from adapter.rules.results.tool_results import tool_result
from adapter.settings.storage import Uploads
from adapter.upstream.port import DownloadFailed, OpenDownload
from adapter.wire.signed_urls import upload_handle

MOST_FILES = 32
"""Attached files of one call: each is a request that somebody else has the adapter make."""

FETCH_TIMEOUT = 60.0
"""Seconds for all files of one call. ChatGPT gives up a call after about 120, and the tool still has to run."""

KEPT = 512
"""Attached files of one server of which it is remembered that they were fetched; their URLs may be long."""


class HandleRefused(Exception):
    """``str(error)`` is the sentence that the model reads as the tool's result."""


@dataclass(eq=False, repr=False)
class AttachedFiles:
    """Fetches what calls to one ``server`` name, until ``cancellations`` hears that a client gave its call up.

    ``on_kept`` is told of each file; all files of a call have ``timeout`` seconds.
    """

    server: str
    registry: FileRegistry
    scopes: Scopes
    settings: Uploads
    download: OpenDownload
    on_kept: RecordFile
    cancellations: Cancellations
    timeout: float = field(default=FETCH_TIMEOUT, init=False)

    def __post_init__(self) -> None:
        # A round of a call, or a retry, names the same file again, and must reach its tool with the same handle.
        self._fetched: LastUsed[tuple[str, AttachedFile], str] = LastUsed(KEPT)

    async def take(self, call: Call, rule: AttachmentStage) -> None:
        """Put handles in the place of attached files. Raises HandleRefused, StorageFailed, StoreUnavailable,
        SessionUnknown, Withdrawn.
        """
        parameter = rule.parameter
        if not await rule.applies(call):
            return
        for path in {parameter.argument, parameter.name}:
            if ambiguous(call.request, path):
                raise HandleRefused(
                    f"{path} can be read in more than one way here. Write it exactly once, in this spelling."
                )
        found = attached_values(call.request, parameter)
        most = min(MOST_FILES, self.settings.max_files)
        # Before they are read: a list may have thousands.
        if sum(not isinstance(each.value, str) for each in found) > most:
            raise HandleRefused(
                f"A call may have at most {most} attached files ({MOST_FILES}, or uploads.max_files if that is "
                "less). Pass the others in another call."
            )
        try:
            files = [attached_file(each, parameter) for each in found]
            handles = await self._handles(call, rule, [file for file in files if file is not None])
            given = [
                handles[file] if file is not None else str(each.value)
                for each, file in zip(found, files, strict=True)
            ]
            if handles or parameter.lifted:
                call.request = with_handles(call.request, parameter, found, given)
        except NotAttached as error:
            raise HandleRefused(str(error)) from None

    async def _handles(
        self, call: Call, rule: AttachmentStage, files: list[AttachedFile]
    ) -> dict[AttachedFile, str]:
        """The handle of each file. Those that are not here yet are fetched: all of them or none."""
        known: dict[AttachedFile, str] = {}
        missing = []
        for file in dict.fromkeys(files):
            upload_id = self._fetched.get((call.scope.id, file))
            if upload_id is not None and await self.registry.find(call.scope.id, FileKind.UPLOAD, upload_id):
                known[file] = upload_id
            else:
                missing.append(file)
        if missing:
            known |= await self._fetch_all(call, missing)
        return {
            file: upload_handle(call.scope.id, upload_id, rule.uri_scheme)
            for file, upload_id in known.items()
        }

    async def _fetch_all(self, call: Call, files: list[AttachedFile]) -> dict[AttachedFile, str]:
        await self.scopes.remember(call.scope)
        bound = len(files) * self.settings.max_file_bytes
        try:
            batch = await self.registry.begin(call.scope, self.server, bound)
            try:
                await self._fetch_in_time(call, files, batch)
                records = await batch.keep([], None)
            finally:
                await batch.discard()
        except (FileTooLarge, QuotaReached, StorageFull, UploadRefused) as error:
            raise HandleRefused(f"An attached file cannot be taken. {error}") from None
        except DownloadFailed as error:
            raise HandleRefused(f"An attached file cannot be fetched: {error}") from None
        for file, record in zip(files, records, strict=True):
            self._fetched.put((call.scope.id, file), record.id)
            await self.on_kept(record)
        return {file: record.id for file, record in zip(files, records, strict=True)}

    async def _fetch_in_time(self, call: Call, files: list[AttachedFile], batch: UploadBatch) -> None:
        timer = asyncio.timeout(self.timeout)

        def give_up() -> None:
            if not timer.expired():
                timer.reschedule(0)

        try:
            async with timer:
                forget = self.cancellations.hear(call, give_up)
                try:
                    for file in files:
                        await self._fetch(file, batch)
                finally:
                    forget()
        except TimeoutError:
            if timer.when() == 0:
                raise Withdrawn from None
            raise HandleRefused(
                f"The attached files did not arrive within {self.timeout:g} s, so the tool was not called."
            ) from None

    async def _fetch(self, file: AttachedFile, batch: UploadBatch) -> None:
        async with self.download(file.url) as download:
            most = self.settings.max_file_bytes
            if download.length is not None and download.length > most:
                raise FileTooLarge(
                    f"It has {download.length} bytes, more than the {most} bytes that uploads.max_file_bytes allows."
                )
            # The bound of a batch is what its files may have at most, and no reason for others to go.
            batch.announced = None if download.length is None else batch.size + download.length
            batch.add(file.name, file.media_type or download.media_type)
            async for chunk in download.chunks:
                await batch.write(chunk)
            await batch.end_file()


@dataclass(eq=False, repr=False)
class AttachmentStage(Stage):
    """Takes the attached files of one tool: as a stage before its plan, which is to see handles, or for its consumer.

    A call without the mark of the ``parameter`` in it holds none. ``uri_scheme`` is that of their handles. ``applies``
    tells whether a call's client was told that it may attach files in this parameter: an argument of that name may be
    the tool's.
    """

    files: AttachedFiles
    parameter: FileParameter
    uri_scheme: str
    applies: Callable[[Call], Awaitable[bool]]

    async def take(self, call: Call) -> None:
        """See AttachedFiles."""
        await self.files.take(call, self)

    async def ask(self, call: Call) -> bytes | None:
        if self.parameter.mark in call.request:
            try:
                await self.take(call)
            except HandleRefused as refused:
                sentence = str(refused)
                return tool_result(call.envelope.id_bytes, sentence, None, modern=call.modern, is_error=True)
        return None
