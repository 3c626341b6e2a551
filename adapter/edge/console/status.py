"""What viewers of the console see: servers, files and the open sessions of all replicas, by public ids and without any
path of the store; and who the viewers are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from adapter.edge.console.conditions import Evidence, drift_as_data
from adapter.edge.health import Health
from adapter.edge.http.access import Guard
from adapter.edge.http.request import Request
from adapter.errors import AdapterError, ConsoleRefused, OnThisMachineOnly, UnsupportedMediaType
from adapter.relay.background import SingleFlight
from adapter.relay.files.file_registry import FileRegistry
from adapter.relay.files.scopes import Scopes
from adapter.relay.http_api.recent_exchanges import Recent
from adapter.relay.server import Server
from adapter.relay.sessions.session import UNNAMED, Session
from adapter.relay.sessions.session_map import TABLE, Sessions
from adapter.rules.access.browser_sessions import RoleRules
from adapter.rules.access.principals import ANONYMOUS, name_of
from adapter.rules.access.resources import CONSOLE
from adapter.rules.access.sessions import SessionState, decode
from adapter.rules.files.file_records import FileKind, FileRecord
from adapter.rules.text.unicode import shown
from adapter.settings.root import Settings
from adapter.state.port import Row, Store
from adapter.wire.eras import Era
from adapter.wire.signed_urls import artifact_uri, upload_handle
from adapter.wire.spans import find

MOST_READ = 10_000
"""Rows that are read for one look; of more sessions those are missing that this replica does not use."""


LONGEST_INITIALIZE = 8192
"""Bytes of an ``initialize`` that is read for its client's name: those of many sessions are held at a time."""

LONGEST_NAME = 80
"""Characters of a client's name, and of its version, that are shown."""

_CLIENT = ("params", "clientInfo")


class ClientName(NamedTuple):
    """A client's own words about itself: its name and its version, bounded; either may be empty."""

    name: str
    version: str


class SeenSession(NamedTuple):
    """An open session, and when any replica last saw it (Unix seconds).

    ``initialize`` is the body with which its client opened it; None while no row of it is known, and for a long one.
    """

    session: Session
    last_seen: float
    initialize: bytes | None = None

    @property
    def client(self) -> ClientName | None:
        """The name that the client gave in ``initialize``, None where it gave none."""
        return None if self.initialize is None else client_of(self.initialize)


def client_of(initialize: bytes) -> ClientName | None:
    """Read ``clientInfo`` of an ``initialize``, which a stranger wrote: None where there is no name to show."""
    try:
        span = find(initialize, _CLIENT)
        if span is None:
            return None
        told = orjson.loads(initialize[span[0] : span[1]])
    except (AdapterError, ValueError):
        return None
    if not isinstance(told, dict):
        return None
    found = ClientName(_text(told.get("name")), _text(told.get("version")))
    return found if any(found) else None


def _text(value: object) -> str:
    return shown(value.strip(), LONGEST_NAME) if isinstance(value, str) else ""


class OpenSessions:
    """Reads the open sessions. Several who look at the same time share one look."""

    def __init__(self, store: Store, sessions: Sessions) -> None:
        self._store = store
        self._sessions = sessions
        self._looking = SingleFlight[None, list[SeenSession]]()

    async def all(self) -> list[SeenSession]:
        """The open sessions, those used last first. Raises StoreUnavailable."""
        return await self._looking.get(None, self._look)

    async def _look(self) -> list[SeenSession]:
        found = {session.key: SeenSession(session, session.last_seen) for session in self._sessions.opened()}
        after, count = "", 0
        while count < MOST_READ and (rows := await self._store.scan(TABLE, after=after)):
            for row in rows:
                stored = self._stored(row)
                known = found.get(row.key)
                if known is None and stored is not None:
                    found[row.key] = stored
                elif known is not None and stored is not None:
                    seen = max(known.last_seen, stored.last_seen)
                    found[row.key] = SeenSession(known.session, seen, stored.initialize)
            after, count = rows[-1].key, count + len(rows)
        return sorted(found.values(), key=lambda each: each.last_seen, reverse=True)

    def _stored(self, row: Row) -> SeenSession | None:
        """The session of a row, None for one that is not open or that another version wrote."""
        try:
            record = decode(row.value)
        except ValueError:
            return None
        if record.state is not SessionState.OPEN:
            return None
        last_seen, ttl = record.times.last_seen, self._sessions.limits.idle_of(record.times.idle)
        if row.due is not None and ttl is not None:
            # What was seen later is written as the time when it is due.
            last_seen = max(last_seen, row.due - ttl)
        session = Session(
            row.key,
            record.server,
            record.principal,
            record.upstream.id,
            record.upstream.protocol_version,
            record.upstream.generation,
            last_seen,
            record.times.created,
        )
        session.unnamed = row.key.startswith(UNNAMED)
        initialize = record.handshake.initialize
        return SeenSession(session, last_seen, initialize if len(initialize) <= LONGEST_INITIALIZE else None)


