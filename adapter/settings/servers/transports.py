"""The transports of upstreams: for each name that ``upstream.transport`` takes, what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Transport = Literal["streamable_http", "sse", "stdio", "hosted"]


class TransportKind(NamedTuple):
    """``needs`` is the setting of ``upstream`` without which there is nothing to reach; None for tools that run here.

    ``network`` is what OpenTelemetry calls it, empty for what is in this process. ``own_http``: each request is one of
    HTTP, whose headers go along.
    """

    needs: Literal["url", "command"] | None
    network: str
    own_http: bool = False


TRANSPORTS: Mapping[Transport, TransportKind] = {
    "streamable_http": TransportKind("url", "tcp", own_http=True),
    "sse": TransportKind("url", "tcp"),
    "stdio": TransportKind("command", "pipe"),
    "hosted": TransportKind(None, ""),
}
