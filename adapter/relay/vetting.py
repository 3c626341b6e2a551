"""Vetting: a call is judged by the same catalogue as the list, and the list by what its scope saw first.

An unchanged call costs two look-ups here. Only where the upstream's tools may have changed since the scope last saw
them is the list read again, once for all scopes, or in the scope's own session where that shows something else.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, CatalogueDrifted, ToolUnknown, UpstreamBroken
from adapter.relay.errands import Errands
from adapter.relay.listing import Page, ToolLists
from adapter.relay.offering import Definitions, Offered
from adapter.relay.pins import Pins
from adapter.relay.stages import Call
from adapter.rules.catalogue import Catalogue, catalogue_of
from adapter.rules.drift import Change, Drift, Rename, as_data, drift, sentence, warned
from adapter.rules.lists import has_no_such_method
from adapter.rules.tools import Tool
from adapter.wire.envelope import dump
from adapter.wire.failure import failure
from adapter.wire.spans import Drop, Edit, Insert, edit, find, items

VIEWS = 100_000
"""Scopes whose last verdict is remembered; one that was dropped is judged anew at its next call."""

PAGES = 1000
"""Pages of one list that are read."""

RETRY = 30.0
"""Seconds after which tools that could not be read are asked for again, where no call depends on them."""

VARIANTS = 4096
"""Names that nobody lists, for which it is remembered whether they are refused."""


@dataclass(frozen=True, slots=True)
class Pinning:
    """``tool_definition_pinning`` of one server. ``lock`` is the baseline that a file sets for every scope."""

    mode: Literal["off", "warn", "block"] = "warn"
    subset: bool = False
    invalidate: bool = True
    lock: Catalogue | None = None


@dataclass(frozen=True, slots=True)
class View:
    """What a scope may call, found at one ``epoch`` of the catalogue."""

    epoch: int
    now: Catalogue
    drift: Drift | None
    allowed: Mapping[str, object] | frozenset[str]


_CHANGED = b"tools/list_changed"

Revoke = Callable[[str, str], Awaitable[None]]
"""End the session of this key, with the reason that its client is told."""


class Vetting:
    """The judge of one server's tools. ``hidden`` says of a name whether policy hides it, in any spelling.

    ``fresh_for``: seconds after which the upstream's tools may have changed without a word. ``now`` is a clock that
    never goes back. ``definitions`` is where those that were read are kept, which ``seen`` and ``offered`` need.
    """

    def __init__(
        self,
        server: str,
        lists: ToolLists,
        hidden: Callable[[str], bool],
        pinning: Pinning,
        pins: Pins,
        *,
        revoke: Revoke,
        fresh_for: float,
        now: Callable[[], float],
        errands: Errands,
        log: FilteringBoundLogger,
        definitions: Definitions | None = None,
    ) -> None:
        self._server = server
        self._lists = lists
        self._hidden = hidden
        self._pinning = pinning
        self._pins = pins
        self._revoke = revoke
        self._fresh_for = fresh_for
        self._now = now
        self._errands = errands
        self._log = log
        self._definitions = definitions
        self._epoch = 0
        self._stale_at = float("-inf")
        self._shared: Catalogue | None = None
        self._known: set[str] = set()
        self._reading: asyncio.Task[Catalogue | None] | None = None
        self._views: OrderedDict[str, View] = OrderedDict()
        self._variants: OrderedDict[str, bool] = OrderedDict()
        self._viewing: set[str] = set()
        self._retry_at = float("-inf")
        self._told: set[tuple[str, str]] = set()
        self.drifts = 0

    def __repr__(self) -> str:
        return f"<Vetting of {self._server!r}: {self._pinning.mode}, {len(self._views)} scopes>"

    # --- what may have changed --------------------------------------------------------------------------------

    def changed(self) -> None:
        """The upstream's tools may be others now: it said so, or it began anew."""
        self._epoch += 1
        self._shared = None
        self._known.clear()

    def listener(self) -> Callable[[bytes], None]:
        """See Gate. The word may be cut in two, so the end of each chunk is looked at with the next."""
        end = b""

        def heed(chunk: bytes) -> None:
            nonlocal end
            if _CHANGED in end + chunk:
                self.changed()
            end = chunk[1 - len(_CHANGED) :]

        return heed

    # --- calls ------------------------------------------------------------------------------------------------

    def passes(self, scope_id: str, name: str | None) -> bool:
        """Whether a call may go on without being judged: its scope saw this very tool, and nothing has changed.

        The adapter's own tools always may.
        """
        if name in self._lists.own_names:
            return True
        if self._pinning.mode == "off":
            return name is not None and not self._refuses(name)
        view = self._views.get(scope_id)
        return (
            view is not None
            and view.epoch == self._epoch
            and self._now() < self._stale_at
            and name in view.allowed
        )

    async def admit(self, call: Call) -> None:
        """Judge a call before anything of it goes upstream. Raises ToolUnknown, CatalogueDrifted, and what the
        upstream raises when its tools are not known and cannot be read.
        """
        name = call.envelope.name
        if name is None:
            return
        if self._refuses(name):
            raise ToolUnknown(f"Unknown tool: {name}")
        if self._pinning.mode == "off":
            return
        if self._pinning.mode == "warn":
            # Nothing will be refused, so nobody waits for what is only to be pinned and told.
            if call.scope.id not in self._viewing and self._now() >= self._retry_at:
                self._viewing.add(call.scope.id)
                self._errands.run(self._view_quietly(call))
            return
        view = await self._view(call)
        if view.drift is None or name in view.allowed:
            return
        if self._pinning.subset or name in _gone(view.drift) or name in view.drift.unsettled:
            raise await self._refusal(call, view.drift)

    async def _view_quietly(self, call: Call) -> None:
        try:
            await self._view(call)
        except AdapterError as error:
            self._retry_at = self._now() + RETRY
            self._log.info("tools could not be pinned yet", server=self._server, why=error.code)
        finally:
            self._viewing.discard(call.scope.id)

    def _refuses(self, name: str) -> bool:
        known = self._variants.get(name)
        if known is None:
            known = self._variants[name] = self._hidden(name)
            if len(self._variants) > VARIANTS:
                self._variants.popitem(last=False)
        return known

    async def _view(self, call: Call) -> View:
        """How the scope of this call stands to what the upstream offers now."""
        self._outlive()
        view = self._views.get(call.scope.id)
        if view is not None and view.epoch == self._epoch:
            return view
        while True:
            epoch = self._epoch
            shared = await self._read_once(call)
            if epoch == self._epoch:
                break
        if shared is None:
            raise UpstreamBroken("The upstream server did not list its tools, so none can be called.")
        view = await self._compared(call, shared)
        if view.drift is not None and self._epoch == epoch:
            # Others may be offered other tools; what counts is what this scope is.
            own = await self._read(call)
            if own is not None and own.digest != shared.digest:
                view = await self._compared(call, own)
        return view

    def _outlive(self) -> None:
        """What was read too long ago counts as changed."""
        if self._now() >= self._stale_at:
            self.changed()
            self._stale_at = self._now() + self._fresh_for

    async def _compared(self, call: Call, now: Catalogue) -> View:
        baseline = await self._baseline(call, now)
        found = None if baseline.digest == now.digest else drift(baseline.tools, now.tools)
        if found is not None and self._pinning.lock is None:
            accepted = await self._pins.look_up(self._server)
            if accepted is not None and accepted.digest == now.digest:
                found = None
        if found is not None:
            self._report(baseline, now, found)
            if found.is_of_other_keys_only:
                # Told, but no reason to keep a model from what it knows.
                found = None
        allowed: frozenset[str] | Mapping[str, object] = now.tools
        if found is not None and self._pinning.mode == "block":
            allowed = frozenset(now.tools.keys() - found.unsettled)
        view = View(self._epoch, now, found, allowed)
        self._views[call.scope.id] = view
        self._views.move_to_end(call.scope.id)
        if len(self._views) > VIEWS:
            self._views.popitem(last=False)
        return view

    async def _baseline(self, call: Call, now: Catalogue) -> Catalogue:
        """What the scope saw first; ``now``, if that is now."""
        if self._pinning.lock is not None:
            return self._pinning.lock
        pin = await self._pins.of(self._server, call.scope.id)
        if pin is None:
            pin = await self._pins.pin(self._server, call.scope.id, now)
        if pin.digest == now.digest:
            return now
        return await self._pins.catalogue(pin.digest) or now

    def _report(self, baseline: Catalogue, now: Catalogue, found: Drift) -> None:
        """One line for what became of one catalogue, however many scopes it concerns."""
        self.drifts += 1
        key = (baseline.digest, now.digest)
        if key not in self._told and len(self._told) < 10_000:
            self._told.add(key)
            self._log.warning(
                "tools changed", server=self._server, mode=self._pinning.mode, drift=as_data(found)
            )

    async def _refusal(self, call: Call, found: Drift) -> CatalogueDrifted:
        """The error of a call or list that drift concerns; the session ends with it where that is configured."""
        ends = self._pinning.invalidate and not self._pinning.subset and call.session is not None
        if ends and call.session is not None:
            await self._revoke(call.session, sentence(found))
        advice = "Send initialize again to accept them." if ends else "An operator has to accept them."
        return CatalogueDrifted(f"{sentence(found)} {advice}", data={"drift": as_data(found)})

    # --- code mode --------------------------------------------------------------------------------------------

    async def offered(self, call: Call) -> Offered:
        """What the scope of this call may use, with definitions. Raises as ``seen`` does, and CatalogueDrifted where
        the list of tools would.
        """
        if self._pinning.mode == "block" and not self._pinning.subset:
            view = await self._view(call)
            if view.drift is not None:
                raise await self._refusal(call, view.drift)
        return await self.seen(call)

    async def seen(self, call: Call) -> Offered:
        """What the upstream offers now, and which of it the scope of this call may use.

        Raises UpstreamBroken where no list can be had, and what the upstream raises.
        """
        assert self._definitions is not None, "definitions are kept where they are asked for"
        if self._pinning.mode == "off":
            self._outlive()
            now = await self._read_once(call)
            if now is None:
                raise UpstreamBroken("The upstream server did not list its tools.")
            view = View(self._epoch, now, None, now.tools)
        else:
            view = await self._view(call)
        definitions = self._definitions.of(view.now.digest)
        if definitions is None:
            # Read so long ago that other catalogues took its place.
            await self._read(call)
            definitions = self._definitions.of(view.now.digest)
        if definitions is None:
            raise UpstreamBroken("The upstream server's tools changed while they were read; try again.")
        allowed = view.allowed if isinstance(view.allowed, frozenset) else view.allowed.keys()
        return Offered(
            view.now.digest, definitions, allowed, view.drift if self._pinning.mode == "warn" else None
        )

    # --- reading ----------------------------------------------------------------------------------------------

    async def _read_once(self, call: Call) -> Catalogue | None:
        """The catalogue as somebody read it in this epoch; read now, by one for all, if nobody has."""
        if self._shared is not None:
            return self._shared
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read_for_all(call))
        return await asyncio.shield(self._reading)

    async def _read_for_all(self, call: Call) -> Catalogue | None:
        epoch = self._epoch
        try:
            found = await self._read(call)
            if found is not None and epoch == self._epoch:
                self._shared = found
                self._known.add(found.digest)
            return found
        finally:
            self._reading = None

    async def _read(self, call: Call) -> Catalogue | None:
        """All pages of the list, in the upstream session of this call; None where that gives no list."""
        if call.fetch is None:
            return None
        tools: list[Tool] = []
        cursor: str | None = None
        for number in range(PAGES):
            response = await call.fetch("tools/list", {} if cursor is None else {"cursor": cursor})
            if response is None:
                return None
            if number == 0 and has_no_such_method(response):
                break
            page = self._lists.page(response, b"null", first=number == 0, modern=call.modern)
            if page.tools is None:
                return None
            tools += page.tools
            cursor = page.cursor
            if cursor is None:
                break
        found = catalogue_of(tools)
        if self._definitions is not None:
            self._definitions.keep(found.digest, tools)
        await self._pins.saw(self._server, found)
        return found

    # --- lists ------------------------------------------------------------------------------------------------

    async def ask(self, call: Call) -> bytes | None:  # noqa: ARG002 - as a stage, this one only answers
        return None

    async def answer(self, call: Call, response: bytes) -> bytes:
        """A list as the client may see it."""
        first = find(call.request, ("params", "cursor")) is None
        page = self._lists.page(response, call.envelope.id_bytes, first=first, modern=call.modern)
        if self._pinning.mode == "off" or page.tools is None:
            return page.response
        view = await self._view_of_list(call, page, first=first)
        if view.drift is None:
            return page.response
        if self._pinning.mode == "warn":
            return _with_warnings(page, view.drift)
        if self._pinning.subset:
            return _only(page, view.allowed)
        return failure(await self._refusal(call, view.drift), call.envelope.id_bytes)

    async def _view_of_list(self, call: Call, page: Page, *, first: bool) -> View:
        """Judge by the list itself where it is whole, else by all its pages."""
        if not (first and page.cursor is None):
            return await self._view(call)
        assert page.tools is not None
        found = catalogue_of(page.tools)
        if found.digest not in self._known:
            # Nobody was offered these before, so what others last saw may be over too.
            self.changed()
            self._stale_at = self._now() + self._fresh_for
            self._shared = found
            self._known.add(found.digest)
        view = self._views.get(call.scope.id)
        if view is not None and view.epoch == self._epoch and view.now.digest == found.digest:
            return view
        await self._pins.saw(self._server, found)
        return await self._compared(call, found)


