"""Calls that ask their user before they end: what the tool was told in the first round it is told in all of them."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import orjson
import pytest

from adapter.errors import CredentialRefused, FileGone, LimitReached, StoreUnavailable
from adapter.relay.files.rounds import DELIVERED, TABLE, RoundLimits
from adapter.rules.access.principals import Scope, principal_scope
from adapter.rules.calls.rounds import STATES_KEPT, PendingRound, encode
from adapter.rules.files.file_records import FileKind, Place, batch_of
from adapter.settings.servers.file_adapters import Delivery
from adapter.state.port import Row
from adapter.state.sqlite import MemoryStore
from adapter.upstream.port import UpstreamRequest
from adapter.wire.signed_urls import parameters, upload_handle
from tests.relay.filing import SteppedStore, Steps
from tests.relay.relaying import Clock, whole
from tests.relay.tooling import META, READ, SSE, Tools, artifact_of, parsed, producing, result, tools
from tests.scripted import ScriptedAnswer
from tests.state.shared import SharedMemory
from tests.waiting import until

OWNER = principal_scope(b"", "anonymous")


class Asking:
    """An upstream that asks ``rounds`` times before it writes its file, and answers no state but its own of these
    very arguments; not ``bound``: any that says its number. ``state`` makes a state out of the path it was told and
    its number. A request with a state is answered after the event ``waits``.
    """

    def __init__(
        self, rounds: int = 2, state: Callable[[str, int], str] | None = None, *, bound: bool = True
    ) -> None:
        self.rounds = rounds
        self.told: list[Any] = []
        self.states: dict[str, tuple[int, Any]] = {}
        self.bound = bound
        self.waits: asyncio.Event | None = None
        self._state = state or (lambda _, number: f"state-{len(self.states)}-{number}")

    async def heard(self, times: int) -> None:
        """Wait until it was asked so many times."""
        await until(lambda: len(self.told) >= times)

    def __call__(self, request: UpstreamRequest) -> ScriptedAnswer:
        waits = self.waits if b"requestState" in request.body else None
        return replace(self._answer(request), after=waits)

    def _answer(self, request: UpstreamRequest) -> ScriptedAnswer:
        params = orjson.loads(request.body)["params"]
        arguments, state = params["arguments"], params.get("requestState")
        self.told.append(arguments)
        number, asked_with = (0, arguments) if state is None else self.states.get(state, (0, None))
        if self.bound and asked_with != arguments:
            error = {"code": -32602, "message": "Invalid or expired requestState"}
            return ScriptedAnswer(chunks=[orjson.dumps({"jsonrpc": "2.0", "id": 1, "error": error})])
        if number < self.rounds:
            following = self._state(arguments.get("filename", ""), number + 1)
            self.states[following] = number + 1, arguments
            asked = f'"resultType":"input_required","inputRequests":{{}},"requestState":"{following}"'
            return ScriptedAnswer(chunks=[result(asked)])
        if "filename" in arguments:
            Path(arguments["filename"]).write_bytes(b"made")
        return ScriptedAnswer(chunks=[result('"resultType":"complete","content":[]')])


async def called(one: Tools, tool: str, arguments: Any, state: str | None = None) -> dict[str, Any]:
    """The response to one round of a modern call."""
    return parsed(await whole(await one.relaying.relay.handle(asked(one, tool, arguments, state))))


def asked(one: Tools, tool: str, arguments: Any, state: str | None = None) -> Any:
    params: dict[str, Any] = {"name": tool, "arguments": arguments, "_meta": META}
    if state is not None:
        params |= {"requestState": state, "inputResponses": {}}
    body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    return one.ask(body, None)


def state_in(response: dict[str, Any]) -> str:
    assert response["result"]["resultType"] == "input_required", response
    state: str = response["result"]["requestState"]
    return state


async def to_the_end(one: Tools, tool: str, arguments: Any) -> dict[str, Any]:
    """All rounds of a call, as a client goes through them."""
    response = await called(one, tool, arguments)
    while response.get("result", {}).get("resultType") == "input_required":
        response = await called(one, tool, arguments, state_in(response))
    return response


async def uploaded(one: Tools, data: bytes = b"hello") -> str:
    record = await one.uploaded(data, scope=OWNER)
    return upload_handle(record.scope, record.id)


async def rows(one: Tools) -> int:
    return await one.store.count(TABLE)


# --- a producer -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [{}, {"filename": "a.txt"}, {"filename": "名", "n": 1.5}])
async def test_tool_is_told_one_place_in_all_rounds(tmp_path: Path, arguments: Any) -> None:
    """And its file is captured in the last one; nothing is kept of the rounds then."""
    async with tools(tmp_path, act := Asking()) as one:
        response = await to_the_end(one, "write", arguments)
        assert artifact_of(response)["size_bytes"] == 4
        assert len(act.told) == 3 and act.told[0] == act.told[1] == act.told[2]
        assert artifact_of(response)["artifact_id"] == Path(act.told[0]["filename"]).parent.name
        assert await rows(one) == 0


async def test_rounds_on_streams_share_their_place_too(tmp_path: Path) -> None:
    """A client may go on as soon as it has read the answer, before its stream is closed."""
    asking = Asking()

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        (chunk,) = asking(request).chunks
        assert isinstance(chunk, bytes)
        return ScriptedAnswer(headers=SSE, chunks=[b"data: " + chunk + b"\n\n"])

    async with tools(tmp_path, act) as one:
        state = None
        answers = []
        for _ in range(3):
            answer = await one.relaying.relay.handle(asked(one, "write", {}, state))
            answers.append(answer)
            assert not isinstance(answer.body, bytes)
            response = parsed(await anext(answer.body))
            state = response["result"].get("requestState")
        assert artifact_of(response)["size_bytes"] == 4 and asking.told[0] == asking.told[2]
        for answer in answers:
            await answer.close()


@pytest.mark.parametrize(
    "act",
    [Asking(), Asking(state=lambda _, number: f"asked-{number}", bound=False)],
    ids=["states of their own", "the same states"],
)
async def test_calls_made_at_once_have_places_of_their_own(tmp_path: Path, act: Asking) -> None:
    """Two that are alike in everything, also where the server says the same states to both."""
    async with tools(tmp_path, act) as one:
        first, second = await called(one, "write", {}), await called(one, "write", {})
        assert act.told[0] != act.told[1]
        first = await called(one, "write", {}, state_in(first))
        second = await called(one, "write", {}, state_in(second))
        first = await called(one, "write", {}, state_in(first))
        second = await called(one, "write", {}, state_in(second))
        assert {artifact_of(each)["artifact_id"] for each in (first, second)} == {
            Path(told["filename"]).parent.name for told in act.told
        }
        assert await rows(one) == 0


async def test_round_that_is_sent_again_says_the_same(tmp_path: Path) -> None:
    """The last one, or an earlier one, whose answer its client may not have got."""
    async with tools(tmp_path, act := Asking(rounds=3)) as one:
        first = state_in(await called(one, "write", {}))
        second = state_in(await called(one, "write", {}, first))
        again = state_in(await called(one, "write", {}, first))
        third = state_in(await called(one, "write", {}, second))
        assert artifact_of(await called(one, "write", {}, state_in(await called(one, "write", {}, again))))
        assert all(told == act.told[0] for told in act.told)
        # What was captured is there; the state that is left over leads to no place any more.
        assert (await called(one, "write", {}, third))["error"]["code"] == -32602
        assert len(await one.registry.list(OWNER.id, FileKind.ARTIFACT)) == 1


async def test_same_round_twice_at_once_is_refused(tmp_path: Path) -> None:
    """Both would write the same file. When the first is over the client may try again."""
    asking = Asking(rounds=1)
    asking.waits = go_on = asyncio.Event()
    async with tools(tmp_path, asking) as one:
        state = state_in(await called(one, "write", {}))
        first = asyncio.ensure_future(called(one, "write", {}, state))
        await asking.heard(2)
        with pytest.raises(LimitReached, match="requestState"):
            await called(one, "write", {}, state)
        go_on.set()
        assert artifact_of(await first)


async def test_round_whose_client_left_can_be_gone_on_with(tmp_path: Path) -> None:
    """Nothing is lost with a request that was cut off."""
    asking = Asking(rounds=1)
    asking.waits = asyncio.Event()
    async with tools(tmp_path, asking) as one:
        state = state_in(await called(one, "write", {}))
        first = asyncio.ensure_future(called(one, "write", {}, state))
        await asking.heard(2)
        first.cancel()
        await asyncio.wait([first])
        asking.waits = None
        assert artifact_of(await called(one, "write", {}, state))
        assert asking.told[0] == asking.told[1] == asking.told[2]


async def test_error_in_between_keeps_the_place(tmp_path: Path) -> None:
    """The client may correct what it answered, and send the round again."""
    asking = Asking(rounds=1)
    wrong = [False]

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        if wrong[0]:
            error = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no such colour"}}'
            return ScriptedAnswer(chunks=[error])
        answer = asking(request)
        Path(asking.told[0]["filename"]).with_name("half.part").write_bytes(b"half")
        return answer

    async with tools(tmp_path, act) as one:
        state = state_in(await called(one, "write", {}))
        wrong[0] = True
        assert (await called(one, "write", {}, state))["error"]["message"] == "no such colour"
        assert list(tmp_path.glob("artifacts/*/*/half.part"))
        wrong[0] = False
        assert artifact_of(await called(one, "write", {}, state)) and asking.told[0] == asking.told[1]


async def test_failed_call_is_over(tmp_path: Path) -> None:
    """Nothing stays of its place, on disk or in the store."""
    asking = Asking(rounds=1)

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        if b"requestState" in request.body:
            return ScriptedAnswer(chunks=[result('"resultType":"complete","content":[],"isError":true')])
        return asking(request)

    async with tools(tmp_path, act) as one:
        state = state_in(await called(one, "write", {}))
        assert (await called(one, "write", {}, state))["result"]["isError"]
        assert one.on_disk() == [] and await rows(one) == 0


async def test_state_of_another_call_leads_nowhere(tmp_path: Path) -> None:
    """With other arguments, by another tool or with a state of nobody's, a call has a place of its own."""
    async with tools(tmp_path, act := Asking()) as one:
        state = state_in(await called(one, "write", {}))
        for arguments, other in (({"n": 1}, state), ({}, "unheard of"), ({}, "")):
            assert (await called(one, "write", arguments, other))["error"]["code"] == -32602
            assert act.told[-1]["filename"] != act.told[0]["filename"]
        assert len(one.on_disk()) == 2  # the first call's own directory, and its scope's


