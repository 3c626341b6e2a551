"""The view that clients have of a file: its URI, its times, its text or bytes, what a result shows of it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from adapter.files.port import FileStore
from adapter.relay.files.file_registry import FileRegistry
from adapter.relay.files.signed_urls import Links
from adapter.rules.files.file_records import FileRecord
from adapter.rules.files.media_types import is_text
from adapter.rules.results.tool_results import Shown
from adapter.wire.handles import artifact_uri


class FileAccess(NamedTuple):
    """The files of scopes as stages reach them: their records, their bytes and the links to them."""

    registry: FileRegistry
    store: FileStore
    links: Links


@dataclass(frozen=True, slots=True)
class ArtifactShowing:
    """The parts of an artifact that a result shows.

    ``exposed``: it is listed as a resource. ``downloads``: the result has a link to it. ``raw_limit``: the size in
    bytes up to which the result holds the file itself; None: it never does. ``scheme`` begins its URI.
    """

    exposed: bool = True
    downloads: bool = False
    raw_limit: int | None = None
    scheme: str = "artifact://"


class ArtifactView:
    """Artifacts as clients see them."""

    def __init__(self, files: FileAccess, showing: ArtifactShowing) -> None:
        self._registry = files.registry
        self._links = files.links if showing.downloads else None
        self._scheme = showing.scheme
        self._raw_limit = showing.raw_limit

    def uri(self, record: FileRecord) -> str:
        return artifact_uri(record.scope, record.id, record.filename, self._scheme)

    async def shown(self, record: FileRecord, base: str) -> Shown:
        """``base`` is the URL under which the client knows the adapter. Raises FileGone, StorageFailed."""
        expires = self._registry.expires_at(record)
        raw = None
        if self._raw_limit is not None and record.content.size <= self._raw_limit:
            raw = await content(self._registry, record)
        return Shown(
            uri=self.uri(record),
            id=record.id,
            filename=record.filename,
            media_type=record.content.media_type,
            size=record.content.size,
            sha256=record.content.sha256,
            expires_at=None if expires is None else iso(expires),
            exposed=record.exposed,
            download_url=None if self._links is None else self._links.download(base, record),
            raw=raw,
        )


async def content(registry: FileRegistry, record: FileRecord) -> str | bytes:
    """The file's text where its type and its bytes are text, else its bytes. Raises FileGone, StorageFailed."""
    file = await registry.read(record)
    try:
        data = await file.whole()
    finally:
        file.close()
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