def _gone(found: Drift) -> set[str]:
    """Names that a client may still call and nobody offers any more."""
    return {*found.removed, *(rename.old for rename in found.renamed)}


def _with_warnings(page: Page, found: Drift) -> bytes:
    """The page with a warning first in the description of each tool that is not what it was."""
    assert page.tools is not None
    why: dict[str, Change | Rename] = {change.name: change for change in found.changed}
    why |= {rename.new: rename for rename in found.renamed}
    edits: list[Edit] = []
    for place, tool in _places(page):
        if tool.name in found.unsettled:
            described = tool.value.get("description")
            text = warned(described if isinstance(described, str) else None, why.get(tool.name))
            edits.append(Insert(("result", "tools", place, "description"), dump(text)))
    return edit(page.response, edits) if edits else page.response


def _only(page: Page, allowed: Mapping[str, object] | frozenset[str]) -> bytes:
    """The page without the tools that are not allowed."""
    edits: list[Edit] = [
        Drop(("result", "tools", place)) for place, tool in _places(page) if tool.name not in allowed
    ]
    return edit(page.response, edits) if edits else page.response


def _places(page: Page) -> list[tuple[int, Tool]]:
    """The upstream's tools and where they stand in the page's list, behind the adapter's own."""
    assert page.tools is not None
    span = find(page.response, ("result", "tools"))
    assert span is not None
    texts = [page.response[start:end] for start, end in items(page.response, span[0])]
    found: list[tuple[int, Tool]] = []
    place = 0
    for tool in page.tools:
        while place < len(texts) and texts[place] != tool.raw:
            place += 1
        found.append((place, tool))
        place += 1
    return found
