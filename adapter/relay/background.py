"""Work on the event loop beside one request: shared by many, finished in the background, or long and cut into turns.

A thread for each long work would not do: what is computed holds the interpreter, so the loop would get each of its
turns up to five milliseconds late, and one call of a parser for megabytes would hold it for all of that.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from adapter.errors import StoreUnavailable
from adapter.rules.last_used import LastUsed
from adapter.wire.piecewise import Apart, Piecewise
from adapter.wire.scan import values_at_most

SLICE = 4096
"""Bytes that are read without a pause; what they may hold at most takes about ten milliseconds."""

MANY = 64
"""Events of one slice after which others get a turn."""

LIGHT = 4000
"""Values of a message that is read and edited at once; it takes some milliseconds."""

TURN = 0.001
"""Seconds of one turn, but for the piece that is under way then."""

SHORT = TURN / 4
"""Seconds of a last turn behind which another may follow at once."""

AT_ONCE = 4096
"""Bytes of a message that is never worth more than ``apart`` itself."""

_LONG = 1 << 20

_reading = ThreadPoolExecutor(1, thread_name_prefix="messages")
"""One message at a time, so that the loop shares its processor with one thread only."""

ROWS = 32
"""Rows that are looked at together."""

RESTS = 4
"""Times as long as a look at rows took that nothing is looked at: a fifth of the time is spent on it at most, however
often they may have changed.
"""

AGAIN = 1.0
"""Seconds after which a store that failed is asked again."""

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def nothing(*_: object) -> None:
    """Do nothing: in the place of whoever wants to know of something."""


class SingleFlight(Generic[K, T]):
    """Finds one answer for all callers that ask at the same time, or as long as it is ``kept``. A caller that is
    cancelled does not end it.
    """

    def __init__(self, kept: LastUsed[K, T] | None = None) -> None:
        self._under_way: dict[K, asyncio.Task[T]] = {}
        self._kept = kept

    def __repr__(self) -> str:
        return f"<SingleFlight: {len(self._under_way)} under way>"

    async def get(self, key: K, find: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return or raise what ``find``, called by the first who asks, returns or raises."""
        known = None if self._kept is None else self._kept.get(key)
        if known is not None:
            return known
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.get_running_loop().create_task(find())
            task.add_done_callback(lambda done: self._landed(key, done))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Stop what is still being found."""
        await _stop(self._under_way.values())

    def _landed(self, key: K, task: asyncio.Task[T]) -> None:
        del self._under_way[key]
        if not task.cancelled():
            # All callers may have left; a failure that is never looked at would be logged.
            found = None if task.exception() is not None else task.result()
            if self._kept is not None and found is not None:
                self._kept.put(key, found)


async def run_to_completion(
    work: Coroutine[Any, Any, T], undo: Callable[[T], Coroutine[Any, Any, None]] | None = None
) -> T:
    """The work's result. A caller that is cancelled meanwhile is so when the work has ended – and is undone,
    since nobody will learn of its result. Both must end by themselves, and soon; ``undo`` handles its failures.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    ended: asyncio.Future[None] = loop.create_future()
    # What asyncio.shield does, without asking what kind of thing it was given: every file that is kept comes by here.
    task.add_done_callback(partial(settle, ended))
    try:
        await ended
    except asyncio.CancelledError:
        await _ended(task)
        failed = task.cancelled() or task.exception() is not None  # looked at, so that it is not logged
        if undo is not None and not failed:
            await _ended(asyncio.ensure_future(undo(task.result())))
        raise
    return task.result()


