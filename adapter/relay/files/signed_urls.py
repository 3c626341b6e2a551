"""URLs of single files, signed and short-lived: for clients that download, and for tools that fetch."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote, urlsplit

from adapter.relay.files.upload_credentials import Credentials
from adapter.rules.files.file_records import FileRecord
from adapter.wire.signed_urls import parameters

DOWNLOADS = "/artifacts"
"""The route of downloads, under which artifacts have their URLs."""


class Links:
    """``route`` is ``core.upload_path``, ``ttl`` how long a link is good for in seconds. ``clock`` gives Unix time."""

    def __init__(
        self, credentials: Credentials, *, route: str, ttl: float, clock: Callable[[], float]
    ) -> None:
        self._credentials = credentials
        self._route = route
        self._ttl = ttl
        self._clock = clock

    def download(self, base: str, record: FileRecord) -> str:
        """The URL where a client downloads an artifact. ``base`` is the URL under which it knows the adapter."""
        return self._url(base + DOWNLOADS, "download", record)

    def delivery(self, base: str, record: FileRecord) -> str:
        """The URL where a tool fetches a file that was handed to it."""
        return self._url(base + self._route, "delivery", record)

    def _url(self, route: str, purpose: str, record: FileRecord) -> str:
        place = (record.server, record.scope, record.id)
        query = self._credentials.file_query(purpose, *place, self._clock() + self._ttl)
        name = quote(record.filename.encode("utf-8", "surrogatepass"), safe="")
        return f"{route}/{'/'.join(place)}/{name}?{query}"


def signature_of(link: str) -> str:
    """The signature in a link of ``Links``."""
    return parameters(urlsplit(link).query)["sig"]
