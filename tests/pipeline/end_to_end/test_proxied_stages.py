"""Each stage around a tool of an upstream, by glob: what it lets through, what it makes of it, what it refuses."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.edge.raw import RawUpstream
from tests.pipeline.end_to_end.living import ERAS, Living, living
from tests.pipeline.end_to_end.workshop import arguments_of, echo, saying, workshop
from tests.pipeline.issuer import document, jwk, rsa_key, token
from tests.state.shared import SharedMemory

SETTINGS = """
servers:
  - id: up
    mount_path: /mcp
    upstream: {url: "${UPSTREAM}"}
    stages:
      "work*":
        STAGES
"""

CODE = """
def input(payload):
    if payload["inputs"].get("n") == 0:
        raise ValueError("n is nothing")
    return {**payload["inputs"], "tool": payload["tool"]}


def output(payload):
    assert payload["result"]["content"][0]["type"] == "text"
    return {"seen": payload["results"], "tool": payload["tool"]}


async def retry(ctx, args, next):
    try:
        return await next()
    except Exception as error:
        return {"refused": str(error)}
"""

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "name": {"enum": ["ann"]}},
    "required": ["n"],
}


def around(place: Path, up: RawUpstream, stages: str, more: str = "") -> AbstractAsyncContextManager[Living]:
    """The adapter with these stages, one line of YAML each, around every tool that is called ``work…``."""
    settings = SETTINGS.replace("STAGES", "\n        ".join(stages.strip().splitlines())) + more
    return living(place, settings, {"UPSTREAM": up.url}, scripts={"code": CODE})


@pytest.mark.parametrize("version", ERAS)
async def test_h33_a_key_lets_calls_of_a_proxied_tool_in(tmp_path: Path, version: str) -> None:
    """The header is looked at whether or not it goes upstream; tools that no glob matches need none."""
    key = "auth: {plugin: api_key, policy: {value: k3y}}"
    async with workshop({"work": echo, "free": echo}) as up, around(tmp_path, up, key) as front:
        refused = await front.call("work", {"n": 1}, version=version)
        assert refused.text == "unauthorized: invalid api key"
        assert refused.failure == {"stage": "auth", "code": -32000}
        assert refused.result.get("resultType") == ("complete" if version == ERAS[1] else None)
        assert (await front.call("free", {"n": 1}, version=version)).data == {"n": 1}
        let_in = await front.call("work", {"n": 1}, {"x-api-key": "k3y"}, version=version)
        assert let_in.data == {"n": 1}
        sent = up.calls("tools/call")
        assert len(sent) == 2 and not any("x-api-key" in dict(each.head.fields) for each in sent)


async def test_a_token_is_checked_by_the_keys_that_its_issuer_publishes(tmp_path: Path) -> None:
    """The key set is fetched once; scope, issuer and audience have to be those of the policy."""
    asked: list[str] = []

    async def keys(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(body=document(jwk(rsa_key(), "k1")), content_type="application/json")

    app = web.Application()
    app.router.add_get("/keys", keys)
    now = int(time.time())

    def bearer(**claims: Any) -> dict[str, str]:
        said = {
            "sub": "ann",
            "iss": "https://id",
            "aud": "adapter",
            "exp": now + 60,
            "scope": "work",
        } | claims
        return {"Authorization": "Bearer " + token(rsa_key(), "RS256", said, kid="k1")}

    async with TestServer(app) as issuer, workshop({"work": echo}) as up:
        policy = (
            f'jwks_url: "{issuer.make_url("/keys")}", issuer: "https://id", audience: adapter, scopes: work'
        )
        async with around(tmp_path, up, f"auth: {{plugin: jwt, policy: {{{policy}}}}}") as front:
            for _ in range(2):
                assert (await front.call("work", {"n": 1}, bearer())).data == {"n": 1}
            for wrong in ({"exp": now - 600}, {"aud": "other"}, {"iss": "https://evil"}, {"scope": "read"}):
                refused = await front.call("work", {}, bearer(**wrong))
                assert refused.failure["stage"] == "auth" and refused.text.startswith("unauthorized"), wrong
            assert (await front.call("work", {})).failure["stage"] == "auth"
    assert asked == ["/keys"] and len(up.calls("tools/call")) == 2


@pytest.mark.parametrize("version", ERAS)
async def test_mappers_make_arguments_and_results(tmp_path: Path, version: str) -> None:
    """The upstream gets what the input mapper returns, the client what the output mapper does; and what it promised of
    its structured content is taken out of its definition."""
    stages = 'mappers: {input: "code.py#input", output: "code.py#output"}'
    definition = {"work": {"outputSchema": {"type": "object", "required": ["n"]}}}
    async with (
        workshop({"work": echo}, definition) as up,
        around(tmp_path, up, stages) as front,
        front.speaker(version) as speaker,
    ):
        assert "outputSchema" not in (await speaker.tools())["work"]
        answer = await speaker.call("work", {"n": 1})
        made = {"seen": {"n": 1, "tool": "work"}, "tool": "work"}
        assert answer.data == made and answer.result["structuredContent"] == made
        assert answer.result.get("resultType") == ("complete" if speaker.modern else None)
        failed = await speaker.call("work", {"n": 0})
        assert failed.text == "input transform failed for tool work: n is nothing (ValueError)"
        assert failed.failure["stage"] == "input_transform"
        assert [arguments_of(each) for each in up.calls("tools/call")] == [{"n": 1, "tool": "work"}]


@pytest.mark.parametrize("version", ERAS)
async def test_arguments_are_checked_by_the_upstreams_schema(tmp_path: Path, version: str) -> None:
    """Strictly, with all that is wrong at once; what fits goes on, and what does not never leaves."""
    definition = {"work": {"inputSchema": SCHEMA}}
    async with workshop({"work": echo}, definition) as up, around(tmp_path, up, "validate: true") as front:
        assert (await front.call("work", {"n": 1, "name": "ann"}, version=version)).data == {
            "n": 1,
            "name": "ann",
        }
        refused = await front.call("work", {"name": "bob", "more": 1}, version=version)
        assert refused.failure["stage"] == "validation"
        assert refused.text.startswith('<validation_error action="work">')
        for field in ('name="n"', 'name="name"', "'more'"):
            assert field in refused.text
        assert len(up.calls("tools/call")) == 1


@pytest.mark.parametrize("version", ERAS)
async def test_a_middleware_may_catch_the_upstreams_error(tmp_path: Path, version: str) -> None:
    """A JSON-RPC error of the upstream is an exception for those around it; uncaught it leaves as it came."""
    stages = 'middleware: ["code.py#retry"]'
    async with workshop({}) as up, around(tmp_path, up, stages) as front:
        answer = await front.call("work", {}, version=version)
        assert answer.data == {"refused": "Unknown tool: work"}
        assert (await front.call("other", {}, version=version)).error["code"] == -32602


@pytest.mark.parametrize("version", ERAS)
async def test_what_is_too_large_is_cut_by_whole_items(tmp_path: Path, version: str) -> None:
    """The golden sentence comes last; a result that fits is not touched."""
    items = [{"type": "text", "text": f"{number}" * 400} for number in range(5)]
    large = {"content": items, "structuredContent": {"x": "y" * 3000}, "_meta": {"v": 1}}
    async with (
        workshop({"work": large, "works": saying("small")}) as up,
        around(tmp_path, up, "limits: {egress: 1Ki}") as front,
    ):
        assert (await front.call("works", {}, version=version)).text == '"small"'
        answer = await front.call("work", {}, version=version)
        assert answer.texts[-1] == (
            "\n\n[SYSTEM INTERVENTION: Payload truncated at 1KB to prevent memory crash. You MUST use pagination "
            "(limit/offset) or filters to retrieve smaller result sets.]"
        )
        assert len(json.dumps(answer.result)) <= 1200 and "structuredContent" not in answer.result
        assert answer.result.get("resultType") == ("complete" if version == ERAS[1] else None)


# --- stages of two replicas on one store: calls counted together, and results that both have -------------------


READS: Mapping[str, Any] = {"annotations": {"readOnlyHint": True}}

SHARED = """
state_sync:
  policies: [{match: "up.change", invalidates: ["work*"]}]
