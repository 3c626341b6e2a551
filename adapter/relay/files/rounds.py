"""Calls that take several rounds: what a tool was told in the first round it is told in all of them.

A modern server answers with ``InputRequiredResult`` where it needs its user (MCP 2026-07-28, "Multi Round-Trip
Requests"), and may bind its ``requestState`` to the arguments that it saw. These hold what the adapter made: the place
of a file, a signed link. So they are kept until the last round, found by the state that comes back.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adapter.errors import LimitReached, StoreUnavailable
from adapter.relay.files.file_registry import FileRegistry
from adapter.relay.files.signed_urls import Credentials, signature_of
from adapter.relay.stages import Call
from adapter.rules.calls.rounds import (
    STATE,
    PendingRound,
    asks_for_input,
    decode,
    encode,
    round_key,
    state_of,
)
from adapter.rules.files.file_records import FileKind, Place
from adapter.rules.files.redaction import Redaction
from adapter.state.port import ABSENT, Conflict, Delete, Row, every_row, group_of
from adapter.wire.envelope import dump, parse
from adapter.wire.spans import Replace, edit

TABLE = "rounds"

ARTIFACT = "artifact"
"""The note of a call that holds when it began and the place that was made for its file."""

COPIES = "copies"
"""The note of a call that holds, by the key of each file, the name of the copy that its tool works on."""

EDITED = "edited"
"""The note of a call that holds the keys of the files of which a changed copy is kept."""

DELIVERED = "delivered"
"""The note of a call that holds, by the key of each file it was given, the link that its tool got for it, or null."""

EARLIER = "earlier"
"""The note of a call that goes on: what was noted in its earlier rounds."""

ROUND = "round"
"""The note of a call that goes on: the key of its pending round."""

_KEPT = (ARTIFACT, COPIES, DELIVERED)


def noted_earlier(call: Call, note: str) -> Any:
    """Return the note of that name from an earlier round of this call; None where there was none."""
    return call.notes.get(EARLIER, {}).get(note)


def noted_place(scope_id: str, notes: Mapping[str, Any]) -> Place | None:
    """The place that a tool was told to write to, by the notes of its call; None for one that was told none."""
    note = notes.get(ARTIFACT, {})
    return Place(FileKind.ARTIFACT, scope_id, note["id"], note["stored"]) if "id" in note else None


@dataclass(frozen=True, slots=True)
class RoundLimits:
    """The limits of rounds that wait for their clients, each for ``ttl`` seconds and of at most ``each`` bytes.

    ``per_scope`` and ``total`` rounds wait at most; for a new one the oldest is given up. ``scope_bytes`` and
    ``total_bytes`` limit the notes and states of a scope's rounds, and of all rounds.
    """

    ttl: float = 3600.0
    per_scope: int = 100
    total: int = 10_000
    scope_bytes: int = 8 << 20
    total_bytes: int = 64 << 20
    each: int = 512 << 10


@dataclass(slots=True, eq=False)
class WaitingRound:
    """A pending round, and the request that goes on with it just now.

    ``size`` is in bytes of its row, ``version`` that of its row; ABSENT: it could not be written.
    """

    pending: PendingRound
    size: int = 0
    version: int = ABSENT
    taken_by: Call | None = None

    @property
    def key(self) -> str:
        """The key of its row. Those of one scope stand together."""
        return f"{self.pending.scope.id}/{self.pending.id}"

    @property
    def place(self) -> Place | None:
        """The place that the tool was told to write to."""
        return noted_place(self.pending.scope.id, self.pending.notes)

    @property
    def delivered(self) -> Mapping[str, str | None]:
        """The link that the tool got for each file, by the file's key; None for a file without one."""
        found: Mapping[str, str | None] = self.pending.notes.get(DELIVERED, {})
        return found

    def is_overdue(self, now: float) -> bool:
        """Tell whether it waited too long. One that is gone on with does not wait."""
        return self.pending.due <= now and self.taken_by is None