async def test_question_without_a_state_is_a_call_of_its_own(tmp_path: Path) -> None:
    """Its server keeps nothing between, and so nothing is kept here."""

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        return ScriptedAnswer(chunks=[result('"resultType":"input_required","inputRequests":{}')])

    async with tools(tmp_path, act) as one:
        await called(one, "write", {})
        assert one.on_disk() == [] and await rows(one) == 0


async def test_state_that_holds_a_path_is_kept_from_the_client(tmp_path: Path) -> None:
    """It gets a text that stands for it, and the server its own state again."""
    async with tools(tmp_path, act := Asking(state=lambda path, number: f"{number} {path}")) as one:
        first = await called(one, "write", {})
        assert str(tmp_path) not in orjson.dumps(first).decode()
        second = await called(one, "write", {}, state_in(first))
        assert state_in(second) != state_in(first)
        assert artifact_of(await called(one, "write", {}, state_in(second)))
        assert act.told[0] == act.told[2]


async def test_state_leaves_byte_for_byte(tmp_path: Path) -> None:
    """So does all else of an answer that asks."""
    came = result('"requestState":"\\u00e9\\/" , "resultType":"input_required", "n": 1.50')
    async with tools(tmp_path, lambda request: ScriptedAnswer(chunks=[came])) as one:
        assert await whole(await one.relaying.relay.handle(asked(one, "write", {}))) == came


