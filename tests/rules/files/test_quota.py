"""The ledger: what counts, what goes first, what is refused, and any history at all."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from adapter.errors import QuotaReached, StorageFull
from adapter.rules.files.file_records import FileKind
from adapter.rules.files.quota import Entry, Ledger, Limits, Policy

A, B = "a" * 32, "b" * 32


def ledger(*entries: Entry, limits: Limits) -> Ledger:
    made = Ledger(limits)
    for entry in entries:
        made.add(entry)
    return made


def upload(key: str, size: int, at: float, scope: str = A) -> Entry:
    return Entry(key, scope, FileKind.UPLOAD, size, at)


def artifact(key: str, size: int, at: float, scope: str = A) -> Entry:
    return Entry(key, scope, FileKind.ARTIFACT, size, at)


def test_an_incoming_file_counts_once() -> None:
    """A file as large as the whole quota fits an empty scope, staged or not."""
    books = ledger(limits=Limits(scope_bytes=100, total_bytes=100))
    assert books.room_for(A, FileKind.UPLOAD, [100], 0) == ()
    books.stage(A, 100)
    assert books.room_for(A, FileKind.UPLOAD, [60, 40], 100) == ()


def test_a_file_that_never_fits_evicts_nothing() -> None:
    """Larger than the quota is refused at once, with the setting's name and its value."""
    books = ledger(upload("old", 90, 1.0), limits=Limits(scope_bytes=100))
    with pytest.raises(QuotaReached, match=r"sessions\.max_total_session_size is 100 bytes"):
        books.room_for(A, FileKind.ARTIFACT, [101], 0)
    assert books.used(A) == 90


@pytest.mark.parametrize(
    ("policy", "gone"),
    [
        ("lru_uploads_then_artifacts", ("u1", "u2", "a1")),
        ("lru_artifacts_then_uploads", ("a1", "a2", "u1")),
    ],
)
def test_what_goes_first(policy: Policy, gone: tuple[str, ...]) -> None:
    """One kind before the other, in each the longest unused first, and no more than needed."""
    books = ledger(
        artifact("a2", 10, 4.0),
        artifact("a1", 10, 3.0),
        upload("u2", 10, 9.0),
        upload("u1", 10, 8.0),
        upload("other", 10, 0.0, scope=B),
        limits=Limits(scope_bytes=40, policy=policy),
    )
    assert books.room_for(A, FileKind.UPLOAD, [10, 11], 21) == gone
    assert books.room_for(A, FileKind.UPLOAD, [10], 0) == gone[:1]
    assert books.room_for(B, FileKind.UPLOAD, [30], 0) == ()


def test_a_use_saves_a_file() -> None:
    """The one that was used last goes last; a clock that went back changes nothing."""
    books = ledger(upload("x", 10, 1.0), upload("y", 10, 2.0), limits=Limits(scope_bytes=20))
    books.touch("x", 3.0)
    books.touch("y", 0.0)
    books.touch("gone", 9.0)
    assert books.room_for(A, FileKind.UPLOAD, [15], 0) == ("y", "x")
    entry = books.entry("y")
    assert entry is not None
    assert entry.last_access == 2.0


def test_artifacts_above_their_number_are_refused() -> None:
    """The cap on their number evicts nothing and does not count uploads."""
    books = ledger(artifact("x", 1, 1.0), upload("y", 1, 1.0), limits=Limits(artifacts=2))
    assert books.room_for(A, FileKind.ARTIFACT, [1], 0) == ()
    assert books.room_for(A, FileKind.UPLOAD, [1, 1, 1], 0) == ()
    with pytest.raises(QuotaReached, match=r"artifacts\.max_per_session"):
        books.room_for(A, FileKind.ARTIFACT, [1, 1], 0)


