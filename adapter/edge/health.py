"""``/healthz``, ``/livez``, ``/readyz``: how the adapter is, for operators and orchestrators."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from adapter.edge.http.access import Guard
from adapter.edge.http.request import Request
from adapter.errors import AdapterError, StoreUnavailable
from adapter.relay.server import Server
from adapter.relay.sessions.health_probe import HealthMonitor
from adapter.relay.sessions.session_map import Sessions
from adapter.relay.tools.baselines import Baselines
from adapter.rules.access.authorization_servers import OAUTH_CURE
from adapter.rules.calls.circuit_breaker import BreakerState
from adapter.settings.root import Settings
from adapter.state.watched import WatchedStore

if TYPE_CHECKING:
    # Only a process among several has it.
    from adapter.relay.mounts.merged import MergedMount
    from adapter.relay.replicas.registry import OtherReplica, Replicas


class SettingsState(NamedTuple):
    """The last change of the settings, ``at`` Unix seconds, and what came of it: ``in_force``, ``refused`` or
    ``needs_restart``. ``why`` and ``keys`` say more of the last two.
    """

    at: float
    state: str
    why: str = ""
    keys: Sequence[str] = ()

    def as_data(self, details: bool) -> dict[str, Any]:
        """What is shown of it; without ``details`` no text of an error."""
        shown: dict[str, Any] = {"state": self.state, "at": round(self.at, 3)}
        if self.keys:
            shown["keys"] = list(self.keys)
        return {**shown, "why": self.why} if self.why and details else shown


@dataclass(slots=True)
class Health:
    """The health of the adapter. ``monitors`` hold no entry for a server that is not pinged. ``replicas`` is None where
    no other process uses the store.

    The time that servers are given to start counts from ``begun`` (Unix seconds), when this object was built.
    """

    servers: Collection[Server]
    monitors: Mapping[str, HealthMonitor]
    pin_review: Mapping[str, Baselines]
    sessions: Sessions
    store: WatchedStore
    guard: Guard
    settings: Settings
    replicas: Replicas | None = None
    begun: float = field(default_factory=time.time, init=False)
    mounts: Mapping[str, MergedMount] = field(default_factory=dict, init=False)
    """The merged mounts, by their ids."""
    _took: float | None = field(default=None, init=False)
    changed: SettingsState | None = field(default=None, init=False)
    """None while the settings are those of the start."""

    async def live(self, request: Request) -> tuple[int, bytes]:
        """200 as long as the loop turns."""
        return _json(200, {"status": "alive"})

    async def ready(self, request: Request) -> tuple[int, bytes]:
        """200 when any or all servers can be called (``core.readiness``), else 503."""
        able = [self._is_ready(server) for server in self.servers]
        ready = any(able) if self.settings.core.readiness == "any" else all(able)
        ready = ready and await self.store.failure() is None
        return _json(200 if ready else 503, {"status": "ready" if ready else "not_ready"})

    async def show(self, request: Request) -> tuple[int, bytes]:
        """The whole picture; without credentials states only, no URL and no text of an error."""
        details = self.guard.known(request.headers)
        # While the store is asked the servers may become other ones.
        pinned = [(server, self.pin_review[server.id]) for server in self.servers]
        tools = {server.id: await _tools(pins, details) for server, pins in pinned}
        mounts = [await _mount(name, each, details) for name, each in self.mounts.items()]
        failure = await self.store.failure()
        active = await self._active()
        # Nothing is waited for from here on: what is told is how all of it was at one moment.
        servers = [{**self._server(server, details), **tools.get(server.id, {})} for server in self.servers]
        wiring = self._wiring(details)
        outage = self.store.outage()
        reason = _degraded(servers, wiring, failure, outage)
        starting = self._is_starting()
        body: dict[str, Any] = {"status": "degraded" if reason else "ok"}
        if reason:
            body["degraded_reason"] = reason
        body["servers"] = servers
        if mounts:
            body["mounts"] = mounts
        body["sessions"] = {"active": active}
        body["persistence"] = {
            "type": self.settings.state_persistence.type,
            "status": "error" if failure else "degraded" if outage else "ok",
            **({"effective_type": "memory", "fallback_active": True} if outage else {}),
            **({"detail": str(failure)} if failure and details else {}),
            **_losses(self.replicas),
        }
        if self.replicas is not None:
            body["replica"] = _replica(self.replicas, details)
        elif (replica_id := self.settings.core.replica.id) is not None:
            # Behind a load balancer those who share nothing are told apart, too.
            body["replica"] = {"id": replica_id}
        if self.changed is not None:
            body["settings"] = self.changed.as_data(details)
        body["adapter_wiring"] = wiring
        body["startup"] = {
            "state": "starting" if starting else "complete",
            "seconds": round(self._start_took(starting=starting), 3),
        }
        return _json(503 if reason else 200, body)

    async def _active(self) -> int:
        try:
            return await self.sessions.count()
        except StoreUnavailable:
            return self.sessions.active

    # --- one server -------------------------------------------------------------------------------------------

    def status_of(self, server: Server) -> str:
        """In a word: ok, unhealthy, or starting. A server that is not pinged is ok."""
        watch = self.monitors.get(server.id)
        if watch is None:
            return "ok"
        if watch.pulse.last_success is None and self._may_still_start():
            return "starting"
        return "ok" if self._is_ready(server) and watch.pulse.reached else "unhealthy"

    def _is_ready(self, server: Server) -> bool:
        watch = self.monitors.get(server.id)
        if watch is None:
            return True
        open_breaker = server.breaker is not None and server.breaker.state is not BreakerState.CLOSED
        return watch.pulse.last_success is not None and not open_breaker

    def _server(self, server: Server, details: bool) -> dict[str, Any]:
        status = self.status_of(server)
        shown: dict[str, Any] = {
            "server_id": server.id,
            "mount_path": server.mount,
            "status": "ok" if status == "ok" else "degraded",
        }
        if details and (use := server.process_use()) is not None:
            shown["processes"] = {"running": use.running, "limit": use.most}
        watch = self.monitors.get(server.id)
        if watch is None:
            return {**shown, "detail": "upstream_ping_disabled"}
        pulse = watch.pulse
        if pulse.refusal is not None and not server.apart:
            shown["detail"] = "upstream_refuses_adapter"
            if details:
                shown["upstream_says"] = pulse.refusal
                if pulse.asks_oauth:
                    shown["hint"] = OAUTH_CURE
        elif status != "ok":
            shown["detail"] = f"upstream_{status}"
        if server.breaker is not None:
            shown["breaker"] = {
                "state": server.breaker.state.value,
                "consecutive_failures": server.breaker.failures,
            }
        shown["ping"] = {
            "last_latency_ms": None if pulse.latency is None else round(pulse.latency * 1000, 2),
            "last_error": pulse.error if details or pulse.error is None else "failed",
            "last_success": pulse.last_success,
            "last_attempt": pulse.last_attempt,
        }
        if details:
            shown["era"] = pulse.era.value if pulse.era else None
            shown["eras"] = sorted(era.value for era in server.eras)
        return shown

    # --- the whole --------------------------------------------------------------------------------------------

    def _is_starting(self) -> bool:
        """No server has answered yet, and the time they are given for it is not over."""
        reached = any(watch.pulse.last_success is not None for watch in self.monitors.values())
        return bool(self.monitors) and not reached and self._may_still_start()

    def _start_took(self, *, starting: bool) -> float:
        """Seconds that the start takes, or took: until a server answered, or none was waited for any longer."""
        took = time.time() - self.begun
        if starting:
            return took
        if self._took is None:
            answers = (each.pulse.first_success for each in self.monitors.values())
            # Where nobody is pinged nobody is waited for.
            last = time.time() if self.monitors else self.begun
            first = min((at for at in answers if at is not None), default=last)
            self._took = min(max(0.0, first - self.begun), self.settings.core.max_start_wait_seconds)
        return self._took

    def _may_still_start(self) -> bool:
        """Tell whether the time is not over that servers are given to start."""
        return time.time() - self.begun < self.settings.core.max_start_wait_seconds

    def _wiring(self, details: bool) -> dict[str, Any]:
        """The servers that list every tool which has stages of its own, and beside them what is not known."""
        by_server = {server.id: server.wiring.is_ready for server in self.servers}
        shown: dict[str, Any] = {"status_by_server": by_server, "ready": all(by_server.values())}
        unknown = {server.id: why for server in self.servers if (why := _unknown(server))}
        if unknown:
            shown["unknown_by_server"] = unknown
        missing = {
            server.id: sorted(server.wiring.missing) for server in self.servers if server.wiring.missing
        }
        if details and missing:
            shown["missing_by_server"] = missing
        return shown


async def _mount(name: str, mount: MergedMount, details: bool) -> dict[str, Any]:
    """The servers that a merged mount cannot list, and the names that it hides."""
    missing, hidden = mount.lists.missing, await mount.lists.hidden()
    if not details:
        return {"mount_id": name, "missing": list(missing), "hidden_names": len(hidden)}
    return {"mount_id": name, "missing": missing, "hidden_names": list(map(str, hidden))}


async def _tools(pins: Baselines, details: bool) -> dict[str, Any]:
    """Tell whether drift of a server's tools was found that no operator has accepted. With ``details``, also tell
    which.
    """
    try:
        found = await pins.remembered()
    except StoreUnavailable:
        return {"tools": {"drift": "unknown"}}
    if found is None:
        return {"tools": {"drift": "none"}}
    return {"tools": {"drift": "remembered", **(found.as_data() if details else {})}}


def _unknown(server: Server) -> str | None:
    """The reason why nobody knows whether the configured tools are there, None where that is known."""
    if server.wiring.missing is not None:
        return None
    return "list_refused" if server.wiring.refused else "waiting_for_upstream"


def _degraded(
    servers: list[dict[str, Any]],
    wiring: dict[str, Any],
    store_failure: AdapterError | None,
    outage: str | None,
) -> str | None:
    if store_failure is not None:
        return "persistence_unavailable"
    if outage is not None:
        return outage
    if any(server["status"] != "ok" for server in servers):
        return "upstream_unhealthy"
    return None if wiring["ready"] else "adapter_wiring_incomplete"


def _losses(replicas: Replicas | None) -> dict[str, Any]:
    """How often this process saw the store lose its data, and when last; nothing where it never did."""
    if replicas is None or not replicas.epoch.losses:
        return {}
    return {"data_lost": {"times": replicas.epoch.losses, "last": round(replicas.epoch.last_loss, 3)}}


def _replica(replicas: Replicas, details: bool) -> dict[str, Any]:
    """The id of this replica; with ``details`` also the others that it sees."""
    others = {"others": [_other_replica(other) for other in replicas.others()]} if details else {}
    return {"id": replicas.id, **others}


def _other_replica(other: OtherReplica) -> dict[str, Any]:
    record = other.record
    return {
        "id": other.id,
        "address": record.address,
        "version": record.version,
        "started": record.started,
        "state": "leaving" if record.leaving else "serving",
        "age_seconds": round(other.age, 1),
    }


def _json(status: int, body: dict[str, Any]) -> tuple[int, bytes]:
    return status, orjson.dumps(body)
