"""Sessions that every replica can serve, and what one replica has others know of them."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.errors import SessionUnknown
from adapter.upstream.local.events import CallEvents
from adapter.upstream.local.replies import PendingReply
from adapter.upstream.local.sessions import REMEMBERED, PortableId, PortableSession, PortableSessions


class Noted:
    """Words that are noted in place of being said."""

    place = b"here."

    def __init__(self) -> None:
        self.said_words: list[tuple[Any, ...]] = []

    def tell(self, kind: str, session_id: str, *more: object) -> None:
        self.said_words.append((kind, session_id, *more[-1:]))


def at_once(_session_or_message: str, *rest: Any) -> None:
    """Send a message: no other replica does."""
    rest[-1]()


def replica(most: int = 10) -> tuple[PortableSessions, Noted]:
    sessions, words = PortableSessions(most), Noted()
    sessions.words = words
    return sessions, words


def opened(sessions: PortableSessions) -> PortableSession:
    session = sessions.open("2025-06-18")
    assert isinstance(session, PortableSession)
    return session


async def test_another_replica_knows_a_session_by_its_id() -> None:
    """And its version; no two sessions have one id."""
    (here, _), (there, _) = replica(), replica()
    ids = {opened(here).id for _ in range(5)}
    assert len(ids) == 5
    for session_id in ids:
        found = there.find(session_id)
        assert (found.id, found.version) == (session_id, "2025-06-18")
        assert there.find(session_id) is found


@pytest.mark.parametrize("session_id", ["", "x", "a:token", "p1.short.2025-11-25.", "p1." + "x" * 32])
async def test_what_is_no_session_is_unknown(session_id: str) -> None:
    """Also the id of a session of another replica that lives there."""
    sessions, _ = replica()
    with pytest.raises(SessionUnknown):
        sessions.find(session_id)


async def test_without_others_a_session_lives_here() -> None:
    """There its id holds nothing, and no id of that form is known."""
    alone = PortableSessions()
    session = alone.open("2025-11-25")
    assert not session.id.startswith("p1.") and alone.find(session.id) is session
    with pytest.raises(SessionUnknown):
        alone.find(str(PortableId("x" * 32, "2025-11-25")))
    alone.close()
    assert len(alone) == 0


async def test_a_session_that_ended_is_told_of_and_remembered() -> None:
    """Here and where the word arrives: its id is readable as before, and is not believed."""
    (here, said), (there, heard) = replica(), replica()
    session = opened(here)
    elsewhere = there.find(session.id)
    stream = elsewhere.listen()
    session.end()
    assert said.said_words == [("ended", session.id)]
    there.hear("ended", session.id, [], at_once)
    assert stream.over and ("ended", session.id) not in heard.said_words
    for sessions in (here, there):
        with pytest.raises(SessionUnknown):
            sessions.find(session.id)
    there.hear("ended", session.id, [], at_once)


async def test_ends_are_remembered_up_to_a_bound() -> None:
    """Whatever others say."""
    sessions, _ = replica()
    ids = [f"p1.{number:032}.2025-11-25" for number in range(REMEMBERED + 1)]
    for session_id in ids:
        sessions.hear("ended", session_id, [], at_once)
    assert sessions.find(ids[0]).version == "2025-11-25"
    with pytest.raises(SessionUnknown):
        sessions.find(ids[1])


async def test_a_session_that_makes_room_goes_on_when_it_is_used() -> None:
    """Nobody is told that it ended, and neither when the process stops."""
    sessions, words = replica(most=2)
    first = opened(sessions)
    for _ in range(2):
        opened(sessions)
    assert len(sessions) == 2 and first not in sessions.all()
    assert sessions.find(first.id).id == first.id
    sessions.close()
    assert (len(sessions), words.said_words) == (0, [])


async def test_a_request_is_withdrawn_where_it_is_under_way() -> None:
    """Others hear of one that is not under way here, and do not tell it on."""
    (here, said), (there, heard) = replica(), replica()
    session = opened(here)
    elsewhere = there.find(session.id)
    given_up: list[int] = []
    session.expect(1, PendingReply(lambda: given_up.append(1)))
    elsewhere.withdraw(1)
    assert heard.said_words == [("withdrawn", session.id, 1)]
    session.hear("withdrawn", [1], at_once)
    session.hear("withdrawn", [2], at_once)
    assert given_up == [1]
    session.withdraw(1)
    assert given_up == [1, 1] and said.said_words == []


async def test_a_message_goes_to_others_where_nobody_listens_here() -> None:
    """Nobody else gets one that was sent on a stream of this replica; ids of events begin with its name."""
    sessions, words = replica()
    session = opened(sessions)
    session.send(b"1")
    stream = session.listen()
    session.send(b"2")
    assert await stream.read(None) == b"id: here.1-1\ndata: 2\n\n"
    assert words.said_words == [("said", session.id, "1"), ("listens", session.id)]


async def test_nothing_is_kept_for_a_stream_that_another_one_followed() -> None:
    """A client that comes back to the older one gets what was said before the newer one was opened."""
    sessions, _ = replica()
    session = opened(sessions)
    stream = session.listen()
    session.send(b"1")
    stream.abort()
    session.hear("said", ["m2", "2"], at_once)
    session.hear("listens", [], at_once)
    session.hear("said", ["m3", "3"], at_once)
    resumed = session.listen("here.1-1")
    assert await resumed.read(None) == b"id: here.1-2\ndata: 2\n\n"
    session.hear("listens", [], at_once)
    session.hear("said", ["m4", "4"], at_once)
    assert await resumed.read(None) == b"id: here.1-3\ndata: 4\n\n"


async def test_a_replica_that_was_taken_for_gone_keeps_what_others_serve_as_well() -> None:
    """Its sessions were opened anew nowhere."""
    sessions, words = replica()
    kept = opened(sessions)
    sessions.displaced("a-2")
    assert ([session.id for session in sessions.all()], words.said_words) == ([kept.id], [])


async def test_a_call_that_is_resumed_is_no_stream_for_messages() -> None:
    """Others keep what they have for the session's own stream."""
    sessions, words = replica()
    session = opened(sessions)
    events = CallEvents(session.sent)
    events(b"{}")
    stream = session.listen("here.1-1")
    assert session.listener is not stream and words.said_words == []
