"""The outcome of a request, as its answer tells it. It is decided here alone; metrics, the audit log and traces each
have words of their own for it.

Outcomes are counted by the minute for the last hour. An answer is looked into without parsing where its bytes hold no
sign of an error, as those of most calls.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from adapter.errors import AdapterError, BadJson, InternalError
from adapter.wire.envelope import parse, read_response
from adapter.wire.sse import SseReader

MAY_FAIL = re.compile(rb'rror"(?!(?<="isError")[ \t]*:[ \t]*false|[ \t]*:[ \t]*null)').search
"""Finds the end of the names ``error`` and ``isError``, unless what follows says that nothing failed. In an event
stream a line end is no white space: behind it, a comment may look like a value.
"""

ESCAPED = re.compile(rb"\\u00[4-7]").search
"""Finds a letter that is escaped, as in a name that MAY_FAIL would not find. Nobody writes letters so without need."""

_RESULT = b'"result"'

LOOKED_INTO = 1 << 20
"""Bytes of an answer, or of one event, that are looked into; a larger one counts as accepted."""

LINES_LOOKED_INTO = 8192
"""Line ends among events that are looked into at once: each event takes a hundred times what its bytes would in a
body, and the relay itself reads most streams without looking at each of theirs.
"""


class RequestOutcome(NamedTuple):
    """The end of a request. ``code`` is that of a JSON-RPC error (None for an odd one), a status of HTTP, or the class
    of the adapter's own failure.
    """

    kind: str
    code: int | type[AdapterError] | None = None


OK = RequestOutcome("ok")
TOOL_ERROR = RequestOutcome("tool_error")
ACCEPTED = RequestOutcome("answered")
"""No failure, as far as the answer can be read: it has no body, or one that is compressed or too long."""

CLIENT_GONE = RequestOutcome("client_gone")
UNANSWERED = RequestOutcome("deferred")
"""The stream ended, and its client may ask for the answer on another one."""


def outcome_of_error(error: BaseException) -> RequestOutcome:
    """The outcome of a request that ended with an exception; who cancels it is its client."""
    if not isinstance(error, Exception):
        return CLIENT_GONE
    return RequestOutcome("failed", type(error) if isinstance(error, AdapterError) else InternalError)


def outcome_of_status(status: int) -> RequestOutcome:
    """The outcome of an answer over HTTP that holds no JSON-RPC response."""
    return ACCEPTED if status < 400 else RequestOutcome("http", status)


def combined(outcomes: Iterable[RequestOutcome | None]) -> RequestOutcome | None:
    """The outcome of several messages: a failure among them, else a result; None where no message tells any."""
    told = [each for each in outcomes if each is not None]
    failed = (each for each in told if each != OK and each != ACCEPTED)
    return next(failed, OK if OK in told else ACCEPTED if told else None)


class SeenResponse(NamedTuple):
    """A response in an answer. ``id`` is None where it may be that of any request, or was not looked at."""

    id: str | int | float | None
    outcome: RequestOutcome


def is_success(status: int, body: bytes) -> bool:
    """Tell whether an answer over HTTP is surely a result that tells no failure, without reading it."""
    if status >= 400 or len(body) > LOOKED_INTO or not body.startswith(b"{") or body.find(_RESULT) < 0:
        return False
    return MAY_FAIL(body) is None and ESCAPED(body) is None


def responses_in(data: bytes | None, *, exact: bool = False) -> list[SeenResponse]:
    """The responses that a message, or a batch of them, tells; None is a message that was too long to be kept.

    Unless they are to be ``exact``, most are seen without reading them.
    """
    if data is None or len(data) > LOOKED_INTO:
        return [SeenResponse(None, ACCEPTED)]
    if not exact and MAY_FAIL(data) is None and ESCAPED(data) is None:
        # Not ``in``, which first takes bytes for a number: the error that it swallows costs more than the search.
        return [SeenResponse(None, OK)] if data.find(_RESULT) >= 0 else []
    if data.lstrip()[:1] == b"[":
        return [SeenResponse(each.get("id"), _outcome_of(each)) for each in _responses_of(data)]
    read = read_response(data)
    return [] if read is None else [SeenResponse(read.id, _outcome_of(read.message))]


def _responses_of(batch: bytes) -> Iterator[dict[str, Any]]:
    with contextlib.suppress(BadJson):
        for each in parse(batch):
            if isinstance(each, dict) and "method" not in each and each.keys() & {"result", "error"}:
                yield each


def _outcome_of(message: dict[str, Any]) -> RequestOutcome:
    error = message.get("error")
    if error is not None:
        code = error.get("code") if isinstance(error, dict) else None
        return RequestOutcome("rpc_error", code if type(code) is int and abs(code) < 1 << 31 else None)
    result = message.get("result")
    return TOOL_ERROR if isinstance(result, dict) and result.get("isError") is True else OK


class AnswerReader:
    """Reads along with an answer of that ``status`` over HTTP, which is an event stream where it ``streams``.

    ``outcome`` is what its responses have told so far. ``exact``: each response is told with its id, and no event is
    left out, however many there are.
    """

    __slots__ = ("_between", "_events", "_exact", "_given_up", "_held", "_status", "outcome", "size")

    def __init__(self, status: int, *, streams: bool, exact: bool = False) -> None:
        self._status = status
        self._events = SseReader(LOOKED_INTO, skip=True) if streams else None
        self._exact = exact
        self._between = streams and not exact
        self._given_up = False
        self._held: list[bytes] = []
        self.outcome: RequestOutcome | None = None
        self.size = 0

    def __repr__(self) -> str:
        return f"<AnswerReader: {self.size} bytes, {self.final}>"

    @property
    def streams(self) -> bool:
        """True for an event stream."""
        return self._events is not None

    @property
    def final(self) -> RequestOutcome:
        """The outcome if nothing more comes."""
        if self.outcome is not None:
            return self.outcome
        unanswered = self._events is not None and not self._given_up and self._status < 400
        return UNANSWERED if unanswered else outcome_of_status(self._status)

    @property
    def cut(self) -> RequestOutcome:
        """The outcome if nobody reads on, which may be for an answer that has told it."""
        return self.outcome or (CLIENT_GONE if self._status < 400 else outcome_of_status(self._status))

    def feed(self, chunk: bytes) -> list[bytes | None]:
        """The messages that this piece completes; see ``responses_in``."""
        self.size += len(chunk)
        if self._events is None:
            if self.size <= LOOKED_INTO:
                self._held.append(chunk)
            else:
                self._held.clear()
            return []
        # Once events are left out, nobody knows where the next one begins.
        self._given_up = self._given_up or (not self._exact and _has_many_lines(chunk))
        if self._given_up:
            return []
        return [event.data for event in self._events.feed(chunk) if event.data or event.skipped]

    def rest(self) -> list[bytes]:
        """The message that a body is which has ended and is no event stream."""
        held = b"".join(self._held)
        self._held.clear()
        return [held] if held else []

    def note(self, data: bytes | None) -> list[SeenResponse]:
        """Look into a message."""
        found = responses_in(data, exact=self._exact)
        if len(found) == 1 and self.outcome is None:
            self.outcome = found[0].outcome
        else:
            self.outcome = combined((self.outcome, *(each.outcome for each in found)))
        return found

    def look(self, chunk: bytes) -> None:
        """See a piece pass. One of whole events is not cut into them where nothing in it tells a failure."""
        if (
            self._between
            and chunk.endswith((b"\n\n", b"\r\n\r\n"))
            and len(chunk) <= LOOKED_INTO
            and chunk.count(b"\n") <= LINES_LOOKED_INTO
            and MAY_FAIL(chunk) is None
            and ESCAPED(chunk) is None
            and ((found := chunk.find(_RESULT)) < 0 or chunk.startswith(b"data:", _line_of(chunk, found)))
        ):
            self.size += len(chunk)
            if found >= 0 and (self.outcome is None or self.outcome is ACCEPTED):
                self.outcome = OK
            return
        for data in self.feed(chunk):
            self.note(data)
        events = self._events
        self._between = not (events is None or self._exact or self._given_up or events.inside)

    def end(self) -> RequestOutcome:
        """The outcome of an answer that is complete."""
        for data in self.rest():
            self.note(data)
        return self.final


def _line_of(chunk: bytes, place: int) -> int:
    """Where the line begins that has this place in it."""
    return max(chunk.rfind(b"\n", 0, place), chunk.rfind(b"\r", 0, place)) + 1


def _has_many_lines(chunk: bytes) -> bool:
    return chunk.count(b"\n") + chunk.count(b"\r") > LINES_LOOKED_INTO


def data_of_events(events: bytes) -> list[bytes]:
    """The data of whole events; none of more lines than are looked into."""
    found = [] if _has_many_lines(events) else SseReader(LOOKED_INTO, skip=True).feed(events)
    return [event.data for event in found if event.data]


# --- outcomes by the minute ------------------------------------------------------------------------------------


MINUTES = 60
"""Minutes that are kept, the running one among them."""


class MinuteCount(NamedTuple):
    """The exchanges that ended in one minute: calls of tools, all others, and those of both that failed.

    ``minute`` is Unix time in whole minutes.
    """

    minute: int
    calls: int
    others: int
    failed: int

    def plus(self, more: MinuteCount) -> MinuteCount:
        """The sum of two counts of one minute."""
        return MinuteCount(
            self.minute, self.calls + more.calls, self.others + more.others, self.failed + more.failed
        )


class MinuteCounts:
    """Counts exchanges from ``begun`` (Unix seconds) on; what is older than an hour is forgotten."""

    def __init__(self, begun: float) -> None:
        self.begun = begun
        self._kept: dict[int, list[int]] = {}

    def __repr__(self) -> str:
        return f"<MinuteCounts of {len(self._kept)} minutes>"

    def count(self, at: float, *, is_call: bool, failed: bool) -> None:
        """Count an exchange that ended ``at`` (Unix seconds)."""
        minute = int(at // 60)
        counts = self._kept.get(minute)
        if counts is None:
            counts = self._kept[minute] = [0, 0, 0]
            while len(self._kept) > MINUTES:
                del self._kept[min(self._kept)]
        counts[0 if is_call else 1] += 1
        if failed:
            counts[2] += 1

    def last(self, now: float) -> list[MinuteCount]:
        """The minutes of the last hour in which anything ended, the oldest first."""
        first = int(now // 60) - MINUTES + 1
        return [MinuteCount(at, *self._kept[at]) for at in sorted(self._kept) if 0 <= at - first < MINUTES]


def hour(counts: Iterable[MinuteCount], now: float) -> list[MinuteCount]:
    """The sums of these counts for each minute of the last hour, the oldest first; other minutes are left out."""
    last = int(now // 60)
    sums = {minute: MinuteCount(minute, 0, 0, 0) for minute in range(last - MINUTES + 1, last + 1)}
    for each in counts:
        if (before := sums.get(each.minute)) is not None:
            sums[each.minute] = before.plus(each)
    return list(sums.values())


def decoded(members: object, most: int = MINUTES) -> list[MinuteCount]:
    """Read counts that another process wrote as lists of four numbers. Raises ValueError for anything else."""
    if not isinstance(members, list) or len(members) > most:
        raise ValueError("not counts of an hour")
    return [_decoded(member) for member in members]


def _decoded(member: object) -> MinuteCount:
    if not isinstance(member, list) or len(member) != len(MinuteCount._fields):
        raise ValueError("not a count of a minute")
    if not all(type(number) is int and number >= 0 for number in member):
        raise ValueError("a count of a minute has a member that is no count")
    return MinuteCount(*member)
