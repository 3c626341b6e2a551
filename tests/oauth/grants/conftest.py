"""Grants over a store, an authorization server on a socket, and as many replicas as a test wants."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import pytest
import structlog

from adapter.oauth.grants.flow import GrantFlow
from adapter.oauth.grants.grant_store import GrantLinks, GrantStore
from adapter.oauth.grants.issuer_finder import ClientRegistry, GrantConfig, IssuerFinder
from adapter.oauth.grants.renewal import GrantCredentials, GrantRenewal
from adapter.relay.cleanup import Lease
from adapter.rules.access.principals import Caller
from adapter.settings.servers.upstream_auth import UpstreamAuth
from adapter.state.port import Store
from adapter.state.sealed_rows import SealedRows
from adapter.state.sqlite import MemoryStore
from adapter.upstream.outgoing import token_http
from tests.oauth.grants.scripted_issuer import ScriptedIssuer
from tests.pipeline.issuer import Clock

ALICE = Caller("alice:0123456789abcdef", fields={"Host": "adapter"})
BOB = Caller("bob:0123456789abcdef", fields={"Host": "adapter"})


class Replica:
    """One process of the adapter, as far as grants go."""

    def __init__(self, store: Store, issuer: ScriptedIssuer, clock: Clock, secret: bytes = b"s" * 32) -> None:
        async def key(_: bytes | None) -> bytes:
            return secret

        log = structlog.get_logger()
        auth = UpstreamAuth(type="authorization_code", issuer=issuer.issuer)
        self.terms = GrantConfig("notes", "http://127.0.0.1:9/mcp", "http://127.0.0.1:8932", auth)
        self.rows = SealedRows(store, key)
        self.grants = GrantStore(self.rows)
        clients = ClientRegistry(self.terms, self.rows, token_http(), clock)
        finder = IssuerFinder(self.terms, clients.http, log)
        self.links = GrantLinks(self.rows, clock)
        self.renewal = GrantRenewal(self.grants, clients, lambda name: Lease(store, name, 30.0), log, clock)
        self.credentials = GrantCredentials(self.renewal, self.links, finder)
        self.credentials.just_renewed = 0.0
        self.flow = GrantFlow(self.renewal, self.links, finder)

    async def give(self, issuer: ScriptedIssuer, caller: Caller = ALICE, person: str = "alice") -> None:
        """Go the whole way of a browser for ``caller``."""
        link = (await self.links.required(self.terms, caller.principal)).data
        assert link is not None
        url = await self.flow.begin(await self.flow.consent(link["elicitationId"]), "cookie")
        query = issuer.consent(url, person).partition("?")[2]
        await self.flow.finish(dict(pair.split("=", 1) for pair in _plain(query)), lambda _: "cookie")


def _plain(query: str) -> list[str]:
    from urllib.parse import unquote

    return [unquote(pair) for pair in query.split("&")]


@dataclass
class Cluster:
    """Replicas over one store."""

    store: MemoryStore
    issuer: ScriptedIssuer
    clock: Clock = field(default_factory=Clock)

    def replica(self, store: Store | None = None, secret: bytes = b"s" * 32) -> Replica:
        return Replica(store or self.store, self.issuer, self.clock, secret)


StartCluster = Callable[[], AbstractAsyncContextManager[Cluster]]


@pytest.fixture
def cluster() -> StartCluster:
    """``async with cluster() as it``: a store and an authorization server."""

    @contextlib.asynccontextmanager
    async def start() -> AsyncIterator[Cluster]:
        store = MemoryStore()
        await store.open()
        async with ScriptedIssuer() as issuer:
            yield Cluster(store, issuer)
        await store.close()

    return start
