"""``subscriptions/listen`` streams (MCP 2026-07-28): the adapter's own artifacts are resources that come and go too."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from adapter.errors import BadJson
from adapter.relay.call.get_streams import noticing
from adapter.relay.notifications import Inbox, Notifications
from adapter.relay.stages import Call
from adapter.rules.files.redaction import Redaction
from adapter.rules.results.tool_results import without_paths
from adapter.wire.envelope import parse
from adapter.wire.spans import Insert, edit
from adapter.wire.sse import encode


class TaskTexts:
    """The stage of ``tasks/get`` and ``tasks/result``, in whose texts no path of the store is to be seen."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction

    async def ask(self, call: Call) -> bytes | None:
        call.withheld = self._redaction
        return None

    async def answer(self, call: Call, response: bytes) -> bytes:  # noqa: ARG002 - a stage
        return without_paths(response, self._redaction)


ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class ResourceSubscription:
    """One stream whose client wants to hear that the list of resources changed.

    The adapter speaks only after the upstream has acknowledged the subscription, which is the first word on a stream.
    """

    def __init__(self, notifications: Notifications, call: Call) -> None:
        self._notifications = notifications
        self._scope = call.scope
        self._inbox = Inbox()
        self._agreed = False
        self._event = encode(
            b'{"jsonrpc":"2.0","method":"notifications/resources/list_changed",'
            b'"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%b}}}' % call.envelope.id_bytes
        )

    def heard(self, data: bytes) -> bytes:
        """A message of the upstream's on this stream, as it shall leave."""
        try:
            message = parse(data)
        except BadJson:
            return data
        if not isinstance(message, dict) or message.get("method") != ACKNOWLEDGED:
            return data
        self._agreed = True
        self._notifications.subscribe(self._scope, self._inbox, self._event)
        if _honours(message):
            return data
        return edit(data, [Insert(("params", "notifications", "resourcesListChanged"), b"true")])

    async def joined(self, stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """The stream with the adapter's own words between its events, none of them before it is agreed to."""
        async with aclosing(stream):
            while not self._agreed and (piece := await anext(stream, b"")):
                yield piece
            async with aclosing(noticing(stream, self._inbox)) as pieces:
                async for piece in pieces:
                    yield piece

    def end(self) -> None:
        """The stream is over. Harmless when said twice."""
        self._notifications.unsubscribe(self._scope, self._inbox)


class SubscriptionStage:
    """The stage of ``subscriptions/listen`` where artifacts are resources."""

    def __init__(self, notifications: Notifications) -> None:
        self._notifications = notifications

    async def ask(self, call: Call) -> bytes | None:
        params = parse(call.request).get("params")
        wanted = params.get("notifications") if isinstance(params, dict) else None
        if isinstance(wanted, dict) and wanted.get("resourcesListChanged") is True:
            call.subscription = subscription = ResourceSubscription(self._notifications, call)
            call.defer(subscription.end)
        return None

    async def answer(self, call: Call, response: bytes) -> bytes:  # noqa: ARG002 - a stage; this one only asks
        return response


def _honours(message: dict[str, Any]) -> bool:
    """True where the upstream tells of changed resources itself, or its words cannot be added to."""
    params = message.get("params")
    agreed = params.get("notifications") if isinstance(params, dict) else None
    return not isinstance(agreed, dict) or agreed.get("resourcesListChanged") is True
