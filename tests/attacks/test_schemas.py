"""Schemas that a hostile server wrote, and values that a hostile client sends, to keep the adapter busy."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.attacks.arena import Arena, attacked
from tests.edge.raw import Exchange, RawUpstream, call_body

TOOL = "bomb"
VALIDATE = f"/explorer/upstream/tools/{TOOL}/validate"
TOKEN = "t" * 20
WORKER = "adapter.hosted.validation.worker"
LONG = "a" * 41 + "!"

DOUBLING: dict[str, Any] = {
    "$ref": "#/$defs/0",
    "$defs": {str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(40)} | {"40": {}},
}
WAYS: dict[str, Any] = {"properties": {"a": {"items": {"anyOf": [{"type": "integer"}] * 20_000}}}}
"""Twenty thousand alternatives, none of which a long text is."""

DRAFT = "https://json-schema.org/draft/2020-12/schema"

BOMBS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "verbose pattern": ({"properties": {"a": {"pattern": "(?x) ( a + ) + $"}}}, {"a": LONG}),
    "commented pattern": ({"properties": {"a": {"pattern": "(?#()(a+)+$"}}}, {"a": LONG}),
    "odd braces": ({"properties": {"a": {"pattern": "a{,}a{,}a{,}a{,}b"}}}, {"a": "a" * 4000}),
    "nested pattern": ({"properties": {"a": {"pattern": "((a*)*)*$"}}}, {"a": LONG}),
    "pattern behind a draft": (
        {"$schema": DRAFT, "properties": {"a": {"$ref": "#"}}, "pattern": "(a+)+$"},
        {"a": LONG},
    ),
    "pattern of what is unevaluated": (
        {"patternProperties": {"(a+)+$": {}}, "unevaluatedProperties": False},
        {LONG: 1},
    ),
    "wide pattern": ({"properties": {"a": {"pattern": "(?:a?){900}a{900}b"}}}, {"a": "a" * 500_000}),
    "doubling": (DOUBLING, {}),
    "endless address": (
        {"$id": "http://x/" + "a/" * 100_000, "$defs": {f"d{n}": {"$id": f"b{n}"} for n in range(1_000)}},
        {"a": 1},
    ),
    "numbers of one hash": (
        {"properties": {"a": {"uniqueItems": True}}},
        {"a": [n * (2**61 - 1) for n in range(1, 40_000)]},
    ),
    "unknown keywords": ({f"k{n}": 1 for n in range(85_000)}, {"a": 1}),
    "options that are long": (
        {
            "properties": {"a": {"allOf": [{"$ref": "#/$defs/x"}] * 1_000}},
            "$defs": {"x": {"const": "x" * 500_000}},
        },
        {"a": "x" * 499_999 + "y"},
    ),
    "many ways": (WAYS, {"a": ["x" * 10_000] * 50}),
    "unlike items": ({"properties": {"a": {"uniqueItems": True}}}, {"a": [{"n": n} for n in range(10_000)]}),
    "large schema": ({"properties": {f"p{n}": {"type": "string"} for n in range(5_000)}}, {"p1": 1}),
}


def workers_of(arena: Arena) -> set[int]:
    """The processes that the adapter has for checks."""
    listed = subprocess.run(["pgrep", "-P", str(arena.pid), "-f", WORKER], capture_output=True, text=True)
    return set(map(int, listed.stdout.split()))


async def first_workers(arena: Arena) -> set[int]:
    """The same, as soon as there is one."""
    while not (found := workers_of(arena)):
        await asyncio.sleep(0.02)
    return found


@contextlib.asynccontextmanager
async def hostile(
    place: Path, schemas: Mapping[str, dict[str, Any]] = {TOOL: DOUBLING}, **sections: Any
) -> AsyncIterator[Arena]:
    """The adapter in front of a server of tools with these schemas; calls and validations of them are checked."""
    tools = [{"name": name, "inputSchema": {"type": "object", **each}} for name, each in schemas.items()]

    async def script(exchange: Exchange) -> None:
        method = exchange.message["method"]
        result = {"tools": tools} if method == "tools/list" else {"content": []}
        await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": exchange.message["id"], "result": result}))

    async with RawUpstream(script) as upstream:
        more = {"console": {"enabled": True, "allow_execute": True, "max_body": "4Mi"}} | sections
        server = {"stages": {"*": {"validate": True}}}
        async with attacked(place, upstream.url, server=server, **more) as arena:
            yield arena


@pytest.mark.e2e
@pytest.mark.parametrize("names", [tuple(BOMBS)[::2], tuple(BOMBS)[1::2]], ids=["these", "those"])
async def test_a_check_of_any_schema_and_value_ends_and_delays_nobody(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    """Over both entrances there is an answer in seconds, in megabytes, and others' calls go on."""
    schemas = {f"bomb_{number}": BOMBS[name][0] for number, name in enumerate(names)}
    async with hostile(tmp_path, schemas) as arena, arena.client() as over_http, arena.client() as over_mcp:
        await over_mcp.initialize()
        for tool, name in zip(schemas, names, strict=True):
            given = json.dumps(BOMBS[name][1]).encode()
            before = arena.resident_bytes()
            for _ in range(2):
                call = call_body(tool, 7).replace(b'"arguments":{}', b'"arguments":' + given)
                validated, called = await asyncio.gather(
                    over_http.request("POST", given, f"/explorer/upstream/tools/{tool}/validate"),
                    over_mcp.request("POST", call),
                )
                assert (validated[0].status, called[0].status) == (200, 200), name
                assert len(validated[1]) < 100_000 and len(called[1]) < 500_000, name
            assert arena.resident_bytes() - before < 200 << 20, name