@pytest.mark.parametrize("depth", [250, 700])
async def test_arguments_may_be_nested_deep(tmp_path: Path, depth: int) -> None:
    """The round is found again, also where one serializer gives up."""
    nested = b'{"x":' * depth + b"1" + b"}" * depth

    def body(state: str) -> bytes:
        return (
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write",'
            b'"_meta":%s,"arguments":%s%s}}' % (orjson.dumps(META), nested, state.encode())
        )

    async with tools(tmp_path, Asking(rounds=1, bound=False)) as one:
        first = parsed(await whole(await one.relaying.relay.handle(one.ask(body(""), None))))
        again = body(f',"requestState":"{state_in(first)}","inputResponses":{{}}')
        assert artifact_of(parsed(await whole(await one.relaying.relay.handle(one.ask(again, None)))))


# --- a consumer -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", ["path", "file_uri", "base64", "data_uri", "url"])
async def test_file_is_delivered_in_the_same_words(tmp_path: Path, delivery: Delivery) -> None:
    """Also where those hold a time; meanwhile the upload does not expire, nor the link."""
    rule = reading(delivery)
    async with tools(tmp_path, act := Asking(), consuming=rule) as one:
        arguments = {"path": await uploaded(one)}
        state = state_in(await called(one, "read", arguments))
        for _ in range(2):
            one.clock.now += 700
            await one.registry.expire()
            await one.rounds.expire()
            response = await called(one, "read", arguments, state)
            state = response["result"].get("requestState", "")
        assert response["result"]["resultType"] == "complete"
        assert act.told[0] == act.told[1] == act.told[2]
        one.clock.now += 101
        await one.registry.expire()
        assert one.registry.total == 0


