"""Scopes: the owners of a call's files, the public ids of scopes, and the secrets that ids and links rest on."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from functools import lru_cache, partial

from adapter.relay.sessions.session_map import TABLE as SESSIONS
from adapter.relay.sessions.session_map import Session
from adapter.rules.access.principals import Scope, principal_scope, session_scope
from adapter.rules.access.sessions import SessionState, decode
from adapter.rules.last_used import LastUsed
from adapter.state.port import ABSENT, Conflict, Store

SECRETS = "secrets"


async def kept_secret(store: Store, name: str, held: bytes | None = None) -> bytes:
    """The secret of that name, 32 random bytes, made now if it is asked for first. Raises StoreUnavailable.

    A store that has lost it gets back the one that is ``held``, so that what rests on it goes on to count.
    """
    if (row := await store.get(SECRETS, name)) is not None:
        return row.value
    try:
        return (await store.put(SECRETS, name, held or secrets.token_bytes(32), expected=ABSENT)).value
    except Conflict:  # another process was quicker, and its secret counts
        return await kept_secret(store, name, held)


TABLE = "scopes"

_CACHED = 4096
"""How many derived scopes are kept; one that was dropped costs a digest to derive again."""


MOST_REMEMBERED = 50_000
"""Scopes of which a process knows that they are remembered; another costs a look into the store."""


class Scopes:
    """Derives scopes, and remembers those whose ids clients have seen.

    ``per_principal``: files belong to who authenticated also where there is a session. ``clock`` gives Unix time.
    ``open`` comes first.
    """

    def __init__(self, store: Store, *, per_principal: bool, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._per_principal = per_principal
        self._remembered = LastUsed[str, Scope](MOST_REMEMBERED)
        self._secret: bytes | None = None
        self._tidied = ""

    def __repr__(self) -> str:
        return f"<Scopes: {len(self._remembered)} remembered>"

    async def open(self) -> None:
        """Read the secret of ids, also again. Raises StoreUnavailable."""
        secret = await kept_secret(self._store, "scope", self._secret)
        if secret != self._secret:
            self._secret = secret
            self._of_session = lru_cache(_CACHED)(partial(session_scope, secret))
            self._of_principal = lru_cache(_CACHED)(partial(principal_scope, secret))

    def store_lost(self) -> None:
        """Write scopes down again when they are used next: the store may have lost any of them."""
        self._remembered.clear()

    def of(self, session: Session | None, principal: str) -> Scope:
        """The owner of this call's files: the session, or the principal if the client names no session."""
        if session is None or session.unnamed or self._per_principal:
            return self._of_principal(principal)
        return self._of_session(session.key)

    def of_key(self, session_key: str | None, principal: str) -> Scope:
        """The same for the session of that key, known here or not; None if the client names no session."""
        if session_key is None or self._per_principal:
            return self._of_principal(principal)
        return self._of_session(session_key)

    def of_principal(self, principal: str) -> Scope:
        """The scope that belongs to a principal, whatever sessions it has."""
        return self._of_principal(principal)

    def of_session_key(self, key: str) -> Scope:
        """The scope of the session itself, also where files belong to principals."""
        return self._of_session(key)

    async def remember(self, scope: Scope) -> None:
        """Let every process know what this scope's id stands for. Raises StoreUnavailable."""
        if scope.id not in self._remembered.values:
            # A row that is there says the same, and perhaps for how long the scope is kept.
            with contextlib.suppress(Conflict):
                owner = scope.owner.encode("utf-8", "surrogatepass")
                await self._store.put(TABLE, scope.id, owner, expected=ABSENT)
            self._remembered.put(scope.id, scope)

    async def keep(self, scope: Scope, until: float) -> None:
        """Remember a scope, and let it outlive its session until then (Unix seconds). Raises StoreUnavailable."""
        await self.remember(scope)
        if scope.session_key is not None:
            await self._store.touch(TABLE, {scope.id: until})

    async def is_kept(self, scope: Scope) -> bool:
        """Tell whether the scope outlives its session. Raises StoreUnavailable."""
        row = await self._store.get(TABLE, scope.id)
        return row is not None and row.due is not None and self._clock() < row.due

    async def find(self, scope_id: str) -> Scope | None:
        """The remembered scope of that id, unless it is gone. Raises StoreUnavailable."""
        # What an id stands for never changes, so no other process can make this old: only a store that loses it.
        scope = self._remembered.values.get(scope_id) or await self._read(scope_id)
        return None if scope is None or await self.gone(scope) else scope

    async def gone(self, scope: Scope) -> bool:
        """Tell whether the session that owned the scope is gone, and nothing keeps the scope; a principal never is.

        Raises StoreUnavailable.
        """
        return await self.has_ended(scope) and not await self.is_kept(scope)

    async def has_ended(self, scope: Scope) -> bool:
        """Tell whether the session that owned the scope is gone; a principal never is. Raises StoreUnavailable."""
        if (key := scope.session_key) is None:
            return False
        row = await self._store.get(SESSIONS, key)
        try:
            return row is None or decode(row.value).state not in (SessionState.OPEN, SessionState.IDLE)
        except ValueError:
            return False  # another version wrote it, so another version may know it

    async def forget(self, scope: Scope) -> None:
        """Its session has ended. One that was not remembered here costs nothing: ``tidy`` finds what others wrote.

        Raises StoreUnavailable.
        """
        if scope.id in self._remembered.values:
            await self._take_away(scope)

    async def tidy(self) -> None:
        """Forget scopes whose session is gone: one page of them each time, so that no round is a long one.

        Raises StoreUnavailable.
        """
        rows = await self._store.scan(TABLE, after=self._tidied)
        self._tidied = rows[-1].key if rows else ""
        scopes = [Scope(row.key, _owner(row.value)) for row in rows]
        gone = await asyncio.gather(*map(self.gone, scopes))
        await asyncio.gather(
            *(self._take_away(scope) for scope, is_gone in zip(scopes, gone, strict=True) if is_gone)
        )

    async def _take_away(self, scope: Scope) -> None:
        self._remembered.drop(scope.id)
        await self._store.delete(TABLE, scope.id)

    async def _read(self, scope_id: str) -> Scope | None:
        try:
            row = await self._store.get(TABLE, scope_id)
        except UnicodeEncodeError:  # no key of ours: it came out of a header or a path
            return None
        if row is None:
            return None
        scope = Scope(scope_id, _owner(row.value))
        self._remembered.put(scope_id, scope)
        return scope


def _owner(value: bytes) -> str:
    return value.decode("utf-8", "surrogatepass")
