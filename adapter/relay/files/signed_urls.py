"""URLs of single files, signed and short-lived: for clients that download, and for tools that fetch."""

from __future__ import annotations

import math
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from adapter.errors import CredentialRefused
from adapter.relay.background import nothing
from adapter.relay.files.scopes import kept_secret
from adapter.rules.files.file_records import FileRecord
from adapter.state.port import ABSENT, Conflict, Store, delete_overdue
from adapter.wire.signed_urls import (
    FilePath,
    UploadCredential,
    file_query,
    file_query_valid,
    parameters,
    read_upload_query,
    upload_query,
)

TABLE = "nonces"

DOWNLOADS = "/artifacts"
"""The route of downloads, under which artifacts have their URLs."""

_KEPT = 60.0
"""Seconds that a spent nonce outlives its credential, for replicas whose clocks differ."""

Unspend = Callable[[], Awaitable[None]]
"""Takes back one spending; whoever holds it is the one who spent."""


class UploadQueries(NamedTuple):
    """The queries of two URLs for one upload, each with the Unix time at which it expires: of the URL for machines, and
    of the one that a person opens. The upload that comes first by either of them ends both.
    """

    query: str
    expires: float
    page_query: str
    page_expires: float


@dataclass(eq=False)
class Credentials:
    """Issues and checks signed links. ``clock`` gives Unix time.

    ``configured`` is the secret to sign with; None: one is made and kept in the state store. Links are good for so many
    seconds: to an upload ``ttl``, to that of a person ``page_ttl``, to a file ``file_ttl``. ``route`` is
    ``core.upload_path``. ``open`` comes first.
    """

    store: Store
    configured: bytes | None
    ttl: float
    clock: Callable[[], float]
    page_ttl: float = 900.0
    file_ttl: float = 600.0
    route: str = "/upload"
    on_use: Callable[[str, str, str, str], None] = field(default=nothing, init=False)
    """Is told what is counted (``credential`` or ``nonce``), the server, the operation and its result."""
    is_waited: Callable[[str, str], bool | None] = field(default=nothing, init=False)
    """Tells whether a call that waits for its user goes on to use the link with this signature to a file of a scope.
    """
    _secret: bytes | None = field(default=None, init=False)

    def __repr__(self) -> str:
        return f"<Credentials: good for {self.ttl:g} s>"

    async def open(self) -> None:
        """Read the secret of links, also again. Raises StoreUnavailable."""
        self._secret = self.configured or await kept_secret(self.store, "links", self._secret)

    @property
    def _key(self) -> bytes:
        secret = self.configured or self._secret
        assert secret is not None, "open comes first"
        return secret

    # --- uploads ----------------------------------------------------------------------------------------------

    def issue(self, server: str, scope_id: str, nonce: str | None = None) -> UploadQueries:
        """The queries of the URLs for one upload. ``nonce`` None: a random one."""
        now, nonce = self.clock(), nonce or secrets.token_hex(16)
        machine = UploadCredential(server, scope_id, math.ceil(now + self.ttl), nonce)
        person = UploadCredential(server, scope_id, math.ceil(now + self.page_ttl), nonce, page=True)
        self.on_use("credential", server, "issue", "ok")
        key = self._key
        return UploadQueries(
            upload_query(key, machine), machine.expires, upload_query(key, person), person.expires
        )

    async def check(self, server: str, query: Mapping[str, str]) -> UploadCredential:
        """The credential in an upload URL's query. Raises CredentialRefused, also when it is spent already."""
        credential = read_upload_query(self._key, server, query, self.clock())
        used = credential is not None and await self.store.get(TABLE, credential.nonce) is not None
        self.on_use("credential", server, "validate", "refused" if used or credential is None else "ok")
        if credential is not None:
            self.on_use("nonce", server, "check", "used" if used else "ok")
        if credential is None or used:
            raise CredentialRefused()
        return credential

    def left(self, credential: UploadCredential) -> float:
        """The seconds for which a credential is good still."""
        return credential.expires - self.clock()

    async def is_spent(self, nonce: str) -> bool:
        """Tell whether the credential with this nonce was used. Raises StoreUnavailable."""
        return await self.store.get(TABLE, nonce) is not None

    async def spend(self, credential: UploadCredential) -> Unspend:
        """Burn the credential, on every replica; of several who try one succeeds, and may take it back.

        Raises CredentialRefused, StoreUnavailable.
        """
        # The other link with this nonce may have been issued a moment ago, and lasts longer.
        due = max(credential.expires, math.ceil(self.clock() + max(self.ttl, self.page_ttl))) + _KEPT
        try:
            await self.store.put(TABLE, credential.nonce, b"", expected=ABSENT, due=due)
        except Conflict:
            self.on_use("nonce", credential.server, "spend", "used")
            raise CredentialRefused() from None
        self.on_use("nonce", credential.server, "spend", "ok")

        async def unspend() -> None:
            await self.store.delete(TABLE, credential.nonce)
            self.on_use("nonce", credential.server, "give_back", "ok")

        return unspend

    # --- single files -----------------------------------------------------------------------------------------

    def file_query(self, purpose: str, file: FilePath, expires: float) -> str:
        """The query of a link to one file that is good until ``expires`` (Unix seconds)."""
        return file_query(self._key, purpose, file, math.ceil(expires))

    def check_file(self, purpose: str, file: FilePath, query: Mapping[str, str]) -> None:
        """Raises CredentialRefused unless the query is one of ``file_query`` for just this, in time or waited for."""
        if file_query_valid(self._key, purpose, file, query, self.clock()):
            return
        if not (self.is_genuine(purpose, file, query) and self.is_waited(file[1], query["sig"])):
            raise CredentialRefused()

    def is_genuine(self, purpose: str, file: FilePath, query: Mapping[str, str]) -> bool:
        """Tell whether the query is one of ``file_query`` for just this, whatever the time."""
        return file_query_valid(self._key, purpose, file, query, 0.0)

    def download(self, base: str, record: FileRecord) -> str:
        """The URL where a client downloads an artifact. ``base`` is the URL under which it knows the adapter."""
        return self._url(base + DOWNLOADS, "download", record)

    def delivery(self, base: str, record: FileRecord) -> str:
        """The URL where a tool fetches a file that was handed to it."""
        return self._url(base + self.route, "delivery", record)

    def _url(self, route: str, purpose: str, record: FileRecord) -> str:
        file = (record.server, record.scope, record.id)
        query = self.file_query(purpose, file, self.clock() + self.file_ttl)
        name = quote(record.filename.encode("utf-8", "surrogatepass"), safe="")
        return f"{route}/{'/'.join(file)}/{name}?{query}"

    async def expire(self) -> None:
        """Forget nonces of credentials that have expired anyway. Raises StoreUnavailable."""
        await delete_overdue(self.store, TABLE, self.clock())


def signature_of(link: str) -> str:
    """The signature in a link to a file."""
    return parameters(urlsplit(link).query)["sig"]
