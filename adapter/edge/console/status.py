"""The facts about servers, sessions and files that the console shows: public ids only, and no path of the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adapter.edge.console.access import Viewer
from adapter.relay.files.file_registry import FileRegistry
from adapter.relay.server import Server
from adapter.relay.sessions.health_probe import HealthMonitor
from adapter.relay.sessions.scopes import Scopes
from adapter.relay.sessions.session_map import Session, Sessions
from adapter.relay.tools.pin_review import PinReview
from adapter.rules.access.principals import name_of
from adapter.rules.files.file_records import FileKind, FileRecord
from adapter.wire.eras import Era
from adapter.wire.handles import artifact_uri, upload_handle

MOST_SESSIONS = 1000
"""Sessions that are shown, those that were used last."""

MOST_FILES = 1000
"""Files of one scope that are shown, those that came last."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The part of a server's settings that is shown.

    ``helper`` is the tool that gives out upload URLs, if any.
    """

    transport: str
    helper: str | None = None


@dataclass(slots=True)
class ServerStatus:
    """The status of the servers.

    ``monitors`` has no entry for a server that is not pinged. ``status_of`` gives the status that health tells.
    """

    servers: Sequence[Server]
    monitors: Mapping[str, HealthMonitor]
    facts: Mapping[str, ServerFacts]
    status_of: Callable[[Server], str]
    pin_review: PinReview

    async def told(self) -> list[dict[str, Any]]:
        """Every server. Raises StoreUnavailable."""
        return [await self._told(server) for server in self.servers]

    async def _told(self, server: Server) -> dict[str, Any]:
        watch, facts = self.monitors.get(server.id), self.facts[server.id]
        standing = await self.pin_review.standing(server.id)
        pulse = watch.pulse if watch is not None else None
        latency = pulse.latency if pulse is not None else None
        return {
            "id": server.id,
            "mount": server.mount,
            "transport": facts.transport,
            "era": pulse.era.value if pulse is not None and pulse.era is not None else None,
            "status": self.status_of(server),
            "breaker": server.breaker.state.value if server.breaker is not None else None,
            "latency_ms": round(latency * 1000, 2) if latency is not None else None,
            "history": list(watch.history) if watch is not None else [],
            # What gives out upload URLs is a tool for clients, too.
            "tools": len(standing.now.tools) + (facts.helper is not None)
            if standing.now is not None
            else None,
            "drift": standing.drifted,
            "remembered": standing.remembered is not None,
            "missing": sorted(server.wiring.missing or ()),
            "helper": facts.helper,
            "uploads": facts.helper is not None,
        }


@dataclass(slots=True)
class Belongings:
    """Sessions and files, and whose they are.

    ``quota`` is ``sessions.max_total_session_size``; the schemes are what handles and URIs begin with.
    """

    sessions: Sessions
    scopes: Scopes
    registry: FileRegistry
    quota: int | None
    upload_scheme: str
    artifact_scheme: str

    def sessions_for(self, viewer: Viewer) -> list[dict[str, Any]]:
        """The open sessions that this viewer may know of, those used last first."""
        found = [session for session in self.sessions.opened() if viewer.whose in (None, session.principal)]
        found.sort(key=lambda session: session.last_seen, reverse=True)
        return [self._session(session, viewer) for session in found[:MOST_SESSIONS]]

    def _session(self, session: Session, viewer: Viewer) -> dict[str, Any]:
        return {
            "server": session.server,
            "scope": self.scopes.of(session, session.principal).id,
            # A modern client has no session.
            "era": Era.LEGACY.value,
            "principal": name_of(session.principal),
            "created": session.created,
            "last_seen": session.last_seen,
            "in_flight": session.in_flight,
            "own": session.principal == viewer.principal,
        }

    def files_for(self, viewer: Viewer) -> dict[str, Any]:
        """The files of the viewer's own scopes; of others an operator is told how much there is, and no names."""
        own = self._own_scopes(viewer)
        shown = [self._own(scope) for scope in own]
        if viewer.operator:
            others = (scope.id for scope in self.registry.scopes() if scope.id not in own)
            shown += [{**self._totals(scope), "own": False, "files": []} for scope in others]
        return {"scopes": shown}

    def _own_scopes(self, viewer: Viewer) -> dict[str, None]:
        """The ids of the principal's scope and of those of its open sessions, if they hold anything."""
        principal = viewer.principal
        mine = [session for session in self.sessions.opened() if session.principal == principal]
        found = [self.scopes.of(None, principal), *(self.scopes.of(session, principal) for session in mine)]
        return {scope.id: None for scope in found if self.registry.used(scope.id) or self._records(scope.id)}

    def _own(self, scope_id: str) -> dict[str, Any]:
        records = sorted(self._records(scope_id), key=lambda record: record.created, reverse=True)
        files = [self._file(record) for record in records[:MOST_FILES]]
        return {**self._totals(scope_id), "own": True, "files": files}

    def _totals(self, scope_id: str) -> dict[str, Any]:
        return {
            "scope": scope_id,
            "used": self.registry.used(scope_id),
            "quota": self.quota,
            "count": len(self._records(scope_id)),
        }

    def _records(self, scope_id: str) -> list[FileRecord]:
        return [record for kind in FileKind for record in self.registry.list(scope_id, kind)]

    def _file(self, record: FileRecord) -> dict[str, Any]:
        if record.kind is FileKind.UPLOAD:
            uri = upload_handle(record.scope, record.id, self.upload_scheme)
        else:
            uri = artifact_uri(record.scope, record.id, record.filename, self.artifact_scheme)
        return {
            "kind": record.kind.value,
            "uri": uri,
            "filename": record.filename,
            "size": record.content.size,
            "media_type": record.content.media_type,
            "expires_at": self.registry.expires_at(record),
            "server": record.server,
        }
