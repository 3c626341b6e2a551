"""The helper tools ``<server_id>_get_upload_url`` and ``<server_id>_upload_status``: how a client that speaks only MCP
learns where to upload, and what became of the uploads that it has links for.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from dataclasses import dataclass, field
from typing import Any

import orjson

from adapter.relay.call.call_gate import Cancellations
from adapter.relay.files.artifact_resources import Document, iso
from adapter.relay.files.file_registry import FileRegistry
from adapter.relay.files.upload_offers import IssuedOffer, KnownOffer, UploadOffers
from adapter.relay.stages import Call, Stage, Withdrawn
from adapter.rules.access.principals import Scope
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
from adapter.settings.storage import Uploads
from adapter.wire.envelope import dump, parse, value_at
from adapter.wire.sse import encode

WORKFLOW = "doc://upload_workflow.md"


@dataclass(frozen=True, slots=True)
class Offer:
    """The rules for uploads of one server. ``consumers`` are its tools that take files, with their argument."""

    server: str
    route: str
    settings: Uploads
    consumers: tuple[tuple[str, str], ...]

    @property
    def tool_name(self) -> str:
        return f"{self.server}_get_upload_url"

    @property
    def status_tool_name(self) -> str:
        return f"{self.server}_upload_status"


@dataclass(eq=False, repr=False)
class HelperTool(Stage):
    """The stage that answers calls of the helper tool."""

    offer: Offer
    offers: UploadOffers

    async def ask(self, call: Call) -> bytes | None:
        issued = await self.offers.issue(self.offer.server, call.origin.caller.principal, call.scope)
        shown = self._shown(f"{call.origin.base}{self.offer.route}/{self.offer.server}", call.scope, issued)
        text = orjson.dumps(shown, option=orjson.OPT_INDENT_2).decode()
        return tool_result(call.envelope.id_bytes, text, shown, modern=call.modern)

    def _shown(self, route: str, scope: Scope, issued: IssuedOffer) -> dict[str, Any]:
        offer, links = self.offer, issued.links
        url, page = f"{route}?{links.query}", f"{route}?{links.page_query}"
        ttl = int(self.offers.credentials.ttl)
        tools = ", ".join(f"{tool} ({argument})" for tool, argument in offer.consumers)
        return {
            "server_id": offer.server,
            "tool_name": offer.tool_name,
            "upload_url": url,
            "method": "POST",
            "headers": {"Mcp-Session-Id": scope.id},
            "auth_mode": "signed_upload_credentials",
            "credential_ttl_seconds": ttl,
            "field_name": "file",
            "max_files": offer.settings.max_files,
            "supports_multiple_files": offer.settings.max_files > 1,
            "sha256_required": offer.settings.require_sha256,
            "sha256_field_name": "sha256",
            "sha256_per_file": True,
            "session_id": scope.id,
            "owner": "principal" if scope.session_key is None else "session",
            "expires_at": iso(links.expires),
            "max_file_bytes": offer.settings.max_file_bytes,
            "example_curl": self._curl(url, ("photo.png",)),
            "example_curl_multiple": self._curl(url, ("first.pdf", "second.pdf")),
            "note": (
                "POST the file to upload_url as multipart/form-data in a part named file, then pass the "
                f"upload_handle of the answer to a tool that takes files: {tools}. The URL is good for one upload. "
                "If you cannot run commands, or the upload fails, give the person message_for_person: its link is for "
                f"the same upload. Then call {offer.status_tool_name} with upload_id, which tells the handles. Never "
                "guess what is in a file that you were not given."
            ),
            "integrity_note": (
                "Send one sha256 form field for each file, in the order of the files"
                + (": it is required here." if offer.settings.require_sha256 else ", to verify the upload.")
            ),
            "upload_id": issued.upload_id,
            "open_in_browser": page,
            "page_expires_at": iso(links.page_expires),
            "message_for_person": (
                f"Please open this link within {_spoken(self.offers.credentials.page_ttl)} and choose "
                f"{'your files' if offer.settings.max_files > 1 else 'your file'} there: {page}"
            ),
            "upload": transfer(url, links.expires),
        }

    def _curl(self, url: str, names: tuple[str, ...]) -> str:
        parts = [f"-F 'file=@{name}'" for name in names]
        if self.offer.settings.require_sha256:
            parts += [f"-F \"sha256=$(sha256sum {name} | cut -d' ' -f1)\"" for name in names]
        return " ".join(["curl -sS -X POST", shlex.quote(url), *parts])


def transfer(url: str, expires: float) -> dict[str, Any]:
    """The way of the bytes in the shape of ``FileTransferDescriptor`` of SEP-2631, and nothing else of that proposal.

    It is a draft: github.com/modelcontextprotocol/modelcontextprotocol, pull request 2631, "Upload Negotiation", as it
    stood in November 2026.
    """
    return {
        "transport": "https",
        "method": "POST",
        "url": url,
        "headers": {},
        "multipart": {"fileField": "file", "fields": {}},
        "expiresAt": iso(expires),
    }


def _spoken(seconds: float) -> str:
    """A time as people say it, rounded down."""
    number, unit = (int(seconds // 60), "minute") if seconds >= 60 else (int(seconds), "second")
    return f"{number} {unit}{'' if number == 1 else 's'}"


def definition(offer: Offer) -> dict[str, Any]:
    """The helper tool as a client sees it in the list."""
    tools = ", ".join(tool for tool, _ in offer.consumers)
    return own_tool(
        offer.tool_name,
        "Get an upload URL",
        (
            f"Gives two links for uploading files, for use with {tools}. If you can run commands, send the files to "
            "upload_url with an HTTP POST of multipart/form-data. If you cannot, or that fails, give the person the "
            "link open_in_browser, where they choose the files, and call "
            f"{offer.status_tool_name}. Then pass the upload_handle of a file as the tool's file argument; never guess "
            "what is in a file. "
            f"Files have at most {offer.settings.max_file_bytes} bytes; both links are for one and the same upload."
        ),
        {},
    )


def workflow(offer: Offer) -> Document:
    """The resource that explains to a model how files reach a tool."""
    tools = "\n".join(f"- `{tool}`, argument `{argument}`" for tool, argument in offer.consumers)
    limits = offer.settings
    digest = "required" if limits.require_sha256 else "optional"
    text = f"""\
