"""Grants as they are kept: sealed rows of the state store, one for each server and principal.

Links that ask people for grants, and the state of browsers that are under way to one. Both in the state store.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import orjson

from adapter.errors import GrantRequired
from adapter.oauth.grants.issuer_finder import GrantConfig
from adapter.rules.access.grants import Grant, decode_grant, encode_grant
from adapter.rules.access.principals import digest, name_of
from adapter.state.port import ABSENT, Conflict, Row, delete_overdue, every_row
from adapter.state.sealed_rows import SealedRows

TABLE = "grants"

_ID = re.compile(r"[0-9a-f]{64}")


class KeptGrant(NamedTuple):
    """A grant and the version of its row."""

    grant: Grant
    version: int


class ListedGrant(NamedTuple):
    """A row of a list: ``grant`` is None where the key of this adapter does not open it. ``id`` is public."""

    server: str
    id: str
    grant: Grant | None

    @property
    def name(self) -> str | None:
        """The principal as it is shown."""
        return None if self.grant is None else name_of(self.grant.principal)

    def as_data(self) -> dict[str, object]:
        """The grant as JSON, without its tokens; times in Unix seconds. One that cannot be opened has nulls."""
        grant = self.grant
        return {
            "server": self.server,
            "id": self.id,
            "principal": self.name,
            "issuer": None if grant is None else grant.issuer,
            "scope": None if grant is None else grant.scope,
            "obtained": None if grant is None else grant.obtained,
            "renewed": None if grant is None else grant.renewed,
            "expires": None if grant is None else grant.expires,
            "renewable": None if grant is None else grant.refresh is not None,
        }


class GrantStore:
    """Reads and writes grants. All methods raise StoreUnavailable."""

    def __init__(self, rows: SealedRows) -> None:
        self.rows = rows

    async def get(self, server: str, principal: str) -> KeptGrant | None:
        """The grant of a principal for a server."""
        found = await self.rows.get(TABLE, key_of(server, principal))
        if found is None:
            return None
        grant = decode_grant(found[1])
        # The key follows from the principal, and the seal holds the key: this can only differ for a wrong digest.
        if grant is None or grant.principal != principal:
            return None
        return KeptGrant(grant, found[0].version)

    async def put(self, server: str, grant: Grant, *, expected: int | None = None) -> KeptGrant:
        """Write a grant. Raises Conflict."""
        row = await self.rows.put(
            TABLE, key_of(server, grant.principal), encode_grant(grant), expected=expected
        )
        return KeptGrant(grant, row.version)

    async def delete(self, server: str, principal: str, *, expected: int | None = None) -> bool:
        """Forget a grant. Raises Conflict."""
        return await self.rows.delete(TABLE, key_of(server, principal), expected=expected)

    async def listed(self, server: str, grant_id: str) -> ListedGrant | None:
        """The row of that id."""
        if _ID.fullmatch(grant_id) is None:
            return None
        row = await self.rows.store.get(TABLE, f"{server}/{grant_id}")
        return None if row is None else await self._listed(server, row)

    async def delete_listed(self, listed: ListedGrant) -> bool:
        """Forget a grant of a list, also one that cannot be opened."""
        return await self.rows.delete(TABLE, f"{listed.server}/{listed.id}")

    async def all(self, server: str) -> AsyncIterator[ListedGrant]:
        """The grants for a server, in the order of their ids."""
        async for row in every_row(self.rows.store, TABLE, server):
            yield await self._listed(server, row)

    async def _listed(self, server: str, row: Row) -> ListedGrant:
        plain = await self.rows.opened(TABLE, row)
        return ListedGrant(server, row.key.partition("/")[2], None if plain is None else decode_grant(plain))


def key_of(server: str, principal: str) -> str:
    """The key of a grant's row, which tells nothing of the principal."""
    return f"{server}/{digest(principal)}"


LINKS, STATES = "grant_links", "grant_states"

VALID = 600.0
"""Seconds for which a link can be opened at least, and for which a browser may be away at an authorization server."""

WINDOW = 300.0
"""Seconds in which a principal is given the same link for a server, however often it asks."""

_LINK = re.compile(r"[A-Za-z0-9_-]{24}")
_STATE = re.compile(r"[0-9a-f]{16}\.[A-Za-z0-9_-]{43}")

MOST_STATES = 16
"""Browsers that can be under way with one link; of more the first ones have to begin again."""

MOST_LISTENERS = 16
"""Sessions that are told when the grant of one link is there."""


class GrantListener(NamedTuple):
    """A session that was given a link: the id and the owner of its scope, and the key of its row."""

    scope: str
    owner: str
    session: str


class GrantLink(NamedTuple):
    """The request of one principal for a grant. ``id`` stands in the link; ``due`` is in Unix seconds."""

    id: str
    server: str
    principal: str
    due: float
    listeners: tuple[GrantListener, ...] = ()


