"""The cache of one server's catalogue: all that is known of its tools and may become untrue.

Each event has one method of ``CatalogueCache``, and this is all that it makes forgotten:

============================================  ===================  ==================================================
event                                         method               forgotten
============================================  ===================  ==================================================
``list_changed`` on a stream (``listener``)   ``changed``          the snapshot, all verdicts, reads under way
the upstream began anew                       ``changed``          the same
a scope is sent another list, or newer page   ``note_list``,       the same, unless scopes are offered different
                                              ``note_page``        tools
the time to live is over                      ``expire``           the snapshot and all verdicts, but no read that is
                                                                   under way: it is new enough
an operator accepts                           ``accept``           the operator's last word and all verdicts
the last word is ``LOOKED_UP`` seconds old    (at the next look)   the operator's last word: another process may have
                                                                   accepted
a scope ends                                  ``end``              its verdict; its pin is taken away next
another process heard ``list_changed``        ``changed``          as here
another process wrote what an operator        ``doubt``            nothing yet: the next use reads both rows again
accepts, or what was seen last, or may have                        (``confirm``). A pin that an operator accepted is
                                                                   one ``accept``, other tools are one ``changed``
another process wrote or removed a pin        ``drop_pin``         the pin and the verdict of its scope
a lock file changes                           none                 nothing: lock files are read at start, and
                                                                   ``serve --watch`` starts the process anew
============================================  ===================  ==================================================

A verdict with drift is also judged anew as soon as an operator has accepted the catalogue that it is about. All other
objects keep values by a digest or by equal bytes, which cannot become untrue and are only dropped for room. A tool
whose definition was not read stays refused (``ToolLists``) until a list shows it with one that can be read.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TypeVar

from adapter.relay.background import nothing
from adapter.relay.tools.pins import BASELINES, PINS, SEEN, Pin, weight
from adapter.rules.last_used import LastUsed, Weight
from adapter.rules.tools.catalogue import CatalogueSnapshot, Verdict
from adapter.state.port import Store

SCOPES = 100_000
"""Scopes whose last verdict is kept, and as many pins. A dropped one is found again in the store."""

KEPT_BYTES = 128 << 20
"""Bytes of catalogues that the verdicts may hold: a server may offer each scope another one."""

ENDED = 10_000
"""Scopes that ended last, for which a call under way may still ask."""

LOOKED_UP = 10.0
"""Seconds for which it is remembered what an operator has accepted, or that nobody has."""

ELSEWHERE = 64
"""Catalogues that were last seen by other processes, and are not what is offered here."""

_WORD = b"list_changed"
# Some servers escape every slash.
_CHANGED = re.compile(rb"tools\\?/list_changed")
_SEAM = len(rb"tools\/list_changed") - 1

K = TypeVar("K")
V = TypeVar("V")


def verdict_weight(verdict: Verdict) -> Weight:
    """The weight of a verdict: that of the catalogue that it is about, and as much again for the tools as they came."""
    now = weight(verdict.now)
    return now._replace(size=2 * now.size)


class CatalogueCache:
    """The memory of one server's tools. ``fresh_for``: seconds after which they may have changed without notice.

    With 0 each call reads them anew, though simultaneous calls share one read. ``now`` is a clock that never goes back.
    ``apart``: callers have credentials of their own at the server, so no list counts for another scope.
    """

    def __init__(self, fresh_for: float, now: Callable[[], float], *, apart: bool = False) -> None:
        self._fresh_for = fresh_for
        self._now = now
        self._fresh_until = float("-inf")
        self.doubts = 0
        """The number of times that another process may have changed what is known from the store."""
        self.is_confirmed = True
        """Whether what is known from the store is what it holds, as far as anybody has told."""
        self._elsewhere = OrderedDict[str, None]()
        # A list may be answered by another process than the one that was asked for it.
        self._process = secrets.token_hex(4)
        self.epoch = 0
        """The number of times that the tools may have changed: a read of an earlier epoch came too late."""
        self.apart = apart
        self.varies = apart
        """Whether scopes are offered different tools, so that a list of one says nothing of another's."""
        self.snapshot: CatalogueSnapshot | None = None
        self._read_in = ""
        self._verdicts = LastUsed[str, Verdict](SCOPES, KEPT_BYTES, verdict_weight)
        self.last_verdict = self._verdicts.values.get
        """The last verdict on a scope, by its id; the time to live may be over."""
        self.keep_verdict = self._verdicts.put
        self.pins = OrderedDict[str, Pin]()
        """The pins that are known and that no other process may have changed, by scope id."""
        self.tell: Callable[[], None] = nothing
        """Tells other processes that the tools may have changed."""
        self.ended = OrderedDict[str, None]()
        """Ids of the scopes that have ended of late."""
        self.first: Pin | None = None
        """The catalogue that anybody saw first."""
        self.written = ""
        """The digest of the catalogue that was written down as the last that was seen."""
        self._accepted: tuple[float, Pin | None] = float("-inf"), None

    def __repr__(self) -> str:
        return f"<CatalogueCache: epoch {self.epoch}, {len(self._verdicts)} verdicts, {len(self.pins)} pins>"

    # --- events -----------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Forget the catalogue: the upstream's tools may be others now."""
        self.epoch += 1
        # A read that is under way notices by the epoch that it came too late.
        self._forget_catalogue()

    def expire(self) -> None:
        """Forget what was read too long ago."""
        if self._now() >= self._fresh_until:
            self._forget_catalogue()
            self._fresh_until = self._now() + self._fresh_for

    def note_list(self, scope_id: str, snapshot: CatalogueSnapshot) -> None:
        """Take note of a whole list that a scope was sent just now."""
        if self.snapshot is not None and not self.snapshot.is_same(snapshot):
            if self.varies:
                return
            self.changed()
        elif self._now() >= self._fresh_until:
            self._forget_catalogue()
        self.keep_snapshot(scope_id, snapshot)

    def note_page(self, page: CatalogueSnapshot) -> None:
        """Take note of a page of a list that a scope was sent just now."""
        if self.snapshot is not None and not self.snapshot.covers(page):
            self.changed()

    def accept(self) -> None:
        """Forget the accepted pin and all verdicts: an operator has accepted or settled something."""
        self._accepted = float("-inf"), None
        self._verdicts.clear()

    def end(self, scope_id: str) -> None:
        """Forget the verdict on a scope that has ended."""
        self._verdicts.drop(scope_id)
        _put(self.ended, scope_id, None, ENDED)

    def _forget_catalogue(self) -> None:
        self.snapshot = None
        self._verdicts.clear()

    def listener(self) -> Callable[[bytes], None]:
        """Return the observer of one stream, chunk by chunk.

        The word may be cut in two, so an end in the middle of a line is looked at again with the beginning of the
        next chunk.
        """
        end = b""

        def observe(chunk: bytes) -> None:
            nonlocal end
            # Hardly a chunk has the word, so it is looked for before anything is called; ``in`` takes longer than that.
            has_word = chunk.find(_WORD) >= 0
            if (has_word and _tells_change(chunk)) or (end and _tells_change(end + chunk[:_SEAM])):
                self.changed()
                self.tell()
            if chunk and chunk[-1] in b"\n\r":
                # Chunks mostly end so, and the word holds no line end.
                end = b""
            else:
                end = chunk[-_SEAM:] if len(chunk) >= _SEAM else (end + chunk)[-_SEAM:]

        return observe

    # --- other processes --------------------------------------------------------------------------------------

    def doubt(self) -> None:
        """Have the rows of this server be read again before anything that depends on them is used."""
        self.doubts += 1
        self.is_confirmed = False
        self.pins.clear()

    def store_lost(self) -> None:
        """Forget what is written down, so that it is again."""
        self.first, self.written = None, ""

    def confirm(self, doubts: int, accepted: Pin | None, seen: Pin | None) -> None:
        """Take note of the rows as they were read when there had been so many ``doubts``.

        ``accepted`` is the pin that an operator accepted, ``seen`` that of what any process saw last.
        """
        if accepted != self._accepted[1]:
            self.accept()
        if seen is not None:
            self.written = seen.digest
            self._compare_seen(seen.digest)
        if doubts == self.doubts:
            self.is_confirmed = True
        self.keep_accepted(accepted)

    def _compare_seen(self, digest: str) -> None:
        """Forget the catalogue if another process was offered another one, once for each that is not offered here."""
        if self.varies or self.snapshot is None or self.snapshot.catalogue.digest == digest:
            return
        if digest not in self._elsewhere:
            _put(self._elsewhere, digest, None, ELSEWHERE)
            self.changed()

    # --- the catalogue ----------------------------------------------------------------------------------------

    @property
    def mark(self) -> str:
        """The name of this moment: while it is the same, nothing is known to have changed."""
        return f"{self._process}.{self.epoch}"

    def keep_snapshot(self, scope_id: str, snapshot: CatalogueSnapshot) -> None:
        """Remember the list that was read in the upstream session of this scope."""
        self.snapshot, self._read_in = snapshot, scope_id
        self._elsewhere.pop(snapshot.catalogue.digest, None)
        self._fresh_until = self._now() + self._fresh_for

    def fresh_snapshot(self) -> CatalogueSnapshot | None:
        """The list that every scope is offered at this moment, None if that is not known."""
        is_fresh = self.is_confirmed and not self.varies and self._now() < self._fresh_until
        return self.snapshot if is_fresh else None

    def is_from(self, scope_id: str) -> bool:
        """Tell whether the snapshot was read in this very scope's upstream session."""
        return self.varies or self._read_in == scope_id

    def verdict(self, scope_id: str) -> Verdict | None:
        """The verdict on a scope, unless something may have changed since."""
        is_fresh = self.is_confirmed and self._now() < self._fresh_until
        return self.last_verdict(scope_id) if is_fresh else None

    # --- pins -------------------------------------------------------------------------------------------------

    def keep_pin(self, scope_id: str, pin: Pin, doubts: int) -> None:
        """Remember the pin of a scope as it was when there had been so many ``doubts``."""
        if doubts == self.doubts:
            _put(self.pins, scope_id, pin)

    def drop_pin(self, scope_id: str) -> None:
        """Forget the pin of a scope, and what was judged by it: another process has written or removed it."""
        self.pins.pop(scope_id, None)
        self._verdicts.drop(scope_id)

    def accepted(self) -> tuple[bool, Pin | None]:
        """Tell whether it is known what an operator has accepted, and the pin of that."""
        since, pin = self._accepted
        return self.is_confirmed and self._now() - since <= LOOKED_UP, pin

    def keep_accepted(self, pin: Pin | None) -> None:
        """Remember what an operator has accepted by now."""
        self._accepted = self._now(), pin


