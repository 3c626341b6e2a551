"""The helper tool ``<server_id>_upload_status``: how a client learns what became of an upload that it has links for."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any

from adapter.relay.call.call_gate import Cancellations
from adapter.relay.files.artifact_resources import iso
from adapter.relay.files.file_registry import FileRegistry
from adapter.relay.files.upload_helper_tool import Offer
from adapter.relay.files.upload_offers import KnownOffer, UploadOffers
from adapter.relay.stages import Call, Stage, Withdrawn
from adapter.rules.files.file_records import (
    TELL_EVERY,
    FileKind,
    FileRecord,
    UploadState,
    batch_of,
    shown_upload,
)
from adapter.rules.results.tool_results import tool_result
from adapter.rules.tools.definitions import own_tool
from adapter.wire.envelope import dump, parse, value_at
from adapter.wire.sse import encode

LONGEST_WAIT = 50
"""Seconds of one call: many clients give up after a minute."""

MOST_WAITING = 256
"""Calls of one server that wait in this process; one more is told at once how things are."""

LONGEST_WAITING = 64 * 1024
"""Bytes of a message whose call waits; a longer one is answered at once. It stays in memory meanwhile, and the room of
all messages is small: core.max_buffered_bytes."""


@dataclass(slots=True)
class _Status:
    state: UploadState
    received: int = 0
    expires: float | None = None
    files: tuple[FileRecord, ...] = ()
    batch: str = ""

    @property
    def is_final(self) -> bool:
        return self.state in ("done", "expired")


@dataclass(eq=False, repr=False)
class UploadStatusTool(Stage):
    """The stage that answers calls of the tool. Which of them clients give up is heard by ``cancellations``."""

    offer: Offer
    offers: UploadOffers
    registry: FileRegistry
    cancellations: Cancellations
    _waiting: int = field(default=0, init=False)

    def __repr__(self) -> str:
        return f"<UploadStatusTool of {self.offer.server}: {self._waiting} calls wait>"

    async def ask(self, call: Call) -> bytes | None:
        params = parse(call.request).get("params") or {}
        arguments = params.get("arguments")
        said = arguments if isinstance(arguments, dict) else {}
        upload_id, wait = said.get("upload_id"), said.get("wait_seconds", 0)
        if not isinstance(upload_id, str) or not _is_wait(wait):
            return tool_result(call.envelope.id_bytes, _REFUSAL, None, modern=call.modern, is_error=True)
        token = value_at(params, "_meta", "progressToken")
        status = await self._awaited(call, batch_of(upload_id), float(wait), token)
        shown = self._shown(upload_id, status)
        # Not indented: a file's name may hold what only ``dump`` can write.
        return tool_result(call.envelope.id_bytes, dump(shown).decode(), shown, modern=call.modern)

    # --- waiting ----------------------------------------------------------------------------------------------

    async def _awaited(self, call: Call, batch: str | None, wait: float, token: object) -> _Status:
        """The state of an upload, when it is over or the time is. Raises Withdrawn, StoreUnavailable."""
        waits = wait and self._waiting < MOST_WAITING and len(call.request) <= LONGEST_WAITING
        if not waits or batch is None or self.offers.stopping:
            return await self._status(call, batch)
        loop = asyncio.get_running_loop()
        began = loop.time()
        given_up = False
        with self.offers.watch(batch) as changed:

            def give_up() -> None:
                nonlocal given_up
                given_up = True
                changed.set()

            call.defer(self.cancellations.hear(call, give_up))
            self._waiting += 1
            try:
                while True:
                    changed.clear()
                    status = await self._status(call, batch)
                    left = began + wait - loop.time()
                    if status.is_final or left <= 0 or self.offers.stopping:
                        return status
                    _report(call, token, loop.time() - began, wait, status)
                    # Others may have no way to tell that something happened; then one look in a while shows it.
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(min(left, TELL_EVERY)):
                            await changed.wait()
                    if given_up:
                        raise Withdrawn()
            finally:
                self._waiting -= 1

    async def _status(self, call: Call, batch: str | None) -> _Status:
        """The state just now. An id that is another principal's, or of another server, is as one that never was."""
        server = self.offer.server
        if batch is None:
            return _Status("expired")
        # In this order: what was used by now had been heard of before, and has its files by the end unless they went.
        coming = self.offers.received(batch)
        used = await self.offers.credentials.is_spent(batch)
        known = await self.offers.find_of(server, call.origin.caller.principal, batch)
        if known is None:
            return _Status("expired")
        offer = known.offer
        # While a link is unused there are none, and looking for them costs as much as the scope has files.
        if (used or self.offers.clock() >= offer.expires) and (files := await self._files(known)):
            await self.offers.use(known)
            return _Status("done", files=tuple(files), batch=batch)
        if coming is not None:
            return _Status("receiving", coming, offer.expires)
        return _Status(offer.state(self.offers.clock(), used=used), offer.received, offer.expires)

    async def _files(self, known: KnownOffer) -> list[FileRecord]:
        """The files of a batch, which are used now."""
        scope = known.offer.scope
        records = await self.registry.list(scope, FileKind.UPLOAD)
        ours = [each for each in records if each.batch == known.batch]
        found = [await self.registry.find(scope, FileKind.UPLOAD, each.id) for each in ours]
        return [each for each in found if each is not None]

    # --- the answer -------------------------------------------------------------------------------------------

    def _shown(self, upload_id: str, status: _Status) -> dict[str, Any]:
        shown: dict[str, Any] = {"upload_id": upload_id, "state": status.state}
        if status.state == "done":
            uploads = [self._file(status.batch, record) for record in status.files]
            handles = [upload["upload_handle"] for upload in uploads]
            shown |= {"uploads": uploads, "upload_handles": handles, "count": len(uploads)}
        elif status.state == "receiving":
            shown["received_bytes"] = status.received
        if status.state in ("waiting", "receiving") and status.expires is not None:
            shown["expires_at"] = iso(status.expires)
        return shown | {"next_step": self._next_step(status.state)}

    def _file(self, batch: str, record: FileRecord) -> dict[str, Any]:
        expires = self.registry.expires_at(record)
        until = None if expires is None else iso(expires)
        return shown_upload(batch, record, self.offer.settings.uri_scheme, expires_at=until)

    def _next_step(self, state: UploadState) -> str:
        tools = ", ".join(f"{tool} ({argument})" for tool, argument in self.offer.consumers)
        match state:
            case "done":
                return f"Pass each upload_handle, exactly as it is, to a tool that takes files: {tools}."
            case "expired":
                return (
                    "Nothing is left of this upload, or there never was one with this upload_id. Call "
                    f"{self.offer.tool_name} for a new link. Do not guess what is in the file."
                )
        return (
            "The files are not here yet. Make sure that the person has the link, and call this tool again with "
            f"wait_seconds {LONGEST_WAIT}. Do not guess what is in the file."
        )


