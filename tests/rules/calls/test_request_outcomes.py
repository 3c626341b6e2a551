"""Outcomes of requests, as their answers tell them."""

from __future__ import annotations

import asyncio
from itertools import product
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import InternalError, LimitReached
from adapter.rules.calls.request_outcomes import (
    ACCEPTED,
    CLIENT_GONE,
    LINES_LOOKED_INTO,
    LOOKED_INTO,
    MINUTES,
    OK,
    TOOL_ERROR,
    UNANSWERED,
    AnswerReader,
    MinuteCount,
    MinuteCounts,
    RequestOutcome,
    combined,
    data_of_events,
    decoded,
    hour,
    is_success,
    outcome_of_error,
    outcome_of_status,
    responses_in,
)
from adapter.wire.sse import encode


def message(**members: Any) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": 1, **members})


UNKNOWN_TOOL, ODD = RequestOutcome("rpc_error", -32602), RequestOutcome("rpc_error", None)
FINE, FAILED = message(result={}), message(error={"code": -32602, "message": "no"})


def outcome_in(data: bytes | None, *, exact: bool = False) -> RequestOutcome | None:
    return combined(each.outcome for each in responses_in(data, exact=exact))


def read(*pieces: bytes, status: int = 200, streams: bool = False, exact: bool = False) -> AnswerReader:
    """A reader that has seen this answer, to its end."""
    reader = AnswerReader(status, streams=streams, exact=exact)
    for piece in pieces:
        reader.look(piece)
    reader.end()
    return reader


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    ("data", "outcome"),
    [
        (message(result={"content": []}), OK),
        (message(result=None), OK),
        (message(result={"content": [], "isError": False}), OK),
        (message(result={"isError": "yes", "error": 1}), OK),
        (message(result={"content": [], "isError": True}), TOOL_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError" :\n true}}', TOOL_ERROR),
        (b'{"id":1,"result":{"isError":false,"isError":true}}', TOOL_ERROR),
        (b'{"id":1,"result":{"\\u0069sErr\\u006Fr":true}}', TOOL_ERROR),
        (b'{"id":1,"r\\u0065sult":{}}', OK),
        (b'{"id":1,"err\\u006fr":{"code":-32602}}', UNKNOWN_TOOL),
        (b'{"id":1,"error":null,"error":false}', ODD),
        (message(result={"structuredContent": {"isError": True, "error": {}}}), OK),
        (message(result={"text": '"error" "isError": true'}), OK),
        (FAILED, UNKNOWN_TOOL),
        (message(error={"code": 4711, "message": "?"}), RequestOutcome("rpc_error", 4711)),
        (message(error="?"), ODD),
        (message(error={"code": "x" * 9999}), ODD),
        (FAILED.replace(b"-32602", b"1e3"), ODD),
        (FAILED.replace(b"-32602", b"9" * 12), ODD),
        (b'{"jsonrpc":"2.0","id":1,"error":null,"result":{}}', OK),
        (b"[" + FINE + b"," + FAILED + b"]", UNKNOWN_TOOL),
        (b"[" + message(method="x", params={"error": 1}) + b"," + FAILED + b"]", UNKNOWN_TOOL),
        (message(method="notifications/progress"), None),
        (message(method="notifications/message", params={"error": 1}), None),
        (message(method="x", error=[]), None),
        (b'{"error": ', None),
        (b'["error"', None),
        (b'7 "error"', None),
        (b'"error"', None),
        (b"", None),
        (b"x" * (LOOKED_INTO + 1), ACCEPTED),
        (None, ACCEPTED),
    ],
)
def test_a_response_tells_its_outcome(
    data: bytes | None, outcome: RequestOutcome | None, exact: bool
) -> None:
    """What is only quoted in a result is none, and a message that is no response has none."""
    assert outcome_in(data, exact=exact) == outcome
    assert not is_success(200, data or b"") or outcome == OK


