"""Lists of tools as clients see them: bytes that nobody touches stay, and equal bytes are looked into once."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson
import pytest

from adapter import log
from adapter.app.access.tool_policies import shape_of
from adapter.errors import UpstreamBroken
from adapter.relay.param_headers import ParamHeaders
from adapter.relay.tools.tool_lists import KEPT, LOGGED_AT_ONCE, UNJUDGED, Listed, PageWriter, ToolLists
from adapter.rules.tools.catalogue import Catalogue, CatalogueSnapshot, Verdict
from adapter.rules.tools.drift import Change, Drift
from adapter.rules.tools.visibility import Disabled, Policies, ShapedDefinition

ODD = b'{"zeta":1.0, "name" : "click","description":"a\\u0042","x":1e2,"_meta":{"b":2,"a":1}}'
PLAIN = b'{"name":"shoot","description":"Shoots."}'
OWN = {"name": "one_get_upload_url"}


def lists(policies: Policies | None = None, own: list[dict[str, Any]] | None = None) -> ToolLists:
    return ToolLists(
        "one", shape_of(policies or Policies()), own or [], ParamHeaders(), log.get_logger("test")
    )


def response(*tools: bytes, request_id: bytes = b"1", more: bytes = b"", spaces: bytes = b"") -> bytes:
    listed = (b"," + spaces).join(tools)
    return b'{"jsonrpc":"2.0","id":%b,"result":{"tools":[%b%b%b]%b}}' % (
        request_id,
        spaces,
        listed,
        spaces,
        more,
    )


class Shown(NamedTuple):
    """A response as a client sees it before anything is judged; ``listed`` is None where it is no list."""

    response: bytes
    listed: Listed | None = None


async def shown(
    made: ToolLists, came: bytes, request_id: bytes = b"1", *, first: bool = True, modern: bool = False
) -> Shown:
    if (found := await made.page(came, request_id, first=first)) is None:
        return Shown(came)
    return Shown(b"".join(await made.written(found, UNJUDGED[False][modern])), found[0])


def names(body: bytes) -> list[str]:
    return [tool["name"] for tool in orjson.loads(body)["result"]["tools"]]


@pytest.mark.parametrize("spaces", [b"", b" ", b"\n  "])
@pytest.mark.parametrize("modern", [False, True])
async def test_untouched_lists_keep_their_bytes(spaces: bytes, modern: bool) -> None:
    """Key order, spelling of numbers, escapes, spaces, unknown keys and entries that are no tools."""
    came = response(
        ODD, b'{"no":"name"}', b"7", PLAIN, more=b',"nextCursor":"\\u0062","z":1.0', spaces=spaces
    )
    page = await shown(lists(), came, modern=modern)
    assert page.response == came
    assert page.listed is not None and page.listed.cursor == "b"
    assert [tool.raw for tool in page.listed.tools] == [ODD, PLAIN]


@pytest.mark.parametrize("spaces", [b"", b" "])
@pytest.mark.parametrize("hidden", ["click", "shoot", "third", ".*"])
async def test_untouched_tools_keep_their_bytes_beside_others(hidden: str, spaces: bytes) -> None:
    """What is hidden goes with its comma, the adapter's own come first, and the rest is as it came."""
    tools = {"click": ODD, "shoot": PLAIN, "third": b'{"name":"third"}'}
    came = response(*tools.values(), more=b',"nextCursor":"2"', spaces=spaces)
    made = await shown(lists(Policies(disabled=Disabled.of([hidden])), [OWN]), came, modern=False)
    kept = [name for name in tools if hidden not in (name, ".*")]
    assert names(made.response) == [OWN["name"], *kept]
    assert all(tools[name] in made.response for name in kept)
    assert orjson.loads(made.response)["result"]["nextCursor"] == "2"


async def test_only_touched_text_is_written() -> None:
    """A tool with something invisible in it keeps all bytes around that text."""
    dirty = b'{"x":1.0, "name":"zap","description":"Z\xe2\x80\x8baps.","y":1e2}'
    page = await shown(lists(), response(ODD, dirty))
    assert page.response == response(ODD, dirty.replace(b"\xe2\x80\x8b", b""))


@pytest.mark.parametrize(
    "spelled",
    [
        '{"jsonrpc":"2.0","id":ID,"result":{"tools":TOOLS}}',
        '{"result":{"tools":TOOLS},"jsonrpc":"2.0","id":ID}',
        ' { "jsonrpc" : "2.0" , "id" : ID , "result" : { "_meta": {}, "tools" : TOOLS } } ',
    ],
)
async def test_equal_bytes_are_made_once_whatever_their_id(spelled: str) -> None:
    """SDKs write the id first or last; the second list is the first one's with its own id."""
    asked = 0

    def shape(_: str, raw: bytes) -> ShapedDefinition:
        nonlocal asked
        asked += 1
        return ShapedDefinition(raw.replace(b"Shoots", b"Shot"))

    made = ToolLists("one", shape, [OWN], ParamHeaders(), log.get_logger("test"))
    spelled = spelled.replace("TOOLS", f"[{PLAIN.decode()}]")
    pages = [
        await shown(made, spelled.replace("ID", said).encode(), said.encode()) for said in ("1", '"a"', "-7")
    ]
    assert [orjson.loads(page.response)["id"] for page in pages] == [1, "a", -7]
    assert all(names(page.response) == [OWN["name"], "shoot"] for page in pages)
    assert asked == 1
    assert pages[0].listed is pages[2].listed


