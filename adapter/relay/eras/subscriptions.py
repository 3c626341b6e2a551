"""Subscriptions of modern clients, fed from the stream that a legacy server has of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from adapter.errors import AdapterError
from adapter.relay.eras.legacy_session import Exchange, LegacySession
from adapter.relay.eras.legacy_sessions import OpeningRefused, ServerBridge
from adapter.rules.eras.legacy_server import (
    UPDATED,
    agreed,
    of_subscription,
    subscription_message,
    wanted_methods,
)
from adapter.upstream.local.events import BOUNDS
from adapter.upstream.local.messages import LocalAnswer, refusal
from adapter.upstream.local.port import LocalRequest
from adapter.upstream.local.replies import PendingReply
from adapter.wire.envelope import INVALID_PARAMS
from adapter.wire.eras import Era
from adapter.wire.shared_ids import named


class ListenStream(Exchange):
    """One ``subscriptions/listen``. It ends when the server is heard no more; the client subscribes again then."""

    def __init__(self, request: LocalRequest, bridge: ServerBridge) -> None:
        self.reply = PendingReply(self._left)
        self._bridge = bridge
        self._request = request
        self._session: LegacySession | None = None
        self._methods = frozenset[str]()
        self._uris: list[str] = []
        self._acknowledged = False
        self._task = asyncio.get_running_loop().create_task(self._begin())

    async def _begin(self) -> None:
        request = self._request
        try:
            session = self._session = await self._bridge.legacy.enter(self, request.head.request)
            await session.listen()
            asked = request.params.get("notifications")
            found = agreed(asked if isinstance(asked, dict) else {}, session.capabilities)
            if not session.hears:
                found = {}
            self._methods = wanted_methods(found)
            for uri in found.get("resourceSubscriptions", ()):
                self._uris.append(uri)
                await session.subscribe(uri)
        except OpeningRefused as refused:
            self._end(refused.under(request.id_bytes))
        except AdapterError as error:
            self.reply.fail(error, request.id_bytes)
            self._left()
        except ValueError as error:
            self._end(refusal(request.id_bytes, INVALID_PARAMS, str(error), None, Era.MODERN))
        else:
            self._acknowledged = True
            self.reply.offer(subscription_message(request.id_bytes, found), BOUNDS)

    async def tell(self, message: Mapping[str, Any], data: bytes) -> None:
        """Tell the client what it has subscribed to. Where it reads too slowly the subscription ends."""
        method = message.get("method")
        if not self._acknowledged or method not in self._methods:
            return
        if method == UPDATED and not self._is_about(named(message, "uri")):
            return
        with suppress(ValueError):
            if not self.reply.offer(of_subscription(data, self._request.id_bytes), BOUNDS):
                self.lost()

    def _is_about(self, uri: object) -> bool:
        """Tell whether that is a resource of the subscription, or one below it."""
        return isinstance(uri, str) and any(
            uri == each or uri.startswith(each if each.endswith("/") else f"{each}/") for each in self._uris
        )

    def lost(self) -> None:
        """End: the server is not heard any more."""
        if self._acknowledged:
            self._end(LocalAnswer(subscription_message(self._request.id_bytes, None)))

    stop = lost

    def _end(self, answer: LocalAnswer) -> None:
        self.reply.answer(answer)
        self._left()

    def _left(self) -> None:
        if self._task is not asyncio.current_task():
            self._task.cancel()
        self.reply.end()
        if (session := self._session) is not None:
            self._session = None
            self._bridge.legacy.leave(self, session, partial(session.unsubscribe, self._uris))
