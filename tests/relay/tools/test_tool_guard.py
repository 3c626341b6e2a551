"""What a scope may call is what it was shown, and what it was shown first."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from adapter.errors import (
    AdapterError,
    BadRequest,
    CatalogueDrifted,
    SessionUnknown,
    ToolUnknown,
    UpstreamSilent,
    UpstreamUnreachable,
)
from adapter.relay.stages import Call, CallOrigin
from adapter.relay.tools.catalogue_reader import CatalogueReader
from adapter.relay.tools.pins import PINS
from adapter.rules.access.principals import Scope
from adapter.rules.files.tool_definitions import Wrapped
from adapter.rules.tools.catalogue import catalogue_of
from adapter.rules.tools.definitions import read_tool
from adapter.rules.tools.visibility import Disabled, Policies, Sanitization
from adapter.wire.envelope import Envelope, dump, read_envelope
from tests.relay.guarding import (
    CHANGED,
    CLICK,
    EVIL,
    FRESH_FOR,
    SHOOT,
    SSE,
    Guarded,
    Json,
    Mode,
    Refused,
    Shop,
    guarded,
    listed,
    opened,
    tool,
)
from tests.relay.relaying import whole
from tests.scripted import ScriptedAnswer
from tests.waiting import until


def names(tools: list[Json]) -> list[str]:
    return [each["name"] for each in tools]


# --- how often the upstream is asked --------------------------------------------------------------------------


async def test_nothing_is_kept_where_the_time_is_zero() -> None:
    """Each call reads the list anew, so that a tool which changed without a word is refused by the very next one."""
    shop = Shop(CLICK, SHOOT)
    async with listed(shop, fresh_for=0.0) as (front, session):
        for _ in range(3):
            await front.call(session, "click")
        assert shop.lists == 4
        shop.tools = [EVIL, SHOOT]
        with pytest.raises(CatalogueDrifted):
            await front.call(session, "click")
        assert shop.calls == ["click"] * 3


async def test_calls_at_once_share_a_read_where_the_time_is_zero() -> None:
    """None of many callers makes the others wait for ever, or read for themselves."""
    shop = Shop(CLICK, SHOOT)
    async with guarded(shop, fresh_for=0.0) as front:
        sessions = [await front.open() for _ in range(50)]

        async def calls(session: str) -> None:
            for _ in range(10):
                await front.call(session, "click")
                await front.list(session)

        await asyncio.gather(*map(calls, sessions))
        assert len(shop.calls) == 500 and shop.lists < 1000


@pytest.mark.parametrize("mode", ["warn", "block"])
async def test_a_hundred_scopes_cost_one_read(mode: Mode) -> None:
    """All call at once without a list before; later calls and lists of theirs ask for no other."""
    shop = Shop(CLICK, SHOOT)
    async with guarded(shop, mode) as front:
        sessions = [await front.open() for _ in range(100)]
        await asyncio.gather(*(front.call(session, "click") for session in sessions))
        await front.idle()
        assert shop.lists == 1
        for session in sessions:
            await front.call(session, "shoot")
        await front.idle()
        assert shop.lists == 1 and len(shop.calls) == 200
        assert await front.store.count(PINS) == 100
        assert await front.list(sessions[0]) == [CLICK, SHOOT]
        await front.call(sessions[0], "click")
        assert shop.lists == 2


@pytest.mark.parametrize("mode", ["warn", "block"])
async def test_who_listed_causes_no_read(mode: Mode) -> None:
    """Its own list is what its calls are judged by, and what others without a list are."""
    shop = Shop(CLICK, SHOOT)
    async with guarded(shop, mode) as front:
        one, other = await front.open(), await front.open()
        await front.list(one)
        await front.call(one, "click")
        await front.call(other, "click")
        await front.idle()
        assert shop.lists == 1


async def test_time_makes_one_read() -> None:
    """After the configured time the tools may have changed without a word."""
    shop = Shop(CLICK, SHOOT)
    async with guarded(shop) as front:
        sessions = [await front.open() for _ in range(3)]
        await front.list(sessions[0])
        front.steady.now += FRESH_FOR + 1
        for session in sessions * 2:
            await front.call(session, "click")
        assert shop.lists == 2
        front.steady.now += FRESH_FOR + 1
        shop.tools = [EVIL]
        with pytest.raises(CatalogueDrifted):
            await front.call(sessions[0], "click")


async def test_a_list_that_takes_longer_than_its_time_is_read_to_its_end(shop: Shop) -> None:
    """Calls that come meanwhile wait for it instead of beginning anew, so all of them are served."""
    async with opened(shop, fresh_for=1) as (front, session):
        shop.hold = asyncio.Event()
        calling = []
        for _ in range(5):
            calling.append(asyncio.ensure_future(front.call(session, "click")))
            await asyncio.sleep(0)
            front.steady.now += 2
        shop.hold.set()
        await asyncio.gather(*calling)
        assert shop.lists == 1 and len(shop.calls) == 5
        front.steady.now += 2
        await front.call(session, "click")
        assert shop.lists == 2


async def test_a_server_has_so_long_for_all_pages(shop: Shop) -> None:
    """Each may come in time, and the last never."""
    async with guarded(shop) as front:
        reader = CatalogueReader(front.lists, front.cache, patience=0.05)

        async def fetch(method: str, params: dict[str, Any]) -> bytes | None:
            await asyncio.sleep(0.01)
            page = {"tools": [tool(f"t{params}")], "nextCursor": f"{params}"[-20:]}
            return orjson.dumps({"jsonrpc": "2.0", "id": 1, "result": page})

        envelope = read_envelope(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"click"}}')
        assert isinstance(envelope, Envelope)
        asking = Call(CallOrigin("one"), Scope("s", ""), envelope, envelope.body, fetch=fetch)
        with pytest.raises(UpstreamSilent, match=r"did not list its tools within 0\.05 s"):
            await reader.snapshot(asking)


async def test_a_read_ends_when_the_adapter_stops(shop: Shop) -> None:
    """It does not outlive the connections to its server, nor does who waits for it."""
    async with opened(shop) as (front, session):
        front.cache.changed()
        shop.hold = asyncio.Event()
        calling = asyncio.ensure_future(front.call(session, "click"))
        await until(lambda: shop.lists)
        await front.tool_guard.close()
        with pytest.raises(asyncio.CancelledError):
            await calling


@pytest.mark.parametrize("cut", [None, 20, 60, 75])
@pytest.mark.parametrize("escaped", [False, True])
async def test_the_word_of_a_change_is_heard_on_get_streams(cut: int | None, escaped: bool) -> None:
    """Also when it comes in two pieces, or with its slashes escaped."""
    word = CHANGED.replace(b"/", rb"\/") if escaped else CHANGED
    shop = Shop(CLICK)
    shop.stream = [word] if cut is None else [word[:cut], word[cut:]]
    async with listed(shop) as (front, session):
        shop.tools = [EVIL]
        await front.call(session, "click")
        assert await front.relaying.get(session, "1") == word
        with pytest.raises(CatalogueDrifted):
            await front.call(session, "click")
        assert shop.calls == ["click"] and shop.lists == 2


@pytest.mark.parametrize("cut", [None, 60])
async def test_the_word_of_a_change_is_heard_on_post_streams(shop: Shop, cut: int | None) -> None:
    """It stands before the answer to a call, in one piece with it or not."""

    def says(message: Json) -> ScriptedAnswer:
        answer = orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}})
        events = CHANGED + b"data: " + answer + b"\n\n"
        return ScriptedAnswer(headers=SSE, chunks=[events] if cut is None else [events[:cut], events[cut:]])

    async with listed(shop) as (front, session):
        shop.says = says
        await front.call(session, "click")
        shop.tools = [EVIL]
        with pytest.raises(CatalogueDrifted):
            await front.call(session, "click")


async def test_a_call_is_judged_again_in_a_new_upstream_session(shop: Shop) -> None:
    """The upstream restarted with other tools: the call it answers 404 is not sent a second time."""
    shop.on_begin = lambda: setattr(shop, "tools", [EVIL])
    async with listed(shop) as (front, session):
        shop.lost.add("up-1")
        with pytest.raises(CatalogueDrifted):
            await front.call(session, "click")
        assert shop.calls == [] and shop.begun == 2
        assert [request.body.count(b"tools/call") for request in shop.requests].count(1) == 1


async def test_batches_are_judged_again_call_by_call() -> None:
    """Not only the last of them: here it is the first that changed."""
    shop = Shop(CLICK, SHOOT)
    shop.on_begin = lambda: setattr(shop, "tools", [EVIL, SHOOT])
    async with guarded(shop) as front:
        session = await front.open("2025-03-26")
        await front.list(session)
        shop.lost.add("up-1")
        with pytest.raises(CatalogueDrifted):
            await front.relaying.post(batch("click", "shoot"), session)
        assert shop.calls == []


def batch(*calls: str) -> bytes:
    return dump(
        [
            {
                "jsonrpc": "2.0",
                "id": number,
                "method": "tools/call",
                "params": {"name": name, "arguments": {}},
            }
            for number, name in enumerate(calls)
        ]
    )


# --- an upstream that does not answer -------------------------------------------------------------------------


@pytest.mark.parametrize("fails", [UpstreamUnreachable(), ScriptedAnswer(403), ScriptedAnswer(chunks=[b"{"])])
async def test_unknown_tools_are_not_called(shop: Shop, fails: AdapterError | ScriptedAnswer) -> None:
    """Blocking fails closed until the tools are known; warning goes on."""
    shop.fails = fails
    async with opened(shop, "block") as (front, session):
        for _ in range(2):
            with pytest.raises(AdapterError):
                await front.call(session, "click")
        assert shop.calls == []
        shop.fails = None
        await front.call(session, "click")
    shop.fails = fails
    async with opened(shop, "warn") as (front, session):
        await front.call(session, "click")
        await front.call(session, "click")
        await front.idle()
        assert shop.calls == ["click"] * 3


async def test_a_late_list_holds_up_blocking_only() -> None:
    """A warning call is answered before the list is; a blocking one waits for it."""
    cases: list[tuple[Mode, list[str]]] = [("warn", ["click"]), ("block", [])]
    for mode, early in cases:
        shop = Shop(CLICK)
        shop.hold = asyncio.Event()
        async with guarded(shop, mode) as front:
            session = await front.open()
            calling = asyncio.ensure_future(front.call(session, "click"))
            if mode == "warn":
                await calling
            while not shop.lists:
                await asyncio.sleep(0)
            assert shop.calls == early
            shop.hold.set()
            await calling
            assert shop.calls == ["click"]


@pytest.mark.parametrize("fails", [None, UpstreamUnreachable()])
async def test_whoever_leaves_does_not_take_the_read_from_others(
    shop: Shop, fails: AdapterError | None
) -> None:
    """The caller that began it goes away; the others get its outcome, and nobody asks once more for it."""
    shop.hold, shop.fails = asyncio.Event(), fails
    async with guarded(shop) as front:
        calling = [asyncio.ensure_future(front.call(await front.open(), "click")) for _ in range(5)]
        await until(lambda: shop.lists)
        calling[0].cancel()
        await asyncio.wait(calling[:1])
        shop.hold.set()
        outcomes = await asyncio.gather(*calling[1:], return_exceptions=True)
        assert [isinstance(outcome, UpstreamUnreachable) for outcome in outcomes] == [fails is not None] * 4
        assert shop.lists == 1 and len(shop.calls) == (0 if fails else 4)


async def test_one_lost_session_does_not_fail_another(shop: Shop) -> None:
    """The reader's session has ended upstream for good; whoever waited for it reads for itself."""
    async with guarded(shop) as front:
        lost, well = await front.open(), await front.open()
        found = await front.relaying.sessions.find(well, "one", "anonymous")
        found.upstream_id = "up-well"
        held = asyncio.Event()

        async def fetch(method: str, params: Json) -> bytes | None:
            await held.wait()
            raise SessionUnknown()

        ask = front.relaying.ask(batch("click")[1:-1], lost)
        session = await front.relaying.sessions.find(lost, "one", "anonymous")
        assert isinstance(ask.envelope, Envelope)
        call = front.relaying.relay.call_gate.call(ask, session, ask.envelope)
        call.fetch = fetch
        reading = asyncio.ensure_future(front.tool_guard.admit(call))
        await asyncio.sleep(0)
        waiting = asyncio.ensure_future(front.call(well, "click"))
        await asyncio.sleep(0)
        held.set()
        await waiting
        with pytest.raises(SessionUnknown):
            await reading
        assert shop.calls == ["click"]


