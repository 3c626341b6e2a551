"""Replicas: the owners of sessions, rows, and challenges that count once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access import replicas
from adapter.rules.access.replicas import (
    Challenges,
    Found,
    ReplicaRecord,
    Sightings,
    decode_replica,
    encode_replica,
    is_replica_id,
    owned,
    owner_of,
)

RECORD = ReplicaRecord("http://10.0.0.1:8932", "1.0", 12.5, "i" * 32, "c" * 32)
IDS = st.text("abcXYZ019._-", min_size=1, max_size=64)


@given(IDS)
def test_a_session_names_its_owner(replica: str) -> None:
    """The id of a session tells which replica has it; those of other upstreams tell nothing."""
    assert is_replica_id(replica)
    assert owner_of(owned(replica, "t-o_ken")) == replica


@pytest.mark.parametrize("session", [None, "", "token", ":token"])
def test_a_session_without_an_owner(session: str | None) -> None:
    """One that an earlier version wrote, or that is no process's, names none."""
    assert owner_of(session) is None


@pytest.mark.parametrize("text", ["", "a/b", "a b", "a:b", "ä", "a" * 65, "a\n"])
def test_what_is_no_id_of_a_replica(text: str) -> None:
    """It would be another group of rows, or break a header field."""
    assert not is_replica_id(text)


@given(st.text(max_size=9), st.floats(0, 1e10), st.booleans())
def test_a_row_comes_back(text: str, started: float, leaving: bool) -> None:
    """Whatever it holds."""
    record = ReplicaRecord(text, text, started, text, text, leaving)
    assert decode_replica(encode_replica(record)) == record


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"format":1}',
        encode_replica(RECORD).replace(b'"format":1', b'"format":2'),
        encode_replica(RECORD).replace(b'"version":"1.0"', b'"version":1'),
        encode_replica(RECORD).replace(b"12.5", b'"x"'),
        encode_replica(RECORD).replace(b'"leaving"', b'"staying"'),
    ],
)
def test_what_is_no_row(data: bytes) -> None:
    """One that this version cannot read is a ValueError, and nothing else."""
    with pytest.raises(ValueError):
        decode_replica(data)


def test_a_nonce_counts_once() -> None:
    """The same request again is refused, also under another challenge that has expired."""
    challenges = Challenges(2)
    challenges.announce("one")
    assert challenges.refusal("one", "n") is None
    assert challenges.refusal("one", "n") == "it came before"
    assert challenges.refusal("one", "m") is None
    challenges.announce("one")
    assert challenges.refusal("one", "n") == "it came before"


def test_an_old_challenge_expires() -> None:
    """Only the last ones count."""
    challenges = Challenges(2)
    for each in ("one", "two", "three"):
        challenges.announce(each)
    assert challenges.refusal("one", "n") == "it has expired"
    assert challenges.refusal("never", "n") == "it has expired"
    assert challenges.refusal("two", "n") is challenges.refusal("three", "n") is None
    assert repr(challenges) == "<Challenges: 2>"


def test_nonces_are_bounded() -> None:
    """Whoever has the key still cannot fill the memory."""
    challenges = Challenges(1)
    challenges.announce("one")
    for number in range(replicas.MOST_NONCES):
        assert challenges.refusal("one", str(number)) is None
    assert challenges.refusal("one", "more") == "too many came at once"


# --- sightings: the silence of a replica, by one's own clock and one's own looks -------------------------------


def test_a_replica_is_silent_when_its_row_stands_still() -> None:
    """So many looks without a change, over so many seconds of the clock here; both have to be."""
    sightings = Sightings[Found](looks=2, lease=5.0)
    assert sightings.look({"a": Found(RECORD, 1)}, 0.0) == ([], [])
    assert sightings.look({"a": Found(RECORD, 1)}, 4.0) == ([], [])
    assert sightings.look({"a": Found(RECORD, 1)}, 4.9) == ([], [])
    assert sightings.look({"a": Found(RECORD, 2)}, 9.0) == ([], [])
    assert sightings.look({"a": Found(RECORD, 2)}, 100.0) == ([], [])
    assert sightings.look({"a": Found(RECORD, 2)}, 101.0) == (["a"], [])


