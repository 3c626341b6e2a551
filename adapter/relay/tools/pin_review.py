"""An operator's word on the tools of running servers: how they stand to what sessions start from, and accepting them.

What a server offers now is what the adapter saw last in a client's own session, since others may be offered others.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError
from adapter.relay.background import SingleFlight
from adapter.relay.tools.pins import Pins
from adapter.relay.turns import in_turns
from adapter.rules.tools.catalogue import Catalogue
from adapter.rules.tools.drift import Drift, drift_piecewise
from adapter.rules.tools.remembered_drift import RememberedDrift

Mode = Literal["off", "warn", "block"]
Origin = Literal["nothing", "lock", "accepted", "first_seen"]

DRIFTS = 32
"""Pairs of catalogues of which it is remembered how they differ."""


class CatalogueMoved(AdapterError):
    code, rpc, http = "catalogue_moved", -32600, 409
    hint = "The server's tools have changed again: look at them again before you accept them."


class BoundByFile(AdapterError):
    code, rpc, http = "bound_by_file", -32600, 409
    hint = "This server has a lock file, so nothing can be accepted here: use mcp-adapter pins export."


class NothingToAccept(AdapterError):
    code, rpc, http = "nothing_to_accept", -32600, 409
    hint = "The adapter has not seen this server's tools yet, or tool_definition_pinning.mode is off for it."


@dataclass(frozen=True, slots=True)
class PinStatus:
    """The pin status of one server.

    ``baseline`` is what the server is compared with, and ``origin`` tells its source: what an operator accepted
    or a file says, else what anybody saw first. ``since`` is when that was (Unix seconds), None for a file.

    ``now`` is what was seen last, and ``remembered`` what was met until then that nobody has accepted.
    """

    mode: Mode
    origin: Origin
    baseline: Catalogue | None
    now: Catalogue | None
    drift: Drift | None
    since: float | None = None
    remembered: RememberedDrift | None = None

    @property
    def drifted(self) -> int:
        """The number of tools that are not what they were."""
        return self.drift.size if self.drift is not None else 0

    @property
    def accepted(self) -> bool:
        """Tell whether an operator, or a file, wants every session to start from what is offered now.

        False if anything else was met since.
        """
        return (
            self.remembered is None
            and self.origin in ("lock", "accepted")
            and self.baseline is not None
            and self.now is not None
            and self.baseline.digest == self.now.digest
        )


class PinReview:
    """Compares, and accepts for the running adapter and all that share its store.

    ``modes`` and ``locks`` are by server.
    """

    def __init__(
        self,
        pins: Pins,
        modes: Mapping[str, Mode],
        locks: Mapping[str, Catalogue],
        log: FilteringBoundLogger,
    ) -> None:
        self._pins = pins
        self._modes = modes
        self._locks = locks
        self._log = log
        self._drifts: OrderedDict[tuple[str, str], Drift | None] = OrderedDict()
        self._comparing = SingleFlight[tuple[str, str], Drift | None]()
        self._accepting: dict[str, asyncio.Lock] = {}

    def __repr__(self) -> str:
        return f"<PinReview of {len(self._modes)} servers>"

    async def standing(self, server: str) -> PinStatus:
        """The pin status of this server. Raises StoreUnavailable."""
        mode = self._modes[server]
        if mode == "off":
            # Nobody looks at its tools, and nothing follows from them.
            return PinStatus(mode, "nothing", None, None, None)
        origin, baseline, since = await self._baseline(server)
        seen = await self._pins.last_seen(server)
        now = await self._pins.catalogue(seen.digest) if seen is not None else None
        found = await self._drift(baseline, now)
        remembered = await self._pins.memory.of(server, baseline.digest) if baseline is not None else None
        return PinStatus(mode, origin, baseline, now, found, since, remembered)

    async def remembered(self, server: str) -> RememberedDrift | None:
        """The drift of a server that nobody has accepted. Raises StoreUnavailable."""
        if self._modes[server] == "off":
            return None
        if (lock := self._locks.get(server)) is not None:
            return await self._pins.memory.of(server, lock.digest)
        pin = await self._pins.of_server(server)
        return await self._pins.memory.of(server, pin.digest) if pin is not None else None

    async def accept(self, server: str, digest: str, operator: str) -> PinStatus:
        """Have every session start from the tools of now, those that are open too.

        ``digest`` is that of the catalogue that the operator was shown. Raises CatalogueMoved where that is not what
        is offered by now, BoundByFile, NothingToAccept, StoreUnavailable.
        """
        async with self._accepting.setdefault(server, asyncio.Lock()):
            standing = await self.standing(server)
            if standing.origin == "lock":
                await self._settle_with_lock(server, standing, digest)
                return await self.standing(server)
            if standing.now is None:
                raise NothingToAccept()
            if standing.now.digest != digest:
                raise CatalogueMoved()
            if standing.accepted:
                return standing
            await self._pins.accept(server, standing.now)
            self._log.warning("tools accepted", server=server, digest=digest, operator=operator)
            return await self.standing(server)

    async def _settle_with_lock(self, server: str, standing: PinStatus, digest: str) -> None:
        """Forget what was met where the server offers what its file says again. Raises BoundByFile otherwise."""
        baseline, now = standing.baseline, standing.now
        if baseline is None or now is None or not baseline.digest == now.digest == digest:
            raise BoundByFile()
        await self._pins.memory.forget(server)

    async def _baseline(self, server: str) -> tuple[Origin, Catalogue | None, float | None]:
        if (lock := self._locks.get(server)) is not None:
            return "lock", lock, None
        if (accepted := await self._pins.look_up(server)) is not None:
            return "accepted", await self._pins.catalogue(accepted.digest), accepted.since
        first = await self._pins.first(server)
        if first is None:
            return "nothing", None, None
        return "first_seen", await self._pins.catalogue(first.digest), first.since

    async def _drift(self, baseline: Catalogue | None, now: Catalogue | None) -> Drift | None:
        if baseline is None or now is None or baseline.digest == now.digest:
            return None
        key = baseline.digest, now.digest
        if key not in self._drifts:
            find = partial(in_turns, drift_piecewise(baseline.tools, now.tools))
            self._drifts[key] = await self._comparing.get(key, find)
            if len(self._drifts) > DRIFTS:
                self._drifts.popitem(last=False)
        return self._drifts[key]