def test_the_total_holds_while_bytes_arrive() -> None:
    """Staged bytes of every scope and all entries share storage.max_size; what was refused is not counted."""
    books = ledger(upload("x", 50, 1.0), limits=Limits(total_bytes=100))
    books.stage(A, 30)
    with pytest.raises(StorageFull, match=r"storage\.max_size is 100 bytes"):
        books.stage(B, 21)
    books.stage(B, 20)
    books.unstage(A, 30)
    books.stage(B, 30)
    with pytest.raises(ValueError, match="unstaged"):
        books.unstage(B, 51)


def test_the_total_is_met_by_the_scopes_own_files_only() -> None:
    """A scope makes room for the total with its own files; another's are never its to evict."""
    limits = Limits(total_bytes=100)
    books = ledger(upload("mine", 30, 9.0), upload("other", 50, 1.0, scope=B), limits=limits)
    assert books.room_for(A, FileKind.ARTIFACT, [50], 0) == ("mine",)
    with pytest.raises(StorageFull, match=r"storage\.max_size"):
        books.room_for(A, FileKind.ARTIFACT, [51], 0)


def test_empty_files_are_not_evicted() -> None:
    """They free nothing."""
    books = ledger(upload("empty", 0, 1.0), upload("x", 10, 2.0), limits=Limits(scope_bytes=10))
    assert books.room_for(A, FileKind.UPLOAD, [10], 0) == ("x",)


def test_no_limits_no_refusal() -> None:
    """Without limits everything fits."""
    books = ledger(limits=Limits())
    books.stage(A, 1 << 60)
    assert books.room_for(A, FileKind.ARTIFACT, [1 << 60], 0) == ()


LIMITS = Limits(scope_bytes=100, total_bytes=180, artifacts=4)
keys = st.integers(0, 12).map(str)
scopes = st.sampled_from([A, B])
sizes = st.integers(0, 60)


