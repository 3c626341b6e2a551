"""The files that a request without a signed link may reach: those of its own session, or of its principal."""

from __future__ import annotations

import hmac

from adapter.edge.http.access import Guard
from adapter.edge.http.request import Fields
from adapter.errors import CredentialRefused, FileGone, SessionMissing, SessionUnknown, Unauthorized
from adapter.relay.files.scopes import Scopes
from adapter.relay.sessions.session_map import Sessions
from adapter.rules.access.principals import ANONYMOUS, Scope
from adapter.rules.access.sessions import session_key, well_formed

SESSION_FIELD = "Mcp-Session-Id"

_NO_CLAIM = "Use a signed link from the server's tools, or send the id of your own session in Mcp-Session-Id."


class Claims:
    """Reads who owns what out of header fields alone."""

    def __init__(self, sessions: Sessions, scopes: Scopes, guard: Guard) -> None:
        self._sessions = sessions
        self._scopes = scopes
        self._guard = guard

    async def own(self, headers: Fields, server: str) -> Scope:
        """The scope of the session whose own id the request carries; without an id, that of its principal.

        Raises Unauthorized, and CredentialRefused where the id is not one of this principal and server, or where
        nothing says who asks.
        """
        principal = self._guard.identify(headers, server).principal
        session_id = headers.get(SESSION_FIELD)
        if session_id is None and principal == ANONYMOUS:
            raise CredentialRefused(_NO_CLAIM)
        if session_id is None:
            return self._scopes.of(None, principal)
        try:
            session = await self._sessions.find(session_id, server, principal)
        except (SessionMissing, SessionUnknown):
            raise CredentialRefused(_NO_CLAIM) from None
        return self._scopes.of(session, principal)

    async def check_owns(self, headers: Fields, server: str, scope_id: str) -> None:
        """Raises Unauthorized or CredentialRefused where nothing valid says who asks, FileGone where that is known and
        the scope is neither the session's nor the principal's.
        """
        principal = self._guard.identify(headers, server).principal
        if principal != ANONYMOUS and _same(self._scopes.of(None, principal).id, scope_id):
            return
        try:
            owned = await self.own(headers, server)
        except CredentialRefused:
            if principal == ANONYMOUS:
                raise
            raise FileGone() from None
        if not _same(owned.id, scope_id):
            raise FileGone()

    async def check_names(self, headers: Fields, server: str, scope_id: str) -> None:
        """Raises CredentialRefused where the request carries a session id, and one that is another scope's.

        The public id of the scope is as good as the own id of its session, for it proves nothing here.
        """
        said = headers.get(SESSION_FIELD)
        if said is None or _same(said, scope_id):
            return
        if well_formed(said) and _same(self._scopes.of_session_key(session_key(said)).id, scope_id):
            return
        # Where a principal owns the files, only the session knows which.
        try:
            await self._guard.verify(headers)
            owned = await self.own(headers, server)
        except Unauthorized:
            raise CredentialRefused() from None
        if not _same(owned.id, scope_id):
            raise CredentialRefused()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))
