"""The metadata that an upstream publishes of itself, fetched for clients of its mount."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from adapter.errors import AdapterError, UpstreamBroken
from adapter.oauth.http import IssuerHttp
from adapter.rules.access.authorization_servers import resource_metadata_urls
from adapter.rules.access.republished_metadata import republished

FRESH = 300.0
"""Seconds for which a document is used without asking again."""

PAUSE = 5.0
"""Seconds after a failure in which the upstream is not asked again."""


class UpstreamMetadata:
    """The metadata of the upstream at ``url`` as those of ``resource``. ``clock`` gives seconds that never go back.

    ``told`` are other addresses that the upstream may name as its own.
    Only the well-known places of the upstream's own host are asked: what a challenge names may be anybody's.
    """

    def __init__(
        self,
        url: str,
        resource: str,
        http: IssuerHttp,
        clock: Callable[[], float],
        told: Sequence[str] = (),
    ) -> None:
        self._url = url
        self._resource = resource
        self._told = told
        self._http = http
        self._clock = clock
        self._lock = asyncio.Lock()
        self._until = float("-inf")
        self._found: bytes | None = None
        self._failure: UpstreamBroken | None = None

    def __repr__(self) -> str:
        return f"<UpstreamMetadata of {self._resource!r}>"

    async def document(self) -> bytes:
        """The document; of an upstream that fails now the last one. Raises UpstreamBroken where there never was one."""
        if self._clock() >= self._until:
            async with self._lock:
                if self._clock() >= self._until:
                    await self._fetch()
        if self._found is None:
            assert self._failure is not None, "the first fetch finds one of both"
            raise UpstreamBroken(str(self._failure))
        return self._found

    async def _fetch(self) -> None:
        try:
            self._found = await self._ask()
        except (AdapterError, ValueError) as error:
            self._until = self._clock() + PAUSE
            why = str(error).rstrip(".")
            self._failure = UpstreamBroken(
                f"The upstream server's protected-resource metadata are missing: {why}."
            )
        else:
            self._until = self._clock() + FRESH

    async def _ask(self) -> bytes:
        reasons: list[str] = []
        for place in resource_metadata_urls(self._url, self._resource, *self._told):
            status, document = await self._http.get(place)
            if status != 200:
                reasons.append(f"HTTP status {status}")
                continue
            try:
                return republished(document, self._url, self._resource, *self._told)
            except ValueError as error:
                reasons.append(str(error))
        raise ValueError(reasons[0])
