"""Admission of files into a scope: as many at once as surely fit, the others one after another."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from adapter.errors import QuotaReached

_RETRY_AFTER = 5.0


@dataclass(slots=True)
class _Door:
    """One scope's: the bytes that are on their way in, and those who wait, first come first."""

    inside: int = 0
    waiting: deque[tuple[int, asyncio.Future[None]]] = field(default_factory=deque)


class UploadQueue:
    """``capacity``: bytes that may be on their way into one scope, None for any number. ``wait`` in seconds.

    Without it, batches that each fit would fill the disk together, or be refused for the sake of others that
    fail in the end.
    """

    def __init__(self, capacity: int | None, wait: float) -> None:
        self._capacity = capacity
        self._wait = wait
        self._doors: dict[str, _Door] = {}

    def __repr__(self) -> str:
        waiting = sum(len(door.waiting) for door in self._doors.values())
        return f"<Admission: {len(self._doors)} scopes, {waiting} waiting>"

    async def enter(self, scope_id: str, bound: int | None) -> Callable[[], None]:
        """Come in with at most ``bound`` bytes (None: as many as the scope may hold); the function returned
        says that they are in, or gone. Raises QuotaReached after waiting in vain.
        """
        if self._capacity is None:
            return lambda: None
        size = self._capacity if bound is None else min(bound, self._capacity)
        door = self._doors.setdefault(scope_id, _Door())
        if door.waiting or door.inside + size > self._capacity:
            await self._queue(scope_id, door, size)
        else:
            door.inside += size
        return self._leaving(scope_id, door, size)

    async def _queue(self, scope_id: str, door: _Door, size: int) -> None:
        place = size, asyncio.get_running_loop().create_future()
        door.waiting.append(place)
        try:
            async with asyncio.timeout(self._wait):
                await place[1]
        except BaseException as failure:
            if place in door.waiting:
                door.waiting.remove(place)
            else:  # let in at the very moment of giving up
                door.inside -= size
            self._let_in(scope_id, door)
            if isinstance(failure, TimeoutError):
                raise QuotaReached(
                    "Together with other running uploads, this upload would exceed "
                    "sessions.max_total_session_size; try again when they are finished.",
                    data={"limit": self._capacity, "setting": "sessions.max_total_session_size"},
                    retry_after=_RETRY_AFTER,
                ) from None
            raise

    def _leaving(self, scope_id: str, door: _Door, size: int) -> Callable[[], None]:
        inside = True

        def leave() -> None:
            nonlocal inside
            if inside:
                inside = False
                door.inside -= size
                self._let_in(scope_id, door)

        return leave

    def _let_in(self, scope_id: str, door: _Door) -> None:
        assert self._capacity is not None, "without a capacity nobody waits"
        while door.waiting and door.inside + door.waiting[0][0] <= self._capacity:
            size, admitted = door.waiting.popleft()
            door.inside += size
            if not admitted.done():
                admitted.set_result(None)
        if not door.waiting and not door.inside and self._doors.get(scope_id) is door:
            del self._doors[scope_id]
