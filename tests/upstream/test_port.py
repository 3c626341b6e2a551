"""A reply that is there from the beginning: read once, or dropped."""

from __future__ import annotations

import pytest

from adapter.errors import UpstreamBroken
from adapter.upstream.port import WholeReply


async def test_whole_reply_is_read_once() -> None:
    """Its body comes in one piece, and then its end; dropping it then changes nothing."""
    reply = WholeReply(200, [("Content-Type", "text/plain")], b"all")
    assert (reply.whole, await reply.read(None), await reply.read(None)) == (b"all", b"all", b"")
    reply.abort()
    assert await reply.read(None) == b""


async def test_whole_reply_that_was_dropped_is_not_read() -> None:
    """As on a connection, nobody takes a body without its bytes for a complete one."""
    reply = WholeReply(200, (), b"all")
    reply.abort()
    with pytest.raises(UpstreamBroken, match="was dropped"):
        await reply.read(None)
