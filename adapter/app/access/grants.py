"""The grants of people for upstreams, built: what asks for them, keeps them, and gives them to requests."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from adapter.app.base import Base
from adapter.app.state import sealed_rows
from adapter.edge.grant_routes import GrantRoutes
from adapter.edge.http.access import Guard
from adapter.edge.http.request import Branch
from adapter.oauth.grants.flow import GrantFlow
from adapter.oauth.grants.grant_store import GrantLink, GrantLinks, GrantListener, GrantStore
from adapter.oauth.grants.issuer_finder import ClientRegistry, GrantConfig, IssuerFinder
from adapter.oauth.grants.renewal import GrantCredentials, GrantRenewal
from adapter.relay.call.call_gate import GrantAnswers, GrantGate
from adapter.relay.cleanup import CleanupTask, Lease
from adapter.relay.notifications import Notice
from adapter.rules.access.principals import Scope
from adapter.rules.calls.rounds import ASKING
from adapter.settings.root import Settings
from adapter.settings.servers.server import ServerSettings
from adapter.upstream.authorized import AuthorizedUpstream, refusal_by
from adapter.upstream.outgoing import IssuerHttp, token_http
from adapter.upstream.port import Upstream
from adapter.wire.envelope import dump

if TYPE_CHECKING:
    from adapter.app.base import SessionStack
    from adapter.edge.console.sign_in import SignInRoutes
    from adapter.relay.server import Server

SECRET = "grants"  # noqa: S105 (the name of a secret)
"""The name of the store's own secret, where there is no ``core.secret``."""

LEASE_SECONDS = 20.0
"""Seconds for which one replica may renew a grant; a request to a token endpoint takes less."""

COMPLETE = "notifications/elicitation/complete"


class UpstreamGrants:
    """The grants of all servers with ``upstream.auth.type: authorization_code``, by the ids of these."""

    def __init__(self, base: Base) -> None:
        settings, store = base.settings, base.store
        self._base = base
        self._sessions: SessionStack | None = None
        self.rows = sealed_rows(settings, store, SECRET)
        self.grants = GrantStore(self.rows)
        self.links = GrantLinks(self.rows, base.clock)
        self.servers: dict[str, GrantCredentials] = {}
        self.flows: dict[str, GrantFlow] = {}
        base.by_server += [self.servers, self.flows]
        base.tasks.append(CleanupTask("grants", self.links.tidy))

    def __repr__(self) -> str:
        return f"<UpstreamGrants of {len(self.servers)} servers>"

    def add(self, entry: ServerSettings) -> None:
        """Ask the callers of a server for grants, if it wants any."""
        if not asks_people(entry):
            return
        base = self._base
        terms = grant_terms(base.settings, entry)
        clients = ClientRegistry(terms, self.rows, grant_http(terms), base.clock)
        finder = IssuerFinder(terms, clients.http, base.log)
        leases = (lambda name: Lease(base.store, name, LEASE_SECONDS)) if base.store.shared else None
        renewal = GrantRenewal(self.grants, clients, leases, base.log, base.clock)
        self.servers[terms.server] = GrantCredentials(renewal, self.links, finder)
        flow = self.flows[terms.server] = GrantFlow(renewal, self.links, finder)
        flow.on_granted = self._granted

    def authorized(self, server: str, upstream: Upstream) -> Upstream:
        """The upstream of a server with the grants of its callers."""
        return AuthorizedUpstream(upstream, self.servers[server], refusal_by(server))

    def stand_before(self, server: Server) -> None:
        """Have calls ask for a grant before they go upstream, where the server's callers give some."""
        if server.id in self.servers:
            server.stages.put_first(ASKING, GrantGate(self.servers[server.id]))

    def answers(self, sessions: SessionStack) -> GrantAnswers:
        """Build the answers to callers without a grant."""
        self._sessions = sessions
        return GrantAnswers(sessions.sessions, sessions.scopes, sessions.notifications, self._listen)

    def branch(self, guard: Guard, browsers: SignInRoutes | None, *, authenticated: bool) -> Branch:
        """Build the pages. ``browsers`` tells who sits at one, where people can sign in."""
        return GrantRoutes(self.flows, browsers, guard if authenticated else None).branch()

    async def close(self, within: float) -> None:
        """Wait until tokens that are being renewed are written, no longer than ``within`` seconds."""
        for each in self.servers.values():
            await each.renewal.close(within)

    # --- completion -------------------------------------------------------------------------------------------

    async def _listen(self, link: str, scope: Scope, session: str) -> None:
        await self.links.listen(link, GrantListener(scope.id, scope.owner, session))

    async def _granted(self, link: GrantLink) -> None:
        """Tell the sessions that were given the link (MCP 2025-11-25, "Completion Notifications")."""
        if self._sessions is None:
            return
        notifications = self._sessions.notifications
        params = {"elicitationId": link.id}
        notice = Notice(dump({"jsonrpc": "2.0", "method": COMPLETE, "params": params}))
        for scope_id, owner, session in link.listeners:
            scope = Scope(scope_id, owner)
            if scope.session_key is not None:
                # It is that session's alone, so it is told on whichever replica it listens.
                notifications.say(scope, COMPLETE, params)
            else:
                notifications.put(scope_id, session, notice)


# --- settings ---------------------------------------------------------------------------------------------------


def asks_people(entry: ServerSettings) -> bool:
    """Tell whether a server's callers give grants."""
    return entry.upstream.auth.type == "authorization_code"


def grant_terms(settings: Settings, entry: ServerSettings) -> GrantConfig:
    """The terms of one server."""
    auth, base = entry.upstream.auth, settings.core.public_base_url
    assert entry.upstream.url is not None and base is not None, "settings refuse others"
    return GrantConfig(entry.id, entry.upstream.url, base.rstrip("/"), auth)


def grant_http(terms: GrantConfig) -> IssuerHttp:
    """The requests to the authorization server of one upstream."""
    return token_http(urlsplit(terms.url).hostname if terms.is_discovered else None)