def reading(delivery: Any) -> Any:
    return READ.model_copy(update={"delivery": delivery})


async def test_link_is_good_while_its_round_waits(tmp_path: Path) -> None:
    """Beyond its own time, and not a moment longer."""
    async with tools(tmp_path, act := Asking(rounds=1), consuming=reading("url")) as one:
        arguments = {"path": await uploaded(one)}
        state = state_in(await called(one, "read", arguments))
        link = act.told[0]["path"]
        one.clock.now += 900
        assert _opens(one, link)
        await called(one, "read", arguments, state)
        assert not _opens(one, link)


@pytest.mark.parametrize("cleaner", [0, 1])
async def test_file_of_another_scope_is_good_while_its_round_waits(tmp_path: Path, cleaner: int) -> None:
    """One that came by an offer to another session of the same person; whichever replica cleans up."""
    shared, asking = SharedMemory(), Asking(rounds=1)
    more: dict[str, Any] = {"consuming": reading("url")}
    async with (
        tools(tmp_path, asking, store=shared.replica(), **more) as one,
        tools(tmp_path, asking, store=shared.replica(), clock=one.clock, **more) as two,
    ):
        batch = batch_of((await one.offers_of_uploads.issue("one", "anonymous", one.scope)).upload_id)
        assert batch is not None and one.scope != OWNER
        record = await one.uploaded(b"hello", batch=batch)
        arguments = {"path": upload_handle(batch, record.id)}
        state = state_in(await called(one, "read", arguments))
        await one.registry.tend()
        one.clock.now += 900
        await (one, two)[cleaner].registry.expire()
        assert _opens(one, asking.told[0]["path"])
        assert await one.registry.whole(record) == b"hello"
        await called(one, "read", arguments, state)
        assert not _opens(one, asking.told[0]["path"])
        await one.registry.tend()
        one.clock.now += 900
        await (one, two)[cleaner].registry.expire()
        with pytest.raises(FileGone):
            await one.registry.whole(record)


def _opens(one: Tools, link: str) -> bool:
    path, _, query = link.partition("?")
    server, scope, file_id = path.split("/")[4:7]
    try:
        one.credentials.check_file("delivery", (server, scope, file_id), parameters(query))
    except CredentialRefused:
        return False
    return True


# --- time, limits and restarts --------------------------------------------------------------------------------


async def test_rounds_that_nobody_goes_on_with_are_given_up(tmp_path: Path) -> None:
    """Their place is removed, their file may expire, and the call is a new one then."""
    async with tools(tmp_path, act := Asking()) as one:
        arguments = {"path": await uploaded(one)}
        state = state_in(await called(one, "convert", arguments))
        Path(act.told[0]["filename"]).with_name("half.part").write_bytes(b"half")
        one.clock.now += 999
        await one.rounds.expire()
        await one.registry.tidy()
        assert list(tmp_path.glob("artifacts/*/*/half.part")) and one.registry.total == 5
        one.clock.now += 2
        await one.rounds.expire()
        assert list(tmp_path.glob("artifacts/*/*")) == [] and await rows(one) == 0
        one.clock.now += 101
        await one.registry.expire()
        assert one.registry.total == 0
        assert (await called(one, "convert", arguments, state))["result"]["isError"]


