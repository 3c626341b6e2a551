"""Metadata of authorization servers, asked from their well-known places and cached."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from adapter.errors import AdapterError, UpstreamBroken
from adapter.rules.access.authorization_servers import (
    IssuerMetadata,
    read_metadata,
    resource_metadata_urls,
    server_metadata_urls,
)
from adapter.rules.access.resources import republished
from adapter.upstream.outgoing import IssuerHttp

FRESH = 3600.0
"""Seconds for which metadata is used without asking again."""

PAUSE = 2.0
"""Seconds after which metadata that could not be had is asked for again."""

RETRY = 30.0
"""Seconds at least after which newer metadata is asked for again where there is older: an issuer that is silent keeps
callers waiting.
"""

T = TypeVar("T")


@dataclass(eq=False, repr=False, slots=True)
class Refreshed(Generic[T]):
    """A value that ``ask`` gives: used for ``fresh`` seconds, and on where no newer one can be had.

    After a failure nobody is asked for ``pause`` seconds, or for RETRY where there is a value. All callers wait for the
    same request, which goes on when they leave. ``clock`` gives seconds that never go back.
    """

    ask: Callable[[], Coroutine[Any, Any, T]]
    clock: Callable[[], float]
    fresh: float
    pause: float
    _value: T | None = field(default=None, init=False)
    _failure: Exception | None = field(default=None, init=False)
    _until: float = field(default=-math.inf, init=False)
    _asking: asyncio.Task[None] | None = field(default=None, init=False)

    async def get(self) -> T:
        """The value. Raises what ``ask`` raised where there never was one: an AdapterError, or ValueError."""
        if self.clock() >= self._until:
            if self._asking is None:
                self._asking = asyncio.create_task(self._refresh())
            await asyncio.shield(self._asking)
        if self._value is None:
            raise copy(self._failure or UpstreamBroken())
        return self._value

    def outdate(self) -> None:
        """Ask again when the value is wanted next."""
        self._until = -math.inf

    async def _refresh(self) -> None:
        try:
            self._value = await self.ask()
            self._until = self.clock() + self.fresh
        except (AdapterError, ValueError) as error:
            self._failure = error.with_traceback(None)
            pause = self.pause if self._value is None else max(RETRY, self.pause)
            self._until = self.clock() + pause
        finally:
            self._asking = None


class Discovery:
    """Finds the metadata of issuers, which settings name. ``clock`` gives seconds that never go back."""

    def __init__(self, http: IssuerHttp, clock: Callable[[], float] = time.monotonic) -> None:
        self._http = http
        self._clock = clock
        self._found: dict[str, Refreshed[IssuerMetadata]] = {}

    def __repr__(self) -> str:
        return f"<Discovery: {len(self._found)} issuers>"

    async def metadata(self, issuer: str) -> IssuerMetadata:
        """The metadata of ``issuer``; older metadata where no newer can be had.

        Raises UpstreamUnreachable, UpstreamSilent and UpstreamBroken.
        """
        if issuer not in self._found:
            ask = partial(find_metadata, self._http, issuer)
            self._found[issuer] = Refreshed(ask, self._clock, FRESH, PAUSE)
        return await self._found[issuer].get()

    def outdate(self, issuer: str) -> None:
        """Ask again when the metadata is wanted next: an endpoint that it named has failed."""
        if (known := self._found.get(issuer)) is not None:
            known.outdate()


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

    def __post_init__(self) -> None:
        self._document = Refreshed(self._fetched, self.clock, DOCUMENT_FRESH, DOCUMENT_PAUSE)

    def __repr__(self) -> str:
        return f"<UpstreamMetadata of {self.resource!r}>"

    async def document(self) -> bytes:
        """The document; of an upstream that fails now the last one. Raises UpstreamBroken where there never was one."""
        return await self._document.get()

    async def _fetched(self) -> bytes:
        try:
            return await self._ask()
        except (AdapterError, ValueError) as error:
            why = str(error).rstrip(".")
            raise UpstreamBroken(
                f"The upstream server's protected-resource metadata are missing: {why}."
            ) from None

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