_REFUSAL = (
    "upload_id must be the text upload_id of an answer with upload links, and wait_seconds a number from 0 to "
    f"{LONGEST_WAIT}."
)


def _is_wait(value: object) -> bool:
    """Tell whether this is a number of seconds that a call may wait."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LONGEST_WAIT


def _report(call: Call, token: object, passed: float, wait: float, status: _Status) -> None:
    """Report progress where the client has asked for it: the time that passed, which never stands still."""
    if call.speak is None or not isinstance(token, str | int) or isinstance(token, bool):
        return
    message = "Waiting for the file." if status.state == "waiting" else f"{status.received} bytes received."
    params = {"progressToken": token, "progress": round(passed, 3), "total": wait, "message": message}
    call.speak(encode(dump({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})))


def status_tool(offer: Offer) -> dict[str, Any]:
    """The tool as a client sees it in the list."""
    return own_tool(
        offer.status_tool_name,
        "See what became of an upload",
        (
            f"Tells whether the files of an upload have come for which {offer.tool_name} gave links: state is waiting, "
            "receiving, done (with the upload_handle, name, size and type of each file) or expired. After giving a "
            f"person the link, call it with wait_seconds {LONGEST_WAIT}, and again while it says waiting or receiving. "
            "Works in every session of yours. Never guess what is in a file that is not done."
        ),
        {
            "upload_id": {
                "type": "string",
                "description": f"The upload_id in the answer of {offer.tool_name}.",
            },
            "wait_seconds": {
                "type": "number",
                "minimum": 0,
                "maximum": LONGEST_WAIT,
                "default": 0,
                "description": "How long to wait for the files at most.",
            },
        },
    )