class BrowserState(NamedTuple):
    """A browser on its way: ``browser`` is the digest of its cookie, ``verifier`` that of PKCE.

    ``grant`` is what it is to bring, still without tokens. What the browser was sent to is remembered in it, so that
    the answer is only taken from there.
    """

    link: str
    server: str
    browser: str
    verifier: str
    names_issuer: bool
    due: float
    grant: Grant

    def __repr__(self) -> str:
        return f"<BrowserState for {self.server!r}>"


class GrantLinks:
    """Makes links, and finds them on any replica. ``clock`` gives Unix seconds. All raise StoreUnavailable."""

    def __init__(self, rows: SealedRows, clock: Callable[[], float] = time.time) -> None:
        self._rows = rows
        self._clock = clock

    async def required(self, terms: GrantConfig, principal: str) -> GrantRequired:
        """The failure that gives a principal its link."""
        await self._rows.open()
        now = self._clock()
        window = int(now // WINDOW)
        link_id = self._id(terms.server, principal, window)
        if await self._rows.store.get(LINKS, link_id) is None:
            due = (window + 1) * WINDOW + VALID
            link = GrantLink(link_id, terms.server, principal, due)
            with contextlib.suppress(Conflict):
                await self._rows.put(LINKS, link_id, _encoded(link), expected=ABSENT, due=due)
        url = f"{terms.place}/{link_id}"
        message = f"The server {terms.server} needs your authorization. Open this link in a browser: {url}"
        data = {"mode": "url", "elicitationId": link_id, "url": url, "message": message}
        return GrantRequired(f"{message} – then try again.", data=data)

    async def find(self, server: str, link_id: str) -> GrantLink | None:
        """The link of that id, while it is valid."""
        found = await self._found(link_id)
        return found[1] if found is not None and found[1].server == server else None

    async def listen(self, link_id: str, listener: GrantListener) -> None:
        """Remember a session that wants to hear when the grant is there."""
        for _ in range(3):
            found = await self._found(link_id)
            if found is None:
                return
            row, link = found
            if listener in link.listeners or len(link.listeners) >= MOST_LISTENERS:
                return
            link = link._replace(listeners=(*link.listeners, listener))
            with contextlib.suppress(Conflict):
                await self._rows.put(LINKS, link_id, _encoded(link), expected=row.version, due=link.due)
                return

    async def close(self, link_id: str) -> GrantLink | None:
        """End a link whose grant is there, and return it as it was."""
        found = await self._found(link_id)
        await self._rows.delete(LINKS, link_id)
        return None if found is None else found[1]

    async def tidy(self) -> None:
        """Forget links and states whose time is over."""
        for table in (LINKS, STATES):
            await delete_overdue(self._rows.store, table, self._clock())

    def _id(self, server: str, principal: str, window: int) -> str:
        # A digest, so that all replicas make the same one, under a key, so that nobody else does.
        text = "\0".join((server, str(window), principal)).encode("utf-8", "surrogatepass")
        return base64.urlsafe_b64encode(hmac.digest(self._rows.name_key, text, "sha256")[:18]).decode()

    async def _found(self, link_id: str) -> tuple[Row, GrantLink] | None:
        if _LINK.fullmatch(link_id) is None:
            return None
        found = await self._rows.get(LINKS, link_id)
        if found is None:
            return None
        link = GrantLink(**orjson.loads(found[1]))
        if link.due <= self._clock():
            return None
        return found[0], link._replace(listeners=tuple(GrantListener(*each) for each in link.listeners))

    # --- browsers ---------------------------------------------------------------------------------------------

    async def start(self, state: BrowserState) -> str:
        """Remember a browser's state; the ``state`` parameter that finds it, once."""
        # By a digest of the link: its id is not told to the authorization server.
        group = digest(state.link)[:16]
        rows = await self._rows.store.scan(STATES, group=group)
        for row in sorted(rows, key=lambda row: row.due or 0.0)[: max(len(rows) - MOST_STATES + 1, 0)]:
            await self.take(row)
        parameter = f"{group}.{secrets.token_urlsafe(32)}"
        await self._rows.put(STATES, _key_of(parameter), _encoded(state), expected=ABSENT, due=state.due)
        return parameter

    async def state_of(self, parameter: str) -> tuple[Row, BrowserState] | None:
        """The state of a ``state`` parameter, while it is valid; it can still be taken."""
        if _STATE.fullmatch(parameter) is None:
            return None
        found = await self._rows.get(STATES, _key_of(parameter))
        if found is None:
            return None
        members = orjson.loads(found[1])
        state = BrowserState(**members)._replace(grant=Grant(*members["grant"]))
        return (found[0], state) if state.due > self._clock() else None

    async def take(self, row: Row) -> bool:
        """Use a state up. False: somebody else has."""
        try:
            return await self._rows.delete(STATES, row.key, expected=row.version)
        except Conflict:
            return False


def _encoded(value: GrantLink | BrowserState) -> bytes:
    # orjson takes no tuples with names.
    return orjson.dumps(value._asdict(), default=list)


def _key_of(parameter: str) -> str:
    return f"{parameter.partition('.')[0]}/{digest(parameter)}"
