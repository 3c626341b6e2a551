"""The answers of a process whose start failed."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import aiohttp
import pytest
import structlog
import uvloop

from adapter.startup.failure import Obstacle
from adapter.startup.waiting import FailedStart, wait_after, waited
from tests.ports import free_port
from tests.waiting import until

FULL = Obstacle(
    "the store of files cannot be used", "/data is not writable: let the user write", "storage.root"
)


@pytest.mark.parametrize(("attempts", "seconds"), [(1, 1), (2, 2), (5, 16), (6, 30), (10**6, 30)])
def test_each_wait_is_twice_as_long(attempts: int, seconds: float) -> None:
    """Up to half a minute, so that what has come back is found soon."""
    assert wait_after(attempts) == seconds


async def asked(base: str, path: str, **fields: str) -> tuple[int, str | None, Any]:
    async with aiohttp.ClientSession() as http, http.get(f"{base}{path}", headers=fields) as answer:
        return answer.status, answer.headers.get("Retry-After"), await answer.json()


async def test_orchestrators_and_operators_are_told() -> None:
    """It is alive and not ready; /healthz has the sentence for callers on the machine, the setting for all."""
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    log = structlog.get_logger("test")
    waiting = asyncio.create_task(waited(FailedStart([FULL], 3, 30.0), ("127.0.0.1", port), 30.0, log))
    async with asyncio.timeout(20):
        while True:
            try:
                assert await asked(base, "/livez") == (200, None, {"status": "alive"})
                break
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.01)
        assert await asked(base, "/readyz") == (503, "30", {"status": "not_ready"})
        status, _, told = await asked(base, "/healthz")
        assert (status, told["degraded_reason"]) == (503, "start_failed")
        assert told["startup"] == {"state": "failed", "attempts": 3, "next_attempt_after_seconds": 30.0}
        assert told["obstacles"] == [FULL._asdict()]
        for fields in (
            {"Host": "adapter.example.com"},
            {"X-Forwarded-For": "203.0.113.9"},
            {"Via": "1.1 proxy"},
        ):
            _, _, told = await asked(base, "/healthz", **fields)
            assert told["obstacles"] == [{"event": FULL.event, "setting": FULL.setting}]
        status, _, told = await asked(base, "/mcp/browser")
        assert status == 503 and FULL.why not in told["error"]
        # The next start can be asked for.
        os.kill(os.getpid(), signal.SIGHUP)
        assert await waiting is True


async def test_a_stop_ends_the_wait_also_where_the_port_is_taken() -> None:
    """The address may be what is in the way; then nobody is told, and signals still count."""
    blocking = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    place = blocking.sockets[0].getsockname()
    with structlog.testing.capture_logs() as lines:
        log = structlog.get_logger("test")
        waiting = asyncio.create_task(waited(FailedStart([FULL], 1, 30.0), place, 30.0, log))
        async with asyncio.timeout(20):
            await until(lambda: lines)
            os.kill(os.getpid(), signal.SIGTERM)
            assert await waiting is False
    assert (lines[0]["port"], lines[0]["log_level"]) == (place[1], "warning")
    blocking.close()


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "a\0b", "\udcff"])
async def test_a_host_that_is_none_ends_no_wait(host: str) -> None:
    """It may be one of the reasons why the start failed."""
    with structlog.testing.capture_logs() as lines:
        log = structlog.get_logger("test")
        assert await waited(FailedStart([FULL], 1, 30.0), (host, 8000), 0.0, log) is True
    assert lines[0]["why"] == "core.host is no host"


async def test_a_path_that_is_no_text_is_told() -> None:
    """With a sign for each byte that is none."""
    port = free_port()
    log = structlog.get_logger("test")
    failed = FailedStart([FULL._replace(why="/data/\udcff is full")], 1, 30.0)
    waiting = asyncio.create_task(waited(failed, ("127.0.0.1", port), 30.0, log))
    async with asyncio.timeout(20):
        while True:
            try:
                _, _, told = await asked(f"http://127.0.0.1:{port}", "/healthz")
                break
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.01)
        assert told["obstacles"][0]["why"] == "/data/? is full"
        os.kill(os.getpid(), signal.SIGTERM)
        assert await waiting is False


def test_a_stop_between_two_starts_is_not_swallowed() -> None:
    """When the wait is over, signals mean again what they meant before, until the next start has its own handlers."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    log = structlog.get_logger("test")
    try:
        assert uvloop.run(waited(FailedStart([FULL], 1, 30.0), ("127.0.0.1", free_port()), 0.0, log)) is True
        after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        assert after == [signal.default_int_handler, signal.SIG_DFL]
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
