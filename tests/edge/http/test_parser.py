"""The reader of requests beside h11, another reader of HTTP/1.1: what both take they take for the same."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import h11
from hypothesis import given
from hypothesis import strategies as st

from adapter.edge.http.bodies import TERMS, Body
from adapter.edge.http.parser import KNOWN_AT_MOST, Refusal, RequestStream
from adapter.edge.http.request import COMMON_AT_MOST, CommonHeads, Fields, RequestHead


class Taken(NamedTuple):
    """A request as a reader took it; ``body`` None: it has not come to its end."""

    method: str
    target: bytes
    fields: Sequence[tuple[str, str]]
    body: bytes | None


def pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges) if start < end]


def by_us(data: bytes, cuts: Sequence[int]) -> Taken | None:
    """The first request of the bytes; None where it is refused, or has no whole head."""

    async def read() -> Taken | None:
        heads: list[tuple[RequestHead, Body]] = []
        stream = RequestStream(lambda head, body: heads.append((head, body)), lambda: None, TERMS)
        try:
            for piece in pieces(data, cuts):
                stream.feed(piece)
        except Refusal:
            return None
        finally:
            whole = len(heads) != 1 or stream.body is None
            stream.close(lambda: ConnectionError("the sender has gone"))
        if not heads:
            return None
        head, content = heads[0]
        fields = [(name.lower(), value) for name, value in head.fields.pairs]
        if not whole:
            return Taken(head.method, head.target.encode("latin-1"), fields, None)
        return Taken(head.method, head.target.encode("latin-1"), fields, content.take())

    return asyncio.run(read())


def by_h11(data: bytes) -> Taken | None:
    """The same as h11 reads it."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    connection.receive_data(data)
    head: h11.Request | None = None
    body = b""
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError:
            return None
        if isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage) or head is None or event in (h11.NEED_DATA, h11.PAUSED):
            break
    if head is None:
        return None
    fields = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in head.headers
        if name != b"content-length"
    ]
    whole = isinstance(event, h11.EndOfMessage)
    return Taken(head.method.decode(), head.target, fields, body if whole else None)


TOKEN = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789-_.", min_size=1, max_size=12)
VALUE = st.text("abc XYZ019;,=/\"'()é", max_size=20).map(str.strip)
FRAMING = frozenset(
    {"host", "content-length", "transfer-encoding", "expect", "upgrade", "connection", "te", "trailer"}
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request as h11's client writes it, with a body that has a length, or is in chunks."""
    names = draw(st.lists(TOKEN.filter(lambda name: name.lower() not in FRAMING), max_size=5))
    fields = [("Host", "here"), *((name, draw(VALUE)) for name in names)]
    body = draw(st.lists(st.binary(min_size=1, max_size=40), max_size=4))
    chunked: bool = draw(st.booleans())
    if body and chunked:
        fields.append(("Transfer-Encoding", "chunked"))
    elif body:
        fields.append(("Content-Length", str(sum(map(len, body)))))
    method = draw(st.sampled_from(["GET", "POST", "DELETE"]))
    target = "/" + draw(st.text("abc/%20?=&", max_size=12))
    client = h11.Connection(h11.CLIENT)
    raw = [(name.encode(), value.encode("latin-1")) for name, value in fields]
    events = [h11.Request(method=method, target=target, headers=raw), *(h11.Data(data=part) for part in body)]
    return b"".join(client.send(event) or b"" for event in [*events, h11.EndOfMessage()])


CUTS = st.lists(st.integers(0, 10_000), max_size=12)


@given(requests(), CUTS)
def test_a_request_is_what_was_written(data: bytes, cuts: list[int]) -> None:
    """Method, target, fields and body, wherever the bytes are cut on their way."""
    taken = by_us(data, cuts)
    assert taken is not None and taken.body is not None
    assert taken == by_h11(data)


@given(
    requests(), CUTS, st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=3)
)
def test_spoiled_bytes_are_refused_or_read_as_others_do(
    data: bytes, cuts: list[int], spoiled: list[tuple[int, int]]
) -> None:
    """No request ends elsewhere than another reader ends it: what follows would be taken for a second one."""
    changed = bytearray(data)
    for place, byte in spoiled:
        changed[place % len(changed)] = byte
    ours, theirs = by_us(bytes(changed), cuts), by_h11(bytes(changed))
    if ours is not None and theirs is not None:
        assert (ours.method, ours.target, ours.body) == (theirs.method, theirs.target, theirs.body)