def _put(kept: OrderedDict[K, V], key: K, value: V, most: int = SCOPES) -> None:
    kept[key] = value
    if len(kept) > most:
        kept.popitem(last=False)


def _tells_change(text: bytes) -> bool:
    return _WORD in text and _CHANGED.search(text) is not None


# --- words between processes that share a store -------------------------------------------------------------------

CHANGED = "lists changed"
"""Topic: a list of a server may have changed. The body is the server's id, and the kind of the list behind a slash."""

TOOLS = "tools"

PACE = 0.05
"""Seconds between two words about one list: an upstream may say at any rate that its tools have changed."""


class CatalogueListener:
    """Hears what other processes do to the rows of pins; see StoreListener. ``caches`` are those of servers by id.

    ``pinned`` are those of them whose rows are read.
    """

    def __init__(self, caches: Mapping[str, CatalogueCache], pinned: Mapping[str, CatalogueCache]) -> None:
        self._caches = caches
        self._pinned = pinned

    def __repr__(self) -> str:
        return f"<CatalogueListener of {len(self._caches)} servers>"

    def row_changed(self, table: str, key: str) -> None:
        """See StoreListener."""
        if table in (BASELINES, SEEN) and key in self._pinned:
            self._pinned[key].doubt()
        elif table == PINS:
            server, _, scope_id = key.rpartition("/")
            if server in self._pinned:
                self._pinned[server].drop_pin(scope_id)

    def rows_unknown(self) -> None:
        """See StoreListener."""
        for cache in self._pinned.values():
            cache.doubt()

    def announced(self, topic: str, body: bytes) -> None:
        """See StoreListener."""
        server, _, kind = body.decode(errors="replace").partition("/")
        if topic == CHANGED and kind == TOOLS and (cache := self._caches.get(server)) is not None:
            cache.changed()


class CatalogueTeller:
    """Tells other processes that a list of one server may have changed: at once, and then once for each ``PACE``."""

    def __init__(self, store: Store, server: str, kind: str = TOOLS) -> None:
        self._store = store
        self._body = f"{server}/{kind}".encode()
        self._pause: asyncio.TimerHandle | None = None
        self._again = False

    def __repr__(self) -> str:
        return f"<CatalogueTeller of {self._body.decode()!r}>"

    def __call__(self) -> None:
        """Tell it now, or at the end of the pause."""
        if self._pause is not None:
            self._again = True
            return
        self._store.announce(CHANGED, self._body)
        self._pause = asyncio.get_running_loop().call_later(PACE, self._resume)

    def _resume(self) -> None:
        self._pause = None
        if self._again:
            self._again = False
            self()
