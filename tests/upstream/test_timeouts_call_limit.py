"""The limit of all the time of a call, and what only looks like its end."""

from __future__ import annotations

import asyncio

import pytest

from adapter.errors import CallTooLong
from adapter.upstream.port import ReadLimit, WholeReply
from adapter.upstream.timeouts import LimitedReply

LIMIT = ReadLimit(60, "core.defaults.tool_call_total_seconds")


class Unreachable:
    """A client whose connection the system gives up."""

    def put(self, chunk: bytes, *, more: bool = False) -> bool:
        return False

    async def drained(self) -> None:
        raise TimeoutError(110, "Connection timed out")


async def test_a_connection_that_timed_out_is_no_call_that_took_too_long() -> None:
    """The system's word for a client that is gone is told as it came."""
    reply = LimitedReply(WholeReply(200, body=b"{}"), float("inf"), LIMIT)
    with pytest.raises(TimeoutError, match="Connection timed out"):
        await reply.pour(Unreachable(), None)


async def test_a_call_whose_time_is_over_ends() -> None:
    """The sentence names the limit and its setting."""
    reply = LimitedReply(WholeReply(200, body=b"{}"), 0.0, LIMIT)
    with pytest.raises(CallTooLong, match=r"60 s that core\.defaults\.tool_call_total_seconds allows"):
        await reply.pour(Slow(), None)


class Slow:
    """A client that takes nothing."""

    def put(self, chunk: bytes, *, more: bool = False) -> bool:
        return False

    async def drained(self) -> None:
        await asyncio.Event().wait()