class AnyHistory(RuleBasedStateMachine):
    """Batches are staged, kept with what they evict, dropped, used and held, beside a model of plain dicts."""

    def __init__(self) -> None:
        super().__init__()
        self.books = Ledger(LIMITS)
        self.entries: dict[str, Entry] = {}
        self.held: set[str] = set()
        self.batches: list[tuple[str, list[int]]] = []
        self.now = 0.0
        self.serial = 0

    def used(self, scope: str) -> int:
        return sum(entry.size for entry in self.entries.values() if entry.scope == scope)

    def staged(self) -> int:
        return sum(sum(batch) for _, batch in self.batches)

    def free(self, scope: str) -> int:
        """Bytes of the scope that may be evicted."""
        mine = [entry for entry in self.entries.values() if entry.scope == scope]
        return sum(entry.size for entry in mine if entry.key not in self.held)

    @rule(scope=scopes, batch=st.lists(sizes, min_size=1, max_size=3))
    def begin(self, scope: str, batch: list[int]) -> None:
        total = sum(entry.size for entry in self.entries.values())
        if total + self.staged() + sum(batch) > 180:
            with pytest.raises(StorageFull):
                self.books.stage(scope, sum(batch))
        else:
            self.books.stage(scope, sum(batch))
            self.batches.append((scope, batch))

    @precondition(lambda self: self.batches)
    @rule(kind=st.sampled_from(FileKind))
    def keep(self, kind: FileKind) -> None:
        scope, batch = self.batches.pop(0)
        self._keep(scope, kind, batch, sum(batch))
        self.books.unstage(scope, sum(batch))

    @rule(scope=scopes, size=sizes)
    def keep_in_place(self, scope: str, size: int) -> None:
        self._keep(scope, FileKind.ARTIFACT, [size], 0)

    def _keep(self, scope: str, kind: FileKind, batch: list[int], staged: int) -> None:
        new = sum(batch)
        total = sum(entry.size for entry in self.entries.values())
        # The batch itself is no longer among self.batches when it was staged.
        fits_total = total + self.staged() + new - self.free(scope) <= 180
        fits_scope = self.used(scope) + new - self.free(scope) <= 100 and new <= 100
        artifacts = [e for e in self.entries.values() if e.scope == scope and e.kind is FileKind.ARTIFACT]
        fits_count = kind is FileKind.UPLOAD or len(artifacts) + len(batch) <= 4
        try:
            victims = self.books.room_for(scope, kind, batch, staged, self.held)
        except QuotaReached:
            assert not (fits_scope and fits_count)
            return
        except StorageFull:
            assert fits_scope
            assert fits_count
            assert not fits_total
            return
        assert fits_scope
        assert fits_count
        assert fits_total
        self._evict(scope, victims)
        for size in batch:
            self.serial += 1
            entry = Entry(str(self.serial), scope, kind, size, self.now)
            self.books.add(entry)
            self.entries[entry.key] = entry

    def _evict(self, scope: str, victims: tuple[str, ...]) -> None:
        for key in victims:
            assert self.entries[key].scope == scope
            assert key not in self.held
            self.books.remove(key)
            del self.entries[key]

    @precondition(lambda self: self.batches)
    @rule()
    def discard(self) -> None:
        scope, batch = self.batches.pop()
        self.books.unstage(scope, sum(batch))

    @rule(key=keys)
    def remove(self, key: str) -> None:
        self.books.remove(key)
        self.entries.pop(key, None)

    @rule(key=keys, later=st.floats(0, 5))
    def touch(self, key: str, later: float) -> None:
        self.now += later
        self.books.touch(key, self.now)
        if key in self.entries:
            self.entries[key] = self.entries[key]._replace(last_access=self.now)

    @rule(key=keys)
    def hold(self, key: str) -> None:
        self.held.add(key)

    @rule(key=keys)
    def release(self, key: str) -> None:
        self.held.discard(key)

    @invariant()
    def the_books_are_right(self) -> None:
        for scope in (A, B):
            assert self.books.used(scope) == self.used(scope) <= 100
            for kind in FileKind:
                mine = [e for e in self.entries.values() if e.scope == scope and e.kind is kind]
                assert self.books.count(scope, kind) == len(mine)
                assert kind is FileKind.UPLOAD or len(mine) <= 4
        assert self.books.total == self.used(A) + self.used(B)
        assert self.books.total + self.staged() <= 180


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_entries_that_are_loaded_or_forgotten_leave_what_may_still_come() -> None:
    """They are kept all the same, whether they are known here or not."""
    books = ledger(limits=Limits(total_bytes=100))
    books.load(upload("old", 60, 1.0))
    assert (books.used(A), books.count(A, FileKind.UPLOAD), books.spare) == (60, 1, 100)
    assert books.forget("old") == upload("old", 60, 1.0)
    assert books.forget("old") is None
    assert (books.used(A), books.count(A, FileKind.UPLOAD), books.spare) == (0, 0, 100)
    books.add(upload("new", 30, 2.0))
    books.remove("new")
    assert (books.spare, books.charged) == (100, 0)
    books.add(upload("newer", 40, 3.0))
    assert (books.spare, books.lacking(61, 0), books.lacking(60, 0)) == (60, 1, 0)
    assert books.charged == 40
    assert ledger(limits=Limits()).lacking(10**9, 0) == 0


def test_files_in_use_are_spared() -> None:
    """They are not evicted, though others have to go or to wait."""
    books = ledger(upload("u1", 50, 1.0), upload("u2", 50, 2.0), limits=Limits(scope_bytes=100))
    assert books.room_for(A, FileKind.UPLOAD, [10], 0, {"u1"}) == ("u2",)
    with pytest.raises(QuotaReached, match=r"in use .* sessions\.max_total_session_size"):
        books.room_for(A, FileKind.UPLOAD, [10], 0, {"u1", "u2"})


def test_bytes_are_staged_again_whatever_the_limits() -> None:
    """They are there, so they count."""
    books = ledger(limits=Limits(total_bytes=10))
    books.restage(A, 20)
    assert books.staged == 20
    with pytest.raises(StorageFull):
        books.stage(A, 1)
    books.unstage(A, 20)
    assert books.staged == 0
