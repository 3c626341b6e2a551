"""The adapter as a process, between whoever attacks it and a bystander who must not notice.

A test opens ``attacked``, attacks in its body through ``Arena`` and is bounded by ``DEADLINE``. At the end of the body
the calls of the bystander are checked: it made at least ``FEWEST_CALLS`` during the attack, none of them failed, and
none took longer than ``PATIENCE``.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tests.attacks.bystander import FEWEST_CALLS
from tests.e2e.processes import START_TIMEOUT, Adapter, Running, adapter, start
from tests.edge.raw import RawClient

DEADLINE = 60.0
"""Seconds that an attack may last, its adapter's start and stop included."""

PATIENCE = 0.25
"""Seconds that a call of the bystander's may take, whatever happens beside it."""

FIRST = ("sh", "-c", '{ echo -15 >/proc/self/autogroup; } 2>/dev/null; exec "$@"', "sh")
"""Words before a command that let it run before its neighbours, where root asks the kernel for it (autogroups of
sched(7)). Other tests, and the attackers, would be on machines of their own: a wait is to be the adapter's doing."""


@dataclass
class Arena:
    """``adapter`` has the attacked server at ``/mcp`` and the bystander's at ``/quiet``."""

    adapter: Adapter

    def client(self) -> RawClient:
        """Another connection of the attacker's."""
        return RawClient(self.adapter.port)

    @property
    def pid(self) -> int:
        """The adapter's process."""
        assert self.adapter.running is not None
        return self.adapter.running.process.pid

    def cpu_seconds(self) -> float:
        """User and system time that the adapter has used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def resident_bytes(self) -> int:
        """The adapter's resident memory now."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * 4096

    @property
    def log(self) -> str:
        """What the adapter has written to its log."""
        assert self.adapter.running is not None
        return self.adapter.running.log.read_text()


@asynccontextmanager
async def attacked(place: Path, upstream: str, padding: int = 0, **sections: Any) -> AsyncIterator[Arena]:
    """The adapter in front of ``upstream``, with a bystander at another server of it.

    ``sections`` join the settings file; ``server`` among them joins the attacked server's entry, and ``servers`` are
    further entries; ``token`` is the bystander's, where tokens are asked for, and ``padding`` how many bytes it sends
    with each call besides. Raises AssertionError at the end when the bystander has suffered.
    """
    async with asyncio.timeout(DEADLINE), AsyncExitStack() as stack:
        quiet = await start([*FIRST, sys.executable, "-m", "tests.bench.upstream"], place / "quiet.log")
        stack.push_async_callback(quiet.stop)
        port = int(await quiet.line(START_TIMEOUT))
        entry: Mapping[str, Any] = sections.pop("server", {})
        token = sections.pop("token", None)
        launcher = (*FIRST, *sections.pop("launcher", ()))
        servers = [
            {"id": "upstream", "mount_path": "/mcp", "upstream": {"url": upstream}, **entry},
            {"id": "quiet", "mount_path": "/quiet", "upstream": {"url": f"http://127.0.0.1:{port}/mcp"}},
            *sections.pop("servers", []),
        ]
        front = await stack.enter_async_context(
            adapter(place, upstream, launcher=launcher, servers=servers, **sections)
        )
        arena = Arena(front)
        watch = ["-m", "tests.attacks.bystander", f"{front.base}/quiet", f"{arena.pid}", f"{padding}"]
        argv = [*FIRST, sys.executable, *watch, *filter(None, [token])]
        bystander = await start(argv, place / "bystander.log")
        stack.push_async_callback(bystander.stop)
        assert await bystander.line(START_TIMEOUT) == "watching"
        yield arena
        await _unharmed(bystander)


async def _unharmed(bystander: Running) -> None:
    """Raises AssertionError with the bystander's figures when it has suffered."""
    assert bystander.process.stdin is not None
    bystander.process.stdin.close()
    seen = orjson.loads(await bystander.line(START_TIMEOUT))
    assert seen["calls"] >= FEWEST_CALLS, seen
    assert seen["failed"] == 0, seen
    assert seen["worst"] <= PATIENCE, seen
