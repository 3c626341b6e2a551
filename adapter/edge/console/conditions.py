"""The condition of a server in words for people: whether callers are served, and if not, the reason and the time."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from adapter.errors import AdapterError, UpstreamRefused
from adapter.relay.http_api.recent_exchanges import PastExchange
from adapter.relay.server import Server
from adapter.relay.sessions.health_probe import Pulse
from adapter.relay.tools.pins import PinStatus
from adapter.rules.calls.circuit_breaker import BreakerState
from adapter.rules.text.unicode import shown

LATELY = 300.0
"""Seconds for which the refusal of a caller says something about the server as it is now."""

LONGEST = 300
"""Characters of a text that a server wrote."""

Look = Literal["ok", "warn", "bad"]
Kind = Literal[
    "unreachable",
    "starting",
    "breaker",
    "asks_oauth",
    "refuses_adapter",
    "refuses_callers",
    "drift_blocks",
    "drift",
]

_LOOKS: dict[Kind, Look] = {"unreachable": "bad", "drift": "ok"}
"""All others are warnings."""
_STATUS = re.compile(r"HTTP \d{3}")
_WORST: tuple[Look, ...] = ("bad", "warn", "ok")


class Note(NamedTuple):
    """One fact that callers notice. ``at``: since when, or when it last happened, in Unix seconds; None if unknown.

    ``text`` is bounded, and partly the server's own.
    """

    kind: Kind
    at: float | None = None
    text: str | None = None

    def without_words(self) -> Note:
        """The note without what the server said: of that the status alone is left."""
        if self.text is None or self.kind == "breaker":
            return self
        status = _STATUS.match(self.text)
        return self._replace(text=status[0] if status else None)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The facts about one server from which its condition follows. ``status`` is health's word for it.

    ``pulse`` is None for a server that is not pinged, ``failure`` for one without a failed exchange.
    """

    server: Server
    status: str
    pulse: Pulse | None
    pins: PinStatus
    failure: PastExchange | None
    now: float = field(default_factory=time.time)

    def told(self, *, details: bool) -> dict[str, Any]:
        """The condition as JSON. ``details``: with the server's own words, which may be for other callers, and with the
        reasons of failed pings, which may name a command.
        """
        found = (self._reach(), self._breaker(), self._adapter(), self._callers(), self._drift())
        notes = [note for note in found if note is not None]
        if not details:
            notes = [note.without_words() for note in notes]
        looks = {_LOOKS.get(note.kind, "warn") for note in notes}
        return {
            "look": next((look for look in _WORST if look in looks), "ok"),
            "notes": [note._asdict() for note in notes],
            "last_error": self._last_error(details=details),
        }

    def _reach(self) -> Note | None:
        if self.status == "starting":
            return Note("starting")
        if self.pulse is None or self.pulse.reached or self.pulse.last_attempt is None:
            return None
        return Note("unreachable", self.pulse.failing_since, shown(self.pulse.error or "", LONGEST) or None)

    def _breaker(self) -> Note | None:
        breaker = self.server.breaker
        if breaker is None or breaker.state is BreakerState.CLOSED:
            return None
        return Note("breaker", None, breaker.state.value)

    def _adapter(self) -> Note | None:
        pulse, failure = self.pulse, self.failure
        # Callers who bring credentials of their own are those who may be refused; a ping has none.
        if pulse is not None and pulse.refusal is not None and not self.server.apart:
            kind: Kind = "asks_oauth" if pulse.asks_oauth else "refuses_adapter"
            return Note(kind, pulse.refused_since, pulse.refusal)
        if failure is not None and failure.outcome == UpstreamRefused.code and self._is_late(failure.at):
            return Note("refuses_adapter", failure.at)
        return None

    def _callers(self) -> Note | None:
        refusal = self.server.refusal
        if refusal is None or not self._is_late(refusal.at):
            return None
        status = f"HTTP {refusal.status}"
        return Note("refuses_callers", refusal.at, f"{status}: {refusal.text}" if refusal.text else status)

    def _drift(self) -> Note | None:
        if not self.pins.drifted:
            return None
        met = self.pins.remembered
        since = None if met is None else met.met[0].first.at
        return Note("drift_blocks" if self.pins.mode == "block" else "drift", since)

    def _is_late(self, at: float) -> bool:
        return self.now - at < LATELY

    def _last_error(self, *, details: bool) -> dict[str, Any] | None:
        """The last failure of a ping or of an exchange, also of a server that is well again."""
        found = []
        if self.pulse is not None and self.pulse.last_failure is not None:
            text = shown(self.pulse.last_error or "", LONGEST) if details else ""
            found.append({"at": self.pulse.last_failure, "by": "check", "text": text})
        if self.failure is not None:
            found.append({"at": self.failure.at, "by": "call", "text": _sentence(self.failure)})
        return max(found, key=lambda error: float(str(error["at"])), default=None)


def _sentence(failure: PastExchange) -> str:
    sentence = _hints().get(failure.outcome)
    return sentence or (f"HTTP {failure.status}" if failure.status is not None else failure.outcome)


@lru_cache(maxsize=1)
def _hints() -> dict[str, str]:
    """The sentences of the catalogue of failures, by their codes."""
    found, waiting = {}, [AdapterError]
    while waiting:
        kind = waiting.pop()
        found[kind.code] = kind.hint
        waiting += kind.__subclasses__()
    return found


def drift_as_data(pins: PinStatus) -> dict[str, Any] | None:
    """The drift that was met and nobody has accepted, in short: since when, by whom, and the last of its catalogues."""
    met = pins.remembered
    if met is None:
        return None
    first, last = met.met[0].first, met.met[-1].first
    return {
        "since": first.at,
        "by": first.by,
        "sessions": met.sessions,
        "what": last.summary.sentence,
        "catalogues": len(met.met) + met.more,
    }
