"""Metadata of authorization servers, asked from their well-known places and cached."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from adapter.errors import AdapterError, UpstreamBroken
from adapter.oauth.http import IssuerHttp
from adapter.rules.access.authorization_servers import (
    IssuerMetadata,
    read_metadata,
    resource_metadata_urls,
    server_metadata_urls,
)
from adapter.rules.access.resources import republished

FRESH = 3600.0
"""Seconds for which metadata is used without asking again."""

PAUSE = 30.0
"""Seconds after which metadata that could not be had is asked for again, where there is an older one."""

MOST_ISSUERS = 64
"""Issuers of which metadata is kept."""


class Discovery:
    """Finds the metadata of issuers. ``clock`` gives seconds that never go back."""

    def __init__(self, http: IssuerHttp, clock: Callable[[], float] = time.monotonic) -> None:
        self._http = http
        self._clock = clock
        self._found: OrderedDict[str, tuple[IssuerMetadata, float]] = OrderedDict()
        self._asking: dict[str, asyncio.Future[IssuerMetadata]] = {}

    def __repr__(self) -> str:
        return f"<Discovery: {len(self._found)} issuers>"

    async def metadata(self, issuer: str) -> IssuerMetadata:
        """The metadata of ``issuer``; older metadata where no newer can be had.

        All callers wait for the same requests. Raises UpstreamUnreachable, UpstreamSilent and UpstreamBroken.
        """
        known = self._found.get(issuer)
        if known is not None and self._clock() - known[1] < FRESH:
            return known[0]
        try:
            return await asyncio.shield(self._asked(issuer))
        except AdapterError:
            if known is None:
                raise
            self._found[issuer] = known[0], self._clock() - FRESH + PAUSE
            return known[0]

    def outdate(self, issuer: str) -> None:
        """Ask again when the metadata is wanted next: an endpoint that it named has failed."""
        if (known := self._found.get(issuer)) is not None:
            self._found[issuer] = known[0], -math.inf

    def _asked(self, issuer: str) -> asyncio.Future[IssuerMetadata]:
        if (asking := self._asking.get(issuer)) is None:
            asking = self._asking[issuer] = asyncio.ensure_future(find_metadata(self._http, issuer))
            asking.add_done_callback(lambda done: self._settle(issuer, done))
        return asking

    def _settle(self, issuer: str, done: asyncio.Future[IssuerMetadata]) -> None:
        del self._asking[issuer]
        # Callers may all have left, and nobody else would look at a failure.
        if done.cancelled() or done.exception() is not None:
            return
        self._found[issuer] = done.result(), self._clock()
        self._found.move_to_end(issuer)
        if len(self._found) > MOST_ISSUERS:
            self._found.popitem(last=False)


async def find_metadata(http: IssuerHttp, issuer: str, *, forgiving: bool = False) -> IssuerMetadata:
    """Ask the well-known places of ``issuer`` for its metadata. Raises UpstreamUnreachable, UpstreamSilent and
    UpstreamBroken. ``forgiving``: see ``read_metadata``.
    """
    reasons: list[str] = []
    for url in server_metadata_urls(issuer):
        try:
            document = await http.document(url)
        except UpstreamBroken as error:
            reasons.append(str(error))
            continue
        try:
            return read_metadata(document, issuer, forgiving=forgiving)
        except ValueError as error:
            # A document that was found tells more than places without one.
            reasons.insert(0, str(error))
    raise UpstreamBroken(f"The issuer's metadata cannot be used: {reasons[0]}")


# --- metadata that an upstream publishes of itself -------------------------------------------------------------


DOCUMENT_FRESH = 300.0
"""Seconds for which a document is used without asking again."""

DOCUMENT_PAUSE = 5.0
"""Seconds after a failure in which the upstream is not asked again."""


@dataclass(eq=False)
class UpstreamMetadata:
    """The metadata of the upstream at ``url`` as those of ``resource``. ``clock`` gives seconds that never go back.

    ``told`` are other addresses that the upstream may name as its own.
    Only the well-known places of the upstream's own host are asked: what a challenge names may be anybody's.
    """

    url: str
    resource: str
    http: IssuerHttp
    clock: Callable[[], float]
    told: Sequence[str] = ()
    _found: bytes | None = field(default=None, init=False)
    _failure: UpstreamBroken | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._lock = asyncio.Lock()
        self._until = float("-inf")

    def __repr__(self) -> str:
        return f"<UpstreamMetadata of {self.resource!r}>"

    async def document(self) -> bytes:
        """The document; of an upstream that fails now the last one. Raises UpstreamBroken where there never was one."""
        if self.clock() >= self._until:
            async with self._lock:
                if self.clock() >= self._until:
                    await self._fetch()
        if self._found is None:
            assert self._failure is not None, "the first fetch finds one of both"
            raise UpstreamBroken(str(self._failure))
        return self._found

    async def _fetch(self) -> None:
        try:
            self._found = await self._ask()
        except (AdapterError, ValueError) as error:
            self._until = self.clock() + DOCUMENT_PAUSE
            why = str(error).rstrip(".")
            self._failure = UpstreamBroken(
                f"The upstream server's protected-resource metadata are missing: {why}."
            )
        else:
            self._until = self.clock() + DOCUMENT_FRESH

    async def _ask(self) -> bytes:
        reasons: list[str] = []
        for place in resource_metadata_urls(self.url, self.resource, *self.told):
            status, document = await self.http.get(place)
            if status != 200:
                reasons.append(f"HTTP status {status}")
                continue
            try:
                return republished(document, self.url, self.resource, *self.told)
            except ValueError as error:
                reasons.append(str(error))
        raise ValueError(reasons[0])
