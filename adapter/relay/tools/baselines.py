"""Baselines for the scopes of one server: their own pins, the server's first catalogue, or a lock file."""

from __future__ import annotations

from collections.abc import Callable

from adapter.relay.stages import Call
from adapter.relay.tools.pins import Pin, Pins
from adapter.rules.access.principals import Scope, name_of
from adapter.rules.tools.catalogue import Catalogue
from adapter.rules.tools.drift import Drift, counts, sentence
from adapter.rules.tools.remembered_drift import Meeting
from adapter.rules.tools.verdicts import Pinning

OfPrincipal = Callable[[str], Scope]
"""The scope of a principal, whatever sessions it has."""


class Baselines:
    """The baselines of ``server``. Every method that waits raises StoreUnavailable."""

    def __init__(
        self, server: str, pinning: Pinning, pins: Pins, of_principal: OfPrincipal, clock: Callable[[], float]
    ) -> None:
        self.server = server
        self.pinning = pinning
        self._pins = pins
        self._of_principal = of_principal
        self._clock = clock

    def __repr__(self) -> str:
        return f"<Baselines of {self.server!r}: {self.pinning.mode}, {self.pinning.baseline}>"

    def scope_of(self, call: Call) -> Scope:
        """The scope whose pin counts for a call.

        A caller over HTTP is pinned by principal: its session comes and goes unseen, and a pin would go with it.
        """
        return self._of_principal(call.caller.principal) if call.caller.entrance == "http" else call.scope

    async def of(self, call: Call, now: Catalogue) -> Catalogue:
        """The catalogue that the scope of a call starts from: ``now``, if it has no baseline yet."""
        if self.pinning.lock is not None:
            return self.pinning.lock
        pin: Pin | None
        if self.pinning.baseline == "server":
            pin = await self._pins.of_server(self.server)
        else:
            scope = self.scope_of(call)
            pin = await self._pins.pin(self.server, scope.id, now, scope.owner)
        if pin is not None and pin.digest != now.digest:
            # An operator may have had a word in this very moment.
            accepted = await self._pins.look_up(self.server)
            if accepted is not None and (accepted.since >= pin.since or accepted.digest == now.digest):
                pin = accepted
        return await self._catalogue(pin, now)

    async def of_server(self, now: Catalogue) -> Catalogue:
        """The catalogue that the server is compared with, whatever its scopes start from."""
        if self.pinning.lock is not None:
            return self.pinning.lock
        return await self._catalogue(await self._pins.of_server(self.server), now)

    async def _catalogue(self, pin: Pin | None, now: Catalogue) -> Catalogue:
        if pin is None or pin.digest == now.digest:
            return now
        known = await self._pins.catalogue(pin.digest)
        # What cannot be compared is not what it was.
        return known if known is not None else Catalogue(pin.digest, {})

    async def saw(self, now: Catalogue) -> None:
        """Take note of what the server offers."""
        await self._pins.saw(self.server, now)

    async def is_accepted(self, now: Catalogue) -> bool:
        """Tell whether an operator has accepted by now what is offered."""
        if self.pinning.lock is not None:
            return False
        accepted = await self._pins.look_up(self.server)
        return accepted is not None and accepted.digest == now.digest

    async def begins_anew_with_session(self, call: Call) -> bool:
        """Tell whether a new session in place of this call's would start from the tools offered then."""
        pinning = self.pinning
        if (
            pinning.lock is not None
            or pinning.baseline == "server"
            or self.scope_of(call).session_key is None
        ):
            return False
        return await self._pins.baseline(self.server) is None

    # --- what was met -----------------------------------------------------------------------------------------

    async def remember(
        self, call: Call, baseline: Catalogue, now: Catalogue, found: Drift, *, own: bool
    ) -> None:
        """Have operators know that the scope of this call was shown other tools than the server's ``baseline``.

        ``own``: they are not those either that it saw before.
        """
        memory, scope = self._pins.memory, self.scope_of(call)
        if memory.knows(self.server, baseline.digest, now.digest, scope.id, own=own):
            return
        meeting = Meeting(
            baseline.digest,
            now.digest,
            counts(found),
            sentence(found),
            self._clock(),
            scope.id,
            name_of(call.caller.principal),
            own,
        )
        await memory.met(self.server, meeting)

    async def forget_others(self) -> None:
        """The server offers each user other tools, so that one sees others than another is no drift."""
        await self._pins.memory.forget_others(self.server)
