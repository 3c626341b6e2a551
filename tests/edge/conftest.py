"""The adapter as a real server on a real socket, in front of a raw upstream."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from adapter.app import App, build, running
from adapter.edge.http.bodies import BodyLimits
from adapter.edge.http.limits import Patience
from adapter.oauth.port import TokenVerifier
from adapter.relay.stages import StageTable
from adapter.settings.root import Settings
from adapter.state.port import Store
from tests.edge.raw import Exchange, RawClient, RawUpstream, Script, result

if TYPE_CHECKING:
    from tests.edge.consoling import Console, StartConsole


class Located(Protocol):
    """An upstream by its address."""

    @property
    def url(self) -> str: ...


class Adapter:
    """A running adapter with one server ``raw`` at ``/mcp``."""

    def __init__(self, app: App, port: int) -> None:
        self.app = app
        self.port = port

    def client(self) -> RawClient:
        return RawClient(self.port)


async def done(exchange: Exchange) -> None:
    """Answers every call with the text "done"."""
    number = exchange.message["id"]
    assert isinstance(number, int)
    await exchange.json(result(number))


StartUpstream = Callable[..., AbstractAsyncContextManager[RawUpstream]]
StartAdapter = Callable[..., AbstractAsyncContextManager[Adapter]]
Road = tuple[RawUpstream, Adapter, RawClient]
StartRoad = Callable[..., AbstractAsyncContextManager[Road]]

SCRIPTS = frozenset(("version", "opening", "hearing"))
"""Arguments of a road that are those of its upstream."""


@pytest.fixture
def upstream() -> StartUpstream:
    """``async with upstream(script) as up``: a raw upstream for as long as the block lasts."""

    def start(script: Script = done, **fields: Any) -> RawUpstream:
        return RawUpstream(script, **fields)

    return start


def merged(base: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in more.items():
        base[key] = merged(dict(base[key]), value) if isinstance(base.get(key), dict) else value
    return base


@contextlib.asynccontextmanager
async def start_adapter(
    root: Path,
    raw: Located,
    stages: StageTable | None = None,
    server: Mapping[str, Any] | None = None,
    store: Store | None = None,
    verifier: TokenVerifier | None = None,
    bodies: BodyLimits | None = None,
    patience: Patience | None = None,
    **more: Any,
) -> AsyncIterator[Adapter]:
    """The adapter in front of ``raw``, pings off, with its state below ``root``."""
    entry = merged({"id": "raw", "mount_path": "/mcp", "upstream": {"url": raw.url}}, server or {})
    settings = {
        "core": {
            "port": 0,
            "shutdown_grace_seconds": 0,
            "upstream_ping": {"enabled": False},
            # A raw upstream answers what its script says, and is asked for nothing else.
            "tool_definition_pinning": {"mode": "off"},
        },
        "storage": {"root": str(root)},
        "servers": [entry],
    }
    app = build(
        Settings.model_validate(merged(settings, more)), {"raw": stages} if stages else None, store, verifier
    )
    app.bodies, app.patience = bodies or app.bodies, patience or app.patience
    async with running(app) as (_, port):
        yield Adapter(app, port)


@pytest.fixture
def adapter(tmp_path: Path) -> StartAdapter:
    """``async with adapter(up, sessions={…}) as front``: the adapter in front of ``up``, pings off.

    Starting it twice in one test is a restart: the state on disk stays.
    """
    return partial(start_adapter, tmp_path)


@pytest.fixture
def road(upstream: StartUpstream, adapter: StartAdapter) -> StartRoad:
    """``async with road(script, core={…}) as (up, front, client)``: a client of an adapter in front of an upstream."""

    @contextlib.asynccontextmanager
    async def start(script: Script = done, **more: Any) -> AsyncIterator[Road]:
        own = {name: more.pop(name) for name in SCRIPTS & more.keys()}
        async with upstream(script, **own) as up, adapter(up, **more) as front, front.client() as client:
            yield up, front, client

    return start


@pytest.fixture
def in_session(road: StartRoad) -> StartRoad:
    """The same whose client has opened a session."""

    @contextlib.asynccontextmanager
    async def start(*script: Script, **more: Any) -> AsyncIterator[Road]:
        async with road(*script, **more) as (up, front, client):
            await client.initialize()
            yield up, front, client

    return start


@pytest.fixture
def console(upstream: StartUpstream, tmp_path: Path) -> StartConsole:
    """``async with console(script, core={…}) as (up, front, client)``: an adapter whose console is on."""
    # Late, for it begins with what stands here.
    from tests.edge.consoling import opened_console

    @contextlib.asynccontextmanager
    async def start(
        script: Script = done, **more: Any
    ) -> AsyncIterator[tuple[RawUpstream, Console, RawClient]]:
        async with (
            upstream(script) as up,
            opened_console(tmp_path, up, **more) as front,
            front.client() as client,
        ):
            yield up, front, client

    return start
