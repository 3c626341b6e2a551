"""GET streams of a session: what each of them carries, and what a client that comes back is given."""

from __future__ import annotations

import pytest

from adapter.upstream.local.events import UNREAD_AT_MOST
from adapter.upstream.local.replies import LocalAnswer, PendingReply
from adapter.upstream.local.sessions import LocalSession, LocalSessions

PATIENCE = 20.0


@pytest.fixture
def session() -> LocalSession:
    return LocalSessions().open("2025-11-25")


async def test_a_stream_gets_nothing_of_another_one(session: LocalSession) -> None:
    """Events are sent again on the stream that they were for; an id that nobody gave begins a new one."""
    streams = [session.listen()]
    session.send(b'"one"')
    streams.append(session.listen())
    session.send(b'"two"')
    streams.append(session.listen("1-1"))
    streams.append(session.listen("9-9"))
    session.send(b'"three"')
    texts = [await stream.read(PATIENCE) for stream in (streams[0], streams[1], streams[3])]
    assert texts == [b'id: 1-1\ndata: "one"\n\n', b'id: 2-2\ndata: "two"\n\n', b'id: 3-3\ndata: "three"\n\n']
    assert repr(streams[2]) == "<EventStream: open, 0 unread>"


async def test_what_was_missed_comes_once(session: LocalSession) -> None:
    """And before what is said from then on; nothing waits for a session that has no stream yet."""
    session.send(b'"before anybody listens"')
    stream = session.listen()
    session.send(b'"first"')
    assert await stream.read(PATIENCE) == b'id: 1-1\ndata: "first"\n\n'
    stream.abort()
    session.send(b'"missed"')
    stream = session.listen("1-1")
    session.send(b'"next"')
    assert await stream.read(PATIENCE) == b'id: 1-2\ndata: "missed"\n\nid: 1-3\ndata: "next"\n\n'


async def test_a_stream_that_nobody_reads_ends(session: LocalSession) -> None:
    """What did not fit is there for a client that comes back."""
    stream = session.listen()
    for number in range(UNREAD_AT_MOST + 1):
        session.send(b"%d" % number)
    events = await stream.read(PATIENCE)
    assert (events.count(b"data: "), await stream.read(PATIENCE)) == (UNREAD_AT_MOST, b"")
    assert await session.listen(f"1-{UNREAD_AT_MOST}").read(PATIENCE) == b"id: 1-65\ndata: 64\n\n"


async def test_a_request_that_was_answered_at_once_is_not_kept(session: LocalSession) -> None:
    """Its session is idle again."""
    reply = PendingReply()
    reply.answer(LocalAnswer(b"{}"))
    session.expect(7, reply)
    assert session.idle
