"""The servers over HTTP+SSE, made of what the settings declare."""

from __future__ import annotations

from structlog.typing import FilteringBoundLogger

from adapter.settings.root import Settings
from adapter.settings.servers.server import ServerSettings
from adapter.upstream.http import HttpUpstream
from adapter.upstream.local.upstream import LocalUpstream
from adapter.upstream.sse.server import SseServer
from adapter.upstream.sse.stream import SseAddress, SseTerms


def sse_upstream(
    http: HttpUpstream, settings: Settings, entry: ServerSettings, log: FilteringBoundLogger
) -> LocalUpstream[SseServer]:
    """The upstream of one entry of ``servers``, over the connections of ``http``."""
    url, core = entry.upstream.url, settings.core
    assert url is not None, "settings refuse an sse upstream without a url"
    terms = SseTerms(core.upstream.max_answer_bytes, core.upstream_request_timeout_seconds)
    server = SseServer(SseAddress(http, url), terms, log.bind(server=entry.id), core.upstream.max_streams)
    return LocalUpstream(server)
