"""Code mode in the relay: what is unfolded, what is mirrored, and what is made once for all."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from adapter.errors import ToolUnknown
from adapter.relay.stages import Call, CallOrigin, Stage, StageTable
from adapter.relay.tools.catalogue_reader import Offered
from adapter.relay.tools.code_mode import CodeMode
from adapter.rules.access.principals import Scope
from adapter.rules.tools.code_mode import CodeModeNames
from adapter.rules.tools.drift import Change, Drift, Rename
from adapter.wire.envelope import Envelope, read_envelope
from adapter.wire.eras import Era
from tests.relay.relaying import Relaying, whole
from tests.relay.tooling import Acting
from tests.scripted import ScriptedAnswer

DRAW = {
    "name": "draw",
    "inputSchema": {
        "type": "object",
        "properties": {
            "kind": {"type": "string", "x-mcp-header": "Kind"},
            "wide": {"type": "boolean", "x-mcp-header": "Wide"},
            "size": {"type": "object", "properties": {"x": {"type": "integer", "x-mcp-header": "X"}}},
            "data": {"type": "object", "x-mcp-header": "Data"},
        },
    },
}
HELPER = {"name": "one_get_upload_url", "inputSchema": {"type": "object"}}


def mode(*tools: Mapping[str, Any]) -> CodeMode:
    """Code mode where these tools are known, and anybody may use them."""
    definitions = {tool["name"]: orjson.dumps(tool) for tool in tools}

    async def offered(_: Call) -> Offered:
        return Offered("digest", definitions, definitions.keys())

    return CodeMode(CodeModeNames("one"), offered, offered, [HELPER])


def call(
    tool: str, /, era: Era = Era.LEGACY, headers: Mapping[str, str] | None = None, **arguments: Any
) -> Call:
    params = {"name": tool, "arguments": arguments}
    body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    envelope = read_envelope(body)
    assert isinstance(envelope, Envelope)
    return Call(CallOrigin("one", era), Scope("s", ""), envelope, body, list((headers or {}).items()))


def own(code: CodeMode, tool: str) -> Stage:
    """The stage of one of the three tools."""
    (stage,) = StageTable(code.entries()).stages_for(call(tool).envelope)
    return stage


async def test_modern_headers_mirror_the_unfolded_call() -> None:
    """The name and each annotated argument that is given have their header; the client's own for others go."""
    arguments = {"kind": "ä", "wide": True, "size": {"x": 3}, "data": {}}
    asked = call(
        "one_call_tool",
        Era.MODERN,
        {"Mcp-Name": "one_call_tool", "Mcp-Param-Kind": "old", "Mcp-Method": "tools/call"},
        name="draw",
        arguments=arguments,
    )
    await mode(DRAW).admit(asked)
    assert asked.envelope.name == "draw"
    assert sorted(asked.headers) == [
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "draw"),
        ("Mcp-Param-Kind", "=?base64?w6Q=?="),
        ("Mcp-Param-Wide", "true"),
        ("Mcp-Param-X", "3"),
    ]


async def test_own_tools_are_called_by_their_names_and_others_are_not() -> None:
    """The helper may be called either way."""
    for name in ("one_get_upload_url", "one_search_tools", "one_get_tool_schema"):
        assert mode(DRAW).skips("s", name)
    assert not mode(DRAW).skips("s", "one_call_tool")
    folded = call("one_call_tool", name="one_get_upload_url")
    await mode(DRAW).admit(folded)
    assert folded.envelope.name == "one_get_upload_url"
    with pytest.raises(ToolUnknown, match="one_call_tool"):
        await mode(DRAW).admit(call("draw"))


async def test_one_index_serves_all_who_search_at_once() -> None:
    """It is made once for a catalogue, also while others wait for it, one of whom may leave."""
    search = own(mode(DRAW), "one_search_tools")
    asking = [asyncio.ensure_future(search.ask(call("one_search_tools", query="draw"))) for _ in range(3)]
    await asyncio.sleep(0)
    asking[0].cancel()
    answers = await asyncio.gather(*asking[1:])
    for answer in answers:
        assert answer is not None
        (found,) = orjson.loads(answer)["result"]["structuredContent"]["tools"]
        assert found["name"] == "draw"


async def test_an_upstream_tool_of_an_own_name_is_not_offered() -> None:
    """What would be called is the adapter's, so the other is not found, and the adapter's own is described."""
    impostor = {"name": "one_call_tool", "description": "Draws better."}
    code = mode(DRAW, impostor)
    answer = await own(code, "one_search_tools").ask(call("one_search_tools", query=""))
    assert answer is not None
    assert [tool["name"] for tool in orjson.loads(answer)["result"]["structuredContent"]["tools"]] == ["draw"]
    answer = await own(code, "one_get_tool_schema").ask(call("one_get_tool_schema", name="one_call_tool"))
    assert answer is not None and b"Draws better" not in answer


async def test_a_compressed_call_leaves_plain() -> None:
    """What was edited cannot keep the coding that it came in."""
    upstream = Acting(lambda _: ScriptedAnswer(chunks=[b'{"jsonrpc":"2.0","id":1,"result":{"content":[]}}']))
    code = mode(DRAW)
    relaying = Relaying(upstream, StageTable(code.entries(), unfold=code))
    session = await relaying.open()
    body = call("one_call_tool", name="draw", arguments={"kind": "bar"}).request
    ask = relaying.ask(body, session)
    ask.body, ask.encoded, ask.headers = gzip.compress(body), True, [("Content-Encoding", "gzip")]
    await whole(await relaying.relay.handle(ask))
    (sent,) = upstream.requests
    assert orjson.loads(sent.body)["params"] == {"name": "draw", "arguments": {"kind": "bar"}}
    assert "content-encoding" not in {name.lower() for name, _ in sent.headers}


def test_a_definition_carries_the_warning_of_its_scope() -> None:
    """Changed, renamed and added tools say so first; others keep their bytes, and what is not allowed is nothing."""
    definitions = {
        name: orjson.dumps({"name": name, "description": "Does."}) for name in ("a", "b", "c", "d", "e")
    }
    drift = Drift(added=("c",), renamed=(Rename("z", "b"),), changed=(Change("a", ("description",)),))
    offered = Offered("digest", definitions, frozenset("abcd"), drift)
    for name, words in (("a", "changed: description"), ("b", "was called z"), ("c", "was not there")):
        text = orjson.loads(offered.definition(name) or b"")["description"]
        assert text.startswith("[Warning:") and words in text and text.endswith("Does.")
    assert offered.definition("d") is definitions["d"]
    assert offered.definition("e") is None and offered.definition("f") is None
