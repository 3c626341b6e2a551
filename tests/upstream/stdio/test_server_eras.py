"""How the process that a modern client gets is asked for its era, where that of the adapter's pings has chosen one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog import get_logger

from adapter.relay.eras.bridge import Bridge
from adapter.relay.exchange import ClientRequest, Sender
from adapter.relay.server import Server
from adapter.relay.sessions.own_session import OwnSession
from adapter.rules.access.principals import Caller
from adapter.rules.calls.circuit_breaker import Breaker
from adapter.upstream.stdio.supervisor import Supervisor
from adapter.wire.envelope import Envelope, read_envelope
from adapter.wire.eras import LEGACY as LEGACY_ERA
from adapter.wire.eras import MODERN
from tests.relay.eras.bridging import Bridging, bridging, messages, modern
from tests.relay.relaying import Relaying
from tests.upstream.stdio.scripted import LEGACY, MODES, PATIENCE, Setup, running

LOCKED = (
    LEGACY.replace("held = {}", "held = {}; opened = False", 1)
    .replace(
        'say({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "Method not found"}})',
        'if opened: say({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "no"}})\n'
        '        else: answer(number, {"supportedVersions": ["2026-07-28"], "resultType": "complete"})',
    )
    .replace('if "--mute"', 'opened = True\n        if "--mute"')
)
"""One of both eras, of which a process that has opened a session speaks one only."""

STRICT = LOCKED.replace(
    'else: answer(number, {"supportedVersions"', 'else: sys.exit(1) or ({"supportedVersions"'
)
"""One that ends at any request ahead of ``initialize``, as some kits for servers do."""

MUTE = LOCKED.replace('else: answer(number, {"supportedVersions"', 'else: ({"supportedVersions"')
"""One that says nothing to it."""


class Place:
    """A server whose adapter has pinged it, with its bridge and the number of its starts."""

    def __init__(self, server: Server, clients: Bridging, starts: Path) -> None:
        self.server, self.clients, self._starts = server, clients, starts

    @property
    def starts(self) -> int:
        return len(self._starts.read_text())

    async def call(self, principal: str = "ada") -> bool:
        """Whether a call of a modern client was bridged."""
        assert self.server.bridge is not None
        await self.server.bridge.ready(Caller(principal), PATIENCE)
        self.clients.upstream = self.clients.clients = self.server.upstream  # type: ignore[assignment]
        found = await self.clients.call("who", principal=principal)
        assert found["result"]["pid"]
        return "resultType" in found["result"]


@asynccontextmanager
async def pinged(supervisor: Supervisor, setup: Setup, path: Path) -> AsyncIterator[Place]:
    async with started(supervisor, setup, path) as place:
        await OwnSession(place.server, PATIENCE).open()
        assert place.server.eras == {LEGACY_ERA} and isinstance(place.server.upstream, Bridge)
        yield place


@asynccontextmanager
async def started(supervisor: Supervisor, setup: Setup, path: Path) -> AsyncIterator[Place]:
    # A slow machine is not silent.
    silence, starts = 0.2 if setup.program is MUTE else PATIENCE, path / "starts"
    setup = Setup(
        setup.mode, setup.limits, program=f"open({str(starts)!r}, 'a').write('x')\n" + setup.program
    )
    async with running(supervisor, setup) as upstream:
        breaker = Breaker(failure_threshold=3, open_cooldown=PATIENCE, half_open_probes=1)
        server = Server("files", "/files", upstream, breaker)
        server.process_use = lambda: upstream.server.use
        clients = bridging(upstream)  # type: ignore[arg-type]
        Bridge(server, {MODERN: lambda _: made}, get_logger(), silence)
        made = clients.clients
        yield Place(server, clients, starts)
        await made.close()


@pytest.mark.parametrize("mode", ["per_session", "per_principal"])
async def test_a_program_of_both_eras_is_piped(supervisor: Supervisor, mode: str, tmp_path: Path) -> None:
    """From the first call on, in the process that was asked; what a ping hears of its own changes nothing."""
    async with pinged(supervisor, Setup(mode, program=LOCKED), tmp_path) as place:
        assert place.starts == 1
        assert not any(await asyncio.gather(place.call(), place.call()))
        assert place.starts == 2 and place.server.eras == {LEGACY_ERA, MODERN}
        await OwnSession(place.server, PATIENCE).open()
        assert not await place.call() and place.starts == 2


@pytest.mark.parametrize("mode", MODES)
async def test_a_program_of_one_era_is_started_no_second_time(
    supervisor: Supervisor, mode: str, tmp_path: Path
) -> None:
    """The process that refused is that of the client's session. Nobody asks again."""
    async with pinged(supervisor, Setup(mode, program=LEGACY), tmp_path) as place:
        assert await place.call() and await place.call()
        assert place.starts == (1 if mode == "shared" else 2)
        assert await place.call("bea")
        assert place.starts == (1 if mode == "shared" else 3)


@pytest.mark.parametrize("mode", MODES)
async def test_a_call_before_the_first_ping_starts_no_process_more(
    supervisor: Supervisor, mode: str, tmp_path: Path
) -> None:
    """It waits until that has found the eras."""
    async with started(supervisor, Setup(mode, program=LEGACY), tmp_path) as place:
        ping = asyncio.create_task(OwnSession(place.server, PATIENCE).open())
        assert all(await asyncio.gather(place.call(), place.call()))
        assert await ping == 200 and place.starts == (1 if mode == "shared" else 2)


@pytest.mark.parametrize("is_pinged", [False, True])
@pytest.mark.parametrize("program", [LEGACY, LOCKED])
@pytest.mark.parametrize("mode", MODES)
async def test_a_call_that_fails_as_a_refusal_does_has_run_once(
    supervisor: Supervisor, mode: str, program: str, is_pinged: bool, tmp_path: Path
) -> None:
    """What the relay finds out on the way does not make it ask again."""
    ran = tmp_path / "ran"
    program = program.replace("name, given =", f"open({str(ran)!r}, 'a').write('x'); name, given =", 1)
    assert str(ran) in program
    async with started(supervisor, Setup(mode, program=program), tmp_path) as place:
        if is_pinged:
            await OwnSession(place.server, PATIENCE).open()
        asked = modern("tools/call", {"name": "pay", "arguments": {}})
        sender = Sender(MODERN, "ada", None, "2026-07-28", None, asked.caller)
        ask = ClientRequest(place.server, "POST", sender, list(asked.headers))
        envelope = read_envelope(asked.body)
        assert isinstance(envelope, Envelope)
        ask.envelope, ask.body = envelope, asked.body
        sessions = Relaying(place.server.upstream).upstream_sessions
        reply = await sessions.send(ask, None, asked.body, PATIENCE)
        assert (await messages(reply))[-1]["error"]["message"] == "no such tool"
        assert ran.read_text() == "x"


@pytest.mark.parametrize("program", [STRICT, MUTE])
@pytest.mark.parametrize("mode", MODES)
async def test_a_program_that_does_not_know_the_question_is_bridged(
    supervisor: Supervisor, mode: str, program: str, tmp_path: Path
) -> None:
    """Whether it ends or says nothing."""
    async with pinged(supervisor, Setup(mode, program=program), tmp_path) as place:
        assert await place.call() and await place.call("bea")
        assert place.starts <= 4
