"""The names of tools that labels may have: those of real tools, as far as there is room for them."""

from __future__ import annotations

from collections.abc import Iterable

from adapter.errors import BadJson
from adapter.rules.calls.request_outcomes import OK, RequestOutcome, data_of_events
from adapter.rules.metrics.catalogue import OTHER
from adapter.wire.envelope import parse

MOST_NAMES = 128
"""Names of one server's tools."""

LONGEST_NAME = 128
"""Characters of a name."""

LONGEST_LIST = 256 << 10
"""Bytes of a list of tools from which names are learned."""


class ToolNames:
    """The names of one server's tools, beginning with those that the settings ``configured``.

    A client may call a tool by any name, so a name counts as one only when its server has listed it, or has answered a
    call of it with a result that is no error.
    """

    def __init__(self, configured: Iterable[str] = ()) -> None:
        self._known: set[str] = set()
        self._unread: tuple[bytes, bool] | None = None
        self._learn(configured)

    def __repr__(self) -> str:
        return f"<ToolNames: {len(self._known)}>"

    def _learn(self, names: Iterable[str]) -> None:
        for name in names:
            if len(self._known) >= MOST_NAMES:
                return
            if 0 < len(name) <= LONGEST_NAME:
                self._known.add(name)

    def listed(self, body: bytes, *, streams: bool) -> None:
        """Keep a list, which is read when a tool is called that is not known."""
        if len(body) <= LONGEST_LIST and len(self._known) < MOST_NAMES:
            self._unread = (body, streams)

    def label(self, name: str | None, outcome: RequestOutcome) -> str:
        """The label of a tool that was called, with that outcome."""
        if name is None:
            return OTHER
        if name not in self._known:
            if outcome == OK:
                self._learn((name,))
            elif self._unread is not None:
                body, streams = self._unread
                self._unread = None
                for data in data_of_events(body) if streams else [body]:
                    self._learn(names_in_list(data))
        return name if name in self._known else OTHER


def names_in_list(response: bytes) -> list[str]:
    """The names of the tools in a response to ``tools/list``; none in anything else."""
    try:
        message = parse(response)
    except BadJson:
        return []
    result = message.get("result") if isinstance(message, dict) else None
    tools = result.get("tools") if isinstance(result, dict) else None
    names = [each.get("name") for each in tools if isinstance(each, dict)] if isinstance(tools, list) else []
    return [name for name in names if isinstance(name, str)]
