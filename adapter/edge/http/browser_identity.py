"""The cookie of a person who signed in with their browser, in place of a token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapter.edge.http.request import Fields
from adapter.errors import ConsoleRefused
from adapter.rules.access.browser_sessions import TAB_FIELD, RoleTerms, is_own_page
from adapter.rules.access.principals import Identity

if TYPE_CHECKING:
    from adapter.oauth.browser_sessions import BrowserSessions

_COOKIE = frozenset({"authorization", "cookie"})


class BrowserIdentities:
    """Finds who signed in with the browser that makes a request. ``base`` is the public URL of the adapter."""

    def __init__(self, sessions: BrowserSessions, base: str, roles: RoleTerms) -> None:
        self._sessions = sessions
        self._base = base
        self._roles = roles

    def __repr__(self) -> str:
        return f"<BrowserIdentities at {self._base}>"

    def identify(self, headers: Fields, token_header: str) -> Identity | None:
        """The person by their cookie; None where there is none, and for a request with a token, which counts alone.

        A cookie counts for scripts of our own pages only. Raises ConsoleRefused for people without a role.
        """
        if headers.get("Authorization") is not None or headers.get(token_header) is not None:
            return None
        if not is_own_page(headers, self._base, TAB_FIELD):
            return None
        session = self._sessions.of(headers)
        if session is None:
            return None
        if self._roles.role_of(session.scopes, session.claims) is None:
            raise ConsoleRefused.to(self._roles.needed)
        return Identity(session.principal, _COOKIE, session.scopes, session.claims, session.expires)
