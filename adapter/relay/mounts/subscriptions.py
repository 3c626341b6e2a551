"""Subscriptions at a merged mount (MCP 2026-07-28): one stream, which carries those of all its servers.

What every caller hears alike of a server is asked for in the adapter's own name, as lists are: a program over stdio
needs no process for each who only listens. Each server knows the subscription by the client's own id, so no id has to
be told apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from adapter.relay.call.get_streams import ACKNOWLEDGED
from adapter.relay.exchange import ClientRequest, ClientResponse, Exchanges
from adapter.relay.mounts.asks import in_own_name, message_to
from adapter.relay.mounts.events import MemberEvents
from adapter.relay.mounts.lists import MountLists
from adapter.relay.mounts.streams import (
    STREAM_FIELDS,
    WAITING,
    carry,
    last_words,
    list_changed,
)
from adapter.relay.server import Server
from adapter.rules.access.visible_lists import ListShape
from adapter.rules.eras.modern_results import MOST_URIS
from adapter.rules.mounts.lists import TOLD
from adapter.wire.envelope import Envelope, dump, parse
from adapter.wire.shared_ids import named
from adapter.wire.spans import Drop, Replace, edit
from adapter.wire.sse import encode

TOO_MANY = f"resourceSubscriptions must be a list of at most {MOST_URIS} URIs."

_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
_URIS = ("params", "notifications", "resourceSubscriptions")


def wanted_of(envelope: Envelope) -> dict[str, Any]:
    """What the client wants to hear. Raises ValueError for what is no such wish."""
    wanted = named(parse(envelope.body), "notifications")
    wanted = wanted if isinstance(wanted, dict) else {}
    uris = wanted.get(_URIS[-1])
    if uris is not None and (
        not isinstance(uris, list) or len(uris) > MOST_URIS or not all(isinstance(uri, str) for uri in uris)
    ):
        raise ValueError(TOO_MANY)
    return wanted


@dataclass(eq=False, repr=False)
class MountSubscription:
    """The stream that answers ``ask``, whose client wants to hear what is ``wanted``."""

    relay: Exchanges
    servers: Mapping[str, Server]
    lists: MountLists
    ask: ClientRequest
    envelope: Envelope
    wanted: Mapping[str, Any]
    _pieces: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(WAITING), init=False)

    async def answer(self) -> ClientResponse:
        """The stream. Raises what finding the owners of its resources raises."""
        uris: dict[str, list[str]] = {}
        for uri in dict.fromkeys(self.wanted.get(_URIS[-1]) or ()):
            owner = await self.lists.owner_of_uri(self.ask, None, uri)
            if owner is not None:
                uris.setdefault(owner.server, []).append(owner.name)
        asks = [self._part(server, uris.get(server.id, ())) for server in self.servers.values()]
        return ClientResponse(
            200,
            STREAM_FIELDS,
            self._body([each for each in asks if each is not None]),
            last_words=last_words,
        )

    def tell(self, shape: ListShape) -> None:
        """Say that a list of the mount is another one now, unless so much waits for the client already."""
        if self._wants(shape) and not self._pieces.full():
            self._pieces.put_nowait(encode(list_changed(shape, {_SUBSCRIPTION: self.envelope.id})))

    def _wants(self, shape: ListShape) -> bool:
        return self.wanted.get(f"{shape.key}ListChanged") is True

    def _part(self, server: Server, uris: Sequence[str]) -> ClientRequest | None:
        """The subscription at one server, with those of the resources that are its own; None where there is nothing."""
        shapes = [shape for shape in TOLD if self._wants(shape)]
        if not (shapes or uris):
            return None
        change = Replace(_URIS, dump(uris)) if uris else Drop(_URIS)
        body = edit(self.envelope.body, [change]) if _URIS[-1] in self.wanted else self.envelope.body
        own = message_to(self.ask, server, None, self.envelope.with_body(body))
        if not uris and self.lists.are_alike(server.id, shapes):
            in_own_name(own)
        return own

    async def _body(self, asks: Sequence[ClientRequest]) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._listen(each)) for each in asks]
        self.lists.listeners.add(self.tell)
        try:
            yield encode(_acknowledged(self.envelope.id, self.wanted))
            while True:
                yield await self._pieces.get()
        finally:
            self.lists.listeners.discard(self.tell)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _listen(self, own: ClientRequest) -> Coroutine[Any, Any, None]:
        uris = partial(self.lists.told_apart, self.ask, None)
        read = partial(MemberEvents, own.server, self.lists.changed, uris, subscription=True)
        return carry(self.relay, self._pieces, own.server, lambda _: _again(own), read)


def _again(own: ClientRequest) -> ClientRequest:
    """The request anew: one that was sent keeps nothing of its message."""
    assert isinstance(own.envelope, Envelope)
    envelope = own.envelope.with_body(own.body)
    return own.with_message(envelope, own.body, own.headers)


def _acknowledged(number: object, wanted: Mapping[str, Any]) -> bytes:
    """The first word on the stream: the mount tells of all that its client wants to hear."""
    params = {"notifications": wanted, "_meta": {_SUBSCRIPTION: number}}
    return dump({"jsonrpc": "2.0", "method": ACKNOWLEDGED, "params": params})
