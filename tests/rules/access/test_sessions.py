"""Sessions: the table, the ids, the record as bytes, and the refusal of a request."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import SessionUnknown
from adapter.rules.access.sessions import (
    TRANSITIONS,
    Event,
    Handshake,
    SessionLimits,
    SessionRecord,
    SessionState,
    SessionTimes,
    UpstreamSession,
    advance,
    decode,
    due,
    encode,
    refusal,
    session_id_from,
    session_key,
    well_formed,
)
from tests.rules.transitions import assert_is_printed

_TABLE = """
          reinitialized  expired_idle  revived  deleted  revoked_by_drift
open      open           idle          -        ended    revoked
idle      -              -             open     ended    revoked
ended     -              -             -        -        -
revoked   -              -             -        ended    -
"""


def test_the_table_is_the_printed_one() -> None:
    """Every pair of a state and an event; a cell that is empty raises."""
    assert_is_printed(_TABLE, SessionState, Event, TRANSITIONS, advance)


# --- ids ---


def test_a_session_id_is_43_url_safe_characters() -> None:
    """256 random bits become an id that fits a header as it is, and that is well formed."""
    session_id = session_id_from(bytes(range(224, 256)))
    assert session_id == "4OHi4-Tl5ufo6err7O3u7_Dx8vP09fb3-Pn6-_z9_v8"
    assert len(session_id) == 43
    assert well_formed(session_id)


def test_fewer_random_bits_are_refused() -> None:
    """Nobody mints a guessable id by accident."""
    with pytest.raises(ValueError, match="32 random bytes"):
        session_id_from(b"short")


@pytest.mark.parametrize("hostile", ["", "a" * 129, "a" * 300, "a b", "a\n", "é", "a\x00", "\x7f", "\udcff"])
def test_an_id_that_is_not_visible_ascii_is_not_well_formed(hostile: str) -> None:
    """A hostile session header is told apart by a question, not by an exception."""
    assert not well_formed(hostile)


@given(st.text())
def test_any_text_has_a_key_that_does_not_hold_it(session_id: str) -> None:
    """The key is hex of fixed length, whatever a client sent for an id."""
    assert len(session_key(session_id)) == 64
    assert int(session_key(session_id), 16) > 0


def test_a_surrogate_escaped_id_has_a_key_too() -> None:
    """Header text that was no UTF-8 is hashed like any other."""
    assert session_key("\udcff") != session_key("\udcfe")


# --- the record ---

OPEN = SessionRecord(
    server="browser",
    principal="alice:0123456789abcdef",
    handshake=Handshake(b'{"jsonrpc": "2.0", "id": 1, "method": "initialize"}'),
    upstream=UpstreamSession("upstream-1", "2025-11-25", "ab" * 32),
    state=SessionState.OPEN,
    times=SessionTimes(1000.0, 2000.0),
)

# Surrogates included: header text may hold them where the bytes were no UTF-8.
_any_text = st.text(st.characters(codec=None))
_any_time = st.floats(allow_nan=False, allow_infinity=False)
_records = st.builds(
    SessionRecord,
    server=_any_text,
    principal=_any_text,
    handshake=st.builds(Handshake, st.binary(), st.none() | st.binary()),
    upstream=st.builds(UpstreamSession, st.none() | _any_text, _any_text, _any_text, st.integers(0, 2**53)),
    state=st.sampled_from(SessionState),
    times=st.builds(SessionTimes, _any_time, _any_time, st.none() | _any_time),
    reason=st.none() | _any_text,
)


@given(_records)
def test_decode_undoes_encode(record: SessionRecord) -> None:
    """Any bytes and any text come back from the store as they went in."""
    assert decode(encode(record)) == record


def test_a_row_of_an_earlier_release_is_read() -> None:
    """Rows that were written before the record had parts are read, and written again byte for byte."""
    row = (
        b'{"format":1,"server":"browser","principal":"alice:0123456789abcdef","upstream_session":"upstream-1",'
        b'"protocol_version":"2025-11-25","initialize":"{\\"id\\":1,\\"method\\":\\"initialize\\"}",'
        b'"initialized":"{\\"method\\":\\"notifications/initialized\\"}","said":"abab","generation":3,'
        b'"state":"revoked","created":1000.0,"last_seen":2000.5,"reason":"The tools changed."}'
    )
    assert decode(row) == SessionRecord(
        "browser",
        "alice:0123456789abcdef",
        Handshake(b'{"id":1,"method":"initialize"}', b'{"method":"notifications/initialized"}'),
        UpstreamSession("upstream-1", "2025-11-25", "abab", 3),
        SessionState.REVOKED,
        SessionTimes(1000.0, 2000.5),
        "The tools changed.",
    )
    assert encode(decode(row)) == row


def test_a_record_reads_like_json_in_the_store() -> None:
    """Ordinary bodies stay readable for whoever looks into the file."""
    assert b"upstream-1" in encode(OPEN)
    assert b'\\"method\\": \\"initialize\\"' in encode(OPEN)


@pytest.mark.parametrize(
    "value", [b"", b"nonsense", b"[]", b"null", b"{}", b'{"format": 2}', b'{"format": 1}', b"\xff"]
)
def test_what_is_no_record_is_a_value_error(value: bytes) -> None:
    """A row of another version, or of nothing at all, raises one kind of exception."""
    with pytest.raises(ValueError):
        decode(value)


# --- due and refused ---


@pytest.mark.parametrize(
    ("state", "idle_ttl", "expected"),
    [
        (SessionState.OPEN, 60.0, 2060.0),
        (SessionState.OPEN, None, None),
        (SessionState.IDLE, 60.0, 2960.0),
        (SessionState.IDLE, None, 2900.0),
        (SessionState.REVOKED, 60.0, 2900.0),
        (SessionState.ENDED, 60.0, 2000.0),
    ],
)
def test_when_the_cleanup_is_due(state: SessionState, idle_ttl: float | None, expected: float | None) -> None:
    """Each state has its time, counted from when the session was last seen."""
    limits = SessionLimits(idle_ttl=idle_ttl, tombstone_ttl=900.0)
    assert due(replace(OPEN, state=state), limits) == expected


UNKNOWN = str(SessionUnknown())


def _refusal(
    record: SessionRecord | None,
    *,
    server: str = "browser",
    principal: str = OPEN.principal,
    now: float = 2001.0,
    allow_revival: bool = True,
) -> str | None:
    """The sentence with which the request is refused."""
    limits = SessionLimits(idle_ttl=60.0, tombstone_ttl=900.0, allow_revival=allow_revival)
    refused = refusal(record, server=server, principal=principal, now=now, limits=limits)
    return None if refused is None else str(refused)


@pytest.mark.parametrize("state", SessionState)
def test_another_principals_session_is_as_unknown_as_none(state: SessionState) -> None:
    """A stolen id, or one of another server, learns nothing: no state, no reason."""
    record = replace(OPEN, state=state, reason="The tools changed.")
    assert (
        _refusal(record, principal="mallory:0")
        == _refusal(record, server="shell")
        == _refusal(None)
        == UNKNOWN
    )


@pytest.mark.parametrize(
    ("state", "reason", "sentence"),
    [
        (SessionState.OPEN, None, None),
        (SessionState.ENDED, None, UNKNOWN),
        (SessionState.REVOKED, None, "This session was revoked: send initialize again."),
        (
            SessionState.REVOKED,
            "the tools changed.",
            "This session was revoked: the tools changed. Send initialize again.",
        ),
    ],
)
def test_a_session_is_served_or_its_owner_hears_why_not(
    state: SessionState, reason: str | None, sentence: str | None
) -> None:
    """Deleted ones answer like ones that never were; all under the status that makes clients initialize again."""
    assert _refusal(replace(OPEN, state=state, reason=reason)) == sentence
    assert SessionUnknown.http == 404


@pytest.mark.parametrize(
    ("state", "now", "allow_revival", "expected"),
    [
        (SessionState.IDLE, 2900.0, True, None),
        (SessionState.IDLE, 2959.9, True, None),
        (SessionState.IDLE, 2960.0, True, UNKNOWN),
        (SessionState.IDLE, 2900.0, False, UNKNOWN),
        (SessionState.OPEN, 2059.9, False, None),
        (SessionState.OPEN, 2060.0, False, UNKNOWN),
        (SessionState.OPEN, 2060.0, True, None),
        (SessionState.OPEN, 2959.9, True, None),
        (SessionState.OPEN, 2960.0, True, UNKNOWN),
    ],
)
def test_a_tombstone_is_revived_in_its_time(
    state: SessionState, now: float, allow_revival: bool, expected: str | None
) -> None:
    """Until its end, and only where revival is allowed; also where a late cleanup has not made it one yet."""
    assert _refusal(replace(OPEN, state=state), now=now, allow_revival=allow_revival) == expected
