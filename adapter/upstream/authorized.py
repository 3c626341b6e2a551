"""An Upstream whose requests carry credentials: those of their callers, or of the adapter for them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

from adapter.errors import AdapterError, Unauthorized, UpstreamRefused
from adapter.rules.access.headers import SharedFields
from adapter.rules.access.principals import Caller
from adapter.rules.access.resources import renamed
from adapter.upstream.port import (
    Headers,
    RewrittenReply,
    Upstream,
    UpstreamReply,
    UpstreamRequest,
    WholeReply,
    challenge_of,
)

FIELD = "Authorization"

_ERROR = re.compile(r'\berror="?([A-Za-z0-9_.-]{1,64})')


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


Refusal = Callable[[UpstreamRequest, UpstreamReply], UpstreamReply]
"""Is given a client's request and an answer of status 401 or 403 to it. Returns the answer for the client, or raises an
AdapterError in its place.
"""


async def _nothing() -> None:
    """Leave what has nothing to release."""


@dataclass(eq=False, slots=True)
class AuthorizedUpstream:
    """Stands before ``upstream`` and gives each request the credential of its caller.

    A request that is answered with 401 has not run: it is sent once more, if the credentials have another value by
    then. ``refusal`` decides what a client is told after that. A request without a client (its caller has no fields)
    is sent without a credential where none is to be had, and its answer is returned as it is: a probe learns from a
    401 that the server is there. ``release`` is awaited when the upstream is closed.
    """

    upstream: Upstream
    credentials: UpstreamCredentials
    refusal: Refusal
    release: Callable[[], Awaitable[None]] = _nothing

    def __repr__(self) -> str:
        return f"<AuthorizedUpstream {self.upstream!r}>"

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        """See Upstream. Also raises what the credentials raise, and the refusal."""
        value = await self._value(request.caller)
        reply = await self._sent(_with(request, value), read_timeout)
        if reply.status == 401:
            reply = await self._once_more(request, read_timeout, value, reply)
        if reply.status not in (401, 403) or not request.caller.fields:
            return reply
        return self.refusal(request, reply)

    async def close(self) -> None:
        """See Upstream."""
        await self.release()
        await self.upstream.close()

    async def _value(self, caller: Caller) -> str | None:
        try:
            return await self.credentials.authorization(caller)
        except AdapterError:
            if caller.fields:
                raise
            return None

    async def _once_more(
        self, request: UpstreamRequest, read_timeout: float | None, value: str | None, reply: UpstreamReply
    ) -> UpstreamReply:
        """The answer to the request with a renewed credential; ``reply`` where there is none."""
        try:
            if not await self.credentials.refused(request.caller, value, challenge_of(reply)):
                return reply
            renewed = await self._value(request.caller)
        except BaseException:
            reply.abort()
            raise
        if renewed == value:
            return reply
        reply.abort()
        return await self._sent(_with(request, renewed), read_timeout)

    async def _sent(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        try:
            return await self.upstream.send(request, read_timeout)
        except UpstreamRefused as refused:
            # Of a message that a server over SSE did not accept nothing else is left.
            return WholeReply(401, (), str(refused).encode())


def refusal_by(server: str) -> Refusal:
    """The refusal for credentials of the adapter's own. It raises UpstreamRefused.

    An upstream's 401 must not look like the adapter's: a client would throw away the token that it has for the
    adapter, or sign in once more. The same holds for a 403 with a challenge; one without is an answer like any other.
    """

    def refuse(_: UpstreamRequest, reply: UpstreamReply) -> UpstreamReply:
        challenge = challenge_of(reply)
        if reply.status == 403 and challenge is None:
            return reply
        reply.abort()
        # The rest of a challenge may be anything; the error is a word that the RFC defines.
        error = _ERROR.search(challenge or "")
        why = f"HTTP status {reply.status}, {error[1]}" if error else f"HTTP status {reply.status}"
        raise UpstreamRefused(
            f"The upstream server {server} refused the credentials that the adapter sent it ({why})."
        )

    return refuse


def passed_on(request: UpstreamRequest, reply: UpstreamReply) -> UpstreamReply:
    """The refusal for credentials of the client's own: the client has to know what the upstream says.

    Raises Unauthorized for a 401 to a request that the adapter makes on the way to the client's.
    """
    if request.listens or reply.status != 401:
        return reply
    reply.abort()
    error = Unauthorized("The upstream server refused the credentials of this request.")
    error.challenge = challenge_of(reply) or "Bearer"
    raise error


def challenged_by(metadata_url: str) -> Refusal:
    """As ``passed_on``, with the metadata at this URL named in place of the upstream's."""

    def rename(request: UpstreamRequest, reply: UpstreamReply) -> UpstreamReply:
        challenge = challenge_of(reply)
        if reply.status == 403 and challenge is None:
            return reply
        return passed_on(request, _challenged(reply, renamed(challenge, metadata_url)))

    return rename


def _challenged(reply: UpstreamReply, challenge: str) -> UpstreamReply:
    """The reply with this challenge and no other."""
    fields = [field for field in reply.headers if field[0].lower() != "www-authenticate"]
    return RewrittenReply(reply, [*fields, ("WWW-Authenticate", challenge)])


def _with(request: UpstreamRequest, value: str | None) -> UpstreamRequest:
    """The same request with this credential, and no other."""
    return replace(request, headers=_authorized(request.headers, value))


def _authorized(headers: Headers, value: str | None) -> Headers:
    """The fields with the credential; shared ones are added to once for each head and credential."""
    if value is None or type(headers) is not SharedFields:
        plain = [field for field in headers if field[0].lower() != "authorization"]
        return plain if value is None else [*plain, (FIELD, value)]
    known: tuple[str, SharedFields] | None = headers.derived.get(_authorized)
    if known is None or known[0] != value:
        known = headers.derived[_authorized] = value, _shared(headers, value)
    return known[1]


def _shared(headers: SharedFields, value: str) -> SharedFields:
    if any(name.lower() == "authorization" for name, _ in headers):
        headers = SharedFields(field for field in headers if field[0].lower() != "authorization")
    return headers.followed_by((FIELD, value))
