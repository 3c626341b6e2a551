"""Words between replicas about sessions that each of them serves."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from structlog import get_logger

from adapter.errors import SessionUnknown
from adapter.relay.background import BackgroundTasks
from adapter.relay.notifications import MOST_UNDER_WAY, TABLE, MessageClaims
from adapter.relay.replicas.home import LARGEST, TOPIC, SharedSessionMessages
from adapter.relay.replicas.registry import Replicas
from adapter.upstream.local.events import EventStream, StreamBounds
from adapter.upstream.local.replies import PendingReply
from adapter.upstream.local.sessions import LocalSession, PortableSessions
from adapter.wire.sse import SseReader
from tests.relay.relaying import Clock
from tests.state.shared import SharedMemory

ONE, OWN, GONE = (f"p1.{letter * 32}.2025-11-25" for letter in "1og")


class Speaker:
    """A replica that serves the session ``one``, and notes the requests that were ``withdrawn``."""

    def __init__(self, memory: SharedMemory, name: str) -> None:
        self.store, self.background, log = memory.replica(), BackgroundTasks(), get_logger()
        replicas = Replicas(self.store, name, "1", Clock(), log)
        self.shared = SharedSessionMessages(replicas, MessageClaims(self.store, self.background, Clock()))
        self.sessions = PortableSessions()
        self.sessions.bounds = StreamBounds(messages=4096)
        self.words = self.sessions.words = self.shared.of("hosted", self.sessions)
        self.one = self.sessions.find(ONE)
        self.withdrawn: list[object] = []

    def calls(self, session: LocalSession, number: str | int) -> None:
        """Have a request of that number under way."""
        session.expect(number, PendingReply(lambda: self.withdrawn.append(number)))


async def texts(stream: EventStream) -> list[bytes]:
    """The data of what was sent on a stream."""
    data = await stream.read(None) if stream.unread_size else b""
    return [event.data or b"" for event in SseReader(1 << 20).feed(data)]


@pytest.fixture
def house() -> list[Speaker]:
    """Three replicas."""
    memory = SharedMemory()
    return [Speaker(memory, name) for name in "abc"]


async def turns() -> None:
    """Wait until every word has arrived."""
    for _ in range(30):
        await asyncio.sleep(0)


async def test_others_hear_what_concerns_their_sessions(house: list[Speaker]) -> None:
    """Not the replica that says it, and nobody who does not know the session but of its end."""
    a, b, c = house
    for each in house:
        each.calls(each.one, 7)
    b.calls(b.sessions.find(OWN), "x")
    a.words.tell("withdrawn", ONE, 7)
    a.words.tell("withdrawn", OWN, "x")
    a.words.tell("ended", GONE)
    await turns()
    assert [each.withdrawn for each in house] == [[], [7, "x"], [7]]
    assert [len(each.sessions) for each in house] == [1, 2, 1]
    assert a.sessions.find(GONE).id == GONE
    for each in (b, c):
        with pytest.raises(SessionUnknown):
            each.sessions.find(GONE)


async def test_a_stream_elsewhere_is_heard_of(house: list[Speaker]) -> None:
    """Nothing more is kept for one that broke off here before it."""
    a, b, c = house
    streams = []
    for each in (b, c):
        stream = each.one.listen()
        each.one.send(b"1")
        streams.append((await stream.read(None)).split(b"\n")[0].removeprefix(b"id: ").decode())
        stream.abort()
        await turns()
    # That of c is the newer one.
    a.words.tell("said", ONE, "m2", "2")
    await turns()
    a.words.tell("listens", ONE)
    a.words.tell("said", ONE, "m3", "3")
    await turns()
    assert await texts(b.one.listen(streams[0])) == []
    assert await texts(c.one.listen(streams[1])) == [b"2"]


async def test_any_number_of_a_client_is_told(house: list[Speaker]) -> None:
    """JSON allows half a surrogate pair in the id of a request that a client cancels."""
    a, b, _ = house
    b.calls(b.one, "\ud800")
    a.words.tell("withdrawn", ONE, "\ud800")
    await turns()
    assert b.withdrawn == ["\ud800"]


async def test_a_word_about_no_session_is_passed_over(house: list[Speaker]) -> None:
    """Another version may have ids of another form, and the listeners behind this one are to hear it."""
    sessions = PortableSessions()
    house[0].shared.of("portable", sessions)
    house[0].shared.announced(TOPIC, orjson.dumps(["portable", "ended", "no-point"]))
    assert len(sessions) == 0


async def test_a_message_is_sent_by_one_replica(house: list[Speaker]) -> None:
    """Of two at which the session listens."""
    a, b, c = house
    streams = [each.one.listen() for each in (b, c)]
    for number in range(2, 7):
        a.words.tell("said", ONE, f"m{number}", str(number))
    await turns()
    sent = [text for stream in streams for text in await texts(stream)]
    assert sorted(sent) == [b"2", b"3", b"4", b"5", b"6"]


async def test_a_message_that_cannot_be_claimed_is_not_sent(house: list[Speaker]) -> None:
    """Nobody knows who else sends it."""
    a, b, _ = house
    stream = b.one.listen()
    b.store.down = True
    a.words.tell("said", ONE, "m1", "1")
    await turns()
    assert await texts(stream) == [] and await house[2].store.count(TABLE) == 0
    assert "0 under way" in repr(b.shared)


async def test_words_are_bounded(house: list[Speaker]) -> None:
    """In size, and in number while claims are waited for."""
    a, b, _ = house
    stream = b.one.listen()
    a.words.tell("said", ONE, "long", "x" * LARGEST)
    for number in range(MOST_UNDER_WAY + 9):
        b.shared.announced(TOPIC, orjson.dumps(["hosted", "said", ONE, str(number), "x"]))
    assert f"{MOST_UNDER_WAY} under way" in repr(b.shared)
    await turns()
    assert await texts(stream) == [b"x"] * MOST_UNDER_WAY


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'["hosted"]',
        b'["hosted","ended"]',
        b'["other","ended","one"]',
        b'["hosted","new kind","one"]',
        b'["hosted","said","one"]',
        b'["hosted","said","one","m",5]',
        b'["hosted","said to all",5,"m","x"]',
        b'["hosted","said to all","x"]',
        b'["hosted","withdrawn",{},5]',
        b'[{},"ended","one"]',
    ],
)
async def test_a_word_that_is_not_understood_harms_nothing(house: list[Speaker], body: bytes) -> None:
    """Another version may say anything, and others have topics of their own."""
    speaker = house[0]
    stream = speaker.one.listen()
    speaker.calls(speaker.one, 5)
    body = body.replace(b'"one"', f'"{ONE}"'.encode())
    speaker.shared.announced(TOPIC, body)
    speaker.shared.announced("other", f'["hosted","ended","{ONE}"]'.encode())
    await turns()
    assert (speaker.withdrawn, await texts(stream), stream.over) == ([], [], False)
    assert speaker.sessions.find(ONE) is speaker.one


def test_a_replica_has_a_short_name_for_clients(house: list[Speaker]) -> None:
    """It begins the ids of events, and is not the one that operators use."""
    places = {speaker.words.place for speaker in house}
    assert len(places) == 3 and all(len(place) == 9 and place.endswith(b".") for place in places)