def after_others(data: bytes, earlier: Sequence[bytes]) -> Taken | None:
    """The request as a stream takes it that has read ``earlier`` ones, each in one piece."""

    async def read() -> Taken | None:
        taken, common = list[tuple[RequestHead, Body]](), CommonHeads(COMMON_AT_MOST)
        # An even number of them came on another connection alone.
        for requests in (earlier, earlier if len(earlier) % 2 else ()):
            stream = RequestStream(lambda *one: taken.append(one), lambda: None, TERMS, common)
            for request in requests:
                stream.feed(request)
        known = len(taken)
        try:
            stream.feed(data)
        except Refusal:
            return None
        finally:
            whole = len(taken) != known + 1 or stream.body is None
            stream.close(lambda: ConnectionError("the sender has gone"))
        if len(taken) == known:
            return None
        head, content = taken[known]
        fields = [(name.lower(), value) for name, value in head.fields.pairs]
        return Taken(head.method, head.target.encode("latin-1"), fields, content.take() if whole else None)

    return asyncio.run(read())


WARM = (
    b"POST /mcp HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: 11\r\n"
    b'Mcp-Session-Id: a1\r\n\r\n{"id": 100}'
)


@given(
    st.integers(0, 5),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3),
    st.binary(max_size=120),
)
def test_a_stream_that_knows_a_head_reads_as_a_new_one_does(
    earlier: int, spoiled: list[tuple[int, int]], body: bytes
) -> None:
    """A head that is recognized by its bytes is no other than the parser finds, also where a byte was changed."""
    changed = bytearray(WARM.replace(b": 11", b": %d" % len(body)).partition(b"{")[0] + body)
    for place, byte in spoiled:
        changed[place % len(changed)] = byte
    assert after_others(bytes(changed), [WARM] * earlier) == after_others(bytes(changed), [])


def of_session(method: str, session: str | None, body: bytes, path: str = "/mcp") -> bytes:
    """A request as a client sends it in its session; a DELETE has no body."""
    lines = [f"{method} {path} HTTP/1.1", "Host: here"]
    if session is not None:
        lines.append(f"Mcp-Session-Id: {session}")
    if method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + (body if method == "POST" else b"")


SESSIONS = st.builds(
    of_session,
    st.sampled_from(["POST", "POST", "DELETE", "GET"]),
    st.sampled_from([None, "", "a", "b", "longer-than-they", "a b", "\xa0"]),
    st.binary(max_size=30),
    st.sampled_from(["/mcp", "/mcp?a=b", "/upload/raw"]),
)


@given(
    st.lists(SESSIONS, max_size=12),
    SESSIONS,
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=2),
)
def test_a_stream_that_knows_other_sessions_reads_as_a_new_one_does(
    earlier: list[bytes], last: bytes, spoiled: list[tuple[int, int]]
) -> None:
    """The id is that of the request itself, whichever sessions the connection had before."""
    changed = bytearray(last)
    for place, byte in spoiled:
        changed[place % len(changed)] = byte
    assert after_others(bytes(changed), earlier) == after_others(bytes(changed), [])


def test_what_sessions_of_a_connection_share_does_not_depend_on_their_ids() -> None:
    """Fields of another session have what follows from the others, and nothing that follows from its id."""
    taken: list[Fields] = []
    stream = RequestStream(lambda head, _: taken.append(head.fields), lambda: None, TERMS)
    for session in ("a", "a", "b", "c"):
        stream.feed(of_session("POST", session, b"{}"))
    stream.close(lambda: ConnectionError("the sender has gone"))
    assert [fields["mcp-session-id"] for fields in taken] == ["a", "a", "b", "c"]
    assert len({id(fields.shared) for fields in taken}) == 1
    assert len({id(fields.derived) for fields in taken}) == 3


