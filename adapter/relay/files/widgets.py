"""Widgets inside the chat, for clients that show such (MCP Apps): the upload page, and what tools wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import cached_property

from adapter.errors import AdapterError
from adapter.relay.files.artifact_resources import read_result
from adapter.relay.replies import LARGE
from adapter.relay.sessions.session_map import Sessions
from adapter.relay.stages import Call, Stage
from adapter.rules.calls.rounds import CAPABILITIES, member_of
from adapter.rules.files.mcp_apps import shows_widgets, widget_contents, with_widgets
from adapter.rules.tools.lists import PRIVATE
from adapter.wire.envelope import parse
from adapter.wire.spans import edit

LARGEST = 4 << 20
"""Bytes of a page of tools above which no widget is named: to look for their tools would hold up everybody else."""


class WidgetList(Stage):
    """The stage of ``tools/list`` in which tools name their ``widgets`` to clients that announced the extension."""

    def __init__(self, widgets: Mapping[str, str], sessions: Sessions) -> None:
        self._widgets = widgets
        self._sessions = sessions

    async def answer(self, call: Call, response: bytes) -> bytes:
        if len(response) > LARGEST or not shows_widgets(await self._capabilities(call)):
            return response
        if len(response) > LARGE:
            return await asyncio.to_thread(self._named, response, modern=call.modern)
        return self._named(response, modern=call.modern)

    def _named(self, response: bytes, *, modern: bool) -> bytes:
        named = with_widgets(response, parse(response), self._widgets)
        # Who announced nothing gets another list.
        return edit(named, [PRIVATE]) if modern and named is not response else named

    async def _capabilities(self, call: Call) -> object:
        """The capabilities of the client: a legacy one has told them when its session began."""
        if call.modern:
            return member_of(call.envelope.body, CAPABILITIES)
        session = None if call.origin.session is None else self._sessions.known(call.origin.session)
        if session is None:
            return None
        try:
            _, record = await self._sessions.record(session)
        except AdapterError:
            # The session is over, or the store fails: a tool without a widget does for everybody.
            return None
        return member_of(record.handshake.initialize, ("params", "capabilities"))


class WidgetRead(Stage):
    """The stage of ``resources/read`` for one widget; ``html`` makes it, when it is first asked for.

    Hosts keep it before any call, so nothing of a caller is in it.
    """

    def __init__(self, uri: str, html: Callable[[], str]) -> None:
        self._uri = uri
        self._make = html

    @cached_property
    def _html(self) -> str:
        return self._make()

    async def ask(self, call: Call) -> bytes | None:
        return read_result(call, [widget_contents(self._uri, self._html, call.origin.base)])
