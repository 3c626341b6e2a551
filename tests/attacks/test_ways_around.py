"""Ways around guards: through code mode, and by tasks of another session. The upstream writes down all it is told."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.attacks.arena import attacked
from tests.attacks.test_upstreams import clients
from tests.e2e.processes import adapter
from tests.edge.raw import Exchange, RawClient, RawUpstream

pytestmark = pytest.mark.e2e

HIDDEN = "delete_all"
CALL = "upstream_call_tool"
TOOLS = [
    {"name": name, "description": f"{name}s.", "inputSchema": {"type": "object"}}
    for name in ("echo", HIDDEN, "delete_some")
]
CODED = {"code_mode_enabled": True, "disabled_tools": ["delete_.*"]}
TASKED = {"disabled_tools": ["delete_.*"]}
NO_PINGS = {"upstream_ping": {"enabled": False}}
Json = dict[str, Any]


async def desk(exchange: Exchange) -> None:
    """Answer a list with all tools, and every other request with what its session is called."""
    message: Any = exchange.message
    if message.get("id") is None:
        await exchange.answer(202, b"")
        return
    result: Json = {"content": [], "session": exchange.head.get("mcp-session-id")}
    if message.get("method") == "tools/list":
        result = {"tools": TOOLS}
    await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))


def spellings() -> Iterator[str]:
    """The hidden name as somebody behind might still read it."""
    yield from (HIDDEN, "DELETE_ALL", "Delete_all", "delete_some", "delete_anything")
    for space in " \t\n\r\x0b\x0c\0\u00a0\u200b\u2028\ufeff\u3000\u180e\u2060\u00ad":
        yield from (space + HIDDEN, HIDDEN + space, f"delete{space}_all")
    yield from (
        "\uff44elete_all",
        "delete\uff3fall",
        "ﬁ" + HIDDEN,
        "dele\u0074e_all",
        "d\u0435lete_all"[:1] + "elete_all",
    )
    yield from (
        f"upstream.{HIDDEN}",
        f"upstream/{HIDDEN}",
        f"./{HIDDEN}",
        f"{HIDDEN}/",
        f"{HIDDEN}#",
        f"{HIDDEN}?x",
    )
    yield from (CALL, CALL.upper(), f" {CALL}", f"{CALL}\n", "", "x" * 100_000)


def ways(name: str) -> Iterator[bytes]:
    """Messages that might call the tool through code mode, and some without it."""
    spelled = json.dumps(name)
    inner = f'{{"name":{spelled},"arguments":{{}}}}'
    for params in (
        f'{{"name":"{CALL}","arguments":{inner}}}',
        f'{{"name":"{CALL}","arguments":{inner},"task":{{"ttl":60000}}}}',
        f'{{"name":"{CALL}","arguments":{{"name":"{CALL}","arguments":{inner}}}}}',
        f'{{"name":"{CALL}","arguments":{{"name":"echo","name":{spelled}}}}}',
        f'{{"name":"{CALL}","arguments":{{"name":{spelled},"name":"echo"}}}}',
        f'{{"name":"{CALL}","arguments":{{"name":"echo","Name":{spelled}}}}}',
        f'{{"name":"{CALL}","arguments":{{"name":"echo","NAME":{spelled},"arguments":{{}}}}}}',
        f'{{"name":"{CALL}","arguments":{{"name":"echo"}},"arguments":{inner}}}',
        f'{{"name":"{CALL}","arguments":{{"name":"echo"}},"Arguments":{inner}}}',
        f'{{"name":"{CALL}","name":{spelled},"arguments":{{"name":"echo"}}}}',
        f'{{"name":"{CALL}","Name":{spelled},"arguments":{{"name":"echo"}}}}',
        f'{{"name":"{CALL}","arguments":{{"name":"echo","arguments":{{}},"name ":{spelled}}}}}',
        f'{{"name":"{CALL}","arguments":{{"\\u006eame":{spelled}}}}}',
        f'{{"\\u006eame":"{CALL}","arguments":{inner}}}',
        f'{{"name":"{CALL}","arguments":{json.dumps(inner)}}}',
        f'{{"name":"{CALL}","arguments":[{inner}]}}',
        f'{{"name":"{CALL}","arguments":{{"name":[{spelled}]}}}}',
        f'{{"name":" {CALL}","arguments":{inner}}}',
        f'{{"name":"{CALL.upper()}","arguments":{inner}}}',
        f'{{"name":{spelled},"arguments":{{}}}}',
        f'{{"name":{spelled},"arguments":{{}},"task":{{"ttl":60000}}}}',
        f'{{"name":"upstream_search_tools","arguments":{{"query":"x","name":{spelled}}}}}',
    ):
        yield f'{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}'.encode()
    batched = (
        f'{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"{CALL}","arguments":{inner}}}}}'
    )
    yield f"[{batched}]".encode()


def reads_as_hidden(body: bytes) -> bool:
    """Whether a call may be of a hidden tool for somebody who folds keys and names, and takes either of two."""
    names: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> Json:
        folded = [(key.strip().casefold(), member) for key, member in pairs]
        if any(key == "arguments" for key, _ in folded):
            names.extend(str(member) for key, member in folded if key == "name")
        return dict(folded)

    json.loads(body, object_pairs_hook=members)
    return any(_plain(name).startswith("delete_") for name in names[-1:])


def _plain(name: str) -> str:
    """Without what nobody sees, up to where a text of C would end."""
    shown = "".join(each for each in name.partition("\0")[0] if unicodedata.category(each) != "Cf")
    return unicodedata.normalize("NFKC", shown).casefold().strip()


@pytest.mark.parametrize("server", [CODED, TASKED], ids=["code mode", "tasks"])
async def test_no_hidden_tool_is_reached(tmp_path: Path, server: Json) -> None:
    """By no spelling of its name or of the three tools, in no place, in no batch, and with no task around it; the
    others can be called all the while."""
    async with (
        RawUpstream(desk) as up,
        attacked(tmp_path, up.url, server=server, core=NO_PINGS) as arena,
        clients(arena, 1) as (client,),
    ):
        for name in spellings():
            for message in ways(name):
                head, body = await client.request("POST", message)
                assert head.status in (200, 400), (message[:300], body)
        for each in up.calls("tools/call"):
            assert not reads_as_hidden(each.body), each.body[:300]
        fine = {"name": "echo", "arguments": {}}
        if server is CODED:
            fine = {"name": CALL, "arguments": fine}
        message = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": fine})
        assert "result" in orjson.loads((await client.request("POST", message))[1])


def entry(url: str, more: Json) -> Json:
    return {"id": "upstream", "mount_path": "/mcp", "upstream": {"url": url}, **more}


@pytest.mark.parametrize("server", [{}, TASKED, CODED], ids=["piped", "guarded", "code mode"])
async def test_tasks_stay_in_their_session(tmp_path: Path, server: Json) -> None:
    """Whoever asks for, ends or lists tasks does so in a session of their own at the upstream, or not at all."""
    methods = ("tasks/get", "tasks/result", "tasks/cancel", "tasks/list")
    auth = {
        "enabled": True,
        "tokens": [{"name": "ann", "token": "a" * 32}, {"name": "bob", "token": "b" * 32}],
    }
    ann, bob = ({"X_Mcp_Adapter_Auth_Token": letter * 32} for letter in "ab")
    core = {**NO_PINGS, "auth": auth}

    async def ask(client: RawClient, method: str, **fields: str) -> tuple[int, Json]:
        body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"taskId": "of-ann"}})
        head, answer = await client.request("POST", body, **fields)
        return head.status, orjson.loads(answer)

    async with (
        RawUpstream(desk) as up,
        adapter(tmp_path, up.url, servers=[entry(up.url, server)], core=core) as front,
        RawClient(front.port) as first,
        RawClient(front.port) as second,
    ):
        await first.initialize(**ann)
        await second.initialize(**bob)
        for method in methods:
            theirs = {
                (await ask(first, method, **ann))[1]["result"]["session"],
                (await ask(second, method, **bob))[1]["result"]["session"],
            }
            assert len(theirs) == 2 and None not in theirs
            # Another's session is none, whatever is asked in it, and none is needed to be refused.
            stolen, own = first.session, second.session
            second.session = stolen
            status, answer = await ask(second, method, **bob)
            assert status == 404 and "result" not in answer
            second.session = own
        told = [each.head.get("mcp-session-id") for each in up.calls("tasks/get")]
        assert len(told) == len(set(told)) == 2
