"""The upload page as a widget inside the chat, for clients that show such (MCP Apps)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from adapter.errors import AdapterError
from adapter.relay.files.artifact_resources import read_result
from adapter.relay.sessions.session_map import Sessions
from adapter.relay.stages import Call, Stage
from adapter.rules.calls.rounds import CAPABILITIES, member_of
from adapter.rules.files.mcp_apps import UPLOAD_WIDGET, shows_widgets, widget_contents, with_widget


class WidgetList(Stage):
    """The stage of ``tools/list`` in which ``tool`` names its widget to clients that have announced the extension."""

    def __init__(self, tool: str, sessions: Sessions) -> None:
        self._tool = tool
        self._sessions = sessions

    async def answer(self, call: Call, response: bytes) -> bytes:
        if not shows_widgets(await self._capabilities(call)):
            return response
        return with_widget(response, self._tool, UPLOAD_WIDGET)

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
    """The stage of ``resources/read`` for the widget; ``html`` makes it, when it is first asked for.

    Hosts keep it before any call, so nothing of a caller is in it.
    """

    def __init__(self, html: Callable[[], str]) -> None:
        self._make = html

    @cached_property
    def _html(self) -> str:
        return self._make()

    async def ask(self, call: Call) -> bytes | None:
        return read_result(call, [widget_contents(UPLOAD_WIDGET, self._html, call.origin.base)])
