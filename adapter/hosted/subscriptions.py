"""``subscriptions/listen`` of a hosted server (MCP 2026-07-28): streams that hear when its tools change."""

from __future__ import annotations

from typing import Any

from adapter.hosted import answers
from adapter.hosted.streams import EventStream

TOOLS_CHANGED = "notifications/tools/list_changed"


class Subscriptions:
    """The open streams. Each hears first what it will be told of, and everything under its request's id."""

    def __init__(self) -> None:
        self._streams: dict[EventStream, tuple[bytes, Any]] = {}
        self._deaf: set[EventStream] = set()

    def open(self, id_bytes: bytes, number: Any, wanted: dict[str, Any]) -> EventStream:
        """A stream for the request with this id. Only changes of tools can be told of; the rest is left out."""
        stream = EventStream(lambda: self._forget(stream))
        honoured = {"toolsListChanged": True} if wanted.get("toolsListChanged") is True else {}
        self._streams[stream] = (id_bytes, number)
        if not honoured:
            self._deaf.add(stream)
        params = {"notifications": honoured, "_meta": {answers.SUBSCRIPTION_KEY: number}}
        stream.offer(answers.notification("notifications/subscriptions/acknowledged", params))
        return stream

    def tools_changed(self) -> None:
        """Tell all who want to know; a stream that nobody reads ends instead."""
        for stream, (_, number) in list(self._streams.items()):
            if stream in self._deaf:
                continue
            message = answers.notification(TOOLS_CHANGED, {"_meta": {answers.SUBSCRIPTION_KEY: number}})
            if not stream.offer(message):
                self._forget(stream)
                stream.end()

    def close(self) -> None:
        """End every stream with the result that says it was meant."""
        for stream, (id_bytes, number) in list(self._streams.items()):
            self._forget(stream)
            value = {"resultType": "complete", "_meta": {answers.SUBSCRIPTION_KEY: number}}
            stream.end(answers.result(id_bytes, value))

    def _forget(self, stream: EventStream) -> None:
        self._streams.pop(stream, None)
        self._deaf.discard(stream)
