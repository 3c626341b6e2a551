"""The lists of one server of a merged mount, as the adapter holds them, also while the server does not answer."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from adapter.errors import AdapterError, GrantRequired, StoreUnavailable, UpstreamUnhealthy
from adapter.relay.background import SingleFlight, in_turns, nothing
from adapter.relay.mounts.reading import ListReader
from adapter.relay.mounts.sessions import MountRequest
from adapter.rules.access.access_rules import ListShape
from adapter.rules.last_used import LastUsed, Weight
from adapter.rules.mounts.lists import RESOURCES, TOLD, TOOLS, ServerList, sign_in_tool, stored_entries
from adapter.state.port import Store
from adapter.wire.eras import Era

TABLE = "mount_lists"
"""Table: the last list of each kind that all callers of a server see, by ``SERVER/METHOD``."""

FRESH_FOR = 30.0
"""Seconds after which a list is read again, though its server did not say that it has changed."""

RETRY = 1.0
"""Seconds for which a server that failed to list something is not asked again."""

TOGETHER = 0.1
"""Seconds in which further words of a server, about its other lists or to others, lead to the same read."""

READS = 2
"""Times that a list is read at once where its server says meanwhile that it has changed."""

MOST_HELD, HELD_BYTES = 256, 64 << 20
"""Lists of one server, and their bytes, that are held: those of all callers, or of callers who see the same."""

LONGEST_STORED = 8 << 20
"""Bytes of a list that is written down, for the time when its server does not answer."""

PAUSE = 10.0
"""Seconds between two lists of one kind that are written down: a server may change its own with each look."""

_serials = itertools.count(1)


class HeldList(NamedTuple):
    """A list under a number that no other list has. Where it is not what the server lists now, ``missing`` says why."""

    serial: int
    entries: ServerList
    size: int = 0
    missing: str | None = None


class ListFailure(NamedTuple):
    """Why a list could not be read; ``needs_grant``: the caller has to allow the adapter to act for them first."""

    why: str
    needs_grant: bool = False


class ListKey(NamedTuple):
    """The kind of a list, the era in which it is asked for, and a text that is equal for callers who see the same; None
    for a list of all callers.
    """

    shape: ListShape
    era: Era
    whose: str | None = None


@dataclass(eq=False)
class ListListeners:
    """The streams of clients of one mount, by the callbacks that are told of each list that is another one now."""

    streams: set[Callable[[ListShape], None]] = field(default_factory=set)
    _untold: set[ListShape] = field(default_factory=set, init=False)
    _telling: asyncio.TimerHandle | None = field(default=None, init=False)

    def tell(self, shape: ListShape) -> None:
        """Tell all of them now."""
        for tell in tuple(self.streams):
            tell(shape)

    def tell_soon(self, shape: ListShape) -> None:
        """Tell them, once for all servers, that a list may have changed: they may have it of another process."""
        if not self.streams:
            return
        self._untold.add(shape)
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(TOGETHER, self._tell_untold)

    def close(self) -> None:
        """Tell nobody any more of what may have changed."""
        if self._telling is not None:
            self._telling.cancel()

    def _tell_untold(self) -> None:
        self._telling = None
        untold, self._untold = self._untold, set()
        for shape in TOLD:
            if shape in untold:
                self.tell(shape)


@dataclass(eq=False, slots=True)
class HeldLists:
    """Holds the lists that ``reader`` reads. ``clock`` never goes back. ``listeners`` are told of a kind of which the
    server lists something else than it did, or something at all again. ``has_files``: callers have resources of their
    own.
    """

    reader: ListReader
    store: Store
    clock: Callable[[], float]
    has_files: bool = False
    listeners: ListListeners = field(default_factory=ListListeners, init=False)
    _changes: int = field(default=0, init=False)
    _asked: dict[ListKey, MountRequest] = field(default_factory=dict, init=False)
    _looking: dict[ListKey, asyncio.Task[None]] = field(default_factory=dict, init=False)
    on_missing: Callable[[str], None] = field(default=nothing, init=False)
    """Is told why the server could not list something that it could list before."""
    on_held: Callable[[], None] = field(default=nothing, init=False)
    """Is called when another list is held than before."""
    failures: dict[ListKey, ListFailure] = field(default_factory=dict, init=False)
    """Why the last read of a list failed."""
    _sign_in: HeldList = field(init=False)
    _held: LastUsed[ListKey, HeldList] = field(init=False)
    _due: dict[ListKey, float] = field(default_factory=dict, init=False)
    _began: dict[ListKey, float] = field(default_factory=dict, init=False)
    _reading: SingleFlight[ListKey, HeldList] = field(init=False)
    _stored: dict[str, int] = field(default_factory=dict, init=False)
    _written: dict[str, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._held = LastUsed(MOST_HELD, HELD_BYTES, lambda held: Weight(held.serial, held.size))
        self._reading = SingleFlight()
        self._sign_in = HeldList(next(_serials), ServerList.of(self.id, [sign_in_tool(self.id)]))
        self.reader.server.on_doubt.add(self._doubt)

    def __repr__(self) -> str:
        return f"<HeldLists of {self.id!r}: {len(self._held)}>"

    @property
    def id(self) -> str:
        """The id of the server."""
        return self.reader.server.id

    def changed(self, shape: ListShape) -> None:
        """Have all lists be read again, soon where somebody wants to hear of changes: the server says that this one has
        changed.
        """
        self._outdate((shape,))
        for key in self._asked:
            self._look(key, TOGETHER)

    def _doubt(self) -> None:
        """Have all lists be read again, at once where somebody wants to hear of changes."""
        self._outdate(TOLD)
        for key in self._asked:
            self._look(key, 0.0, anew=True)

    def _outdate(self, changed: Iterable[ListShape]) -> None:
        self._changes += 1
        self._due.clear()
        read = {key.shape for key in self._asked}
        for shape in changed:
            # This process has never read it, but others may have given it to those who listen here.
            if self.store.shared and shape not in read:
                self.listeners.tell_soon(shape)

    async def leave(self, within: float) -> None:
        """Read nothing any more, and end the adapter's own session."""
        self.reader.server.on_doubt.discard(self._doubt)
        for looking in self._looking.values():
            looking.cancel()
        await asyncio.gather(*self._looking.values(), return_exceptions=True)
        await self._reading.close()
        await self.reader.leave(within)

    @property
    def varies(self) -> bool:
        """Tell whether callers may see different things."""
        server = self.reader.server
        by_headers = bool(server.rules.passthrough or server.rules.required)
        return server.apart or server.stages.access is not None or by_headers

    def are_alike(self, shapes: Collection[ListShape]) -> bool:
        """Tell whether all callers see the same in these lists."""
        return not self.varies and not (self.has_files and RESOURCES in shapes)

    def key_of(self, shape: ListShape, request: MountRequest) -> ListKey:
        """The key of the list that this caller sees."""
        has_own = request.session is None or self.id in request.session.members
        is_common = self.are_alike((shape,)) or not (self.varies or has_own)
        return ListKey(shape, request.ask.sender.era, None if is_common else request.whose)

    def last(self, key: ListKey) -> HeldList | None:
        """The last list of these callers, however old it is."""
        return self._held.get(key)

    def fresh(self, key: ListKey) -> HeldList | None:
        """The list if it is surely as it is now."""
        if self.clock() >= self._due.get(key, 0.0) or key in self.failures:
            return None
        return self._held.get(key)

    async def current(self, key: ListKey, request: MountRequest, within: float) -> HeldList:
        """The list as it is now. Of a server that does not answer so soon, it is the one that was known last."""
        held = self.fresh(key)
        if held is not None:
            return held
        if self.clock() < self._due.get(key, 0.0):
            return await self._known(key, self.failures.get(key, ListFailure("")))
        began = self._began.setdefault(key, self.clock())
        try:
            # Who asks while others have waited for long already does not wait as long again.
            async with asyncio.timeout(max(0.0, began + within - self.clock())):
                return await self._reading.get(key, partial(self._read, key, request))
        except TimeoutError:
            failure = ListFailure(f"The server did not answer within {within:g} s.")
        except AdapterError as error:
            failure = ListFailure(self._why(error), isinstance(error, GrantRequired))
            self._due[key] = self.clock() + RETRY
        if not self.failures:
            self.on_missing(failure.why)
        self.failures[key] = failure
        return await self._known(key, failure)

    def _why(self, error: AdapterError) -> str:
        """What clients read of a failure: why the server is away says more than that nobody asks it now."""
        trouble = self.reader.server.trouble
        if not isinstance(error, UpstreamUnhealthy) or trouble is None:
            return str(error)
        return f"{trouble} The adapter asks it again in {math.ceil(error.retry_after or 1.0)} s."

    def follow(self, key: ListKey, request: MountRequest) -> None:
        """Read a list that failed again until it is there, as long as somebody wants to hear of that."""
        if key.whose is None:
            self._asked[key] = request._replace(session=None)
            if key in self.failures:
                self._look(key, RETRY)

    def _look(self, key: ListKey, pause: float, *, anew: bool = False) -> None:
        """Read a list that somebody may hear of, after so many seconds. Each is read by itself, so that one that fails
        or does not come keeps none waiting. ``anew``: one that is read already is read from the beginning.
        """
        looking = self._looking.get(key)
        if looking is not None and not looking.done():
            if not anew:
                return
            looking.cancel()
        if self.listeners.streams:
            self._looking[key] = asyncio.get_running_loop().create_task(self._look_again(key, pause))

    async def _look_again(self, key: ListKey, pause: float) -> None:
        while self.listeners.streams:
            await asyncio.sleep(pause)
            await self.current(key, self._asked[key], FRESH_FOR)
            # It may have changed once more while it was read.
            if self.fresh(key) is not None:
                return
            pause = min(max(RETRY, 2 * pause), FRESH_FOR)

    async def _known(self, key: ListKey, failure: ListFailure) -> HeldList:
        held = self._held.get(key) or await self._load(key)
        if held is None and failure.needs_grant and key.shape is TOOLS:
            held = self._sign_in
        if held is None:
            held = HeldList(0, ServerList(self.id, ()))
        return held._replace(missing=failure.why)

    async def _read(self, key: ListKey, request: MountRequest) -> HeldList:
        shape = key.shape
        try:
            for _ in range(READS):
                changes = self._changes
                read = self.reader.for_all if key.whose is None else self.reader.for_caller
                entries = await read(request, shape)
                if changes == self._changes:
                    break
        finally:
            self._began.pop(key, None)
        self.reader.server.trouble = None
        held = before = self._held.get(key) or await self._load(key)
        if held is None or held.entries != entries:
            held = HeldList(next(_serials), entries, sum(len(item) for _, item in entries.entries))
            self._hold(key, held)
        if changes == self._changes:
            self._note_read(key)
        if key.whose is None:
            await self._keep(key, held)
        was_missing = self.failures.pop(key, None) is not None
        if was_missing or (before is not None and held is not before):
            self.listeners.tell(shape)
        return held

    def _hold(self, key: ListKey, held: HeldList) -> None:
        self._held.put(key, held)
        self.on_held()

    def _note_read(self, key: ListKey) -> None:
        # Files of a caller come with any call of it.
        is_own = self.has_files and key.shape is RESOURCES and key.whose is not None
        self._due[key] = self.clock() + (0.0 if is_own else FRESH_FOR)
        if len(self._due) > 2 * MOST_HELD:
            held = self._held.values
            self._due = {each: due for each, due in self._due.items() if each in held}
            self.failures = {each: why for each, why in self.failures.items() if each in held}

    # --- what is written down ---------------------------------------------------------------------------------

    async def _keep(self, key: ListKey, held: HeldList) -> None:
        """Write a list down, unless it is there already."""
        method = key.shape.method
        is_early = self.clock() < self._written.get(method, 0.0) + PAUSE
        if held.size > LONGEST_STORED or self._stored.get(method) == held.serial or is_early:
            return
        value = b"[" + b",".join(item for _, item in held.entries.entries) + b"]"
        try:
            await self.store.put(TABLE, f"{self.id}/{method}", value)
        except StoreUnavailable:
            return
        self._stored[method], self._written[method] = held.serial, self.clock()

    async def _load(self, key: ListKey) -> HeldList | None:
        """The list that any process wrote down last; None where there is none, and of single callers."""
        if key.whose is not None:
            return None
        try:
            row = await self.store.get(TABLE, f"{self.id}/{key.shape.method}")
        except StoreUnavailable:
            return None
        if row is None:
            return None
        entries = await in_turns(stored_entries(row.value, key.shape))
        held = HeldList(next(_serials), ServerList.of(self.id, entries), len(row.value))
        self._hold(key, held)
        self._stored[key.shape.method] = held.serial
        return held
