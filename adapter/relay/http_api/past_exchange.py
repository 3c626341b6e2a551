"""One exchange that is over, as people are shown it: no arguments, no results, no header fields."""

from __future__ import annotations

from typing import Any, NamedTuple

GONE = "client_gone"
"""The outcome of an exchange that its client gave up."""

_SERVERS_FAULT = "upstream_"
_GATEWAY = (502, 503, 504)


class WalkedStage(NamedTuple):
    """``start_ms`` is since the exchange began. ``outcome``: ok, failed, cancelled, timeout, busy, rate, unfinished."""

    name: str
    start_ms: float
    ms: float
    outcome: str


class PastExchange(NamedTuple):
    """One exchange that is over. ``at`` is when it ended, in Unix seconds; ``ms`` how long it took.

    ``method`` is JSON-RPC's, or HTTP's where there is no message; ``tool`` is None for anything but a call of one.
    ``principal`` is who asked, None where that was not found out. ``replica`` is the id of another replica that had it.
    ``call`` is the id that a caller over HTTP gave the call, if any.
    """

    at: float
    server: str
    method: str
    tool: str | None
    entrance: str
    outcome: str
    status: int | None
    ms: float
    stages: tuple[WalkedStage, ...]
    principal: str | None
    replica: str | None = None
    call: str | None = None

    @property
    def failed(self) -> bool:
        """Tell whether it failed. One that its client gave up did not."""
        if self.outcome != "ok":
            return self.outcome != GONE
        return self.status is not None and self.status >= 400

    @property
    def failed_at_server(self) -> bool:
        """Tell whether the server failed or refused, and not the adapter or the caller."""
        if not self.failed or self.outcome == "ok":
            return self.failed
        at_gateway = self.entrance == "http" and self.status in _GATEWAY
        return at_gateway or self.outcome.startswith(_SERVERS_FAULT)

    def shown(self, reader: str | None = None) -> dict[str, Any]:
        """For people to see, without whose it was.

        With ``reader`` (a principal) also tell whether it was the reader's own, and the id of such a call.
        """
        fields = self._asdict()
        call = fields.pop("call")
        del fields["principal"]
        fields["stages"] = [stage._asdict() for stage in self.stages]
        if self.replica is None:
            del fields["replica"]
        if reader is not None:
            fields["own"] = self.principal == reader
            if fields["own"] and call is not None:
                fields["call"] = call
        return fields


class Failure(NamedTuple):
    """The last exchange with a server that failed for a reason of the server's. ``at`` in Unix seconds."""

    at: float
    outcome: str
    status: int | None
