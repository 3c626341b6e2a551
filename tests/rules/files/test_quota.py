"""The files of a scope: what counts, what goes first, what is refused, and any files at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import QuotaReached, StorageFull
from adapter.rules.files.file_records import FileContent, FileKind, FileRecord, Place
from adapter.rules.files.quota import HeldFiles, Limits, Policy

UPLOAD, ARTIFACT = FileKind.UPLOAD, FileKind.ARTIFACT

File = tuple[FileKind, str, int, float]
"""Its kind, its id, its size and when it was used last."""


def holding(*files: File) -> HeldFiles:
    held = HeldFiles()
    for kind, file_id, size, used in files:
        place = Place(kind, "a" * 32, file_id, "x")
        content = FileContent("text/plain", size, "", 0)
        held.put(FileRecord(place, "", "one", "x", content, 0.0), used)
    return held


def ids(records: Iterable[FileRecord]) -> list[str]:
    return [record.id for record in records]


def test_files_are_counted_while_they_are_held() -> None:
    """By their size and their kind, and with the time of their last use."""
    held = holding((UPLOAD, "x", 60, 1.0), (ARTIFACT, "y", 30, 2.0))
    assert (held.size, held.artifacts, ids(held.records.values())) == (90, 1, ["x", "y"])
    upload, artifact = held.records.values()
    assert (held.take(artifact), held.size, held.artifacts) == (2.0, 60, 0)
    assert (held.take(upload), held.size, held.last_access) == (1.0, 0, {})


def test_a_file_that_never_fits_evicts_nothing() -> None:
    """Larger than the quota is refused at once, with the setting's name and its value; as large as it fits."""
    held = holding((UPLOAD, "old", 90, 1.0))
    with pytest.raises(QuotaReached, match=r"sessions\.max_total_session_size is 100 bytes"):
        held.room_for(Limits(scope_bytes=100), ARTIFACT, [101])
    assert holding().room_for(Limits(scope_bytes=100), UPLOAD, [60, 40]) == []


@pytest.mark.parametrize(
    ("policy", "gone"),
    [("lru_uploads_then_artifacts", ["u1", "u2", "a1"]), ("lru_artifacts_then_uploads", ["a1", "a2", "u1"])],
)
def test_what_goes_first(policy: Policy, gone: Sequence[str]) -> None:
    """One kind before the other, in each the longest unused first, and no more than needed; what is empty frees
    nothing."""
    held = holding(
        (UPLOAD, "empty", 0, 0.0),
        (ARTIFACT, "a2", 10, 4.0),
        (ARTIFACT, "a1", 10, 3.0),
        (UPLOAD, "u2", 10, 9.0),
        (UPLOAD, "u1", 10, 8.0),
    )
    limits = Limits(scope_bytes=40, policy=policy)
    assert ids(held.room_for(limits, UPLOAD, [10, 11])) == gone
    assert ids(held.room_for(limits, UPLOAD, [10])) == gone[:1]


def test_a_use_saves_a_file() -> None:
    """The one that was used last goes last; a clock that went back changes nothing."""
    held = holding((UPLOAD, "x", 10, 1.0), (UPLOAD, "y", 10, 2.0))
    x, y = held.records
    held.touch(x, 3.0)
    held.touch(y, 0.0)
    held.touch("gone", 9.0)
    assert ids(held.room_for(Limits(scope_bytes=20), UPLOAD, [15])) == ["y", "x"]
    assert held.last_access == {x: 3.0, y: 2.0}


def test_artifacts_above_their_number_are_refused() -> None:
    """The cap on their number evicts nothing and does not count uploads."""
    held, limits = holding((ARTIFACT, "x", 1, 1.0), (UPLOAD, "y", 1, 1.0)), Limits(artifacts=2)
    assert held.room_for(limits, ARTIFACT, [1]) == held.room_for(limits, UPLOAD, [1, 1, 1]) == []
    with pytest.raises(QuotaReached, match=r"artifacts\.max_per_session"):
        held.room_for(limits, ARTIFACT, [1, 1])


def test_files_in_use_are_spared() -> None:
    """They are not evicted, though others have to go or to wait."""
    held, limits = holding((UPLOAD, "u1", 50, 1.0), (UPLOAD, "u2", 50, 2.0)), Limits(scope_bytes=100)
    first, second = held.records
    assert ids(held.room_for(limits, UPLOAD, [10], spared={first})) == ["u2"]
    with pytest.raises(QuotaReached, match=r"in use .* sessions\.max_total_session_size"):
        held.room_for(limits, UPLOAD, [10], spared={first, second})


files = st.tuples(
    st.sampled_from(FileKind), st.uuids().map(lambda each: each.hex), st.integers(0, 60), st.floats(0, 9)
)


@given(
    st.lists(files, max_size=8),
    st.sampled_from(FileKind),
    st.lists(st.integers(0, 60), min_size=1, max_size=3),
    st.integers(-50, 150),
    st.sets(st.integers(0, 7)),
)
def test_room_is_found_wherever_there_is_some(
    some: list[File], kind: FileKind, sizes: list[int], lacking: int, in_use: set[int]
) -> None:
    """What goes is enough for every limit, is not in use, and would not be enough without its last file; what is
    refused could not be taken in."""
    held, limits = holding(*some), Limits(scope_bytes=100, total_bytes=180, artifacts=4)
    spared = {key for number, key in enumerate(held.records) if number in in_use}
    free = sum(each.content.size for key, each in held.records.items() if key not in spared)
    new = sum(sizes)
    beyond = held.size + new - 100
    fits_count = kind is UPLOAD or held.artifacts + len(sizes) <= 4
    fits_scope, fits_total = new <= 100 and beyond <= free, lacking <= 0 or lacking <= free
    try:
        going = held.room_for(limits, kind, sizes, lacking, spared)
    except QuotaReached:
        assert not (fits_scope and fits_count)
        return
    except StorageFull as error:
        assert fits_scope and fits_count and not fits_total
        assert "storage.max_size is 180 bytes" in str(error)
        return
    assert fits_scope and fits_count and fits_total
    assert spared.isdisjoint(record.key for record in going)
    freed = [record.content.size for record in going]
    needed = max(beyond, lacking)
    assert sum(freed) >= needed
    assert not freed or sum(freed[:-1]) < needed
