"""Sessions of browsers in sealed cookies, which tell every replica who sits there."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from adapter.errors import Unauthorized
from adapter.rules.access.browser_sessions import (
    LARGEST_COOKIE,
    BrowserSession,
    cookie_of,
    decode_session,
    encode_session,
    set_cookie,
)
from adapter.state.sealed_rows import StoreSeal

SESSION, SIGN_IN = "mcp_adapter_session", "mcp_adapter_sign_in"
"""The cookies of people who signed in, and of those who are under way to their authorization server."""

Fields = list[tuple[str, str]]


@dataclass(eq=False)
class BrowserSessions:
    """Reads and writes the cookies of the adapter at ``paths``, the public paths of its pages.

    ``seal`` is that of all replicas. ``secure``: browsers reach the adapter by https.
    Nothing is kept here: a cookie that was copied before its person signed out is good until it expires.
    """

    seal: StoreSeal
    paths: Sequence[str]
    secure: bool = field(kw_only=True)
    clock: Callable[[], float] = field(default=time.time, kw_only=True)

    def __post_init__(self) -> None:
        self.paths = tuple(self.paths)
        self._prefix = "__Secure-" if self.secure else ""

    def __repr__(self) -> str:
        return f"<BrowserSessions at {', '.join(self.paths)}>"

    async def open(self) -> None:
        """Read the key, also again where the store may be another one; before that nobody is signed in.

        Raises StoreUnavailable.
        """
        await self.seal.open()

    def of(self, headers: Mapping[str, str]) -> BrowserSession | None:
        """The session of the browser that sent these header fields, None for a stranger's.

        Any page may have caused the request: what changes something asks ``is_own_page`` besides, or shows a form of
        its own first.
        """
        value = cookie_of(headers.get("Cookie"), self._prefix + SESSION)
        data = None if value is None else self._unsealed(SESSION, value)
        return None if data is None else decode_session(data, self.clock())

    def begun(self, session: BrowserSession) -> Fields:
        """The fields of an answer that sign a person in. Raises Unauthorized where too much is to be kept."""
        value = self._sealed(SESSION, encode_session(session))
        if len(value) > LARGEST_COOKIE:
            raise Unauthorized("The claims that the settings ask for are too large for a cookie.")
        return self._set(SESSION, value, self.paths, int(session.expires - self.clock()))

    def ended(self) -> Fields:
        """The fields of an answer that sign the person out."""
        return self._set(SESSION, "", self.paths, 0)

    # --- on the way -------------------------------------------------------------------------------------------

    def under_way(self, data: bytes, seconds: int) -> Fields:
        """The fields of an answer that have the browser keep ``data`` until it returns."""
        return self._set(SIGN_IN, self._sealed(SIGN_IN, data), self.paths[:1], seconds)

    def returned(self, headers: Mapping[str, str]) -> bytes | None:
        """The data that this browser was given to keep; None for another browser."""
        value = cookie_of(headers.get("Cookie"), self._prefix + SIGN_IN)
        return None if value is None else self._unsealed(SIGN_IN, value)

    def arrived(self) -> Fields:
        """The fields of an answer that have the browser forget its data."""
        return self._set(SIGN_IN, "", self.paths[:1], 0)

    # --- sealing ----------------------------------------------------------------------------------------------

    def _set(self, name: str, value: str, paths: Sequence[str], seconds: int) -> Fields:
        return [
            ("Set-Cookie", set_cookie(self._prefix + name, value, path, seconds=seconds, secure=self.secure))
            for path in paths
        ]

    def _sealed(self, purpose: str, data: bytes) -> str:
        sealed = self.seal.sealed(data, purpose.encode())
        return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()

    def _unsealed(self, purpose: str, value: str) -> bytes | None:
        if len(value) > LARGEST_COOKIE or not value.isascii():
            return None
        try:
            sealed = base64.b64decode(value + "=" * (-len(value) % 4), b"-_", validate=True)
        except ValueError:
            return None
        return self.seal.unsealed(sealed, purpose.encode())
