"""Sightings: the silence of a replica, by one's own clock and one's own looks."""

from __future__ import annotations

from dataclasses import replace

from adapter.rules.access.replicas import Found, ReplicaRecord
from adapter.rules.access.sightings import Sightings

RECORD = ReplicaRecord("http://10.0.0.1:8932", "1.0", 12.5, "i" * 32, "c" * 32)


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
    assert (len(sightings), list(sightings.all()), sightings.get("a")) == (1, ["b"], None)
    sightings.forget("b")
    sightings.forget("b")
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
