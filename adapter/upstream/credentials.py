"""Credentials of the adapter's own, or of its callers, for the requests to one upstream."""

from __future__ import annotations

from typing import Protocol

from adapter.rules.access.principals import Caller


class UpstreamCredentials(Protocol):
    """Gives each request to one upstream the value of its Authorization field."""

    async def authorization(self, caller: Caller) -> str | None:
        """The value for a request of ``caller``; None sends none. Of NOBODY are requests of the adapter's own.

        Raises an AdapterError that tells the caller why there is no credential, and what to do.
        """

    async def refused(self, caller: Caller, value: str | None, challenge: str | None) -> bool:
        """Take note that the upstream answered 401 to ``value``, with ``challenge`` as its WWW-Authenticate.

        True: the request may be sent once more, with another value.
        """