# Giving files to the tools of {offer.server}

These tools run on another machine and cannot read local paths:

{tools}

1. Call `{offer.tool_name}`. It answers with two links for one upload: `upload_url` for programs, good for a short
   time, and `open_in_browser` for a person, good until `page_expires_at`. Whichever is used first ends the other.
2. If you can run commands, POST the files to `upload_url` as multipart/form-data, each in a part named `file`:
   `curl -F 'file=@photo.png' '<upload_url>'`. At most {limits.max_files} files of {limits.max_file_bytes} bytes each.
   A `sha256` field for each file, in the same order, is {digest}.
   If you cannot run commands, or it failed, show the person `message_for_person`.
3. The answer to the POST has an `upload_handle` for one file, `upload_handles` for several. If a person uploads, call
   `{offer.status_tool_name}` with the `upload_id` and `wait_seconds: 50`, again and again until its `state` is `done`;
   it has the same handles. Pass a handle, exactly as it is, in the tool's argument. The file's content never goes
   through the conversation.

Until then you do not know what is in the file. Never guess it, and never do the work of the tool by yourself: say
that the file has not come.

A handle expires when it is not used. One from `{offer.status_tool_name}` or from the page is good in every session of
yours on this server. An `artifact://` URI from the result of another tool can be passed in its place.
"""
    return Document(WORKFLOW, "upload_workflow.md", "How to upload files", text)


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
