"""The limit of connections, and the reserve above it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

from adapter.edge.request import Request

if TYPE_CHECKING:
    from adapter.edge.connection import ClientConnection

Handler = Callable[[Request], Awaitable[None]]

RESERVE = 64
"""Connections above the limit on which only health is told, so that a flood of clients does not look like a failure."""


class Places:
    """The connections of one listener. The first ``limit`` are served by ``handler``, None: any number.

    ``reserve`` more are served by ``reserved``, once each. When those are taken too, the oldest silent one of them is
    closed for a newcomer. ``on_full`` is called for each connection that finds no place among the first.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        limit: int | None = None,
        reserved: Handler | None = None,
        reserve: int = RESERVE,
        on_full: Callable[[], None] | None = None,
    ) -> None:
        self._handler = handler
        self._limit = limit
        self._reserved_handler = reserved or handler
        self._reserve = reserve
        self._on_full = on_full
        self._regular: set[ClientConnection] = set()
        self._reserved: dict[ClientConnection, None] = {}

    def __repr__(self) -> str:
        return (
            f"<Places: {len(self._regular)} of {self._limit or 'any number'}, {len(self._reserved)} reserved>"
        )

    def __len__(self) -> int:
        return len(self._regular) + len(self._reserved)

    def __iter__(self) -> Iterator[ClientConnection]:
        return iter([*self._regular, *self._reserved])

    def take(self, connection: ClientConnection) -> tuple[Handler, bool] | None:
        """Give a new connection its place: the handler that serves it, and True if only once; None if there is none."""
        if self._limit is None or len(self._regular) < self._limit:
            self._regular.add(connection)
            return self._handler, False
        if self._on_full is not None:
            self._on_full()
        if len(self._reserved) >= self._reserve and not self._make_room():
            return None
        self._reserved[connection] = None
        return self._reserved_handler, True

    def leave(self, connection: ClientConnection) -> None:
        self._regular.discard(connection)
        self._reserved.pop(connection, None)

    def _make_room(self) -> bool:
        """Break off the reserved connection that has been silent longest; False where all are being answered."""
        oldest = next((each for each in self._reserved if each.silent), None)
        if oldest is None:
            return False
        del self._reserved[oldest]
        oldest.abort()
        return True
