"""Answers whose heads are recognized by their bytes: read exactly as they are when the parser sees each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import event, example, given
from hypothesis import strategies as st

from adapter.upstream.connection import Connection
from adapter.upstream.port import UpstreamReply
from adapter.upstream.reply import KINDS, KnownAnswers


class Wire(asyncio.Transport):
    """The transport of a connection to a server that never reads; what it says is fed by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: object) -> None:
        pass

    def abort(self) -> None:
        self.closed = True

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Read(NamedTuple):
    """An answer as its receiver has it. ``failure`` says how its body, or the whole of it, broke off."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    whole: bytes | None
    failure: str


class Course(NamedTuple):
    """The answers that were read, and what became of their connection."""

    read: list[Read]
    releases: int
    closed: bool
    keeps: float


async def turn() -> None:
    """Let whoever can go on do so."""
    for _ in range(3):
        await asyncio.sleep(0)


async def read_out(reply: UpstreamReply) -> Read:
    body, failure = b"", ""
    try:
        while chunk := await reply.read(None):
            body += chunk
    except Exception as error:
        failure = repr(error)
    return Read(reply.status, list(reply.headers), body, reply.whole, failure)


SEEN = KnownAnswers()
"""The answers that came on all connections before, as in a pool."""


async def course_of(said: Sequence[bytes], cut: int | None) -> Course:
    """One exchange for each answer, until the connection is not given back: what was said comes in one piece, or in two
    where it is to be ``cut`` behind so many bytes.
    """
    releases = 0

    def released(_: Connection) -> None:
        nonlocal releases
        releases += 1

    connection = Connection(asyncio.get_running_loop(), released, lambda _: None, SEEN)
    wire, read = Wire(), []
    connection.connection_made(wire)
    for number, data in enumerate(said):
        if releases != number or wire.closed:
            break
        exchange = asyncio.ensure_future(connection.exchange(b"GET / HTTP/1.1\r\n\r\n", b"", None))
        await turn()
        for piece in [data] if cut is None else [data[:cut], data[cut:]]:
            if piece and not wire.closed:
                connection.data_received(piece)
        await turn()
        # Whatever is waited for now does not come any more.
        if wire.closed:
            connection.connection_lost(None)
        elif releases == number:
            connection.eof_received()
        await turn()
        try:
            read.append(await read_out(await exchange))
        except Exception as error:
            read.append(Read(0, [], b"", None, repr(error)))
    return Course(read, releases, wire.closed, connection.keeps)


USUAL = [
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %s\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length:%s\r\nMcp-Session-Id: a\r\nKeep-Alive: timeout=9\r\n\r\n",
    b"HTTP/1.1 404 Not Found\r\nContent-Length: %s\r\n\r\n",
]
OTHERS = [
    b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=30\r\nContent-Length: %s\r\nX: 1\r\nY: 1\r\n\r\n",
    b"HTTP/1.1 202 Accepted\r\nKeep-Alive: timeout=9\r\nKeep-Alive: timeout=7\r\nContent-Length: %s\r\n\r\n",
    b"HTTP/1.1 202 Accepted\r\nContent-Length: %s\r\n\r\n",
]
ODD = [
    b"HTTP/1.1 204 No Content\r\nContent-Length: %s\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: %s\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %s\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: %s\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nContent-Length: %s\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: %s\r\nContent-Length: 2\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: %s\r\n\r\n2\r\n{}\r\n0\r\nContent-Length: 2\r\n\r\n",
    b"HTTP/1.1 200 OK\nContent-Length: %s\n\n",
    b"HTTP/1.1 200 OK\r\nX: %s\r\n\r\n",
]
BODIES = [b"", b"{}", b"x" * 9, b"x" * 10, b"x" * 101, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"]
SHORTEST = min(map(len, [*USUAL, *ODD]))


@st.composite
def answers(draw: st.DrawFn) -> list[bytes]:
    """Answers of one server: most with one head, some of another length than they say, or with bytes in them that no
    server should send.
    """
    usual = draw(st.sampled_from([*USUAL, *USUAL, *ODD]))
    return [draw(answer(usual)) for _ in range(draw(st.integers(2, 6)))]


@st.composite
def answer(draw: st.DrawFn, usual: bytes) -> bytes:
    head, body = draw(st.sampled_from([usual] * 4 + ODD[:1])), draw(st.sampled_from(BODIES))
    size, rarely = len(body), draw(st.integers(0, 11))
    number = {0: b"0%d" % size, 1: b"%d " % size, 2: b"+%d" % size, 3: b"%d" % (size + 1), 4: b""}
    said = head % number.get(rarely, b"%d" % size) + body
    if rarely == 5:
        place = draw(st.integers(0, len(said) - 1))
        return said[:place] + bytes([draw(st.sampled_from(b"\r\n\t :,aZ\0\xff"))]) + said[place + 1 :]
    return {6: b"\r\n" + said, 7: said + b"\r\n", 8: said + said}.get(rarely, said)


@given(answers(), st.integers(1, SHORTEST - 1))
@example([ODD[0] % b"0", ODD[0] % b"0", ODD[0] % b"2" + b"{}"], 1)
@example([ODD[1] % b"0", ODD[1] % b"0", ODD[1] % b"2" + b"{}"], 1)
def test_a_recognized_answer_is_read_as_a_parsed_one(said: list[bytes], cut: int) -> None:
    """What comes in two pieces is never recognized: both ways status, fields, body, failure and the connection's end
    are the same.
    """

    async def both() -> tuple[Course, Course]:
        return await course_of(said, None), await course_of(said, cut)

    at_once, parsed = asyncio.run(both())
    event(f"{len(at_once.read)} answers")
    assert at_once == parsed


@given(st.data(), st.integers(1, SHORTEST - 1))
def test_answers_of_many_kinds_in_any_order_are_read_as_parsed_ones(data: st.DataObject, cut: int) -> None:
    """As those of sessions are: how each begins, goes on and ends is another head, and none is taken for another."""
    heads = st.sampled_from([*USUAL, *USUAL, *OTHERS, *ODD])
    said = [data.draw(answer(data.draw(heads))) for _ in range(data.draw(st.integers(2, 16)))]

    async def both() -> tuple[Course, Course]:
        return await course_of(said, None), await course_of(said, cut)

    at_once, parsed = asyncio.run(both())
    assert at_once == parsed


async def test_each_kind_of_answer_is_recognized_between_the_others() -> None:
    """The fields of each are shared from the third time on, and the connection remembers only a few kinds."""
    connection, wire = Connection(asyncio.get_running_loop(), lambda _: None, lambda _: None), Wire()
    connection.connection_made(wire)
    derived: dict[bytes, list[object]] = {head: [] for head in USUAL}
    for _ in range(5):
        for head in USUAL:
            exchange = asyncio.ensure_future(connection.exchange(b"", b"", None))
            await turn()
            connection.data_received(head % b"2" + b"{}")
            derived[head].append(getattr((await exchange).headers, "derived", None))
    for kept in derived.values():
        assert kept[2] is not None and all(each is kept[2] for each in kept[2:])
    for number in range(3 * KINDS):
        exchange = asyncio.ensure_future(connection.exchange(b"", b"", None))
        await turn()
        connection.data_received(b"HTTP/1.1 200 X\r\nContent-Length: 2\r\n%s\r\n{}" % (b"X: 1\r\n" * number))
        await exchange
        assert len(connection._known._kinds) <= KINDS


async def test_the_third_answer_with_a_head_is_recognized() -> None:
    """Or nothing would be compared above: what follows from a recognized head is shared by answers of all lengths."""
    connection, wire = Connection(asyncio.get_running_loop(), lambda _: None, lambda _: None), Wire()
    connection.connection_made(wire)
    derived = []
    for body in BODIES:
        exchange = asyncio.ensure_future(connection.exchange(b"", b"", None))
        await turn()
        connection.data_received(USUAL[0] % b"%d" % len(body) + body)
        derived.append(getattr((await exchange).headers, "derived", None))
    assert derived[2] is not None
    assert all(each is derived[2] for each in derived[2:])


async def test_answers_of_two_statuses_share_nothing() -> None:
    """What follows from a head may be kept with its fields, and a server may send each of eight hundred statuses."""
    connection, wire = Connection(asyncio.get_running_loop(), lambda _: None, lambda _: None), Wire()
    connection.connection_made(wire)
    derived = {}
    for status in (200, 201, 200, 500, 200, 999) * 2:
        for _ in range(3):
            exchange = asyncio.ensure_future(connection.exchange(b"", b"", None))
            await turn()
            connection.data_received(b"HTTP/1.1 %d X\r\nContent-Length: 2\r\n\r\n{}" % status)
            kept = getattr((await exchange).headers, "derived", None)
            assert kept is None or kept.setdefault("status", status) == status
        derived[status] = kept
    assert None not in derived.values()