def test_responses_are_told_apart() -> None:
    """Each by its id, as exact as it was spelled, also those of a batch."""
    (large,) = responses_in(FINE.replace(b":1,", b":12345678901234567890123,"), exact=True)
    assert large.id == 12345678901234567890123
    batch = responses_in(b"[" + FINE + b"," + FAILED.replace(b":1,", b":2,") + b"]", exact=True)
    assert [(each.id, each.outcome) for each in batch] == [(1, OK), (2, UNKNOWN_TOOL)]


def test_a_failure_is_seen_however_a_body_is_cut() -> None:
    """And after many lines."""
    assert read(b"\n" * LINES_LOOKED_INTO + FAILED).final == UNKNOWN_TOOL
    for cut in range(len(FAILED)):
        assert read(FAILED[:cut], FAILED[cut:]).final == UNKNOWN_TOOL


@pytest.mark.parametrize("separator", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_events_of_too_many_lines_are_not_looked_into(separator: bytes) -> None:
    """However few bytes each line has: to read a megabyte of tiny events would hold up everybody else for a second.

    Who must know the outcome looks into all of them.
    """
    failure = b"data: " + FAILED + separator
    few = (LINES_LOOKED_INTO - 10) // len(separator)
    assert read(separator * few + failure, streams=True).final == UNKNOWN_TOOL
    assert data_of_events(separator * few + failure)
    flood = separator * LINES_LOOKED_INTO + failure
    assert read(flood, streams=True).final == ACCEPTED
    assert read(flood, streams=True, exact=True).final == UNKNOWN_TOOL
    assert data_of_events(flood) == []


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        (b"event: message\ndata:" + message(result={"isError": False}), OK),
        (b': "result"\nid: "result"', UNANSWERED),
        (b'data: {"id":1,"result":{"isError"\n: false\ndata: :true}}', TOOL_ERROR),
        (b'data: {"id":1,"result":{"err\\u006fr":null,"isErr\\u006fr":true}}', TOOL_ERROR),
        (b"data: " + message(method="x") + b"\n\ndata: " + FINE + b"\n\n: ping", OK),
        (b"data: " + FINE + b"\n\ndata: " + FAILED, UNKNOWN_TOOL),
    ],
)
def test_events_tell_what_their_readers_see(events: bytes, outcome: RequestOutcome) -> None:
    """However they are spelled and cut, and whether they are looked at at once or each by itself."""
    for lines in (b"\n", b"\r\n"):
        stream = (events + b"\n\n").replace(b"\n", lines)
        for exact, cut in product((False, True), range(len(stream))):
            reader = read(stream[:cut], stream[cut:], streams=True, exact=exact)
            assert (reader.final, reader.size) == (outcome, len(stream))


def test_a_failure_is_the_outcome_of_all() -> None:
    """Then comes a result; what tells neither is no more than accepted."""
    assert combined([OK, UNKNOWN_TOOL, OK, TOOL_ERROR]) == UNKNOWN_TOOL
    assert combined([ACCEPTED, OK, None]) is OK
    assert combined([None, ACCEPTED]) is ACCEPTED
    assert combined([None]) is combined([]) is None


def test_the_outcome_of_a_whole_answer() -> None:
    """A result is one only where all of the answer was read."""
    assert read(FINE).final is read(encode(FINE), streams=True).final is OK
    assert read(FAILED).final == UNKNOWN_TOOL
    assert read(b"", status=202).final is ACCEPTED
    assert read(FINE + b" " * LOOKED_INTO).final is ACCEPTED
    assert read(encode(b"x" * LOOKED_INTO), streams=True).final is ACCEPTED
    assert read(b"<p>", status=404).final == RequestOutcome("http", 404)
    assert read(b"", status=503, streams=True).final == RequestOutcome("http", 503)


