"""The last exchanges as the console shows them: a list, or a stream of events that goes on."""

from __future__ import annotations

import asyncio

from adapter.edge.console.access import Viewer
from adapter.edge.http.request import Request
from adapter.relay.http_api.recent_exchanges import News, Recent
from adapter.wire.envelope import dump

HEARTBEAT = 15.0
"""Seconds after which a stream without news says that it is still there."""

PACE = 0.05
"""Seconds between two pieces of a stream, so that many exchanges wake nobody for each of them."""

EVENT_STREAM = "text/event-stream"

_STREAM_FIELDS = [
    ("Content-Type", EVENT_STREAM),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    # nginx would keep events back until there are enough of them.
    ("X-Accel-Buffering", "no"),
]


def wants_stream(request: Request) -> bool:
    """Tell whether the request asks for events, and not for an answer that ends."""
    accept = request.headers.get("Accept", "").lower()
    return request.method == "GET" and EVENT_STREAM in accept and "application/json" not in accept


async def stream(
    request: Request,
    recent: Recent,
    viewer: Viewer,
    extra: list[tuple[str, str]],
    heartbeat: float = HEARTBEAT,
) -> None:
    """Tell of exchanges as they end, until the client goes or the adapter stops. Raises LimitReached, ClientGone.

    Events are ``exchange`` with one exchange as data, and ``lost`` with the number of those that a slow client missed.
    """
    watcher = recent.subscribe(viewer.whose)
    try:
        request.reply.begin(200, [*_STREAM_FIELDS, *extra], None)
        await request.reply.write(b": exchanges\n\n")
        while (news := await watcher.next_news(heartbeat)) is not None:
            await request.reply.write(_events(news))
            if news.exchanges:
                await asyncio.sleep(PACE)
        request.reply.end()
    finally:
        recent.unsubscribe(watcher)


def _events(news: News) -> bytes:
    events = [b'event: lost\ndata: {"count":%d}\n\n' % news.lost] if news.lost else []
    events += [b"event: exchange\ndata: %s\n\n" % dump(exchange.shown()) for exchange in news.exchanges]
    return b"".join(events) or b": still here\n\n"