async def test_a_read_that_began_before_a_change_is_not_trusted(shop: Shop) -> None:
    """The word comes while the old list is on its way: whoever waits has it read again."""
    async with listed(shop) as (front, session):
        front.tool_guard.changed()
        shop.hold = asyncio.Event()
        calling = asyncio.ensure_future(front.call(session, "click"))
        await until(lambda: shop.lists >= 2)
        shop.tools = [EVIL]
        front.tool_guard.changed()
        late = asyncio.ensure_future(front.call(session, "click"))
        await asyncio.sleep(0)
        shop.hold.set()
        for each in (calling, late):
            with pytest.raises((CatalogueDrifted, SessionUnknown)):
                await each
        assert shop.calls == []


async def test_a_list_that_is_older_than_the_word_of_a_change_is_not_trusted(shop: Shop) -> None:
    """It is shown, but the next call has the tools read again."""
    async with listed(shop) as (front, session):
        shop.hold = asyncio.Event()
        listing = asyncio.ensure_future(front.list(session))
        await until(lambda: shop.lists >= 2)
        front.tool_guard.changed()
        shop.hold.set()
        assert await listing == [CLICK]
        shop.tools = [EVIL]
        with pytest.raises(CatalogueDrifted):
            await front.call(session, "click")


async def test_tools_that_never_stand_still_are_not_called(shop: Shop) -> None:
    """Each read brings word of another change: the call ends with an error, not never."""
    async with opened(shop) as (front, session):
        shop.lost = {f"up-{number}" for number in range(100)}
        with pytest.raises(AdapterError):
            await front.call(session, "click")
        assert shop.calls == []