class OperatorsOnly(AdapterError):
    code, rpc, http = "operators_only", -32600, 403
    hint = "Only operators may do this: console.operators and console.oauth say who they are."


class Viewer(NamedTuple):
    """The caller. An operator also sees sessions and files of others, and may accept changed tools.

    ``expires`` is the Unix time at which its access token expires, None for any other credential.
    """

    principal: str
    operator: bool
    expires: float | None = None

    @property
    def authenticated(self) -> bool:
        return self.principal != ANONYMOUS

    @property
    def name(self) -> str:
        return name_of(self.principal)

    @property
    def whose(self) -> str | None:
        """The principal whose sessions and files this viewer may see; None for everybody's."""
        return None if self.operator else self.principal

    def require_operator(self) -> None:
        """Raise OperatorsOnly for anybody else."""
        if not self.operator:
            raise OperatorsOnly()


class Viewers:
    """Finds the viewer by its credential. ``operators`` are names of tokens, and ``roles`` are for people who have
    signed in, or send an access token; None makes each of them a viewer.

    Without tokens every caller on this machine is an operator, and nobody else is let in.
    """

    def __init__(self, guard: Guard, operators: Collection[str], roles: RoleRules | None = None) -> None:
        self._guard = guard
        self._operators = frozenset(operators)
        self._roles = roles or RoleRules()

    def __repr__(self) -> str:
        return f"<Viewers: {len(self._operators)} operators>"

    def of(self, headers: Mapping[str, str]) -> Viewer:
        """Return the viewer that asks. Raises HostRefused, OriginRefused, Unauthorized, ConsoleRefused,
        OnThisMachineOnly.
        """
        self._guard.check_place(headers)
        identity = self._guard.identify(headers, CONSOLE)
        principal = identity.principal
        # The name of a person comes from an issuer, and may be that of a token. Only what issuers vouch for expires.
        if identity.expires is None:
            if principal == ANONYMOUS and not self._guard.trusts(headers):
                raise OnThisMachineOnly()
            operator = principal == ANONYMOUS or name_of(principal) in self._operators
        else:
            role = self._roles.role_of(identity.scopes, identity.claims)
            if role is None:
                raise ConsoleRefused.to(self._roles.needed)
            operator = role == "operator"
        return Viewer(principal, operator, identity.expires)


def require_json(request: Request) -> None:
    """Raises UnsupportedMediaType. A page of another origin may send forms without asking first, but no JSON."""
    media_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and request.headers.get("Origin") is not None:
        raise UnsupportedMediaType("Send the body as application/json.")


MOST_SESSIONS = 1000
"""Sessions that are shown, those that were used last."""

MOST_SCOPES = 200
"""Scopes of others that an operator is shown."""

MOST_FILES = 1000
"""Files of one scope that are shown, those that came last."""

MOST_OFFERED = 100
"""Files that are offered as arguments of a tool, those that came last."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The part of a server's settings that is shown.

    ``helper`` is the tool that gives out upload URLs, if any; ``own`` is the number of the adapter's own tools.
    """

    transport: str
    helper: str | None = None
    own: int = 0


@dataclass(slots=True)
class ServerStatus:
    """The status of the servers, as health knows it."""

    health: Health
    facts: Mapping[str, ServerFacts]
    recent: Recent

    async def told(self, viewer: Viewer) -> list[dict[str, Any]]:
        """The status of every server. Raises StoreUnavailable.

        An operator is also told what a server said to callers that it refused.
        """
        # While the store is asked the servers may become other ones.
        shown = [server for server in self.health.servers if server.id in self.facts]
        return [await self._told(server, viewer) for server in shown if server.id in self.health.pin_review]

    async def mounts(self, viewer: Viewer) -> list[dict[str, Any]]:
        """The merged mounts. Only an operator is told why a server is missing, and which names are hidden."""
        told = []
        for mount_id, each in self.health.mounts.items():
            notes = [
                f"{server} is missing in its lists{f': {why}' if viewer.operator else ''}"
                for server, why in each.lists.missing.items()
            ]
            if viewer.operator:
                notes += map(str, await each.lists.hidden())
            told.append(
                {"id": mount_id, "path": each.mount.mount, "servers": list(each.servers), "notes": notes}
            )
        return told

    async def _told(self, server: Server, viewer: Viewer) -> dict[str, Any]:
        watch, facts = self.health.monitors.get(server.id), self.facts[server.id]
        pins = await self.health.pin_review[server.id].status()
        pulse = watch.pulse if watch is not None else None
        latency = pulse.latency if pulse is not None else None
        status = self.health.status_of(server)
        evidence = Evidence(server, status, pulse, pins, self.recent.failures.get(server.id))
        return {
            "id": server.id,
            "mount": server.mount,
            "transport": facts.transport,
            "era": pulse.era.value if pulse is not None and pulse.era is not None else None,
            "status": status,
            "condition": evidence.told(details=viewer.operator),
            "checked": watch is not None,
            "breaker": server.breaker.state.value if server.breaker is not None else None,
            "latency_ms": round(latency * 1000, 2) if latency is not None else None,
            "history": list(watch.history) if watch is not None else [],
            "tools": len(pins.now.tools) + facts.own if pins.now is not None else None,
            "drift": pins.drifted,
            "remembered": pins.remembered is not None,
            "met": drift_as_data(pins),
            "missing": sorted(server.wiring.missing or ()),
            "helper": facts.helper,
            "uploads": facts.helper is not None,
        }


