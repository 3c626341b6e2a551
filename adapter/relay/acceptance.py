"""An operator's word on the tools of running servers: how they stand to what sessions start from, and accepting them.

What a server offers now is what the adapter saw last in a client's own session, since others may be offered others.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError
from adapter.relay.pins import Pins
from adapter.rules.catalogue import Catalogue
from adapter.rules.drift import Drift, drift

Mode = Literal["off", "warn", "block"]
Origin = Literal["nothing", "lock", "accepted", "first_seen"]

SPREAD_FOR = 2.0
"""Seconds for which it is remembered what sessions saw first; to find that out takes a look at each."""

DRIFTS = 32
"""Pairs of catalogues of which it is remembered how they differ."""


class CatalogueMoved(AdapterError):
    code, rpc, http = "catalogue_moved", -32600, 409
    hint = "The server's tools are others by now: look at them again before you accept them."


class BoundByFile(AdapterError):
    code, rpc, http = "bound_by_file", -32600, 409
    hint = (
        "This server starts from its lock file, so there is nothing to accept: use mcp-adapter pins export."
    )


class NothingToAccept(AdapterError):
    code, rpc, http = "nothing_to_accept", -32600, 409
    hint = "The adapter has not seen this server's tools yet, or tool_definition_pinning.mode is off for it."


@dataclass(frozen=True, slots=True)
class Standing:
    """How one server stands. ``baseline`` is what its sessions start from, as ``origin`` has it; of what they saw
    first, what most of them did. ``since`` is when it was accepted (Unix seconds). ``now`` is what was seen last.
    """

    mode: Mode
    origin: Origin
    baseline: Catalogue | None
    now: Catalogue | None
    drift: Drift | None
    since: float | None = None

    @property
    def drifted(self) -> int:
        """How many tools are not what they were."""
        found = self.drift
        if found is None:
            return 0
        return len(found.added) + len(found.removed) + len(found.renamed) + len(found.changed)

    @property
    def accepted(self) -> bool:
        """Whether what is offered now is what an operator, or a file, wants every session to start from."""
        return (
            self.origin in ("lock", "accepted")
            and self.baseline is not None
            and self.now is not None
            and self.baseline.digest == self.now.digest
        )


class Acceptance:
    """Compares, and accepts for the running adapter and all that share its store.

    ``modes`` and ``locks`` are by server. ``now`` is a clock that never goes back, in seconds.
    """

    def __init__(
        self,
        pins: Pins,
        modes: Mapping[str, Mode],
        locks: Mapping[str, Catalogue],
        now: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        self._pins = pins
        self._modes = modes
        self._locks = locks
        self._now = now
        self._log = log
        self._spreads: dict[str, tuple[float, str | None]] = {}
        self._drifts: OrderedDict[tuple[str, str], Drift | None] = OrderedDict()
        self._accepting: dict[str, asyncio.Lock] = {}

    def __repr__(self) -> str:
        return f"<Acceptance of {len(self._modes)} servers>"

    async def standing(self, server: str) -> Standing:
        """How this server stands. Raises StoreUnavailable."""
        mode = self._modes[server]
        if mode == "off":
            # Nobody looks at its tools, and nothing follows from them.
            return Standing(mode, "nothing", None, None, None)
        origin, baseline, since = await self._baseline(server)
        seen = await self._pins.last_seen(server)
        now = await self._pins.catalogue(seen.digest) if seen is not None else None
        return Standing(mode, origin, baseline, now, self._drift(baseline, now), since)

    async def accept(self, server: str, digest: str, operator: str) -> Standing:
        """Have every session start from the tools of now, those that are open too.

        ``digest`` is that of the catalogue that the operator was shown. Raises CatalogueMoved where that is not what
        is offered by now, BoundByFile, NothingToAccept, StoreUnavailable.
        """
        async with self._accepting.setdefault(server, asyncio.Lock()):
            standing = await self.standing(server)
            if standing.origin == "lock":
                raise BoundByFile()
            if standing.now is None:
                raise NothingToAccept()
            if standing.now.digest != digest:
                raise CatalogueMoved()
            if standing.accepted:
                return standing
            await self._pins.accept(server, standing.now)
            self._log.warning("tools accepted", server=server, digest=digest, operator=operator)
            return await self.standing(server)

    async def _baseline(self, server: str) -> tuple[Origin, Catalogue | None, float | None]:
        if (lock := self._locks.get(server)) is not None:
            return "lock", lock, None
        if (accepted := await self._pins.look_up(server)) is not None:
            return "accepted", await self._pins.catalogue(accepted.digest), accepted.since
        digest = await self._first_seen(server)
        if digest is None:
            return "nothing", None, None
        return "first_seen", await self._pins.catalogue(digest), None

    async def _first_seen(self, server: str) -> str | None:
        """What most of the scopes saw first."""
        looked, digest = self._spreads.get(server, (float("-inf"), None))
        if self._now() - looked > SPREAD_FOR:
            spread = await self._pins.spread(server)
            digest = min(spread, key=lambda each: (-spread[each], each), default=None)
            self._spreads[server] = (self._now(), digest)
        return digest

    def _drift(self, baseline: Catalogue | None, now: Catalogue | None) -> Drift | None:
        if baseline is None or now is None or baseline.digest == now.digest:
            return None
        key = baseline.digest, now.digest
        if key not in self._drifts:
            self._drifts[key] = drift(baseline.tools, now.tools)
            if len(self._drifts) > DRIFTS:
                self._drifts.popitem(last=False)
        return self._drifts[key]
