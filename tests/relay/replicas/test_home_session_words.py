"""Words between replicas about sessions that each of them serves."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import orjson
import pytest
from structlog import get_logger

from adapter.relay.background import BackgroundTasks
from adapter.relay.notifications import MOST_UNDER_WAY, TABLE, MessageClaims
from adapter.relay.replicas.home import LARGEST, TOPIC, SessionWordsOf, SharedSessionMessages
from adapter.relay.replicas.registry import Replicas
from adapter.upstream.local.sessions import PortableSessions
from tests.relay.relaying import Clock
from tests.state.shared import SharedMemory


@dataclass
class Here:
    """A session that notes what others tell of it."""

    id: str
    listener: object | None = None
    told: list[object] = field(default_factory=list)

    def withdraw_here(self, number: str | int | float) -> None:
        self.told.append(number)

    def send_here(self, message: bytes) -> None:
        self.told.append(message)

    def listens_elsewhere(self) -> None:
        self.told.append("elsewhere")


class Speaker:
    """A replica with the session ``one`` and a session of its own."""

    def __init__(self, memory: SharedMemory, name: str) -> None:
        self.store, self.background, log = memory.replica(), BackgroundTasks(), get_logger()
        replicas = Replicas(self.store, name, "1", Clock(), log)
        self.shared = SharedSessionMessages(replicas, MessageClaims(self.store, self.background, Clock()))
        self.sessions = {key: Here(key) for key in ("one", name)}
        self.words: SessionWordsOf = self.shared.of("hosted", self)
        self.ended: list[str] = []

    @property
    def one(self) -> Here:
        return self.sessions["one"]

    def at_hand(self, session_id: str) -> Here | None:
        return self.sessions.get(session_id)

    def ended_elsewhere(self, session_id: str) -> None:
        self.ended.append(session_id)


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
    a.words.withdrawn("one", 7)
    a.words.listens("one")
    a.words.withdrawn("b", "x")
    a.words.ended("gone")
    await turns()
    assert [each.one.told for each in house] == [[], [7, "elsewhere"], [7, "elsewhere"]]
    assert b.sessions["b"].told == ["x"] and c.sessions["c"].told == []
    assert [each.ended for each in house] == [[], ["gone"], ["gone"]]


async def test_any_number_of_a_client_is_told(house: list[Speaker]) -> None:
    """JSON allows half a surrogate pair in the id of a request that a client cancels."""
    a, b, _ = house
    a.words.withdrawn("one", "\ud800")
    await turns()
    assert b.one.told == ["\ud800"]


async def test_a_word_about_no_session_is_passed_over(house: list[Speaker]) -> None:
    """Another version may have ids of another form, and the listeners behind this one are to hear it."""
    sessions = PortableSessions()
    house[0].shared.of("portable", sessions)
    house[0].shared.announced(TOPIC, orjson.dumps(["portable", "ended", "no-point"]))
    assert len(sessions) == 0


async def test_a_message_is_sent_by_one_replica(house: list[Speaker]) -> None:
    """Of two at which the session listens; one at which it does not may keep it for a stream that broke off."""
    a, b, c = house
    a.words.said("one", b"1")
    await turns()
    assert [each.one.told for each in house] == [[], [b"1"], [b"1"]]
    b.one.listener = c.one.listener = object()
    for number in range(2, 7):
        a.words.said("one", b"%d" % number)
    await turns()
    assert sorted(b.one.told[1:] + c.one.told[1:], key=str) == [b"2", b"3", b"4", b"5", b"6"]


async def test_a_message_that_cannot_be_claimed_is_not_sent(house: list[Speaker]) -> None:
    """Nobody knows who else sends it."""
    a, b, _ = house
    b.one.listener = object()
    b.store.down = True
    a.words.said("one", b"1")
    await turns()
    assert b.one.told == [] and await house[2].store.count(TABLE) == 0
    assert "0 under way" in repr(b.shared)


async def test_words_are_bounded(house: list[Speaker]) -> None:
    """In size, and in number while claims are waited for."""
    a, b, _ = house
    a.words.said("one", b"x" * LARGEST)
    b.one.listener = object()
    for number in range(MOST_UNDER_WAY + 9):
        b.shared.announced(TOPIC, orjson.dumps(["hosted", "said", "one", str(number), "x"]))
    assert f"{MOST_UNDER_WAY} under way" in repr(b.shared)
    await turns()
    assert b.one.told == [b"x"] * MOST_UNDER_WAY


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
    speaker.shared.announced(TOPIC, body)
    speaker.shared.announced("other", b'["hosted","ended","one"]')
    await turns()
    assert (speaker.one.told, speaker.ended) == ([], [])


def test_a_replica_has_a_short_name_for_clients(house: list[Speaker]) -> None:
    """It begins the ids of events, and is not the one that operators use."""
    places = {speaker.words.place for speaker in house}
    assert len(places) == 3 and all(len(place) == 9 and place.endswith(b".") for place in places)
