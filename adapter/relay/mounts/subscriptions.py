"""Subscriptions at a merged mount (MCP 2026-07-28): one stream, which carries those of all its servers.

What every caller hears alike of a server is asked for in the adapter's own name, as lists are: a program over stdio
needs no process for each who only listens. Each server knows the subscription by the client's own id, so no id has to
be told apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from adapter.relay.exchange import ClientRequest, ClientResponse, Exchanges
from adapter.relay.mounts.asks import in_own_name, message_to
from adapter.relay.mounts.lists import MountLists
from adapter.relay.mounts.streams import MergedStream
from adapter.relay.server import Server
from adapter.rules.eras.modern_results import subscription_message, uris_in
from adapter.rules.mounts.lists import TOLD
from adapter.wire.envelope import Envelope, dump, parse
from adapter.wire.shared_ids import named
from adapter.wire.spans import Drop, Replace, edit
from adapter.wire.sse import encode

_URIS = ("params", "notifications", "resourceSubscriptions")


def wanted_of(envelope: Envelope) -> dict[str, Any]:
    """What the client wants to hear. Raises ValueError for what is no such wish."""
    wanted = named(parse(envelope.body), "notifications")
    wanted = wanted if isinstance(wanted, dict) else {}
    uris_in(wanted)
    return wanted


async def open_subscription(
    relay: Exchanges,
    lists: MountLists,
    servers: Mapping[str, Server],
    ask: ClientRequest,
    wanted: Mapping[str, Any],
) -> ClientResponse:
    """Answer ``ask``, whose client wants to hear what is ``wanted``. Raises what finding the owners of its resources
    raises.
    """
    envelope = ask.envelope
    assert isinstance(envelope, Envelope)
    uris: dict[str, list[str]] = {}
    for uri in uris_in(wanted):
        owner = await lists.owner_of_uri(ask, None, uri)
        if owner is not None:
            uris.setdefault(owner.server, []).append(owner.name)
    shapes = [shape for shape in TOLD if wanted.get(f"{shape.key}ListChanged") is True]
    stream = MergedStream(relay, lists, ask, wanted=wanted)
    for server in servers.values():
        its = uris.get(server.id)
        if not (shapes or its):
            continue
        change = Replace(_URIS, dump(its)) if its else Drop(_URIS)
        body = edit(envelope.body, [change]) if _URIS[-1] in wanted else envelope.body
        own = message_to(ask, server, None, envelope.with_body(body))
        if not its and lists.are_alike(server.id, shapes):
            in_own_name(own)
        stream.carry(server, partial(_again, own))
    stream.listen()
    return stream.answer(stream.end, encode(subscription_message(envelope.id_bytes, wanted)))


def _again(own: ClientRequest, _: str | None) -> ClientRequest:
    """The request anew: one that was sent keeps nothing of its message."""
    assert isinstance(own.envelope, Envelope)
    envelope = own.envelope.with_body(own.body)
    return own.with_message(envelope, own.body, own.headers)
