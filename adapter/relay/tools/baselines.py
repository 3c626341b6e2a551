"""Baselines: the catalogues that scopes, and servers themselves, are compared with; and an operator's review of them.

A baseline is a scope's own pin, the server's first catalogue, an accepted one, or that of a lock file. The review
compares it with the catalogue that was seen last in any client's session: sessions may be offered different tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from structlog.typing import FilteringBoundLogger

from adapter.errors import BoundByFile, CatalogueMoved, NothingToAccept
from adapter.relay.background import SingleFlight, in_turns
from adapter.relay.stages import Call
from adapter.relay.tools.catalogue_cache import CatalogueCache
from adapter.relay.tools.pins import Origin, Pin, Pins, PinStatus, ScopeKey
from adapter.rules.access.principals import Scope, name_of, party_of
from adapter.rules.tools.catalogue import Catalogue, PinRule, read_as
from adapter.rules.tools.drift import Drift, DriftSighting, RememberedDrift, drift_piecewise
from adapter.rules.tools.drift_report import summary


@dataclass(eq=False, repr=False, slots=True)
class Baselines:
    """The baselines of ``server``. Every method that waits raises StoreUnavailable.

    ``of_principal`` gives the scope of a principal, whatever sessions it has; ``clock`` gives Unix time.
    """

    server: str
    pinning: PinRule
    pins: Pins
    cache: CatalogueCache
    of_principal: Callable[[str], Scope]
    clock: Callable[[], float]
    log: FilteringBoundLogger
    _confirming: SingleFlight[int, None] = field(default_factory=SingleFlight, init=False)
    _accepting: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    # --- other processes --------------------------------------------------------------------------------------

    async def confirm(self) -> None:
        """Read the rows of this server again if another process may have changed them."""
        doubts = self.cache.doubts
        if not self.cache.is_confirmed:
            await self._confirming.get(doubts, partial(self._confirm, doubts))

    async def _confirm(self, doubts: int) -> None:
        accepted, seen = await asyncio.gather(
            self.pins.accepted(self.server), self.pins.last_seen(self.server)
        )
        self.cache.confirm(doubts, accepted, seen)

    # --- the server -------------------------------------------------------------------------------------------

    async def of_server(self, now: Catalogue) -> Catalogue:
        """The catalogue that the server is compared with, independent of its scopes' pins."""
        if self.pinning.lock is not None:
            return self.pinning.lock
        return await self._catalogue(await self._pin_of_server(), now)

    async def last_seen(self) -> Catalogue | None:
        """The catalogue that was seen last in any session."""
        pin = await self.pins.last_seen(self.server)
        return await self.pins.catalogue(pin.digest) if pin is not None else None

    async def note_seen(self, now: Catalogue) -> None:
        """Write down what the server offers, unless that is what was written down last."""
        if self.cache.written != now.digest:
            await self.pins.keep_seen(self.server, now)
            self.cache.written = now.digest

    async def is_accepted(self, now: Catalogue) -> bool:
        """Tell whether an operator has accepted this catalogue by now."""
        if self.pinning.lock is not None:
            return False
        accepted = await self._look_up()
        return accepted is not None and accepted.digest == now.digest

    async def _pin_of_server(self) -> Pin | None:
        return await self._accepted() or await self._first()

    async def _first(self) -> Pin | None:
        if self.cache.first is None:
            self.cache.first = await self.pins.first(self.server)
        return self.cache.first

    async def _accepted(self) -> Pin | None:
        """The accepted pin, as of a few seconds ago."""
        is_known, pin = self.cache.accepted()
        return pin if is_known else await self._look_up()

    async def _look_up(self) -> Pin | None:
        """The accepted pin of this moment."""
        pin = await self.pins.accepted(self.server)
        self.cache.keep_accepted(pin)
        return pin

    async def _catalogue(self, pin: Pin | None, now: Catalogue) -> Catalogue:
        if pin is None or pin.digest == now.digest:
            return now
        known = await self.pins.catalogue(pin.digest)
        # A catalogue that cannot be read counts as one without tools.
        return known if known is not None else Catalogue(pin.digest, {})

    # --- scopes -----------------------------------------------------------------------------------------------

    async def of(self, call: Call, now: Catalogue) -> Catalogue:
        """The catalogue that the scope of a call starts from: ``now``, if it has no baseline yet."""
        if self.pinning.lock is not None:
            return self.pinning.lock
        if self.pinning.baseline == "server":
            pin = await self._pin_of_server()
        else:
            pin = await self.pin(self._scope_of(call), now)
        if pin is not None and pin.digest != now.digest:
            # An operator may have accepted in this very moment.
            accepted = await self._look_up()
            if accepted is not None and (accepted.since >= pin.since or accepted.digest == now.digest):
                pin = accepted
        return await self._catalogue(pin, now)

    def may_wait(self, call: Call, now: Catalogue) -> bool:
        """Tell whether the pin of a call's scope is of no use once the scope has ended.

        It is if it would outlive the session, and where operators are to hear that other tools are offered.
        """
        if self._scope_of(call) is not call.scope:
            return False
        known, accepted = self.cache.accepted()
        baseline = self.pinning.lock or accepted or self.cache.first
        return known and baseline is not None and baseline.digest == now.digest == self.cache.written

    async def pin_of(self, scope_id: str) -> Pin | None:
        """The pin of this scope: its own, or the one that an operator accepted later."""
        own, doubts = self.cache.pins.get(scope_id), self.cache.doubts
        if own is None and (own := await self.pins.of(ScopeKey(self.server, scope_id))) is not None:
            self.cache.keep_pin(scope_id, own, doubts)
        accepted = await self._accepted()
        if accepted is not None and (own is None or own.since <= accepted.since):
            return accepted
        return own

    async def pin(self, scope: Scope, now: Catalogue) -> Pin:
        """Pin the scope unless it is pinned already; return what it is pinned to."""
        new = Pin(now.digest, self.clock())
        accepted = await self._accepted()
        if scope.id in self.cache.ended:
            # Nobody would remove the pin again.
            return accepted or new
        if accepted is not None or scope.id in self.cache.pins:
            return await self.pin_of(scope.id) or new
        await self.pins.keep(self.server, now)
        key, doubts = ScopeKey(self.server, scope.id), self.cache.doubts
        if self.pins.shared or self._accepting.locked():
            # Asked together they cost the store one turn, and an operator rarely accepts in this very moment.
            accepted, is_first = await asyncio.gather(self._look_up(), self.pins.add(key, new, scope.owner))
        else:
            is_first = await self.pins.add(key, new, scope.owner)
        if not is_first:
            # Another replica was faster, or another call of the same scope.
            return await self.pin_of(scope.id) or new
        if accepted is not None or scope.id in self.cache.ended:
            await self.pins.remove(key)
        else:
            self.cache.keep_pin(scope.id, new, doubts)
        return accepted or new

    async def forget(self, scope_id: str, *, unknown: bool = False) -> None:
        """Remove the pin of a scope that has ended.

        ``unknown``: also one that this process does not know. Those that remain the cleanup removes.
        """
        self.cache.end(scope_id)
        if self.cache.pins.pop(scope_id, None) is not None or unknown:
            await self.pins.remove(ScopeKey(self.server, scope_id))

    async def begins_anew_with_session(self, call: Call) -> bool:
        """Tell whether a new session in place of this call's would start from the tools offered then."""
        pinning, scope = self.pinning, self._scope_of(call)
        if pinning.lock is not None or pinning.baseline == "server" or scope.session_key is None:
            return False
        return await self._accepted() is None

    def _scope_of(self, call: Call) -> Scope:
        """The scope whose pin counts for a call.

        A caller over HTTP is pinned by principal, since its sessions are short and would take their pins with them.
        """
        caller = call.origin.caller
        return (
            self.of_principal(party_of(caller) if self.cache.apart else caller.principal)
            if caller.entrance == "http"
            else call.scope
        )

    # --- remembered drift -------------------------------------------------------------------------------------

    async def remembered(self, baseline: Catalogue | None = None) -> RememberedDrift | None:
        """The drift of the server that nobody has accepted. ``baseline`` is the server's, if the caller has it."""
        if self.pinning.mode == "off":
            return None
        pin = baseline or self.pinning.lock or await self._pin_of_server()
        return await self.pins.drift.of(self.server, pin.digest) if pin is not None else None

    async def remember(
        self, call: Call, baseline: Catalogue, now: Catalogue, drift: Drift, *, own: bool
    ) -> None:
        """Write down for operators that the scope of this call was shown other tools than the server's ``baseline``.

        ``own``: the scope itself had seen other tools before.
        """
        scope = self._scope_of(call)
        by, at = name_of(call.origin.caller.principal), self.clock()
        meeting = DriftSighting(baseline.digest, now.digest, summary(drift), at, scope.id, by, own)
        await self.pins.drift.add(self.server, meeting)

    async def forget_drift_of_others(self) -> None:
        """Forget drift between different users: the server offers each of them other tools."""
        await self.pins.drift.forget_others(self.server)

    # --- review -----------------------------------------------------------------------------------------------

    async def status(self) -> PinStatus:
        """The pin status of the server."""
        mode = self.pinning.mode
        if mode == "off":
            # Its tools are not compared with anything.
            return PinStatus(mode)
        origin, baseline, since = await self._for_review()
        now, drift = await self.last_seen(), None
        remembered = None if baseline is None else await self.remembered(baseline)
        if baseline is not None and now is not None:
            baseline = await in_turns(read_as(baseline, now, self.pinning.earlier))
            if baseline.digest != now.digest:
                drift = await in_turns(drift_piecewise(baseline.tools, now.tools))
        return PinStatus(mode, origin, baseline, since, now, drift, remembered)

    async def _for_review(self) -> tuple[Origin, Catalogue | None, float | None]:
        """The baseline of the server, by what the store says at this moment: its origin, and since when."""
        if self.pinning.lock is not None:
            return "lock", self.pinning.lock, None
        if (accepted := await self._look_up()) is not None:
            return "accepted", await self.pins.catalogue(accepted.digest), accepted.since
        if (first := await self._first()) is not None:
            return "first_seen", await self.pins.catalogue(first.digest), first.since
        return "nothing", None, None

    async def accept(self, digest: str, operator: str) -> PinStatus:
        """Have every session start from the tools of now, also those that are open.

        ``digest`` is that of the catalogue that the operator was shown. Raises CatalogueMoved where that is not what
        is offered by now, BoundByFile, NothingToAccept.
        """
        async with self._accepting:
            status = await self.status()
            if status.origin == "lock":
                if status.now is None or not status.holds or status.now.digest != digest:
                    raise BoundByFile()
                # The server offers again what its file says.
                await self.pins.drift.forget(self.server)
                self.cache.accept()
                return await self.status()
            if status.now is None:
                raise NothingToAccept()
            if status.now.digest != digest:
                raise CatalogueMoved()
            if status.accepted:
                return status
            try:
                await self.pins.accept(self.server, status.now)
            finally:
                # Also where it failed half way: the pin may be written down.
                self.cache.accept()
            self.log.warning("tools accepted", server=self.server, digest=digest, operator=operator)
            return await self.status()