async def run_beside(work: Coroutine[Any, Any, T]) -> T:
    """The work's result. It goes on when the caller is cancelled, who does not wait for it then."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    ended: asyncio.Future[None] = loop.create_future()
    # As in ``run_to_completion``, in a third of the steps of asyncio.shield: every session ends by here.
    task.add_done_callback(partial(_settle_or_look, ended))
    await ended
    try:
        return task.result()
    finally:
        # A failure keeps this frame, which must not keep the failure in turn.
        del task


def _settle_or_look(waiting: asyncio.Future[None], task: asyncio.Task[Any]) -> None:
    if not waiting.done():
        waiting.set_result(None)
    elif not task.cancelled():
        # Nobody waits any more; a failure that is never looked at would be logged.
        task.exception()


def settle(waiting: asyncio.Future[None], _: object = None) -> None:
    """Wake whoever waits; a callback for tasks and timers."""
    if not waiting.done():
        waiting.set_result(None)


async def _ended(task: asyncio.Future[Any]) -> None:
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):  # the first one is raised afterwards
            await asyncio.wait([task])


class BackgroundTasks:
    """Keeps each task until it is done, since the loop itself holds tasks only weakly."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<BackgroundTasks: {len(self._running)} running>"

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Start ``work``, which handles its own failures."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        """Stop what still runs."""
        await _stop(self._running)


class RowLooks(Generic[K, T]):
    """Looks at rows of the store in the ``background``, by their keys and with what is known of them: a few together,
    and again where that raises StoreUnavailable. After the last there are ``pause`` seconds at least until the next.

    Those of which others have said that they changed come first, and without a rest.
    """

    def __init__(
        self, look: Callable[[K, T], Awaitable[None]], background: BackgroundTasks, pause: float = 0.0
    ) -> None:
        self._look = look
        self._background = background
        self._pause = pause
        self._told: dict[K, T] = {}
        self._unsure: dict[K, T] = {}
        self._is_done = asyncio.Event()
        self._is_done.set()

    def __repr__(self) -> str:
        state = "done" if self._is_done.is_set() else "looking"
        return f"<RowLooks: {state}, {len(self._told) + len(self._unsure)} waiting>"

    def add(self, rows: Mapping[K, T], *, told: bool = False) -> None:
        """Look at these rows; ``told``: others have said that just these changed."""
        (self._told if told else self._unsure).update(rows)
        if rows and self._is_done.is_set():
            self._is_done.clear()
            self._background.run(self._run())

    async def done(self) -> None:
        """Wait until nothing is left to look at."""
        await self._is_done.wait()

    async def _run(self) -> None:
        try:
            while waiting := self._told or self._unsure:
                is_told = waiting is self._told
                batch = [(key, waiting.pop(key)) for key in list(islice(waiting, ROWS))]
                began = time.monotonic()
                looks = (self._look(key, known) for key, known in batch)
                failed: dict[K, T] = {}
                outcomes = await asyncio.gather(*looks, return_exceptions=True)
                for (key, known), outcome in zip(batch, outcomes, strict=True):
                    if isinstance(outcome, StoreUnavailable):
                        failed[key] = known
                    elif outcome is not None:
                        raise outcome
                self._unsure |= failed
                if failed:
                    await asyncio.sleep(AGAIN)
                elif not is_told:
                    rest = RESTS * (time.monotonic() - began)
                    await asyncio.sleep(rest if self._unsure else max(self._pause, rest))
        finally:
            self._is_done.set()


async def _stop(tasks: Iterable[asyncio.Task[Any]]) -> None:
    stopped = list(tasks)
    for task in stopped:
        task.cancel()
    await asyncio.gather(*stopped, return_exceptions=True)


# --- long work ----------------------------------------------------------------------------------------------


def slices(piece: bytes) -> Sequence[bytes]:
    """``piece`` in parts that are read at once; most pieces are one."""
    if len(piece) <= SLICE:
        return (piece,)
    return [piece[start : start + SLICE] for start in range(0, len(piece), SLICE)]


async def breathe(events: int) -> None:
    """Give others a turn after so many events."""
    if events > MANY:
        await asyncio.sleep(0)


async def apart(text: bytes, work: Callable[[], T]) -> T:
    """Do ``work`` on a message; beside the loop, in its turn, where that is long or holds many values."""
    if len(text) <= AT_ONCE or (len(text) <= _LONG and values_at_most(text) <= LIGHT):
        return work()
    return await asyncio.get_running_loop().run_in_executor(_reading, work)


class _Queues(NamedTuple):
    """The locks of one loop: for a turn on it, and for a thread. At most one task has each, the others wait."""

    turn: asyncio.Lock
    thread: asyncio.Lock


_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, _Queues] = WeakKeyDictionary()
"""By loop, since it is the loop's time that is shared out."""


async def in_turns(work: Piecewise[T]) -> T:
    """The outcome of ``work``, after as many turns as it takes. Raises what the work raises.

    However many works are under way, the loop has one turn of theirs before it looks after all others again.
    """
    queues = _of_this_loop()
    go_on: Callable[[], Apart | None] = partial(work.send, None)
    while True:
        async with queues.turn:
            began = time.perf_counter()
            try:
                piece = go_on()
                while piece is None and time.perf_counter() - began < TURN:
                    piece = work.send(None)
            except StopIteration as end:
                if time.perf_counter() - began > SHORT:
                    await asyncio.sleep(0)
                outcome: T = end.value
                return outcome
            # Within the lock, so that nobody else has the next turn before the loop has looked after all others.
            await asyncio.sleep(0)
        go_on = partial(work.send, None)
        if piece is not None:
            async with queues.thread:
                go_on = await asyncio.to_thread(_done, work, piece)


async def own_turn() -> None:
    """Wait for a turn, for what cannot be cut and takes some milliseconds: what follows has it to itself."""
    async with _of_this_loop().turn:
        await asyncio.sleep(0)


def _done(work: Piecewise[T], piece: Apart) -> Callable[[], Apart | None]:
    """Do the piece; how the work goes on with what came of it."""
    try:
        return partial(work.send, piece.work())
    except Exception as error:
        return partial(work.throw, error)


def _of_this_loop() -> _Queues:
    loop = asyncio.get_running_loop()
    queues = _queues.get(loop)
    if queues is None:
        queues = _queues[loop] = _Queues(asyncio.Lock(), asyncio.Lock())
    return queues
