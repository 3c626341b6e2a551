"""Notifications of the adapter's own, where the client's stream is on another replica than the one that noticed."""

from __future__ import annotations

import asyncio

from adapter.relay.background import BackgroundTasks
from adapter.relay.notifications import (
    CLAIMED,
    LARGEST,
    MOST_UNDER_WAY,
    RESOURCES_CHANGED,
    TABLE,
    TOPIC,
    Inbox,
    MessageClaims,
    Notifications,
    SharedNotifications,
)
from adapter.rules.access.principals import principal_scope, session_scope
from tests.relay.relaying import Clock
from tests.state.shared import ReplicaStore, SharedMemory

MINE, OTHER = "a" * 64, "b" * 64
SESSION = session_scope(b"", MINE)
PRINCIPAL = principal_scope(b"", "somebody")


class Speaker:
    """A replica's notifications."""

    def __init__(self, memory: SharedMemory, clock: Clock) -> None:
        self.store: ReplicaStore = memory.replica()
        self.notifications = Notifications()
        self.background = BackgroundTasks()
        self.shared = SharedNotifications(
            self.store, self.notifications, MessageClaims(self.store, self.background, clock)
        )
        self.bodies: list[bytes] = []
        self.store.listeners.append(self)

    def row_changed(self, table: str, key: str) -> None:
        """Nothing to note."""

    def rows_unknown(self) -> None:
        """Nothing to note."""

    def announced(self, topic: str, body: bytes) -> None:
        assert topic == TOPIC
        self.bodies.append(body)


class House:
    """Three replicas."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.memory = SharedMemory()
        self.one, self.two, self.three = (Speaker(self.memory, self.clock) for _ in range(3))


async def events(*inboxes: Inbox) -> list[bytes]:
    """What has come into the inboxes when all words have arrived."""
    for _ in range(20):
        await asyncio.sleep(0)
    waiting = [inbox.take() if inbox._waiting else _nothing() for inbox in inboxes]
    return await asyncio.gather(*waiting)


async def _nothing() -> bytes:
    return b""


async def test_stream_on_another_replica_carries_what_was_noticed_here() -> None:
    """For a session, and for all sessions of a principal; nobody else's."""
    house = House()
    for scope in (SESSION, PRINCIPAL):
        mine = house.two.notifications.open(scope, MINE)
        others = house.two.notifications.open(principal_scope(b"", "other"), OTHER)
        house.one.notifications.resources_changed(scope)
        assert await events(mine, others) == [RESOURCES_CHANGED, b""]
        house.one.notifications.say(scope, "notifications/message", {"data": "done"})
        assert b'"data":"done"' in (await events(mine))[0]
        house.two.notifications.close(scope, MINE, mine)


async def test_message_goes_to_one_stream_of_a_session_only() -> None:
    """To the one where it was noticed, or else to one of the others; each session of the scope gets it once."""
    house = House()
    streams = [each.notifications.open(PRINCIPAL, MINE) for each in (house.one, house.two, house.three)]
    elsewhere = [each.notifications.open(PRINCIPAL, OTHER) for each in (house.two, house.three)]
    for _ in range(5):
        house.one.notifications.resources_changed(PRINCIPAL)
        assert await events(*streams) == [RESOURCES_CHANGED, b"", b""]
        assert sorted(await events(*elsewhere)) == [b"", RESOURCES_CHANGED]


async def test_nothing_is_said_where_the_only_session_has_got_it() -> None:
    """Its stream is here, so no other replica has to know."""
    house = House()
    house.one.notifications.open(SESSION, MINE)
    house.one.notifications.resources_changed(SESSION)
    await events()
    assert house.two.bodies == []


async def test_subscriptions_hear_of_it_on_every_replica() -> None:
    """Each is a request of its own, whose messages name it."""
    house = House()
    inboxes = [Inbox(), Inbox()]
    house.two.notifications.subscribe(PRINCIPAL, inboxes[0], b"one")
    house.three.notifications.subscribe(PRINCIPAL, inboxes[1], b"two")
    house.one.notifications.resources_changed(PRINCIPAL)
    assert await events(*inboxes) == [b"one", b"two"]
    house.one.notifications.say(PRINCIPAL, "notifications/message", {})
    assert await events(*inboxes) == [b"", b""]


async def test_no_secret_is_said() -> None:
    """Neither the owner of a scope, nor the key of a session's row."""
    house = House()
    house.one.notifications.open(PRINCIPAL, MINE)
    house.one.notifications.resources_changed(PRINCIPAL)
    await events()
    [body] = house.two.bodies
    assert PRINCIPAL.id.encode() in body
    assert b"somebody" not in body and MINE.encode() not in body


async def test_what_is_too_large_or_too_much_is_left_out() -> None:
    """Nothing grows with what others say."""
    house = House()
    mine = house.two.notifications.open(PRINCIPAL, MINE)
    house.one.notifications.say(PRINCIPAL, "notifications/message", {"data": "x" * LARGEST})
    assert await events(mine) == [b""]
    for body in (b"?", b"{}", b"[]", b'{"id":1,"scope":2,"data":3,"resources":4,"taken":5}'):
        house.one.store.announce(TOPIC, body)
    assert await events(mine) == [b""]
    house.two.store.before = _for_ever
    for number in range(2 * MOST_UNDER_WAY):
        house.one.notifications.say(PRINCIPAL, "notifications/message", {"data": number})
    await events()
    assert repr(house.two.shared) == f"<SharedNotifications: {MOST_UNDER_WAY} under way>"
    await house.two.background.close()
    assert repr(house.two.shared) == "<SharedNotifications: 0 under way>"


async def _for_ever(table: str, key: str) -> None:
    await asyncio.Event().wait()


async def test_replica_that_cannot_claim_a_message_does_not_send_it() -> None:
    """Another may have sent it."""
    house = House()
    mine = house.two.notifications.open(PRINCIPAL, MINE)
    house.two.store.down = True
    house.one.notifications.resources_changed(PRINCIPAL)
    assert await events(mine) == [b""]


async def test_claims_are_forgotten_after_a_while() -> None:
    """No row is left of a message."""
    house = House()
    house.two.notifications.open(PRINCIPAL, MINE)
    house.one.notifications.resources_changed(PRINCIPAL)
    await events()
    assert await house.memory.rows.count(TABLE) == 1
    house.clock.now += CLAIMED
    await house.three.shared.claims.tidy()
    assert await house.memory.rows.count(TABLE) == 0