@pytest.mark.parametrize(
    ("events", "final", "cut"),
    [
        ((message(method="x", params={"error": 1}), FINE), OK, OK),
        ((message(method="x"), FAILED), UNKNOWN_TOOL, UNKNOWN_TOOL),
        ((FAILED, message(method="x")), UNKNOWN_TOOL, UNKNOWN_TOOL),
        ((message(method="x"),), UNANSWERED, CLIENT_GONE),
        ((), UNANSWERED, CLIENT_GONE),
    ],
)
def test_a_stream_ends_or_is_left(
    events: tuple[bytes, ...], final: RequestOutcome, cut: RequestOutcome
) -> None:
    """Its response counts in both cases; without one it was deferred, or its client has gone."""
    reader = read(b"".join(map(encode, events)), streams=True)
    assert (reader.final, reader.cut) == (final, cut)
    assert "bytes" in repr(reader)


@given(st.binary(), st.booleans())
def test_anything_may_come(data: bytes, exact: bool) -> None:
    """Nothing is raised, and an outcome holds nothing that a server sent but a number."""
    for found in (outcome_in(b'"error"' + data, exact=exact), read(data, streams=True, exact=exact).final):
        assert found in (None, OK, ACCEPTED, UNANSWERED, TOOL_ERROR) or found[0] == "rpc_error"


def test_errors_and_statuses() -> None:
    """The adapter's own by their classes; whoever cancels a request is its client."""
    assert outcome_of_error(LimitReached()) == RequestOutcome("failed", LimitReached)
    assert outcome_of_error(ValueError()) == RequestOutcome("failed", InternalError)
    assert outcome_of_error(asyncio.CancelledError()) is CLIENT_GONE
    assert outcome_of_status(204) is ACCEPTED
    assert outcome_of_status(404) == RequestOutcome("http", 404)


# --- exchanges counted by the minute: an hour of them, and no more ---------------------------------------------


NOW = 1_000_000 * 60.0


def test_exchanges_are_counted_in_the_minute_in_which_they_ended() -> None:
    """Calls of tools apart from others, and failures of both together."""
    counts = MinuteCounts(NOW)
    counts.count(NOW, is_call=True, failed=False)
    counts.count(NOW + 59, is_call=True, failed=True)
    counts.count(NOW + 60, is_call=False, failed=True)
    assert counts.last(NOW + 60) == [(1_000_000, 2, 0, 1), (1_000_001, 0, 1, 1)]
    assert repr(counts) == "<MinuteCounts of 2 minutes>"


@given(st.lists(st.integers(0, 10_000), max_size=200))
def test_an_hour_is_kept_whatever_comes(minutes: list[int]) -> None:
    """Also where the clock goes back: never more than sixty minutes, and those of the last hour are right."""
    counts = MinuteCounts(0)
    for minute in minutes:
        counts.count(minute * 60, is_call=True, failed=False)
        assert len(counts.last(minute * 60)) <= MINUTES
    now = max(minutes, default=0)
    expected = {minute: minutes.count(minute) for minute in minutes if now - minute < MINUTES}
    assert sum(each.calls for each in counts.last(now * 60)) <= sum(expected.values())
    if minutes == sorted(minutes):
        assert {each.minute: each.calls for each in counts.last(now * 60)} == expected


def test_counts_of_several_are_added_up_for_each_minute_of_the_hour() -> None:
    """Minutes without anything are there too; those before the hour and after it are not."""
    last = 1_000_000
    counts = [
        MinuteCount(minute, 1, 2, 3) for minute in (last, last, last - MINUTES + 1, last - MINUTES, last + 1)
    ]
    told = hour(counts, NOW)
    assert len(told) == MINUTES
    assert told[-1] == (last, 2, 4, 6) and told[0] == (last - MINUTES + 1, 1, 2, 3)
    assert told[1] == (last - MINUTES + 2, 0, 0, 0)


def test_what_others_wrote_is_read_back() -> None:
    """And nothing else is."""
    counts = [MinuteCount(5, 1, 2, 3)]
    assert decoded([list(each) for each in counts]) == counts
    hostile: list[object] = [None, {}, [[1]], [[1, 2, 3, -1]], [[1, 2, 3, True]], [["1", 2, 3, 4]], ["1234"]]
    for each in (*hostile, [[0] * 4] * 61):
        with pytest.raises(ValueError, match="count"):
            decoded(each)
