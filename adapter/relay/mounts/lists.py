"""The lists of a merged mount, and who owns what is in them. What the servers list is joined once for each change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

from adapter.relay.background import in_turns, nothing
from adapter.relay.exchange import ClientRequest
from adapter.relay.mounts.held_lists import HeldList, HeldLists, ListKey, ListListeners
from adapter.relay.mounts.sessions import MountRequest, MountSession
from adapter.relay.stages import asked_cursor
from adapter.relay.tools.catalogue_cache import CHANGED, CatalogueTeller
from adapter.rules.access.access_rules import ListShape
from adapter.rules.last_used import LastUsed, Weight
from adapter.rules.mounts.lists import (
    KINDS,
    PROMPTS,
    RESOURCES,
    TEMPLATES,
    TOLD,
    TOOLS,
    MergedList,
    ServerList,
    change_of,
    cursor_of,
    list_response,
    merged,
    read_cursor,
)
from adapter.rules.mounts.names import HiddenName, NameTable, NamingRules, Owner, ServerNames
from adapter.rules.mounts.uris import ServerUris, UriTable
from adapter.state.port import Store, StoreListener
from adapter.wire.envelope import INVALID_PARAMS, error_response
from adapter.wire.eras import Era

KEPT, KEPT_BYTES = 64, 64 << 20
"""Joined lists of one mount, and their bytes, that are kept, and as many tables of names and of URIs."""

SNAPSHOT_SECONDS, SNAPSHOTS = 60.0, 1000
"""Seconds for which a list stays what it was for a caller who has its first page, and the number of such lists."""

NO_SUCH_CURSOR = (
    f"This cursor is not from this list, or the list has changed and {SNAPSHOT_SECONDS:g} s have passed since its "
    "first page: list again without a cursor."
)

MOST_TOLD = 1000
"""Hidden names of one mount that are told once."""

Serials = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ListRules:
    """How a mount joins lists. ``own_tools`` are the adapter's own of each server, ``own_resources`` those that all
    servers have alike. ``files``: see UriTable. ``timeout`` in seconds.
    """

    tools: NamingRules = field(default_factory=NamingRules)
    prompts: NamingRules = field(default_factory=NamingRules)
    own_tools: Mapping[str, frozenset[str]] = field(default_factory=dict)
    own_resources: frozenset[str] = frozenset()
    files: tuple[str, ...] = ()
    timeout: float = 3.0

    def naming(self, shape: ListShape) -> NamingRules:
        """The rules for names of this kind."""
        return self.tools if shape is TOOLS else self.prompts


class Snapshot(NamedTuple):
    """A list of which a caller has had the first page, and the servers that were missing in it."""

    found: MergedList
    missing: Mapping[str, str]
    expires: float = 0.0


@dataclass(eq=False)
class MountLists(StoreListener):
    """Answers requests for lists at one mount. ``servers`` are in its order; ``clock`` never goes back.

    Over ``store`` it tells other processes which server said that its lists have changed, and hears that of them.
    """

    servers: Sequence[HeldLists]
    rules: ListRules
    store: Store
    clock: Callable[[], float] = time.monotonic
    on_hidden: Callable[[HiddenName], None] = field(default=nothing, init=False)
    """Is told of each name that is hidden, when that is found out."""
    listeners: ListListeners = field(default_factory=ListListeners, init=False)
    tables: dict[str, NameTable] = field(default_factory=dict, init=False)
    """The tables that all callers share, as long as no list has changed, by the methods of the lists."""
    _told: LastUsed[HiddenName, bool] = field(default_factory=lambda: LastUsed(MOST_TOLD), init=False)
    _listless: dict[str, NameTable] = field(init=False)
    _joined: LastUsed[tuple[object, ...], MergedList] = field(init=False)
    _snapshots: LastUsed[str, Snapshot] = field(init=False)
    _names: LastUsed[tuple[str, Serials], NameTable] = field(init=False)
    _uris: LastUsed[Serials, UriTable] = field(init=False)

    def __post_init__(self) -> None:
        self._joined = LastUsed(KEPT, KEPT_BYTES, lambda found: Weight(id(found), found.size))
        self._snapshots = LastUsed(
            SNAPSHOTS, KEPT_BYTES, lambda held: Weight(id(held.found), held.found.size)
        )
        self._names, self._uris = LastUsed(KEPT), LastUsed(KEPT)
        self._by_id = {each.id: each for each in self.servers}
        for each in self.servers:
            each.on_held, each.listeners = self.tables.clear, self.listeners
        self._listless = {
            shape.method: NameTable(
                self.rules.naming(shape),
                [ServerNames(each.id, self._own(shape, each.id), {}) for each in self.servers],
            )
            for shape in (TOOLS, PROMPTS)
        }
        self._tellers = {
            (each.id, shape): CatalogueTeller(self.store, each.id, shape.key)
            for each, shape in product(self.servers, TOLD)
        }
        self.store.listeners.append(self)

    def __repr__(self) -> str:
        return f"<MountLists of {[each.id for each in self.servers]}>"

    def changed(self, server: str, shape: ListShape) -> None:
        """Ask for the lists of a server again before they are used next: it said that this one has changed."""
        self._changed(server, shape)
        self._tellers[server, shape]()

    def announced(self, topic: str, body: bytes) -> None:
        """See StoreListener."""
        if topic == CHANGED:
            server, _, kind = body.decode(errors="replace").partition("/")
            for shape in TOLD:
                if shape.key == kind:
                    self._changed(server, shape)

    def _changed(self, server: str, shape: ListShape) -> None:
        if (held := self._by_id.get(server)) is not None:
            held.changed(shape)

    async def leave(self, within: float) -> None:
        """End the adapter's own sessions, at servers as far as that takes no longer than ``within`` seconds."""
        if self in self.store.listeners:
            self.store.listeners.remove(self)
        self.listeners.close()
        await asyncio.gather(*(each.leave(within) for each in self.servers))

    def are_alike(self, server: str, shapes: Collection[ListShape]) -> bool:
        """Tell whether all callers see the same in these lists of a server."""
        return self._by_id[server].are_alike(shapes)

    # --- lists ------------------------------------------------------------------------------------------------

    async def merged(self, request: MountRequest) -> bytes:
        """The response to a request for a list, with what is known of each server within the mount's time."""
        envelope, shape = request.envelope, KINDS[request.envelope.method]
        cursor = asked_cursor(envelope.body)
        read = ("", 0) if cursor is None else read_cursor(cursor)
        if read is None:
            return error_response(envelope.id_bytes, INVALID_PARAMS, NO_SUCH_CURSOR)
        seal, page = read
        held = self._snapshots.values.get(seal)
        if held is None or self.clock() >= held.expires:
            # Another process gave the first page, or it was long ago: the list may be the same all the same.
            held = await self.now(shape, request)
        pages, own_seal = held.found.pages, held.found.seal(request.whose, shape.method)
        if cursor is not None and (seal != own_seal or page >= len(pages)):
            return error_response(envelope.id_bytes, INVALID_PARAMS, NO_SUCH_CURSOR)
        following = cursor_of(own_seal, page + 1) if page + 1 < len(pages) else None
        if cursor is None and following is not None:
            self._snapshots.put(own_seal, held._replace(expires=self.clock() + SNAPSHOT_SECONDS))
        return list_response(
            envelope.id_bytes,
            shape.key,
            pages[page],
            held.missing,
            modern=request.is_modern,
            cursor=following,
        )

    async def now(self, shape: ListShape, request: MountRequest) -> Snapshot:
        """The list as it is now."""
        lists = await self._all(shape, request)
        missing = {each.entries.server: each.missing for each in lists if each.missing is not None}
        return Snapshot(await self._merged(shape, lists, request), missing)

    async def _all(self, shape: ListShape, request: MountRequest) -> list[HeldList]:
        within = self.rules.timeout
        keys = [each.key_of(shape, request) for each in self.servers]
        known = [each.fresh(key) for each, key in zip(self.servers, keys, strict=True)]
        fresh = [held for held in known if held is not None]
        if len(fresh) == len(known):
            return fresh
        reads = (each.current(key, request, within) for each, key in zip(self.servers, keys, strict=True))
        found = await asyncio.gather(*reads)
        for each, key in zip(self.servers, keys, strict=True):
            each.follow(key, request)
        return found

    async def _merged(self, shape: ListShape, lists: Sequence[HeldList], request: MountRequest) -> MergedList:
        names = await self._table(shape, lists) if shape in (TOOLS, PROMPTS) else None
        resources: Sequence[HeldList] = ()
        templates: Sequence[HeldList] = ()
        if names is None or any(each.entries.links for each in lists):
            resources, templates = await self._all_uris(request)
        key = shape.method, _serials_of(lists), _serials_of(resources), _serials_of(templates)
        found = self._joined.get(key)
        if found is None:
            change = change_of(shape, names, self._uri_table(resources, templates))
            once = self.rules.own_resources if shape is RESOURCES else frozenset[str]()
            found = await in_turns(merged([each.entries for each in lists], change, once))
            self._joined.put(key, found)
        return found

    # --- owners -----------------------------------------------------------------------------------------------

    def is_certain(self, method: str, shown: str) -> bool:
        """Tell whether the owner of a name is the same whatever servers list; ``method`` is that of the list."""
        return self._listless[method].is_certain(shown)

    async def owner(self, request: MountRequest, method: str, shown: str) -> Owner | None:
        """The owner of a name that a client uses; ``method`` is that of the list in which it stands."""
        if (known := self.tables.get(method)) is not None:
            return known.owner(shown)
        if self.is_certain(method, shown):
            return self._listless[method].owner(shown)
        shape = KINDS[method]
        lists = self._last(shape, request)
        if not all(each.serial for each in lists):
            # Nobody has asked for some of them yet, and only the lists tell who owns it.
            return (await self._table(shape, await self._all(shape, request))).owner(shown)
        table = await self._table(shape, lists)
        if not any(each.varies for each in self.servers):
            self.tables[method] = table
        return table.owner(shown)

    async def owner_of_uri(self, request: MountRequest, uri: str) -> Owner | None:
        """The server that a URI of a client's belongs to, and the URI there; None where nobody has it."""
        last = [self._last(shape, request) for shape in (RESOURCES, TEMPLATES)]
        is_whole = all(each.serial for row in last for each in row)
        found = self._uri_table(*last).owner(uri) if is_whole else None
        # It may have come since.
        return found or self._uri_table(*await self._all_uris(request)).owner(uri)

    def last_uris(self, ask: ClientRequest, session: MountSession | None) -> UriTable | None:
        """The owners of URIs as far as lists are known; None where one server owns them all."""
        if len(self.servers) == 1:
            return None
        request = MountRequest(ask, session)
        return self._uri_table(*(self._last(shape, request) for shape in (RESOURCES, TEMPLATES)))

    def _last(self, shape: ListShape, request: MountRequest) -> list[HeldList]:
        """The lists that this caller had last, which are empty and without a number where there are none."""
        empty = (HeldList(0, ServerList(each.id, ())) for each in self.servers)
        found = (each.last(each.key_of(shape, request)) for each in self.servers)
        return [held or none for held, none in zip(found, empty, strict=True)]

    async def _all_uris(self, request: MountRequest) -> tuple[list[HeldList], list[HeldList]]:
        resources, templates = await asyncio.gather(
            self._all(RESOURCES, request), self._all(TEMPLATES, request)
        )
        return resources, templates

    async def _table(self, shape: ListShape, lists: Sequence[HeldList]) -> NameTable:
        key = shape.method, _serials_of(lists)
        table = self._names.get(key)
        if table is None:
            table = NameTable(self.rules.naming(shape), [await self._names_of(shape, each) for each in lists])
            self._names.put(key, table)
            self._tell(table.hidden)
        return table

    def _tell(self, hidden: Iterable[HiddenName]) -> None:
        for each in hidden:
            if self._told.get(each) is None:
                self._told.put(each, True)
                self.on_hidden(each)

    async def _names_of(self, shape: ListShape, held: HeldList) -> ServerNames:
        server, _, _ = held.entries
        names, own = held.entries.names, self._own(shape, server)
        return await in_turns(ServerNames.of(self.rules.naming(shape), server, names, own))

    def _own(self, shape: ListShape, server: str) -> frozenset[str]:
        return self.rules.own_tools.get(server, frozenset()) if shape is TOOLS else frozenset()

    def _uri_table(self, resources: Sequence[HeldList], templates: Sequence[HeldList]) -> UriTable:
        key = *_serials_of(resources), *_serials_of(templates)
        table = self._uris.get(key)
        if table is None:
            pairs = zip(resources, templates, strict=True)
            servers = [
                ServerUris(one.entries.server, one.entries.names, other.entries.names) for one, other in pairs
            ]
            table = UriTable(servers, self.rules.files)
            self._uris.put(key, table)
        return table

    # --- for operators ----------------------------------------------------------------------------------------

    @property
    def missing(self) -> dict[str, str]:
        """The servers of which something could not be listed at the last attempt, each with the reason."""
        return {each.id: next(iter(each.failures.values())).why for each in self.servers if each.failures}

    async def hidden(self) -> list[HiddenName]:
        """The names that are hidden because another server has them, as far as all callers see the same."""
        found: list[HiddenName] = []
        for shape, era in product((TOOLS, PROMPTS), Era):
            lists = [held for each in self.servers if (held := each.last(ListKey(shape, era))) is not None]
            found += (await self._table(shape, lists)).hidden
        return list(dict.fromkeys(found))

    def instructions(self) -> list[tuple[str, str | None]]:
        """The instructions of all servers, as far as they are known."""
        return [(each.id, each.reader.instructions) for each in self.servers]


def _serials_of(lists: Sequence[HeldList]) -> Serials:
    return tuple(each.serial for each in lists)
