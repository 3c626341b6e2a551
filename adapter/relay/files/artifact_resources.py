"""Artifacts as MCP resources: listed after the upstream's own, and read without it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from adapter.errors import AdapterError, FileGone
from adapter.relay.files.file_registry import FileRegistry
from adapter.relay.files.signed_urls import Credentials
from adapter.relay.stages import Call, Stage, asked_cursor
from adapter.rules.access.access_rules import NOT_FOUND_LEGACY, NOT_FOUND_MODERN
from adapter.rules.files.file_records import FileKind, FileRecord
from adapter.rules.files.media_types import is_text
from adapter.rules.results.tool_results import rpc_result
from adapter.rules.tools.lists import ended_with, has_no_such_method, next_cursor
from adapter.wire.envelope import INVALID_PARAMS, error_response
from adapter.wire.signed_urls import artifact_uri


class CapabilityStage(Stage):
    """The stage of ``initialize`` and ``server/discover``: ``announce`` edits the capabilities in a response."""

    def __init__(self, announce: Callable[[bytes], bytes]) -> None:
        self._announce = announce

    async def answer(self, call: Call, response: bytes) -> bytes:  # noqa: ARG002 - the same for every call
        return self._announce(response)


PAGE = 100
"""Artifacts on one page of a list."""

CURSOR = "adapter-artifacts:"
"""How cursors of the adapter's own begin; when the artifact came that the page starts behind, and its id, follow."""

TTL_MS = 0
"""How long a modern client may keep what is listed and read here: artifacts come and go at any time."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text the adapter itself offers."""

    uri: str
    name: str
    title: str
    text: str
    media_type: str = "text/markdown"

    def listed(self) -> dict[str, Any]:
        return {"uri": self.uri, "name": self.name, "title": self.title, "mimeType": self.media_type}


_Position = tuple[float, str]
"""The position of an artifact in the list: when it came in Unix seconds, and its id."""


@dataclass(eq=False, repr=False, slots=True)
class ResourceList:
    """The stage of ``resources/list``: the upstream's own resources, then documents, then artifacts."""

    server: str
    registry: FileRegistry
    documents: tuple[Document, ...]
    scheme: str
    exposed: bool = field(kw_only=True)

    async def ask(self, call: Call) -> bytes | None:
        cursor = asked_cursor(call.request)
        if cursor is None or not cursor.startswith(CURSOR):
            return None
        behind = _behind(cursor)
        if behind is None:
            id_bytes = call.envelope.id_bytes
            return error_response(id_bytes, INVALID_PARAMS, "This cursor is not from resources/list.")
        page, rest = await self._page(call, behind)
        return _listed(call, "resources", page, rest)

    async def answer(self, call: Call, response: bytes) -> bytes:
        missing = has_no_such_method(response)
        if not missing and next_cursor(response) is not None:
            return response
        page, rest = await self._page(call, None)
        own = [document.listed() for document in self.documents] + page
        if missing:
            return _listed(call, "resources", own, rest)
        return ended_with(response, "resources", own, rest, modern=call.modern)

    async def _page(self, call: Call, behind: _Position | None) -> tuple[list[dict[str, Any]], str | None]:
        """Artifacts of this server behind that position, and the cursor of what follows."""
        if not self.exposed:
            return [], None
        records = [
            record
            for record in await self.registry.list(call.scope.id, FileKind.ARTIFACT)
            if record.exposed and record.server == self.server
        ]
        records.sort(key=_position)
        if behind is not None:
            # By position, not by the artifact itself: that may have expired since.
            records = [record for record in records if _position(record) > behind]
        last = _position(records[PAGE - 1]) if len(records) > PAGE else None
        rest = None if last is None else f"{CURSOR}{last[0]!r}:{last[1]}"
        return [self._listed(record) for record in records[:PAGE]], rest

    def _listed(self, record: FileRecord) -> dict[str, Any]:
        return {
            "uri": artifact_uri(record.scope, record.id, record.filename, self.scheme),
            "name": record.filename,
            "mimeType": record.content.media_type,
            "size": record.content.size,
            "annotations": {"lastModified": iso(record.created)},
        }


class ResourceTemplates(Stage):
    """The stage of ``resources/templates/list`` where the upstream has no resources of its own."""

    async def answer(self, call: Call, response: bytes) -> bytes:
        # Clients ask for templates wherever there are resources, and the adapter announced its own.
        return _listed(call, "resourceTemplates", [], None) if has_no_such_method(response) else response


