"""Rounds of a call whose client comes back with answers: what is known of the client, its questions, and its time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from adapter.errors import BadJson
from adapter.rules.calls.rounds import round_key
from adapter.rules.eras.legacy_server import CAPABILITIES_KEY, LEVEL_KEY, severity
from adapter.rules.eras.questions import LegacyQuestion, answered, ways
from adapter.upstream.local.messages import RpcRefused
from adapter.upstream.local.port import LocalRequest, ProgressToken
from adapter.upstream.local.replies import Deadlines
from adapter.wire.envelope import INVALID_PARAMS
from adapter.wire.spans import find


def bound_to(server: str, request: LocalRequest) -> str:
    """The digest of everything that makes a request the next round of a call. Raises RpcRefused."""
    caller, about_ = request.head.caller, [request.envelope.name, request.params.get("arguments")]
    try:
        return round_key(caller.principal, server, request.envelope.method, about_, "")
    except BadJson as error:
        raise RpcRefused(INVALID_PARAMS, str(error)) from None


class Round(NamedTuple):
    """What is known of a client while it waits: the id of its request, the token of its progress, and the ways in which
    it can be asked. ``streams``: it reads notifications; log messages from ``level`` on, None for none.
    """

    id_bytes: bytes
    token: ProgressToken | None
    ways: frozenset[str]
    streams: bool
    level: int | None

    @classmethod
    def of(cls, request: LocalRequest) -> Round:
        meta, level = request.meta, None
        token = meta.get("progressToken")
        if token is not None and (type(token) is not int or not request.head.streams):
            token = request.progress_token
        if LEVEL_KEY in meta:
            level = severity(meta[LEVEL_KEY])
        known = ways(meta.get(CAPABILITIES_KEY))
        return cls(request.id_bytes, token, known, request.head.streams, level)


def answers_in(
    body: bytes, given: Mapping[str, Any], questions: dict[str, LegacyQuestion]
) -> list[tuple[LegacyQuestion, bytes]]:
    """The questions to which a request with that ``body`` has ``given`` answers, with what the server gets. They are
    open no more.
    """
    found = []
    for key in [key for key in questions if key in given]:
        span = find(body, ("params", "inputResponses", key))
        question = questions.pop(key)
        found.append((question, answered(question, b"{}" if span is None else body[slice(*span)])))
    return found


class CallClock:
    """Counts the ``seconds`` that a call may take, but for what its client takes; then ``overdue`` is called. It
    begins at once.
    """

    def __init__(self, deadlines: Deadlines, seconds: float, overdue: Callable[[], None]) -> None:
        self._deadlines = deadlines
        self._left = seconds
        self._overdue = overdue
        self.start()

    def start(self) -> None:
        """Go on."""
        self._began: float | None = self._deadlines.loop.time()
        self._deadlines.set(self._overdue, self._left)

    def stop(self) -> None:
        """Stand still."""
        if self._began is not None:
            self._deadlines.drop(self._overdue)
            self._left -= self._deadlines.loop.time() - self._began
            self._began = None
