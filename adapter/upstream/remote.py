"""A server somewhere else, as a program on a person's machine reaches it: signed in, and patient while it is away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from urllib.parse import urljoin

from adapter.errors import AdapterError, Unauthorized, UpstreamUnreachable
from adapter.upstream.client_connection import ServerRefused, sign_in_again
from adapter.upstream.client_sign_in import TerminalSignIn, asks_for_sign_in
from adapter.upstream.http import HttpUpstream
from adapter.upstream.port import Headers, UpstreamReply, UpstreamRequest, challenge_of, header

PATIENCE = 45.0
"""Seconds for which a request waits for a server that is away. Hosts wait a minute for an answer."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 5.0
_SIGN_INS, _REDIRECTS = 2, 3
_PLAIN = (("Accept-Encoding", "identity"),)
_AWAY = (502, 503, 504)
"""Statuses by which a proxy says that the server behind it is away; a request may have run all the same."""


@dataclass(eq=False)
class RemoteServer:
    """An Upstream that signs its person in where it is asked to, and waits while the server is away.

    What may have run is not sent again. ``fields`` are sent with each request; ``say`` tells people what is going on.
    """

    upstream: HttpUpstream
    url: str
    fields: Headers
    sign_in: TerminalSignIn | None
    say: Callable[[str], None]
    patience: float = PATIENCE
    _away: bool = False

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        """See Upstream. Raises Unauthorized where nobody signs in."""
        sign_ins = redirects = 0
        until = asyncio.get_running_loop().time() + self.patience
        pause = _FIRST_PAUSE
        while True:
            token = await self.sign_in.token() if self.sign_in is not None else None
            try:
                reply = await self.upstream.send(self._with(request, token), read_timeout)
                if reply.status not in _AWAY or not request.repeatable():
                    self._here()
                    if self._asks_for_sign_in(reply) and sign_ins < _SIGN_INS:
                        sign_ins += 1
                        await self._sign_in(reply, token, sign_ins)
                    elif not self._follows(reply) or redirects == _REDIRECTS:
                        return reply
                    else:
                        redirects += 1
                    continue
                reply.abort()
                raise UpstreamUnreachable(f"The server is away: HTTP status {reply.status}.")
            except UpstreamUnreachable as failure:
                self._gone(failure)
                if asyncio.get_running_loop().time() + pause > until:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def close(self) -> None:
        """See Upstream."""
        await self.upstream.close()

    def _with(self, request: UpstreamRequest, token: str | None) -> UpstreamRequest:
        own = [] if token is None else [("Authorization", f"Bearer {token}")]
        return replace(request, headers=[*request.headers, *_PLAIN, *self.fields, *own])

    def _asks_for_sign_in(self, reply: UpstreamReply) -> bool:
        return self.sign_in is not None and asks_for_sign_in(reply.status, challenge_of(reply) or "")

    async def _sign_in(self, reply: UpstreamReply, token: str | None, attempt: int) -> None:
        assert self.sign_in is not None, "asked before"
        status, challenge = reply.status, challenge_of(reply) or ""
        reply.abort()
        try:
            # A renewed token that is refused as well is not renewed once more.
            await sign_in_again(self.sign_in, self.url, status, challenge, token, renews=attempt == 1)
        except ServerRefused as refused:
            self.say(str(refused))
            raise Unauthorized(str(refused)) from None

    def _follows(self, reply: UpstreamReply) -> bool:
        """Turn to another path of the same server, where it says so."""
        target = header(reply.headers, "location")
        if reply.status not in (307, 308) or target is None:
            return False
        with contextlib.suppress(ValueError):
            self.upstream = self.upstream.toward(urljoin(self.url, target))
            reply.abort()
            return True
        return False

    def _gone(self, failure: AdapterError) -> None:
        if not self._away:
            self._away = True
            self.say(f"{self.url} is away: {failure}")

    def _here(self) -> None:
        if self._away:
            self._away = False
            self.say(f"{self.url} is back.")