@dataclass(eq=False)
class Rounds:
    """Pending rounds of all servers, kept in the state store too.

    A stage of every tool that is told a place or a link, before the stages that tell it.
    While a round waits, its place is not swept, and the files and links that its tool was given do not expire.
    """

    registry: FileRegistry
    credentials: Credentials
    limits: RoundLimits

    def __post_init__(self) -> None:
        self.store, self.clock = self.credentials.store, self.credentials.clock
        self.files, self.log = self.registry.cache.files, self.registry.log
        self._path_free = Redaction(self.files.roots, {})
        self._waiting: dict[str, WaitingRound] = {}
        """The rounds that are known here, by their rows' keys, the first to be due first."""
        self._by_scope: dict[str, dict[str, WaitingRound]] = {}
        """The same by their scopes: whoever looks through all scopes asks for the rounds of each."""
        self._by_files: dict[str, dict[str, WaitingRound]] = {}
        """The same by the scopes of the files that their tools were given: one that came by an offer may be another
        session's."""
        self._any = True

    def __repr__(self) -> str:
        size = sum(each.size for each in self._waiting.values())
        return f"<Rounds: {len(self._waiting)} wait, {size} bytes>"

    # --- life -------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Raises StoreUnavailable."""
        # Where none is left and nobody else writes any, no scope needs to be looked at for some.
        self._any = self.store.shared or bool(await self.store.scan(TABLE, limit=1))
        cache = self.registry.cache
        cache.on_read, cache.waited, cache.waiting = self.read, self.waited, self._by_files
        self.registry.claims.append(self.claims)
        self.credentials.is_waited = self.is_waited

    async def read(self, scope_id: str) -> None:
        """Know the rounds of a scope as they are now. Raises StoreUnavailable."""
        if not self._any:
            return
        rows = [row async for row in every_row(self.store, TABLE, scope_id)]
        keys = {row.key for row in rows}
        for waiting in self._of_scope(scope_id):
            if waiting.version != ABSENT and waiting.taken_by is None and waiting.key not in keys:
                self._drop(waiting)  # another replica has ended it
        for row in rows:
            self._adopt(row)

    def _adopt(self, row: Row) -> None:
        """Know a round as its row says it is."""
        known = self._waiting.get(row.key)
        if known is not None and (known.version == row.version or known.taken_by is not None):
            return
        try:
            pending = decode(row.value)
        except ValueError:  # one that another version wrote harms no other
            self.log.warning("a pending round cannot be read and is passed over")
            return
        self._keep(WaitingRound(pending, len(row.value), row.version))

    async def claims(self, place: Place) -> bool:
        """Tell whether a tool that waits for its user may write at that place. Raises StoreUnavailable."""
        if not self._any or place.kind is not FileKind.ARTIFACT:
            return False
        await self._know(place.scope)
        places = (waiting.place for waiting in self._of_scope(place.scope))
        return any(each is not None and each[:3] == place[:3] for each in places)

    async def _know(self, scope_id: str) -> None:
        """Know the files of a scope, which are held for its rounds, and those rounds. Raises StoreUnavailable."""
        if self._any:
            await self.registry.know(scope_id)
            await self.read(scope_id)

    async def expire(self) -> None:
        """Give up what waited too long, wherever it was last gone on with. Raises StoreUnavailable."""
        now = self.clock()
        for row in await self.store.overdue(TABLE, now):
            await self._expire(row, now)

    async def expire_known(self) -> None:
        """Give up what waited here too long, also what could not be written. Raises StoreUnavailable."""
        now = self.clock()
        for waiting in [each for each in self._waiting.values() if each.is_overdue(now)]:
            row = await self.store.get(TABLE, waiting.key)
            if row is not None and waiting.version not in (ABSENT, row.version):
                self._adopt(row)  # another replica went on with it
            elif row is not None:
                await self._expire(row, now)
            elif waiting.is_overdue(now):
                await self._give_up(waiting)

    async def _expire(self, row: Row, now: float) -> None:
        """Give up what waited too long, unless somebody went on with it since its row was read."""
        if (known := self._waiting.get(row.key)) is not None and not known.is_overdue(now):
            return
        self._adopt(row)
        with contextlib.suppress(Conflict):
            there = await self.store.delete(TABLE, row.key, expected=row.version)
            if (known := self._waiting.get(row.key)) is not None and known.is_overdue(now):
                self._drop(known)
                if there:
                    await self._remove_place(known)

    async def end_scope(self, scope_id: str) -> None:
        """The scope has ended, and its files are gone. Raises StoreUnavailable."""
        for waiting in self._of_scope(scope_id):
            await self._forget(waiting)
        if self._any:
            rows = every_row(self.store, TABLE, scope_id)
            await self.store.commit([Delete(TABLE, row.key) async for row in rows])

    # --- a request that goes on -------------------------------------------------------------------------------

    async def ask(self, call: Call) -> bytes | None:
        """Raises LimitReached."""
        body = call.envelope.body
        state = state_of(parse(body).get("params")) if STATE in body else None
        if state is not None:
            own = await self.resume(call, key_of(call, state))
            if own is not None:
                call.change(Replace(("params", "requestState"), dump(own)))
        return None

    async def resume(self, call: Call, key: str) -> str | None:
        """Give the call what its earlier rounds noted; the server's own state, where the client was given another.

        Raises LimitReached while another request goes on with the same round, for both would write the same file.
        Raises StoreUnavailable.
        """
        await self._know(call.scope.id)
        waiting = self._find(call.scope.id, key)
        if waiting is None:
            return None
        if waiting.place is not None:
            self._begin(call, waiting)
            await self._prolong(waiting)
        call.notes[ROUND] = waiting.key
        call.notes[EARLIER] = waiting.pending.notes
        return waiting.pending.states[key]

    def _begin(self, call: Call, waiting: WaitingRound) -> None:
        if waiting.taken_by is not None:
            raise _taken()
        waiting.taken_by = call

        def end() -> None:
            if waiting.taken_by is call:
                waiting.taken_by = None

        call.defer(end)

    async def _prolong(self, waiting: WaitingRound) -> None:
        """Keep other replicas, which do not see who goes on with it, from giving it up meanwhile.

        Only where less than half of its time is left. Raises LimitReached where one of them was first, and
        StoreUnavailable.
        """
        due = self.clock() + self.limits.ttl
        if (
            not self.store.shared
            or waiting.version == ABSENT
            or waiting.pending.due > due - self.limits.ttl / 2
        ):
            return
        waiting.pending.due = due
        self._keep(waiting)
        try:
            # A new version, so that whoever has read the row already does not delete it.
            row = await self.store.put(
                TABLE, waiting.key, encode(waiting.pending), due=due, expected=waiting.version
            )
        except Conflict:
            raise _taken() from None
        waiting.version = row.version

    # --- an answer that asks ----------------------------------------------------------------------------------

    async def answer(self, call: Call, response: bytes) -> bytes:
        if ROUND not in call.notes and STATE not in response:
            return response
        message = call.parsed(response)
        state = asks_for_input(message)
        if state is not None:
            return await self.remember(call, state, response)
        if ROUND in call.notes and isinstance(message.get("result"), dict):
            await self.end(call)
        return response

    async def remember(self, call: Call, state: str, response: bytes) -> bytes:
        """Keep what the stages noted of a call until its client comes back with ``state``.

        The response as it shall leave: a state that holds a path of the store stays here, and the client gets a text
        that stands for it.
        """
        self._any = True
        await self._know(call.scope.id)
        waiting = self._waiting.get(call.notes.get(ROUND, ""))
        if waiting is None:
            waiting = WaitingRound(PendingRound(secrets.token_hex(16), call.scope, 0.0, {}))
        given = self._given(state, response)
        row = self._noted(call, waiting, state, given)
        if row is None:
            self.log.warning(
                "a call that holds too much cannot go on when its user was asked", server=call.origin.server
            )
            await self._give_up(waiting)
            return response
        self._keep(waiting)
        await self._write(waiting, row)
        await self._make_room(call.scope.id)
        if given == state:
            return response
        return edit(response, [Replace(("result", "requestState"), dump(given))])

    async def _make_room(self, scope_id: str) -> None:
        """Give up what waited longest, of the scope and then of all, while it is too much."""
        limits = self.limits
        for each in surplus(self._of_scope(scope_id), limits.per_scope, limits.scope_bytes):
            await self._give_up(each)
        for each in surplus([*self._waiting.values()], limits.total, limits.total_bytes):
            await self._give_up(each)

    def _given(self, state: str, response: bytes) -> str:
        """Return the text that the client is given for a state."""
        if self._path_free.spares(response) or self._path_free(state) == state:
            return state
        return f"adapter-state:{secrets.token_hex(16)}"

    def _noted(self, call: Call, waiting: WaitingRound, state: str, given: str) -> bytes | None:
        """The row of the round when it has taken note of the call; None if that is more than is kept."""
        # The client may go on as soon as it reads this, which may be before the stream that brings it is closed.
        waiting.taken_by = None
        self._lose(waiting)
        pending, limits = waiting.pending, self.limits
        pending.notes = {name: call.notes[name] for name in _KEPT if name in call.notes}
        own = None if given == state else state
        if own is not None and len(own) > limits.each:
            return None
        pending.due = self.clock() + limits.ttl
        pending.add_state(key_of(call, given), own)
        row = encode(pending)
        waiting.size = len(row)
        return row if waiting.size <= limits.each else None

    async def end(self, call: Call) -> None:
        """The call got its result: there will be no other round."""
        waiting = self._waiting.get(call.notes[ROUND])
        if waiting is not None:
            await self._forget(waiting)

    async def _write(self, waiting: WaitingRound, row: bytes) -> None:
        try:
            written = await self.store.put(TABLE, waiting.key, row, due=waiting.pending.due)
            waiting.version = written.version
        except StoreUnavailable:
            self.log.warning("a pending round would not survive a restart, because the state store failed")

    # --- what is known ----------------------------------------------------------------------------------------

    def _of_scope(self, scope_id: str) -> list[WaitingRound]:
        """The rounds of a scope, the first to be due first."""
        return list(self._by_scope.get(scope_id, {}).values())

    def _find(self, scope_id: str, key: str) -> WaitingRound | None:
        """The round of a scope with that key that fits best and is not overdue.

        There may be several: a server may say the same state each time one call is made. One that nobody goes on with
        just now fits better than others, then one whose latest state this is, then the newest.
        """
        rounds, now = reversed(self._of_scope(scope_id)), self.clock()
        return min(
            (each for each in rounds if key in each.pending.states and each.pending.due > now),
            key=lambda each: (each.taken_by is not None, each.pending.latest != key),
            default=None,
        )

    def waited(self, scope_id: str) -> set[str]:
        """The keys of the files that tools were given which wait for their users. They do not go meanwhile."""
        rounds = self._by_files.get(scope_id, {}).values()
        return {key for waiting in rounds for key in waiting.delivered if group_of(key) == scope_id}

    def is_waited(self, scope_id: str, signature: str) -> bool:
        """Tell whether a tool that waits for its user was given a link with this signature."""
        rounds = self._by_files.get(scope_id, {}).values()
        links = (link for waiting in rounds for link in waiting.delivered.values())
        return any(link is not None and signature_of(link) == signature for link in links)

    def _keep(self, waiting: WaitingRound) -> None:
        """Know a round as it is now, the last to be due."""
        if (known := self._waiting.get(waiting.key)) is not None:
            self._lose(known)
        self._waiting[waiting.key] = waiting
        for groups, scope_id in self._places(waiting):
            groups.setdefault(scope_id, {})[waiting.key] = waiting

    def _lose(self, waiting: WaitingRound) -> None:
        self._waiting.pop(waiting.key, None)
        for groups, scope_id in self._places(waiting):
            group = groups.get(scope_id, {})
            group.pop(waiting.key, None)
            if not group:
                groups.pop(scope_id, None)

    def _places(self, waiting: WaitingRound) -> Iterator[tuple[dict[str, dict[str, WaitingRound]], str]]:
        """Where a round stands beside all rounds. Its notes do not change while it does."""
        yield self._by_scope, waiting.pending.scope.id
        for scope_id in {group_of(key) for key in waiting.delivered}:
            yield self._by_files, scope_id

    def _drop(self, waiting: WaitingRound) -> None:
        self._lose(waiting)
        for record in filter(None, map(self.registry.cache.get, waiting.delivered)):
            self.registry.cache.touch(record)  # it was in use until now

    async def _forget(self, waiting: WaitingRound) -> bool:
        """Know it no longer. True if nobody else has ended it before."""
        self._drop(waiting)
        try:
            return await self.store.delete(TABLE, waiting.key) or waiting.version == ABSENT
        except StoreUnavailable:
            self.log.warning("a round that is over stays in the state store until it is due")
            return waiting.version == ABSENT

    async def _give_up(self, waiting: WaitingRound) -> None:
        """Nobody will go on with it."""
        # Where another replica has ended it, what its tool has written may be an artifact now.
        if await self._forget(waiting):
            await self._remove_place(waiting)

    async def _remove_place(self, waiting: WaitingRound) -> None:
        """Remove what its tool has written so far."""
        if waiting.place is not None:
            await self.registry.remove_bytes(waiting.place)


def surplus(group: Sequence[WaitingRound], most: int, most_bytes: int) -> Iterator[WaitingRound]:
    """The rounds of a group to give up, the first to be due first, so that it has no more than ``most``, and these are
    no larger than ``most_bytes``.
    """
    count, size = len(group), sum(each.size for each in group)
    for each in group:
        if count <= most and size <= most_bytes:
            return
        if each.taken_by is None:
            count, size = count - 1, size - each.size
            yield each


def _taken() -> LimitReached:
    return LimitReached(
        "Another request with this requestState is being answered; wait for its answer.", retry_after=1
    )


def key_of(call: Call, state: str) -> str:
    """The key of the request with which this call goes on."""
    params = parse(call.envelope.body).get("params")
    return round_key(
        call.scope.id, call.origin.server, call.envelope.name or "", params.get("arguments"), state
    )
