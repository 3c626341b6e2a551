"""Pending rounds as this process knows them: by id, by scope, and by the state with which a client comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from adapter.relay.stages import Call
from adapter.rules.calls.rounds import PendingRound
from adapter.rules.files.file_records import FileKind, Place
from adapter.state.port import ABSENT

ARTIFACT = "artifact"
"""The note of a call that holds when it began and the place that was made for its file."""

COPIES = "copies"
"""The note of a call that holds, by the key of each file, the name of the copy that its tool works on."""

EDITED = "edited"
"""The note of a call that holds the keys of the files of which a changed copy is kept."""


def noted_place(scope_id: str, notes: Mapping[str, Any]) -> Place | None:
    """The place that a tool was told to write to, by the notes of its call; None for one that was told none."""
    note = notes.get(ARTIFACT, {})
    return Place(FileKind.ARTIFACT, scope_id, note["id"], note["stored"]) if "id" in note else None


@dataclass(slots=True, eq=False)
class WaitingRound:
    """A pending round, the request that goes on with it just now, and what lets go of what it holds.

    ``size`` is in bytes of its row, ``version`` that of its row; ABSENT: it could not be written.
    """

    pending: PendingRound
    size: int = 0
    version: int = ABSENT
    taken_by: Call | None = None
    releases: list[Callable[[], None]] = field(default_factory=list)

    @property
    def key(self) -> str:
        """The key of its row. Those of one scope stand together."""
        return f"{self.pending.scope.id}/{self.pending.id}"

    @property
    def place(self) -> Place | None:
        """The place that the tool was told to write to."""
        return noted_place(self.pending.scope.id, self.pending.notes)

    def is_overdue(self, now: float) -> bool:
        """Tell whether it waited too long. One that is gone on with does not wait."""
        return self.pending.due <= now and self.taken_by is None

    def let_go(self) -> None:
        """Release all that it holds. Harmless when done twice."""
        while self.releases:
            self.releases.pop()()


Group = dict[str, WaitingRound]
"""Rounds by their id, in the order in which they will be due."""


class RoundIndex:
    """The pending rounds that are known here; whoever changes one takes it out first and puts it in again."""

    def __init__(self) -> None:
        self._all: Group = {}
        self._of_scope: dict[str, Group] = {}
        self._size = 0

    def __repr__(self) -> str:
        return f"<RoundIndex: {len(self._all)} rounds of {len(self._of_scope)} scopes, {self._size} bytes>"

    def get(self, pending_id: str) -> WaitingRound | None:
        return self._all.get(pending_id)

    def find(self, scope_id: str, key: str, now: float) -> WaitingRound | None:
        """The round of a scope with that key that fits best and is not overdue.

        There may be several: a server may say the same state each time one call is made. One that nobody goes on with
        just now fits better than others, then one whose latest state this is, then the newest.
        """
        rounds = reversed(self.of_scope(scope_id))
        found = (each for each in rounds if key in each.pending.states and each.pending.due > now)
        return min(
            found,
            key=lambda each: (each.taken_by is not None, each.pending.latest != key),
            default=None,
        )

    def of_scope(self, scope_id: str) -> list[WaitingRound]:
        """The rounds of a scope, the first to be due first."""
        return list(self._of_scope.get(scope_id, {}).values())

    def overdue(self, now: float) -> list[WaitingRound]:
        """The rounds that waited too long, but for those that are gone on with."""
        return [each for each in self._all.values() if each.is_overdue(now)]

    def surplus(self, scope_id: str | None, most: int, most_bytes: int) -> Iterator[WaitingRound]:
        """The rounds to give up, the first to be due first, so that a scope, or None all together, has no more than
        ``most``, and they are no larger than ``most_bytes``.
        """
        group = self._all if scope_id is None else self._of_scope.get(scope_id, {})
        count = len(group)
        size = self._size if scope_id is None else sum(each.size for each in group.values())
        for each in group.values():
            if count <= most and size <= most_bytes:
                return
            if each.taken_by is None:
                count, size = count - 1, size - each.size
                yield each

    def add(self, waiting: WaitingRound) -> None:
        """Its size and its due time must not change until it is dropped."""
        pending = waiting.pending
        self._all[pending.id] = waiting
        self._size += waiting.size
        self._of_scope.setdefault(pending.scope.id, {})[pending.id] = waiting

    def drop(self, waiting: WaitingRound) -> None:
        """Harmless for one that is not there."""
        pending = waiting.pending
        if self._all.pop(pending.id, None) is not None:
            self._size -= waiting.size
        group = self._of_scope.get(pending.scope.id, {})
        group.pop(pending.id, None)
        if not group:
            self._of_scope.pop(pending.scope.id, None)