@pytest.mark.e2e
async def test_many_checks_at_once_are_refused_rather_than_kept(tmp_path: Path) -> None:
    """Those that may wait are answered, the others are told the setting, and one's queue is not another's."""
    async with hostile(tmp_path) as arena:

        async def validated() -> int:
            async with arena.client() as client:
                head, body = await client.request("POST", b"{}", VALIDATE)
                assert head.status == 200 or b"are waiting already" in body
                return head.status

        asked = [asyncio.create_task(validated()) for _ in range(30)]
        statuses: Counter[int] = Counter()
        for first in asyncio.as_completed(asked):
            statuses[await first] += 1
            # Each takes two seconds, one after the other: all others are waiting then.
            if statuses[200] >= 1 and statuses[429] >= 19:
                break
        assert 19 <= statuses[429] <= 22 and statuses[200] >= 1
        for each in asked:
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


@pytest.mark.e2e
async def test_who_has_no_token_makes_no_work(tmp_path: Path) -> None:
    """With authentication on a check is refused before the server is asked for the schema, and costs nothing."""
    protected = {"auth": {"enabled": True, "tokens": [{"name": "ann", "token": TOKEN}]}}
    async with hostile(tmp_path, core=protected, token=TOKEN) as arena, arena.client() as client:
        before = arena.cpu_seconds()
        for _ in range(20):
            for credential in ("", "Bearer wrong"):
                head, _ = await client.request("POST", b"{}", VALIDATE, authorization=credential)
                assert head.status == 401
        assert arena.cpu_seconds() - before < 1
        assert workers_of(arena) == set()
        validating = asyncio.create_task(
            client.request("POST", b"{}", VALIDATE, authorization=f"Bearer {TOKEN}")
        )
        seen = set()
        while not validating.done():
            seen |= workers_of(arena)
            await asyncio.sleep(0.05)
        head, _ = await validating
        assert head.status == 200 and seen


@pytest.mark.e2e
async def test_a_killed_process_is_replaced_and_none_is_left_behind(tmp_path: Path) -> None:
    """What was being checked has an answer, the next check another process, and the adapter's end is theirs."""
    async with hostile(tmp_path) as arena:
        async with arena.client() as client:
            for _ in range(3):
                validating = asyncio.create_task(client.request("POST", b"{}", VALIDATE))
                for pid in await first_workers(arena):
                    os.kill(pid, signal.SIGKILL)
                head, body = await validating
                assert head.status == 200
                assert b"the worker process has failed" in body
        async with arena.client() as client:
            await client.send("POST", b"{}", VALIDATE)
            left = await first_workers(arena)
    assert not any(Path(f"/proc/{pid}").exists() for pid in left)