async def test_scope_has_so_many_and_the_oldest_goes(tmp_path: Path) -> None:
    """For a newcomer; what a request goes on with just now stays."""
    limits = RoundLimits(ttl=1000.0, per_scope=2)
    async with tools(tmp_path, Asking(), round_limits=limits) as one:
        states = [state_in(await called(one, "write", {"n": number})) for number in range(3)]
        assert await rows(one) == 2 and len(list(tmp_path.glob("artifacts/*/*"))) == 2
        assert "error" in await called(one, "write", {"n": 0}, states[0])
        for number in (1, 2):
            assert state_in(await called(one, "write", {"n": number}, states[number]))


def long_state(path: str, number: int) -> str:
    """A state that stays here, for there is a path in it."""
    return f"{path} {'x' * 10_000} {number}"


@pytest.mark.parametrize("limits", [{"scope_bytes": 30_000}, {"total_bytes": 30_000}], ids=["scope", "total"])
async def test_rounds_have_so_many_bytes_and_the_oldest_goes(tmp_path: Path, limits: Any) -> None:
    """In memory and in the store; what is over counts no longer."""
    async with tools(
        tmp_path, Asking(rounds=1, state=long_state), round_limits=RoundLimits(ttl=1000.0, **limits)
    ) as one:
        states = [state_in(await called(one, "write", {"n": number})) for number in range(5)]
        assert await rows(one) == 2 and len(list(tmp_path.glob("artifacts/*/*"))) == 2
        assert "error" in await called(one, "write", {"n": 0}, states[0])
        for number in (3, 4):
            assert artifact_of(await called(one, "write", {"n": number}, states[number]))
        assert repr(one.rounds) == "<Rounds: 0 wait, 0 bytes>"


async def test_bytes_of_an_earlier_process_count(tmp_path: Path) -> None:
    """What it kept makes room for newcomers as what came since does."""
    store, limits = MemoryStore(), RoundLimits(ttl=1000.0, total_bytes=30_000)
    async with tools(tmp_path, Asking(state=long_state), store=store, round_limits=limits) as one:
        for number in range(2):
            state_in(await called(one, "write", {"n": number}))
        await called(one, "write", {"n": 2})
        assert await rows(one) == 2
    async with tools(tmp_path, Asking(state=long_state), store=store, round_limits=limits) as two:
        state_in(await called(two, "write", {"n": 3}))
        assert await rows(two) == 2


async def test_call_with_more_than_is_kept_is_not_remembered(tmp_path: Path) -> None:
    """Its server says that the state is not good, and nothing is left of it."""
    async with tools(tmp_path, Asking(), round_limits=RoundLimits(each=100)) as one:
        arguments = {"path": await uploaded(one)}
        state = state_in(await called(one, "convert", arguments))
        assert "error" in await called(one, "convert", arguments, state)
        assert list(tmp_path.glob("artifacts/*/*")) == [] and await rows(one) == 0
        one.clock.now += 101
        await one.registry.expire()
        assert one.registry.total == 0


async def test_endless_rounds_keep_few_states(tmp_path: Path) -> None:
    """A server that only wants to be asked again says another state each time."""
    async with tools(tmp_path, act := Asking(rounds=100)) as one:
        assert artifact_of(await to_the_end(one, "write", {}))
        assert len(act.told) == 101
    async with tools(tmp_path, Asking(rounds=100)) as one:
        state = None
        for _ in range(50):
            state = state_in(await called(one, "write", {}, state))
        (row,) = await one.store.scan(TABLE)
        assert len(orjson.loads(row.value)["states"]) == STATES_KEPT


