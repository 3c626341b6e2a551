"""Files as stages reach them, and the view that clients have of one: its times, its text or bytes."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from adapter.files.port import FileStore
from adapter.relay.files.file_registry import FileRegistry
from adapter.relay.files.signed_urls import Links
from adapter.rules.files.file_records import FileRecord
from adapter.rules.files.media_types import is_text


class FileAccess(NamedTuple):
    """The files of scopes as stages reach them: their records, their bytes and the links to them."""

    registry: FileRegistry
    store: FileStore
    links: Links


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