servers:
  - id: up
    mount_path: /mcp
    upstream: {url: "${UPSTREAM}"}
    stages:
      limited: {limits: {rate: {max: 3, window: 3600, key: tool, shared: true}}}
      alone: {limits: {rate: {max: 3, window: 3600, key: tool}}}
      work: {cache: {enabled: true, ttl: 60, vary: [], shared: true}}
      change: {}
"""

TOOLS = dict.fromkeys(("limited", "alone", "work", "change"), echo)


def replica(place: Path, up: RawUpstream, shared: SharedMemory) -> AbstractAsyncContextManager[Living]:
    return living(place, SHARED, {"UPSTREAM": up.url}, store=shared.replica())


def called_tools(up: RawUpstream) -> list[str]:
    messages: list[Any] = [call.message for call in up.calls("tools/call")]
    return [message["params"]["name"] for message in messages]


async def test_calls_of_two_replicas_are_counted_together(tmp_path: Path) -> None:
    """Three calls are allowed on both together; without ``shared`` on each."""
    shared = SharedMemory()
    async with (
        workshop(TOOLS) as up,
        replica(tmp_path / "one", up, shared) as one,
        replica(tmp_path / "other", up, shared) as other,
    ):
        for tool in ("limited", "alone"):
            for front in (one, other, one, other, one, other):
                await front.call(tool, {})
        called = called_tools(up)
        assert called.count("limited") == 3 and called.count("alone") == 6


async def test_result_of_one_replica_is_found_by_the_other_until_a_call_outdates_it(tmp_path: Path) -> None:
    """The upstream is asked once for both, and once more after a change on either of them."""
    shared = SharedMemory()
    async with (
        workshop(TOOLS, {"work": READS}) as up,
        replica(tmp_path / "one", up, shared) as one,
        replica(tmp_path / "other", up, shared) as other,
    ):

        def works() -> int:
            return called_tools(up).count("work")

        first = await one.call("work", {"n": 1})
        async with asyncio.timeout(10):
            while not [row for row in await shared.rows.scan("results") if row.value.startswith(b"D")]:
                await asyncio.sleep(0)
        assert (await other.call("work", {"n": 1})).result == first.result
        assert works() == 1
        await other.call("change", {})
        await one.call("work", {"n": 1})
        assert works() == 2
