"""The time between a start that failed and the next one, in which orchestrators and operators are told why.

The process is alive, so it is not restarted, and not ready, so it gets no traffic.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Sequence

from structlog.typing import FilteringBoundLogger

from adapter.edge.http.limits import ConnectionLimit
from adapter.edge.http.listener import Listener
from adapter.edge.http.request import Request
from adapter.rules.access.host_and_origin_check import is_local, is_loopback
from adapter.startup.failure import LONGEST_WHY, MOST_OBSTACLES, Obstacle

FIRST_WAIT, LONGEST_WAIT = 1.0, 30.0
"""Seconds until the next start; each time twice as long."""

MOST_CONNECTIONS = 64


def wait_after(attempts: int) -> float:
    """Seconds to wait after so many starts that failed."""
    return min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(attempts - 1, 30))


class FailedStart:
    """Answers requests while the adapter cannot: /livez with 200, all others with 503.

    ``/healthz`` names the settings, and tells callers on this machine the whole sentences, which may have paths in
    them. Nobody knows yet who may know more: that is in the settings.
    """

    def __init__(self, obstacles: Sequence[Obstacle], attempts: int, wait: float) -> None:
        self._obstacles = obstacles[:MOST_OBSTACLES]
        self._attempts = attempts
        self._wait = wait

    async def answer(self, request: Request) -> None:
        """Answer one request."""
        status, told = self._told(request)
        fields = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]
        if status == 503:
            fields.append(("Retry-After", str(max(1, round(self._wait)))))
        request.reply.send(status, fields, _json(told))

    def _told(self, request: Request) -> tuple[int, dict[str, object]]:
        match request.path:
            case "/livez":
                return 200, {"status": "alive"}
            case "/readyz":
                return 503, {"status": "not_ready"}
            case "/healthz":
                return 503, self._health(details=_is_on_this_machine(request))
            case _:
                return 503, {
                    "error": "the adapter could not start; its log and /healthz on its machine say why"
                }

    def _health(self, *, details: bool) -> dict[str, object]:
        shown = [
            {"event": each.event, "why": each.why[:LONGEST_WHY], "setting": each.setting}
            if details
            else {"event": each.event, "setting": each.setting}
            for each in self._obstacles
        ]
        startup = {"state": "failed", "attempts": self._attempts, "next_attempt_after_seconds": self._wait}
        return {
            "status": "degraded",
            "degraded_reason": "start_failed",
            "startup": startup,
            "obstacles": shown,
        }


def _json(told: dict[str, object]) -> bytes:
    """JSON in UTF-8, with a sign in place of what is no character: a path in a sentence may have bytes of any kind."""
    return json.dumps(told, ensure_ascii=False).encode(errors="replace")


def _is_on_this_machine(request: Request) -> bool:
    """Tell whether the caller is on this machine and not behind a proxy on it."""
    return request.peer is not None and is_loopback(request.peer) and is_local(request.headers)


_STOPPING = (signal.SIGINT, signal.SIGTERM)


async def waited(failed: FailedStart, place: tuple[str, int], wait: float, log: FilteringBoundLogger) -> bool:
    """Answer requests at ``place`` for ``wait`` seconds, or until SIGHUP asks for the next start.

    Returns False if SIGINT or SIGTERM has asked for the end instead.
    """
    loop = asyncio.get_running_loop()
    asked: asyncio.Future[bool] = loop.create_future()
    for number in _STOPPING:
        loop.add_signal_handler(number, _settle, asked, False)
    loop.add_signal_handler(signal.SIGHUP, _settle, asked, True)
    try:
        async with _answering(failed, place, log):
            loop.call_later(wait, _settle, asked, True)
            return await asked
    finally:
        # A closed loop of uvloop keeps its handlers, which would swallow these until the next start has its own.
        for number in _STOPPING:
            loop.remove_signal_handler(number)


def _settle(asked: asyncio.Future[bool], again: bool) -> None:
    if not asked.done():
        asked.set_result(again)


@contextlib.asynccontextmanager
async def _answering(
    failed: FailedStart, place: tuple[str, int], log: FilteringBoundLogger
) -> AsyncIterator[None]:
    """Answer at ``place`` while the block runs, where that is possible: the address may be what is in the way."""
    limit = ConnectionLimit(failed.answer, limit=MOST_CONNECTIONS)
    try:
        listener = await Listener.open(limit, *place)
    except (OSError, ValueError) as error:
        # A host that is no name at all is a ValueError.
        why = error.strerror if isinstance(error, OSError) else "core.host is no host"
        log.warning("nobody can be told why the start failed", host=place[0], port=place[1], why=why)
        yield
        return
    try:
        yield
    finally:
        listener.close()
        await listener.drop()