# --- whose tools ----------------------------------------------------------------------------------------------


async def test_catalogues_of_users_are_no_drift_of_each_other(shop: Shop) -> None:
    """Each session is offered its own tools, in any order of lists and calls, and after any word of a change."""
    async with guarded(shop) as front:
        users = []
        for number in range(4):
            session = await front.open()
            found = await front.relaying.sessions.find(session, "one", "anonymous")
            found.upstream_id = f"user-{number}"
            shop.per_session[f"user-{number}"] = [CLICK, tool(f"only-{number}")]
            users.append(session)
        for _ in range(3):
            for number, session in enumerate(users):
                assert names(await front.list(session)) == ["click", f"only-{number}"]
            for number, session in enumerate(users):
                await front.call(session, f"only-{number}")
            front.tool_guard.changed()
            for number, session in enumerate(users):
                await front.call(session, f"only-{number}")
        before = shop.lists
        for session in users * 3:
            await front.call(session, "click")
        assert shop.lists == before
        shop.per_session["user-2"] = [EVIL, tool("only-2")]
        front.tool_guard.changed()
        with pytest.raises(CatalogueDrifted):
            await front.call(users[2], "click")
        await front.call(users[1], "click")


async def test_a_new_list_is_news_for_others(shop: Shop) -> None:
    """One session is shown other tools without a word: what the others saw counts no longer."""
    async with guarded(shop) as front:
        one, other = await front.open(), await front.open()
        await front.list(one)
        await front.list(other)
        shop.tools = [EVIL]
        with pytest.raises(Refused):
            await front.list(one)
        with pytest.raises(CatalogueDrifted):
            await front.call(other, "click")
        assert shop.calls == []