def test_looks_that_failed_do_not_count() -> None:
    """After an hour without the store nobody is silent before it was looked at often enough again."""
    sightings = Sightings[Found](looks=3, lease=5.0)
    sightings.look({"a": Found(RECORD, 1)}, 0.0)
    assert sightings.look({"a": Found(RECORD, 1)}, 3600.0) == ([], [])
    assert sightings.look({"a": Found(RECORD, 2)}, 3601.0) == ([], [])


def test_a_row_that_is_gone_is_told_once() -> None:
    """By whoever looks next."""
    sightings = Sightings[Found](looks=2, lease=5.0)
    sightings.look({"a": Found(RECORD, 1), "b": Found(RECORD, 1)}, 0.0)
    assert sightings.look({"b": Found(RECORD, 2)}, 1.0) == ([], ["a"])
    assert sightings.look({"b": Found(RECORD, 3)}, 2.0) == ([], [])
    assert list(sightings.seen) == ["b"]
    del sightings.seen["b"]
    assert sightings.look({}, 3.0) == ([], [])


def test_a_row_that_was_deleted_and_written_again_is_another() -> None:
    """Its version may be that of before; the replica behind it is not."""
    sightings = Sightings[Found](looks=1, lease=1.0)
    sightings.look({"a": Found(RECORD, 1)}, 0.0)
    again = replace(RECORD, incarnation="j" * 32)
    assert sightings.meet("a", Found(again, 1), 1.0).found.record == again
    assert sightings.look({"a": Found(RECORD, 1)}, 2.0) == ([], [])


def test_a_row_that_is_read_by_itself() -> None:
    """A change that was met between two looks counts as one; the same row again changes nothing."""
    sightings = Sightings[Found](looks=1, lease=2.0)
    first = sightings.meet("a", Found(RECORD, 1), 0.0)
    assert sightings.meet("a", Found(RECORD, 1), 1.0) is first
    assert sightings.meet("a", Found(RECORD, 2), 1.5).since == 1.5
    assert sightings.look({"a": Found(RECORD, 2)}, 3.0) == ([], [])
    assert sightings.look({"a": Found(RECORD, 2)}, 3.5) == (["a"], [])
    assert "1 replicas" in repr(sightings)


def test_looks_before_a_gap_do_not_count() -> None:
    """Nobody could write while the store was away: the others have as many looks as a new one."""
    sightings = Sightings[int](looks=3, lease=20.0)
    for now in (0.0, 5.0, 10.0):
        assert sightings.look({"a": 1}, now) == ([], [])
    for now in (60.0, 65.0):
        assert sightings.look({"a": 1}, now) == ([], [])
        assert not sightings.is_silent("a")
    assert sightings.look({"a": 1}, 70.0) == (["a"], [])


def test_silence_lasts_until_another_look() -> None:
    """Time alone makes nobody silent, and a row that changed ends the silence."""
    sightings = Sightings[int](looks=2, lease=4.0)
    for now in (0.0, 2.0):
        sightings.look({"a": 1, "b": 1}, now)
    assert not sightings.is_silent("a")
    assert sightings.look({"a": 1, "b": 2}, 4.0) == (["a"], [])
    assert sightings.is_silent("a") and not sightings.is_silent("b")
    assert not sightings.is_silent("nobody")
    assert sightings.look({"a": 2, "b": 2}, 6.0) == ([], [])
    assert not sightings.is_silent("a")


def test_without_a_lease_the_looks_decide() -> None:
    """However far they are apart."""
    sightings = Sightings[int](looks=2, lease=0.0)
    sightings.look({"a": 1}, 0.0)
    assert sightings.look({"a": 1}, 100.0) == ([], [])
    assert sightings.look({"a": 1}, 300.0) == (["a"], [])