@dataclass(slots=True)
class SessionsAndFiles:
    """Sessions and files with their owners."""

    sessions: OpenSessions
    scopes: Scopes
    registry: FileRegistry
    settings: Settings

    async def sessions_for(self, viewer: Viewer) -> list[dict[str, Any]]:
        """The open sessions of all replicas that this viewer may know of, those used last first.

        Raises StoreUnavailable.
        """
        found = await self.sessions.all()
        shown = [each for each in found if viewer.whose in (None, each.session.principal)]
        return [self._session(each, viewer) for each in shown[:MOST_SESSIONS]]

    def _session(self, seen: SeenSession, viewer: Viewer) -> dict[str, Any]:
        session, client = seen.session, seen.client
        return {
            "server": session.server,
            "scope": self.scopes.of(session, session.principal).id,
            "client": None if client is None else client._asdict(),
            # A modern client has no session.
            "era": Era.LEGACY.value,
            "principal": name_of(session.principal),
            "created": session.created,
            "last_seen": seen.last_seen,
            "in_flight": session.in_flight,
            "own": session.principal == viewer.principal,
        }

    async def files_for(self, viewer: Viewer) -> dict[str, Any]:
        """The files of the viewer's own scopes; for an operator also the sizes of other scopes, without names."""
        own = await self._own_scopes(viewer)
        shown = [self._own(scope_id, records) for scope_id, records in own.items()]
        if viewer.operator:
            for scope in await self.registry.first_scopes(MOST_SCOPES):
                if scope.id not in own:
                    records = await self._records(scope.id)
                    shown.append({**self._totals(scope.id, records), "own": False, "files": []})
        return {
            "scopes": shown,
            "schemes": [self.settings.uploads.uri_scheme, self.settings.artifacts.uri_scheme],
        }

    async def _own_scopes(self, viewer: Viewer) -> dict[str, list[FileRecord]]:
        """The files of the principal's scope and of those of its open sessions, by their ids, if they hold anything."""
        principal = viewer.principal
        opened = [each.session for each in await self.sessions.all()]
        mine = [session for session in opened if session.principal == principal][:MOST_SCOPES]
        found = [self.scopes.of(None, principal), *(self.scopes.of(session, principal) for session in mine)]
        held = {scope.id: await self._records(scope.id) for scope in found}
        return {
            scope_id: records for scope_id, records in held.items() if records or self.registry.used(scope_id)
        }

    async def files_of(self, principal: str, session_key: str | None) -> dict[str, Any]:
        """See CallerFiles: those that a caller of the console can give to a server's tools."""
        held = await self._records(self.scopes.of_key(session_key, principal).id)
        return {"limit": self.settings.uploads.max_file_bytes, "files": self._newest(held, MOST_OFFERED)}

    def _own(self, scope_id: str, held: list[FileRecord]) -> dict[str, Any]:
        return {**self._totals(scope_id, held), "own": True, "files": self._newest(held, MOST_FILES)}

    def _newest(self, held: list[FileRecord], most: int) -> list[dict[str, Any]]:
        records = sorted(held, key=lambda record: record.created, reverse=True)
        return [self._file(record) for record in records[:most]]

    def _totals(self, scope_id: str, held: list[FileRecord]) -> dict[str, Any]:
        return {
            "scope": scope_id,
            # What other replicas have counted is not known here.
            "used": max(self.registry.used(scope_id), sum(record.content.size for record in held)),
            "quota": self.settings.sessions.max_total_session_size,
            "count": len(held),
        }

    async def _records(self, scope_id: str) -> list[FileRecord]:
        return [record for kind in FileKind for record in await self.registry.list(scope_id, kind)]

    def _file(self, record: FileRecord) -> dict[str, Any]:
        if record.kind is FileKind.UPLOAD:
            uri = upload_handle(record.scope, record.id, self.settings.uploads.uri_scheme)
        else:
            uri = artifact_uri(record.scope, record.id, record.filename, self.settings.artifacts.uri_scheme)
        return {
            "kind": record.kind.value,
            "uri": uri,
            "filename": record.filename,
            "size": record.content.size,
            "media_type": record.content.media_type,
            "expires_at": self.registry.expires_at(record),
            "server": record.server,
            "changed": record.key in self.registry.changed,
        }