# --- no road to a hidden tool ---------------------------------------------------------------------------------

FORMS = [
    "click",
    "CLICK",
    "Click",
    "ｃlick",
    "cl\u200bick",
    "clic\u212a",
    "cli\u00adck",
    "cl\u0131ck",
    "CL\u0130CK",
]
FORMS += [" click", "click\n", "\u2003click\u00a0", "\u200b click \ufeff", "click\ud800"]
FORMS += ["click\0", "click\0x", "cl\0ick", "click" + " " * 2000]


async def roads(front: Guarded, session: str, name: str) -> list[str]:
    """Take every road to a tool; what reached the upstream."""
    shop = front.shop
    begun = len(shop.calls)
    for taken in (session, None):
        with pytest.raises((AdapterError, Refused)):
            await front.call(taken, name)
    with pytest.raises(AdapterError):
        await front.relaying.post(
            dump({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": name}}), session
        )
    old = await front.open("2025-03-26")
    try:
        answer = await front.relaying.post(batch(name), old)
        assert b'"error"' in answer and b'"result"' not in answer
    except AdapterError:
        pass
    return shop.calls[begun:]


@pytest.mark.parametrize("mode", ["off", "warn", "block"])
@pytest.mark.parametrize("listed", [False, True])
async def test_a_disabled_tool_is_called_by_no_road(mode: Mode, listed: bool) -> None:
    """Neither before nor after the list, in no spelling, in no batch, without an id, of neither era."""
    shop = Shop(CLICK, SHOOT)
    policies = Policies(disabled=Disabled.of(["click"]))
    async with opened(shop, mode, policies=policies) as (front, session):
        if listed:
            assert names(await front.list(session)) == ["shoot"]
        for name in FORMS:
            assert await roads(front, session, name) == []
        await front.call(session, "shoot")
        with pytest.raises(ToolUnknown, match="Unknown tool: click"):
            await front.call(session, "click")


@pytest.mark.parametrize("mode", ["off", "warn", "block"])
@pytest.mark.parametrize("listed", [False, True])
async def test_a_tool_that_is_hidden_for_what_it_says_is_called_by_no_road(mode: Mode, listed: bool) -> None:
    """What it says is known before the first call, also where nothing is pinned."""
    shop = Shop(tool("click", "Cl\u200bicks."), SHOOT)
    policies = Policies(Sanitization(mode="block"))
    async with opened(shop, mode, policies=policies) as (front, session):
        if listed:
            assert names(await front.list(session)) == ["shoot"]
        for name in FORMS:
            assert await roads(front, session, name) == []
        await front.call(session, "shoot")
        shop.fails = UpstreamUnreachable()
        front.tool_guard.changed()
        with pytest.raises(UpstreamUnreachable):
            await front.call(session, "shoot")


@pytest.mark.parametrize("subset", [False, True])
async def test_a_drifted_tool_is_called_by_no_road(subset: bool) -> None:
    """Changed, added, renamed or gone; what is as it was may be called."""
    shop = Shop(CLICK, SHOOT, tool("gone"), tool("old", "Is renamed."))
    async with listed(shop, subset=subset, invalidate=False) as (front, session):
        await front.list(None)
        shop.tools = [EVIL, SHOOT, tool("new", "Is renamed."), tool("shadow")]
        front.tool_guard.changed()
        for name in ("click", "gone", "old", "new", "shadow", *FORMS):
            for taken in (session, None):
                with pytest.raises(CatalogueDrifted) as refused:
                    await front.call(taken, name)
                assert refused.value.data is not None and "drift" in refused.value.data
        with pytest.raises(AdapterError):
            await front.relaying.post(
                orjson.dumps({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "click"}}), session
            )
        assert shop.calls == []
        await front.call(session, "shoot")
        if subset:
            assert names(await front.list(session)) == ["shoot"]
            with pytest.raises(CatalogueDrifted):
                await front.call(session, "never-listed")
        else:
            with pytest.raises(Refused) as error:
                await front.list(session)
            assert error.value.code == -32010


async def test_batches_hold_no_drifted_tool() -> None:
    """The member is refused, the others travel on."""
    shop = Shop(CLICK, SHOOT)
    async with guarded(shop, invalidate=False) as front:
        session = await front.open("2025-03-26")
        await front.list(session)
        shop.tools = [EVIL, SHOOT]
        front.tool_guard.changed()
        answer = orjson.loads(await front.relaying.post(batch("click", "shoot"), session))
        assert shop.calls == ["shoot"]
        assert sorted(("error" in each, each["id"]) for each in answer) == [(False, 1), (True, 0)]


async def test_a_subset_calls_nothing_that_was_not_pinned(shop: Shop) -> None:
    """Also where nothing has drifted: a tool that was never listed is none of its."""
    async with opened(shop, subset=True) as (front, session):
        with pytest.raises(ToolUnknown):
            await front.call(session, "unlisted")
        await front.call(session, "click")
        assert shop.calls == ["click"]


async def test_look_alikes_of_wrapped_tools_are_neither_shown_nor_called() -> None:
    """An upstream that does not mind case would take them for the tool whose paths the adapter guards."""
    shop = Shop(tool("read"), tool("Read"), tool("one_get_upload_url", "Mine!"), SHOOT)
    policies = Policies(wrapped={"read": Wrapped("consumer", "path", "one_get_upload_url")})
    async with opened(shop, "warn", policies=policies) as (front, session):
        assert names(await front.list(session)) == ["read", "shoot"]
        for name in ("Read", "READ", "One_get_upload_url"):
            with pytest.raises(ToolUnknown):
                await front.call(session, name)
        assert shop.calls == []


async def test_calls_without_a_name_go_nowhere(shop: Shop) -> None:
    """A lax server might find the name elsewhere."""
    async with opened(shop) as (front, session):
        lax: list[Any] = [["click", {}], {"name": ["click"]}, {"arguments": {}}]
        for params in lax:
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            with pytest.raises((ToolUnknown, BadRequest)):
                await front.relaying.post(orjson.dumps(body), session)
        assert shop.requests == []


# --- lists ----------------------------------------------------------------------------------------------------


async def test_a_changed_page_of_a_long_list_is_found_without_a_word() -> None:
    """Pages are judged with all others, and one that differs from what was read has all read anew."""
    shop = Shop(*(tool(f"t{number}") for number in range(5)))
    shop.page_size = 2
    async with opened(shop, invalidate=False) as (front, session):
        assert names(await front.list(session)) == ["t0", "t1"]
        assert names(await front.list(session, cursor="2")) == ["t2", "t3"]
        reads = shop.lists
        await front.list(session, cursor="4")
        assert shop.lists == reads + 1
        shop.tools = [*shop.tools[:3], tool("t3", "Does evil."), *shop.tools[4:]]
        with pytest.raises(Refused, match="t3"):
            await front.list(session, cursor="2")
        with pytest.raises(CatalogueDrifted):
            await front.call(session, "t3")


async def test_pages_of_a_long_list_are_warned_of() -> None:
    """Only the tool that changed has a warning, on the page where it stands."""
    shop = Shop(*(tool(f"t{number}") for number in range(4)))
    shop.page_size = 2
    async with listed(shop, "warn", own=[{"name": "own"}]) as (front, session):
        shop.tools = [*shop.tools[:3], tool("t3", "Does evil.")]
        (same, warned) = await front.list(session, cursor="2")
        assert same == tool("t2")
        assert warned["description"].startswith("[Warning: ") and warned["description"].endswith("evil.")
        assert names(await front.list(session)) == ["own", "t0", "t1"]


async def test_a_new_session_starts_from_the_pages_that_it_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Not from what others saw before a change without a word, so it has nothing to be warned of."""
    shop = Shop(*(tool(f"t{number}") for number in range(4)))
    shop.page_size = 2
    async with guarded(shop, "warn") as front:
        await front.list(await front.open())
        shop.tools = [tool("t0", "Does evil."), *shop.tools[1:]]
        assert (await front.list(await front.open()))[0] == tool("t0", "Does evil.")
        assert "tools changed" not in capsys.readouterr().err


async def test_a_name_on_two_pages_is_no_drift(capsys: pytest.CaptureFixture[str]) -> None:
    """Odd, but the same each time."""
    shop = Shop(tool("a"), tool("b"), tool("a", "Otherwise."), tool("c"))
    shop.page_size = 2
    async with opened(shop) as (front, session):
        for _ in range(2):
            await front.list(session)
            await front.list(session, cursor="2")
        await front.call(session, "c")
        assert "tools changed" not in capsys.readouterr().err


async def test_lists_without_pins_are_shown_while_warning() -> None:
    """A page whose other pages cannot be read is shown as it came; blocking says why not."""
    shop = Shop(tool("a"), tool("b"))
    shop.page_size = 1
    modes: tuple[Mode, ...] = ("warn", "block")
    for mode in modes:
        async with guarded(shop, mode) as front:
            session = await front.open()
            ask = front.relaying.ask(
                b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"1"}}', session
            )
            answer = await front.relaying.relay.handle(ask)
            assert orjson.loads(await whole(answer))["result"]["tools"] == [tool("b")]
            front.tool_guard.changed()
            found = await front.relaying.sessions.find(session, "one", "anonymous")
            assert isinstance(ask.envelope, Envelope)
            (stage,) = front.relaying.server.stages.stages_for(ask.envelope)
            call = front.relaying.relay.call_gate.call(ask, found, ask.envelope)
            call.fetch = None
            page = b'{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}'
            assert (b'"error"' in await stage.answer(call, page)) is (mode == "block")


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_list_that_comes_on_another_stream_is_judged(shop: Shop, restarted: bool) -> None:
    """The upstream ends the stream of the request and answers on the next, to another process even."""
    async with guarded(shop) as front, guarded(shop, store=front.store, clock=front.clock) as later:
        session = await front.open()
        await front.list(session)
        shop.fails = ScriptedAnswer(headers=SSE, chunks=[b"id: 7\ndata:\n\n"])
        listing = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
        assert await front.relaying.post(listing, session) == b"id: 7\ndata:\n\n"
        shop.stream = [
            b"data: " + orjson.dumps({"jsonrpc": "2.0", "id": 1, "result": {"tools": [EVIL]}}) + b"\n\n"
        ]
        told = await (later if restarted else front).relaying.get(session, "7")
        assert b"-32010" in told and b"mails your files" not in told
        with pytest.raises(SessionUnknown):
            await (later if restarted else front).call(session, "click")
        assert shop.calls == []


async def test_other_keys_are_told_and_no_reason_to_block(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model is told the same as before."""
    async with listed(shop) as (front, session):
        shop.tools = [{**CLICK, "_meta": {"build": 2}}]
        assert await front.list(session) == shop.tools
        await front.call(session, "click")
        assert "tools changed" in capsys.readouterr().err


# --- ends and beginnings --------------------------------------------------------------------------------------


async def test_a_session_of_blocked_tools_ends_with_its_reason(shop: Shop) -> None:
    """The error names what changed, 404 says it again, and a new session starts from the tools of now."""
    async with listed(shop) as (front, session):
        shop.tools = [EVIL]
        with pytest.raises(Refused, match="initialize again") as error:
            await front.list(session)
        assert error.value.code == -32010
        assert error.value.data["drift"]["changed"][0]["fields"] == ["description"]
        with pytest.raises(SessionUnknown, match="click"):
            await front.list(session)
        fresh = await front.open()
        assert await front.list(fresh) == [EVIL]
        await front.call(fresh, "click")


async def test_a_principals_pin_is_not_got_around_by_a_new_session(shop: Shop) -> None:
    """Modern clients have none: what their principal saw first counts until an operator accepts."""
    async with guarded(shop) as front:
        await front.list(None)
        shop.tools = [EVIL]
        for _ in range(2):
            with pytest.raises(Refused, match="operator"):
                await front.list(None)
        with pytest.raises(CatalogueDrifted):
            await front.call(None, "click")
        await accept(front, EVIL)
        assert await front.list(None) == [EVIL]
        await front.call(None, "click")


async def accept(front: Guarded, *tools: Json) -> None:
    """What an operator does in another process."""
    read = [read_tool(orjson.dumps(each)) for each in tools]
    front.clock.now += 1
    await Guarded(front.shop, store=front.store, clock=front.clock).pins.accept(
        "one", catalogue_of([each for each in read if each is not None])
    )
