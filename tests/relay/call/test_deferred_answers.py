"""Answers that come on another stream than their call's, and on another replica."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import orjson

from adapter.relay.call.deferred_answers import TABLE, DeferredAnswers
from adapter.relay.stages import Call
from adapter.wire.spans import Replace, edit
from tests.relay.relaying import Relaying, of_tools
from tests.scripted import Expect, ScriptedAnswer, ScriptedUpstream
from tests.state.shared import SharedMemory
from tests.waiting import until

ASKED = b'{"id":1,"jsonrpc":"2.0","method":"tools/call","params":{"arguments":{},"name":"save"}}'
CAME = b'{"jsonrpc":"2.0","result":{"said":"raw"},"id":1}'
LEFT = CAME.replace(b'"raw"', b'"made"')
SSE = (("Content-Type", "text/event-stream"),)
POLL = b"id: 7\nretry: 0\ndata:\n\n"
BACK = Expect("GET", headers={"last-event-id": "7"})


def data(message: bytes) -> bytes:
    return b"data: " + message + b"\n\n"


@dataclass
class Making:
    """A stage that turns what was said into what its notes say, when it may go on."""

    asked: int = 0
    answered: int = 0
    finished: int = 0
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.go_on.set()

    async def ask(self, call: Call) -> bytes | None:
        self.asked += 1
        call.defer(self._count_end)
        call.notes["made"] = "made"
        return None

    async def answer(self, call: Call, response: bytes) -> bytes:
        self.answered += 1
        await self.go_on.wait()
        return edit(response, [Replace(("result", "said"), orjson.dumps(call.notes["made"]))])

    def _count_end(self) -> None:
        self.finished += 1


class House:
    """Three replicas; the first has made a call whose answer is to come on another stream."""

    def __init__(self) -> None:
        self.memory = SharedMemory()
        self.makings = [Making() for _ in range(3)]
        answers = [(Expect("POST"), ScriptedAnswer(headers=SSE, chunks=[POLL]))]
        self.upstreams = [ScriptedUpstream(answers), ScriptedUpstream(), ScriptedUpstream()]
        self.replicas = [
            Relaying(upstream, of_tools(save=making), self.memory.replica())
            for upstream, making in zip(self.upstreams, self.makings, strict=True)
        ]
        self.session = ""

    async def call(self) -> None:
        self.session = await self.replicas[0].open()
        assert await self.replicas[0].post(ASKED, self.session) == POLL

    async def listen(self, number: int, last_event_id: str = "7") -> bytes:
        self.upstreams[number].then(
            Expect("GET"), ScriptedAnswer(headers=SSE, chunks=[b": hi\n\n", data(CAME)])
        )
        return await self.replicas[number].get(self.session, last_event_id)


async def test_answer_on_another_replica_is_read_and_changed() -> None:
    """The replica that made the call holds nothing of it then."""
    house = House()
    await house.call()
    assert await house.listen(1) == b": hi\n\n" + data(LEFT)
    await until(lambda: house.makings[0].finished)
    assert await house.memory.rows.count(TABLE) == 0
    known = house.replicas[0].sessions.opened()[0]
    assert not house.replicas[0].deferred.waits(known)


async def test_of_two_replicas_one_delivers_an_answer() -> None:
    """Whatever the upstream sends them: the other stream has nothing of it, neither changed nor as it came."""
    house = House()
    await house.call()
    for making in house.makings:
        making.go_on.clear()
    both = [asyncio.create_task(house.listen(number)) for number in (1, 2)]
    await until(lambda: sum(making.answered for making in house.makings))
    for making in house.makings:
        making.go_on.set()
    left = sorted([await each for each in both], key=len)
    assert b"said" not in left[0] and left[1] == b": hi\n\n" + data(LEFT)
    assert sum(making.answered for making in house.makings) == 1


async def test_answer_that_a_dead_replica_was_editing_is_delivered_by_another() -> None:
    """It had the lease and the row is still there: the answer is not lost with it."""
    house = House()
    await house.call()
    for replica in house.replicas[1:]:
        # As the replicas have it, but for a shorter time.
        replica.deferred = replica.relay.get_streams.deferred = DeferredAnswers(
            replica.store,
            {"one": replica.stages},
            replica.background,
            ttl=100.0,
            clock=replica.clock,
            claim_seconds=0.1,
        )
    house.makings[1].go_on.clear()
    dying = asyncio.create_task(house.listen(1))
    await until(lambda: house.makings[1].answered)
    dead = house.replicas[1].store
    dead.down = True  # type: ignore[attr-defined]  # a replica's view: nothing of it reaches the store any more
    assert await house.listen(2) == b": hi\n\n" + data(LEFT)
    dying.cancel()
    await asyncio.gather(dying, return_exceptions=True)


async def test_stream_that_was_open_before_the_call_finds_it() -> None:
    """Another replica parks an exchange while this one's stream is open and waits for others."""
    house = House()
    await house.call()
    other, come = CAME.replace(b'"id":1', b'"id":2'), asyncio.Event()
    house.upstreams[0].then(Expect("POST"), ScriptedAnswer(headers=SSE, chunks=[POLL]))
    told = data(b'{"method":"x","jsonrpc":"2.0"}') + data(other)
    chunks: list[bytes | Exception | asyncio.Event] = [b": hi\n\n", come, told]
    house.upstreams[1].then(BACK, ScriptedAnswer(headers=SSE, chunks=chunks))
    listening = asyncio.create_task(house.replicas[1].get(house.session, "7"))
    await until(lambda: house.upstreams[1].requests)
    await house.replicas[0].post(ASKED.replace(b'"id":1', b'"id":2'), house.session)
    come.set()
    assert data(other.replace(b'"raw"', b'"made"')) in await listening


async def test_nobody_holds_what_nobody_came_back_for() -> None:
    """The rows go with one replica's round, and what each holds with its own."""
    house = House()
    await house.call()
    house.replicas[0].clock.now += 100
    house.replicas[2].clock.now += 100
    await house.replicas[2].deferred.expire()
    assert await house.memory.rows.count(TABLE) == 0
    await house.replicas[0].deferred.forget_expired()
    assert house.makings[0].finished == 1


async def test_one_process_asks_its_own_store_for_nothing_it_knows() -> None:
    """A stream that resumes nothing costs no look into the store."""
    upstream = ScriptedUpstream([(Expect("GET"), ScriptedAnswer(headers=SSE, chunks=[b": hi\n\n"]))])
    memory = SharedMemory()
    store = memory.replica()
    store.shared = False
    relaying = Relaying(upstream, of_tools(save=Making()), store)
    session = await relaying.open()
    ask = relaying.ask(b"", session, method="GET", headers=[])
    await (await relaying.relay.handle(ask)).close()
    assert store.calls == {"put": 1}
