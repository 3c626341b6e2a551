"""The views that grants have of the network, of locks between replicas, and of who sits at a browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class DocumentHttp(Protocol):
    """Small requests to authorization servers: bounded in time and size, and no redirect is followed.

    Both raise UpstreamUnreachable, UpstreamSilent, UpstreamBroken, and ValueError for what is no URL.
    """

    async def get(self, url: str, headers: dict[str, str]) -> tuple[int, bytes]:
        """Status and body of a document; the body is read for status 200 only."""

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """Status and body of the answer to ``body``."""


class RenewalLease(Protocol):
    """The right to renew one grant, which one replica at a time has for some seconds."""

    async def take(self) -> bool:
        """Take it if it is free. Raises StoreUnavailable."""

    async def release(self) -> None:
        """Let the next one have it. Raises StoreUnavailable."""


Leases = Callable[[str], RenewalLease]
"""The lease of a name."""
