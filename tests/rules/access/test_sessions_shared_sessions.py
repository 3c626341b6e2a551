"""Shared sessions: their names, what is written of them, and who may answer the server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access.sessions import (
    MANY,
    REPLAY_BYTES,
    REPLAY_EVENTS,
    EventHistory,
    Membership,
    SentEvent,
    ServerRequests,
    SharedRecord,
    belongs,
    membership,
    principal_key,
    shared_record,
    well_formed,
)

KEY, SECRET, MEMBER = "1" * 32, "2" * 32, "3" * 16


@pytest.mark.parametrize("member", [MEMBER, "~" + MEMBER])
def test_membership_is_a_session_id(member: str) -> None:
    """Its name is one that an upstream session may have, and leads back to it."""
    named = Membership(KEY, SECRET, member)
    assert well_formed(str(named)) and membership(str(named)) == named


@pytest.mark.parametrize(
    "session", [None, "", "up-1", f"shared-{KEY}-{SECRET}", f"shared-{KEY}-{SECRET}-{MEMBER}0"]
)
def test_other_ids_are_sessions_of_their_own(session: str | None) -> None:
    """Whatever else an upstream calls its sessions is no membership."""
    assert membership(session) is None


def test_principals_have_keys_of_their_own() -> None:
    """Two principals never meet under one key, whatever their names hold."""
    assert principal_key("ada") != principal_key("bea")
    assert principal_key("\ud800") != principal_key("\ud801")


def test_requests_of_a_member_are_its_own() -> None:
    """A request of a member that many speak for has a tag of its own, which belongs to that member only."""
    assert belongs(MEMBER, MEMBER) and belongs(f"~{MEMBER}-abc", f"~{MEMBER}")
    assert not belongs(f"~{MEMBER}", f"~{MEMBER}-abc") and not belongs(MEMBER, MEMBER[:-1])


@given(st.text(), st.text(), st.binary())
def test_record_comes_back_as_it_was(session: str, version: str, result: bytes) -> None:
    """Whatever the server said, the row of it leads to an equal record."""
    record = SharedRecord(session, version, result, SECRET)
    assert shared_record(record.encoded()) == record


@pytest.mark.parametrize("row", [b"", b"[]", b"{}", b'{"format":2}', b'{"format":1}'])
def test_row_of_another_version_is_refused(row: bytes) -> None:
    """What this version cannot read is a ValueError."""
    with pytest.raises(ValueError):
        shared_record(row)


def test_epoch_tells_nothing_of_the_secret() -> None:
    """Clients see the epoch; it is not a part of the secret, and another for another session."""
    one, other = (SharedRecord("s", "v", b"{}", digit * 32) for digit in "45")
    assert one.epoch not in one.secret and one.epoch != other.epoch


# --- who answers ----------------------------------------------------------------------------------------------


def test_first_answer_counts() -> None:
    """Of all who were asked, the server hears one."""
    requests = ServerRequests()
    requests.ask(b"1", "*", 3)
    assert [requests.answer(b"1", refused=False) for _ in range(3)] == [True, False, False]


def test_refusal_counts_when_nobody_else_is_left() -> None:
    """A client that cannot answer does not speak for one that can."""
    requests = ServerRequests()
    requests.ask(b"1", "*", 3)
    assert [requests.answer(b"1", refused=refused) for refused in (True, True, False)] == [False, False, True]
    requests.ask(b"2", "*", 2)
    assert [requests.answer(b"2", refused=True) for _ in range(2)] == [False, True]


def test_only_the_newest_requests_are_known() -> None:
    """Beyond the bound the oldest is forgotten; an answer to it is for the server to judge, twice even."""
    requests = ServerRequests(most=10)
    for number in range(11):
        requests.ask(b"%d" % number, MEMBER, 1)
    assert repr(requests) == "<ServerRequests: 10>"
    assert requests.tag_of(b"0") == "*" and requests.tag_of(b"1") == MEMBER
    assert requests.answer(b"0", refused=False) and requests.answer(b"0", refused=False)


def test_long_ids_are_not_kept() -> None:
    """What is known of requests is bounded in bytes too."""
    requests = ServerRequests()
    requests.ask(b"1" * 2000, MEMBER, 1)
    assert repr(requests) == "<ServerRequests: 0>"


def test_id_that_is_used_again_is_a_new_request() -> None:
    """A server may count from the beginning."""
    requests = ServerRequests()
    for _ in range(2):
        requests.ask(b"1", "*", 1)
        assert requests.answer(b"1", refused=False)


def test_listener_that_comes_back_gets_what_it_missed() -> None:
    """The events behind the last one it names, for everybody or for it alone."""
    history = EventHistory()
    for number, tag in enumerate((None, "a" * 16, "b" * 16, None)):
        history.add(SentEvent(b"%d" % number, tag, b"event %d" % number))
    assert history.after(b"0", "a" * 16) == [b"event 1", b"event 3"]
    assert history.after(b"3", "a" * 16) == history.after(b"9", "a" * 16) == []
    assert history.after(b"0", MANY + "c" * 16) == [b"event 3"]


@pytest.mark.parametrize(
    ("events", "size", "kept"), [(REPLAY_EVENTS + 5, 1, REPLAY_EVENTS), (5, REPLAY_BYTES // 3, 3)]
)
def test_history_of_events_is_bounded(events: int, size: int, kept: int) -> None:
    """Neither many events nor large ones are kept without end."""
    history = EventHistory()
    for number in range(events):
        history.add(SentEvent(b"%d" % number, None, b"x" * size))
    assert repr(history) == f"<EventHistory: {kept} events, {kept * size} bytes>"