@pytest.mark.parametrize("id_is_last", [False, True])
async def test_a_list_is_kept_without_a_copy(id_is_last: bool) -> None:
    """It may have megabytes, so what is kept of it are views of the bytes that came."""
    body = response(PLAIN)
    if id_is_last:
        body = b'{"result":%s,"jsonrpc":"2.0","id":7}' % orjson.dumps(orjson.loads(body)["result"])
    page = await shown(lists(), body, b"7")
    assert page.listed is not None
    assert page.listed.split.before.obj is page.listed.split.behind.obj is body
    assert page.response == body


async def test_other_eras_and_pages_are_made_apart() -> None:
    """The first page has the adapter's tools, and a modern one is private."""
    made, came = lists(own=[OWN]), response(PLAIN)
    assert names((await shown(made, came)).response) == [OWN["name"], "shoot"]
    assert names((await shown(made, came, first=False)).response) == ["shoot"]
    modern = orjson.loads((await shown(made, came, modern=True)).response)["result"]
    assert modern["cacheScope"] == "private"


async def test_what_is_kept_is_bounded() -> None:
    """A server that says something else each time does not fill the memory."""
    made = lists()
    for number in range(KEPT * 2):
        await shown(made, response(b'{"name":"t%d"}' % number))
    assert repr(made) == f"<ToolLists of 'one': {KEPT} pages kept>"


async def test_own_names_are_the_adapters_on_every_page() -> None:
    """An upstream's tool of that name is not called, so it is not shown."""
    came = response(b'{"name":"one_get_upload_url","description":"Mine!"}', PLAIN)
    for first in (True, False):
        page = await shown(lists(own=[OWN]), came, first=first)
        assert b"Mine!" not in page.response and page.listed is not None
        assert [tool.name for tool in page.listed.tools] == ["shoot"]


async def test_own_tools_in_every_place() -> None:
    """In an empty list, and in one with a tool of that name behind others; no other bytes are touched."""
    made, own = lists(own=[OWN]), orjson.dumps(OWN)
    for came, left in (
        (response(spaces=b" "), None),
        (response(PLAIN, b'{"name":"one_get_upload_url"}'), [OWN["name"], "shoot"]),
    ):
        page = (await shown(made, came)).response
        assert own in page and names(page) == (left or [OWN["name"]])
    modern = await shown(made, response(more=b',"ttlMs":5,"cacheScope":"public"'), modern=True)
    result = orjson.loads(modern.response)["result"]
    assert (result["ttlMs"], result["cacheScope"]) == (5, "private")


async def test_servers_without_tools_have_the_adapters() -> None:
    """Method not found becomes a list of its own tools; any other answer passes."""
    refused = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}'
    assert names((await shown(lists(own=[OWN]), refused)).response) == [OWN["name"]]
    for other in (refused, b'{"jsonrpc":"2.0","id":1,"result":{"tools":{}}}', b"[]"):
        page = await shown(lists(), other)
        assert page.response is other and page.listed is None


async def test_a_list_that_clients_could_read_in_two_ways_is_refused() -> None:
    """Nobody knows which of the two a client reads, and one of them would leave unseen."""
    twice = b'{"jsonrpc":"2.0","id":1,"result":{"tools":[],"Tools":[%s]}}' % PLAIN
    with pytest.raises(UpstreamBroken, match="two ways"):
        await shown(lists(), twice)


async def test_warnings_and_subsets_touch_what_they_concern() -> None:
    """Also behind the adapter's own tools, hidden ones and entries that are no tools."""
    came = response(b'{"name":"gone"}', b"7", ODD, PLAIN)
    made = lists(Policies(disabled=Disabled.of(["gone"])), [OWN])
    page = await made.page(came, b"1", first=True)
    assert page is not None
    found = Drift(changed=(Change("shoot", ("description",)),))
    now = CatalogueSnapshot(Catalogue("now", {}))
    subset = Verdict(now, found, found, {"click"})
    warned = b"".join(await made.written(page, PageWriter(True, subset, warns=True)))
    assert ODD in warned and b"[Warning: this tool is not as it was first seen" in warned
    modern = b"".join(await made.written(page, PageWriter(True, subset)))
    assert orjson.loads(modern)["result"]["cacheScope"] == "private"
    only = b"".join(await made.written(page, PageWriter(False, subset)))
    assert names(only) == [OWN["name"], "click"] and ODD in only


async def test_a_list_of_many_changed_tools_is_a_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """The log names some and counts the rest; nothing is told twice."""
    dirty = [b'{"name":"zap%d","description":"Z\xe2\x80\x8baps."}' % number for number in range(1000)]
    shaping = lists()
    for _ in range(2):
        await shown(shaping, response(*dirty))
    lines = [orjson.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines[:LOGGED_AT_ONCE]] == ["policy changed a tool"] * LOGGED_AT_ONCE
    assert [line.get("count") for line in lines[LOGGED_AT_ONCE:]] == [1000 - LOGGED_AT_ONCE]