def test_what_follows_from_the_fields_of_a_session_is_not_found_again_after_another() -> None:
    """However both came: what a connection forgets in one session it must not know in the next."""
    taken: list[Fields] = []
    stream = RequestStream(lambda head, _: taken.append(head.fields), lambda: None, TERMS)
    first, second = (of_session("POST", session, b"{}") for session in "ab")
    for data in (first, first, second + of_session("PUT", None, b""), first):
        stream.feed(data)
    stream.close(lambda: ConnectionError("the sender has gone"))
    assert [fields.get("mcp-session-id") for fields in taken] == ["a", "a", "b", None, "a"]
    assert taken[1].derived is taken[0].derived
    assert taken[4].shared is taken[0].shared
    assert taken[4].derived is not taken[0].derived


def test_a_head_is_recognized_beside_those_of_other_paths() -> None:
    """A client may upload on the connection of its calls."""
    stream = RequestStream(lambda _, __: None, lambda: None, TERMS)
    both = [of_session("POST", "a", b"{}", path) for path in ("/mcp", "/upload/raw")]
    assert [stream.feed(data) for data in both * 3] == [False] * 4 + [True] * 2


def test_what_one_connection_forgets_others_still_know() -> None:
    """Each of them finds out for itself whether its token still counts."""
    taken, common = list[Fields](), CommonHeads(COMMON_AT_MOST)
    for session in ("a", "b", "c"):
        stream = RequestStream(lambda head, _: taken.append(head.fields), lambda: None, TERMS, common)
        stream.feed(of_session("GET", session, b""))
        taken[-1].shared["known"] = session
    taken[2].forget()
    assert [[one["mcp-session-id"], *one.shared.values()] for one in taken] == [["a"] * 2, ["b"] * 2, ["c"]]


def test_a_connection_remembers_few_heads() -> None:
    """A client may send as many different ones as it likes, and one that holds a stream needs none."""
    stream = RequestStream(lambda _, __: None, lambda: None, TERMS)
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "GET", "POST"):
        for session in (None, "a"):
            stream.feed(of_session(method, session, b""))
        assert len(stream._known) <= KNOWN_AT_MOST
    stream.feed(of_session("GET", None, b""))
    assert len(stream._known) == 1


@given(
    body=st.binary(min_size=1, max_size=60),
    seen=st.integers(0, 60),
    left=st.integers(0, 60),
    keep=st.booleans(),
    behind=CUTS,
)
def test_a_stream_reads_on_behind_what_others_have_read(
    body: bytes, seen: int, left: int, keep: bool, behind: list[int]
) -> None:
    """The rest of a body, and the request behind it, are what they are for a stream that has read all of it."""
    seen = min(seen, len(body) - 1)
    left = min(left, len(body) - seen)
    option = b"keep-alive" if keep else b"close"
    head = b"POST /a HTTP/1.1\r\nHost: here\r\nConnection: %s\r\nContent-Length: %d\r\n\r\n" % (
        option,
        len(body),
    )
    following = b"POST /b HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\n\r\nhi"

    async def read(skipping: bool) -> tuple[list[tuple[str, bytes, bool]], bool]:
        taken: list[tuple[RequestHead, Body]] = []
        stream = RequestStream(lambda head, body: taken.append((head, body)), lambda: None, TERMS)
        stream.feed(head + body[:seen])
        content = b""
        if skipping:
            content = body[seen : len(body) - left]
            stream.read_on(left)
        else:
            stream.feed(body[seen : len(body) - left])
        refused = False
        try:
            for piece in pieces(body[len(body) - left :] + following, behind):
                stream.feed(piece)
        except Refusal:
            refused = True
        bodies = [(head.path, each.take(), each.complete) for head, each in taken]
        path, first, whole = bodies[0]
        bodies[0] = path, first[:seen] + content + first[seen:], whole
        return bodies, refused

    assert asyncio.run(read(skipping=True)) == asyncio.run(read(skipping=False))