@dataclass(eq=False, repr=False)
class ResourceRead:
    """The stage of ``resources/read`` for artifacts and documents. ``limit`` (bytes) is
    ``artifacts.max_resource_bytes``; larger ones are downloaded by ``links``, None where downloads are off.
    """

    registry: FileRegistry
    documents: tuple[Document, ...]
    scheme: str
    _: KW_ONLY
    limit: int
    links: Credentials | None

    def __post_init__(self) -> None:
        self._documents = {document.uri: document for document in self.documents}

    async def ask(self, call: Call) -> bytes | None:
        uri = call.envelope.name or ""
        if not self._is_own(uri):
            return None
        document = self._documents.get(uri)
        if document is not None:
            shown = {"uri": uri, "mimeType": document.media_type, "text": document.text}
            return read_result(call, [shown])
        record = await self.registry.find_artifact(call.scope.id, uri, self.scheme)
        if record is None or not record.exposed:
            return _unknown(call, uri)
        if record.content.size > self.limit:
            return self._too_large(call, record, uri)
        try:
            return await self._contents(call, uri, record)
        except FileGone:
            return _unknown(call, uri)
        except AdapterError as error:
            return _failed(call, error.rpc, str(error), uri)

    async def answer(self, call: Call, response: bytes) -> bytes:
        # Clients were told of resources also where the upstream has none.
        return _unknown(call, call.envelope.name or "") if has_no_such_method(response) else response

    def _is_own(self, uri: str) -> bool:
        """An upstream may have resources of its own under the same scheme."""
        return uri in self._documents or uri.startswith(f"{self.scheme}sessions/")

    async def _contents(self, call: Call, uri: str, record: FileRecord) -> bytes:
        held = await content(self.registry, record)
        # Base64 and JSON of some MiB take long enough to keep everybody else waiting.
        return await asyncio.to_thread(lambda: read_result(call, [_shown(uri, record, held)]))

    def _too_large(self, call: Call, record: FileRecord, uri: str) -> bytes:
        sentence = (
            f"This artifact has {record.content.size} bytes, more than the {self.limit} that "
            "artifacts.max_resource_bytes allows for resources/read."
        )
        if self.links is None:
            sentence += " Downloads are disabled (core.allow_artifacts_download)."
            return _failed(call, INVALID_PARAMS, sentence, uri)
        link = self.links.download(call.origin.base, record)
        return _failed(call, INVALID_PARAMS, f"{sentence} Download it: {link}", uri, download_url=link)


def _shown(uri: str, record: FileRecord, held: str | bytes) -> dict[str, Any]:
    shown = {"uri": uri, "mimeType": record.content.media_type}
    if isinstance(held, str):
        return {**shown, "text": held}
    return {**shown, "blob": base64.b64encode(held).decode("ascii")}


def _position(record: FileRecord) -> _Position:
    return record.created, record.id


def _behind(cursor: str) -> _Position | None:
    """The position that a cursor of ours names, None for a text that only begins like one."""
    created, _, file_id = cursor.removeprefix(CURSOR).partition(":")
    try:
        return float(created), file_id
    except ValueError:
        return None


def _listed(call: Call, key: str, entries: list[dict[str, Any]], cursor: str | None) -> bytes:
    result: dict[str, Any] = {key: entries}
    if cursor is not None:
        result["nextCursor"] = cursor
    return rpc_result(call.envelope.id_bytes, _cacheable(call, result))


def read_result(call: Call, shown: list[dict[str, Any]]) -> bytes:
    """The response to ``resources/read`` with these contents."""
    return rpc_result(call.envelope.id_bytes, _cacheable(call, {"contents": shown}))


def _cacheable(call: Call, result: dict[str, Any]) -> dict[str, Any]:
    if not call.modern:
        return result
    return {"resultType": "complete", **result, "ttlMs": TTL_MS, "cacheScope": "private"}


def _unknown(call: Call, uri: str) -> bytes:
    code = NOT_FOUND_MODERN if call.modern else NOT_FOUND_LEGACY
    return _failed(call, code, "Resource not found: it does not exist or has expired.", uri)


def _failed(call: Call, code: int, message: str, uri: str, **more: str) -> bytes:
    return error_response(call.envelope.id_bytes, code, message, {"uri": uri, **more})


async def content(registry: FileRegistry, record: FileRecord) -> str | bytes:
    """The file's text where its type and its bytes are text, else its bytes. Raises FileGone, StorageFailed."""
    data = await registry.whole(record)
    if is_text(record.content.media_type):
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode("utf-8")
    return data


def iso(seconds: float) -> str:
    """Unix seconds as ISO 8601 in UTC, to the second."""
    return _to_the_second(int(seconds))


@lru_cache(256)
def _to_the_second(seconds: int) -> str:
    # What is told of together mostly expires together.
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