async def test_any_replica_goes_on_with_a_round(tmp_path: Path) -> None:
    """It tells the same, keeps the same meanwhile, and what it has ended is over everywhere."""
    shared, clock, asking = SharedMemory(), Clock(time.time()), Asking()
    more: dict[str, Any] = {"clock": clock, "consuming": reading("url")}
    async with (
        tools(tmp_path, asking, store=shared.replica(), **more) as one,
        tools(tmp_path, asking, store=shared.replica(), **more) as two,
    ):
        arguments = {"path": await uploaded(one)}
        state = state_in(await called(one, "convert", arguments))
        clock.now += 700
        await two.registry.tidy()
        assert await one.registry.list(OWNER.id, FileKind.UPLOAD)
        await two.registry.read_again(OWNER.id)
        assert _opens(two, asking.told[0]["path"])
        state = state_in(await called(two, "convert", arguments, state))
        assert artifact_of(await called(one, "convert", arguments, state))
        assert asking.told[0] == asking.told[1] == asking.told[2] and await rows(one) == 0
        await called(two, "convert", arguments, state)
        assert len(asking.told) == 4 and asking.told[3] != asking.told[0]


@pytest.mark.parametrize("known", [False, True])
async def test_a_round_that_goes_on_elsewhere_meanwhile_is_not_given_up(
    tmp_path: Path, *, known: bool
) -> None:
    """Its last request began in time, and its answer asks again while another replica deletes what is due."""
    shared, asking = SharedMemory(), Asking(rounds=3)
    store = shared.replica()
    async with (
        tools(tmp_path, asking, store=store) as one,
        tools(tmp_path, asking, store=shared.replica(), clock=one.clock) as two,
    ):
        state = state_in(await called(one, "write", {}))
        state = state_in(await called(two, "write", {}, state))
        if known:
            await one.rounds.read(OWNER.id)
        went_on: list[str] = []

        async def go_on(table: str, key: str) -> None:
            row = await shared.rows.get(table, key)
            if table == TABLE and row is not None and not went_on and (not known or store.calls["delete"]):
                went_on.append(key)
                await shared.rows.put(TABLE, key, row.value, due=one.clock.now + 1000)

        one.clock.now += 1001
        store.calls.clear()
        store.before = go_on
        await (one.rounds.expire_known() if known else one.rounds.expire())
        assert went_on and await rows(one) == 1
        assert list(tmp_path.glob("artifacts/*/*"))


async def test_a_round_that_is_answered_elsewhere_is_not_given_up(tmp_path: Path) -> None:
    """It falls due while its last request is under way at one replica, and the cleanup of another looks at it."""
    shared, asking = SharedMemory(), Asking(rounds=1)
    asking.waits = go_on = asyncio.Event()
    async with (
        tools(tmp_path, asking, store=shared.replica()) as one,
        tools(tmp_path, asking, store=shared.replica(), clock=one.clock) as two,
    ):
        state = state_in(await called(one, "write", {}))
        one.clock.now += 900
        overdue = await shared.rows.overdue(TABLE, one.clock.now + 200)
        last = asyncio.ensure_future(called(two, "write", {}, state))
        await asking.heard(2)
        one.clock.now += 200
        await one.rounds.expire()
        await one.rounds.expire_known()
        await one.rounds._expire(overdue[0], one.clock.now)
        assert await rows(one) == 1
        go_on.set()
        assert artifact_of(await last)
        assert await rows(one) == 0


@pytest.mark.parametrize("overtaken", [False, True])
async def test_artifact_of_a_round_that_another_replica_has_ended_stays(
    tmp_path: Path, *, overtaken: bool
) -> None:
    """The first replica asked, the other one got the file; ``overtaken``: while the first reads what is due."""
    shared, asking = SharedMemory(), Asking(rounds=1)
    store = shared.replica()
    async with (
        tools(tmp_path, asking, store=store) as one,
        tools(tmp_path, asking, store=shared.replica(), clock=one.clock) as two,
    ):
        state = state_in(await called(one, "write", {}))
        (overdue,) = await shared.rows.overdue(TABLE, one.clock.now + 1001)
        one.clock.now += 950
        assert artifact_of(await called(two, "write", {}, state))
        one.clock.now += 60
        (record,) = await two.registry.list(OWNER.id, FileKind.ARTIFACT)
        await (one.rounds._expire(overdue, one.clock.now) if overtaken else one.rounds.expire_known())
        assert one.rounds.waited(OWNER.id) == set() and "0 wait" in repr(one.rounds)
        assert await two.registry.whole(record) == b"made"


