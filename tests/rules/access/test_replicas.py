"""Replicas: the owners of sessions, rows, and challenges that count once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access import replicas
from adapter.rules.access.replicas import (
    Challenges,
    ReplicaRecord,
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
    record = ReplicaRecord(text, text, started, text, text, leaving, text)
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
        encode_replica(RECORD).replace(b'"settings":""', b'"settings":null'),
    ],
)
def test_what_is_no_row(data: bytes) -> None:
    """One that this version cannot read is a ValueError, and nothing else."""
    with pytest.raises(ValueError):
        decode_replica(data)


def test_settings_of_two_replicas_are_compared() -> None:
    """Where both are known, and neither is about to stop."""
    ours, theirs = replace(RECORD, settings="1"), replace(RECORD, settings="2")
    assert ours.is_unlike(theirs) and theirs.is_unlike(ours)
    assert not ours.is_unlike(ours)
    assert not ours.is_unlike(RECORD) and not RECORD.is_unlike(ours)
    assert not ours.is_unlike(replace(theirs, leaving=True)) and not replace(ours, leaving=True).is_unlike(
        theirs
    )


def test_a_row_of_an_earlier_build_tells_no_settings() -> None:
    """It can be read all the same."""
    data = encode_replica(RECORD).replace(b',"settings":""', b"")
    assert b"settings" not in data and decode_replica(data) == RECORD


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
