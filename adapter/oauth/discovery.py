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
    ServerMetadata,
    read_metadata,
    resource_metadata_urls,
    server_metadata_urls,
)
from adapter.rules.access.resources import republished
from adapter.upstream.outgoing import IssuerHttp

FRESH = 600.0
"""Seconds for which what was found is used without asking again."""

PAUSE = 5.0
"""Seconds after which what could not be had is asked for again."""

RETRY = 30.0
"""The same where there is something older: a server that is silent keeps callers waiting."""

T = TypeVar("T")


@dataclass(eq=False, repr=False, slots=True)
class Refreshed(Generic[T]):
    """A value that ``ask`` gives: used for FRESH seconds, and on where no newer one can be had.

    After a failure nobody is asked for PAUSE seconds, or for RETRY where there is a value. All callers wait for the
    same request, which goes on when they leave. ``clock`` gives seconds that never go back.
    """

    ask: Callable[[], Coroutine[Any, Any, T]]
    clock: Callable[[], float] = time.monotonic
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
            self._until = self.clock() + FRESH
        except (AdapterError, ValueError) as error:
            self._failure = error.with_traceback(None)
            self._until = self.clock() + (PAUSE if self._value is None else RETRY)
        finally:
            self._asking = None


def issuer_metadata(
    http: IssuerHttp, issuer: str, clock: Callable[[], float] = time.monotonic
) -> Refreshed[ServerMetadata]:
    """The metadata of an issuer that settings name; see ``find_metadata``."""
    return Refreshed(partial(find_metadata, http, issuer), clock)


async def find_metadata(http: IssuerHttp, issuer: str, near: str | None = None) -> ServerMetadata:
    """Ask the well-known places of ``issuer`` for its metadata. Raises UpstreamUnreachable, UpstreamSilent and
    UpstreamBroken. ``near``: see ``read_metadata``.
    """
    reasons: list[str] = []
    for url in server_metadata_urls(issuer):
        try:
            document = await http.document(url)
        except UpstreamBroken as error:
            reasons.append(str(error))
            continue
        try:
            return read_metadata(document, issuer, near)
        except ValueError as error:
            # A document that was found tells more than places without one.
            reasons.insert(0, str(error))
    raise UpstreamBroken(f"The issuer's metadata cannot be used: {reasons[0]}")


# --- metadata that an upstream publishes of itself -------------------------------------------------------------


def upstream_metadata(
    url: str, resource: str, http: IssuerHttp, clock: Callable[[], float], told: Sequence[str] = ()
) -> Refreshed[bytes]:
    """The metadata that the upstream at ``url`` publishes of itself, as those of ``resource``.

    ``told`` are other addresses that the upstream may name as its own. Raises UpstreamBroken where there never were
    any.
    """

    async def fetched() -> bytes:
        try:
            return await _republished(url, resource, http, told)
        except (AdapterError, ValueError) as error:
            why = str(error).rstrip(".")
            raise UpstreamBroken(
                f"The upstream server's protected-resource metadata are missing: {why}."
            ) from None

    return Refreshed(fetched, clock)


async def _republished(url: str, resource: str, http: IssuerHttp, told: Sequence[str]) -> bytes:
    reasons: list[str] = []
    # Only the well-known places of its own host are asked: what a challenge names may be anybody's.
    for place in resource_metadata_urls(url, resource, *told):
        status, document = await http.get(place)
        if status != 200:
            reasons.append(f"HTTP status {status}")
            continue
        try:
            return republished(document, url, resource, *told)
        except ValueError as error:
            reasons.append(str(error))
    raise ValueError(reasons[0])