def instructions(work: Callable[[], object]) -> int:
    """The number of instructions of Python that it takes."""
    counted = 0

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal counted
        frame.f_trace_opcodes = True
        counted += event == "opcode"
        return count

    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(None)
    return counted


async def test_rounds_of_one_scope_cost_the_others_nothing(tmp_path: Path) -> None:
    """What waits is asked for all scopes in turn, and for each file that might go."""
    async with tools(tmp_path, Asking()) as one:
        alone = instructions(lambda: one.rounds.waited(OWNER.id))
        for number in range(10_000):
            scope = Scope(f"{number % 100:032x}", OWNER.owner)
            key = f"{scope.id}/upload/{number}"
            pending = PendingRound(f"{number:032x}", scope, one.clock.now + 1000, {DELIVERED: {key: None}})
            one.rounds._adopt(Row(f"{scope.id}/{pending.id}", encode(pending), 1, pending.due))
        assert not one.rounds.waited(OWNER.id)
        assert instructions(lambda: one.rounds.waited(OWNER.id)) == alone
        assert len(one.rounds.waited(f"{7:032x}")) == 100


async def test_of_two_replicas_one_goes_on_with_a_round(tmp_path: Path) -> None:
    """Where its time is nearly over: the other is told to wait."""
    shared, asking = SharedMemory(), Asking(rounds=1)
    store = shared.replica()
    async with tools(tmp_path, asking, store=store) as one:
        state = state_in(await called(one, "write", {}))
        one.clock.now += 900

        async def go_on(table: str, key: str) -> None:
            row = await shared.rows.get(table, key)
            if table == TABLE and row is not None and store.calls["put"]:
                await shared.rows.put(TABLE, key, row.value, due=row.due)

        store.calls.clear()
        store.before = go_on
        with pytest.raises(LimitReached, match="requestState"):
            await called(one, "write", {}, state)


async def test_sweep_of_another_replica_leaves_what_a_waiting_tool_has_written(tmp_path: Path) -> None:
    """Though that one was never told of the call."""
    shared = SharedMemory()
    async with (
        tools(tmp_path, act := Asking(), store=shared.replica()) as one,
        tools(tmp_path, act, store=shared.replica()) as two,
    ):
        await called(one, "write", {})
        half = Path(act.told[0]["filename"]).with_name("half.part")
        half.write_bytes(b"half")
        place = Place(FileKind.ARTIFACT, OWNER.id, half.parent.name, "half.part")
        assert await two.rounds.claims(place)
        assert not await two.rounds.claims(place._replace(id="0" * 32))
        await one.rounds.end_scope(OWNER.id)
        assert not await two.rounds.claims(place)


async def test_failing_store_loses_no_round(tmp_path: Path) -> None:
    """It would not survive a restart, but the call goes on."""

    class FailingStore(SteppedStore):
        async def put(self, table: str, *more: Any, **options: Any) -> Any:
            if table == TABLE:
                raise StoreUnavailable()
            return await super().put(table, *more, **options)

    async with tools(tmp_path, Asking(), store=FailingStore(Steps())) as one:
        assert artifact_of(await to_the_end(one, "write", {}))


async def test_row_of_another_version_is_passed_over(tmp_path: Path) -> None:
    """And goes when it is due."""
    store = MemoryStore()
    await store.put(TABLE, "x", b'{"format":99}', due=5.0)
    async with tools(tmp_path, Asking(), store=store, producing=producing()) as one:
        assert artifact_of(await to_the_end(one, "write", {}))
        await one.rounds.expire()
        assert await rows(one) == 0


async def test_rounds_of_a_session_end_with_it(tmp_path: Path) -> None:
    """Nothing of them stays in the store."""
    async with tools(tmp_path, Asking()) as one:
        await called(one, "write", {})
        await one.rounds.end_scope(OWNER.id)
        assert await rows(one) == 0
