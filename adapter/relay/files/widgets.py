"""Widgets inside the chat, for clients that show such (MCP Apps): the upload page, and what tools wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from adapter.errors import AdapterError
from adapter.relay.files.artifact_resources import read_result
from adapter.relay.replies import LARGE, edited, long_value
from adapter.relay.sessions.session_map import ClientFact, Sessions
from adapter.relay.stages import Call, OccasionalStage, Stage
from adapter.rules.calls.rounds import CAPABILITIES, member_of
from adapter.rules.clients.hosts import shows_widgets, widget_contents, with_widgets
from adapter.rules.tools.lists import PRIVATE
from adapter.wire.envelope import parse
from adapter.wire.spans import edit

LARGEST = 4 << 20
"""Bytes of a page of tools above which no widget is named: to look for their tools would hold up everybody else."""


class WidgetList(OccasionalStage):
    """The stage of ``tools/list`` in which tools name their ``widgets`` to clients that announced the extension."""

    def __init__(self, widgets: Mapping[str, str], sessions: Sessions) -> None:
        self._widgets = widgets
        self._shows = ClientFact(
            sessions,
            lambda request: shows_widgets(member_of(request, CAPABILITIES)),
            lambda initialize: shows_widgets(member_of(initialize, ("params", "capabilities"))),
            unknown=False,
        )

    async def passes(self, call: Call) -> bool:
        return not await self._shows.of(call)

    async def answer(self, call: Call, response: bytes) -> bytes:
        if len(response) > LARGEST or not await self._shows.of(call):
            return response
        try:
            message = parse(response) if len(response) <= LARGE else await long_value(response)
        except AdapterError:
            # Too many values, or odd ones: tools without widgets do for everybody.
            return response
        return await edited(response, partial(self._named, response, message, modern=call.modern))

    def _named(self, response: bytes, message: Any, *, modern: bool) -> bytes:
        named = with_widgets(response, message, self._widgets)
        # Who announced nothing gets another list.
        return edit(named, [PRIVATE]) if modern and named is not response else named


class WidgetRead(Stage):
    """The stage of ``resources/read`` for one widget; ``html`` makes it, when it is first asked for.

    Hosts keep it before any call, so nothing of a caller is in it.
    """

    def __init__(self, uri: str, html: Callable[[str], str]) -> None:
        self._uri = uri
        self._html = cache(html)

    async def ask(self, call: Call) -> bytes | None:
        return read_result(call, [widget_contents(self._uri, self._html(self._uri), call.origin.base)])
