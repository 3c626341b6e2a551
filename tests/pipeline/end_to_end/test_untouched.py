"""What nothing is configured for passes byte for byte, beside tools that everything is configured for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.edge.raw import Exchange, event
from tests.pipeline.end_to_end.living import ERAS, living
from tests.pipeline.end_to_end.workshop import workshop

SETTINGS = """
presenters:
  shown: {schema: {secret: "any?", n: "any?"}, redact: {paths: [secret]}, select: true}
context: {factory: "around.py#context"}
servers:
  - id: up
    mount_path: /mcp
    upstream: {url: "${UPSTREAM}"}
    stages:
      "list*":
        auth: {plugin: allow_all}
        mappers: {input: "around.py#input", output: "around.py#output"}
        validate: true
        middleware: ["around.py#around"]
        limits: {rate: {max: 9}, concurrency: {max_active: 1}, egress: 1Ki}
        cache: {enabled: true}
        presenter: shown
        state_sync: {cache_control: no-store, invalidates: ["*"]}
        errors: {mode: jsonrpc}
"""

AROUND = """
def context(request):
    return {}


def input(payload):
    return payload["inputs"]


def output(payload):
    return payload["results"]


async def around(ctx, args, next):
    return await next()
"""

PARAMS = (
    b'{"x-more":[1.0,1e5,1E+05,-0,0.10], "arguments":{"n":123456789012345678901234567890,"t":"\\u00e9\\/'
    b'\xc3\xa9","nested":{"id":1,"id":2,"method":"x"},"n":1.0}  ,\t"name":"%s","_meta":{%s"vendor/key":null}}'
)
RESULT = (
    b'{"structuredContent":{"big":123456789012345678901234567890,"one":1.0,"e":1E400,"z":-0},"content":['
    b'{"type":"hologram","x":"\\ud83d\\ude00\\u0000"},{"type":"text","text":"\xf0\x9f\x98\x80\\/","_meta":{"a":1.0}}],'
    b'"isError":false, "_meta":{"v":1e2,"big":-0.0},"unheard-of":[ ], "resultType":"complete" }'
)
META = b'"io.modelcontextprotocol/protocolVersion":"2026-07-28", "io.modelcontextprotocol/clientCapabilities":{},'


def asked(name: bytes, version: str) -> tuple[bytes, dict[str, str]]:
    """A legal call that is changed by whoever decodes and encodes it, and its header fields."""
    modern = version == ERAS[1]
    params = PARAMS % (name, META if modern else b"")
    body = (
        b'\r\n{ "params" : '
        + params
        + b',"extra":{"b":1,"a":2},\n "id" : 7 ,"method":"tools/call","jsonrpc":"2.0"}\n'
    )
    mirrors = {"mcp_protocol_version": version, "mcp_method": "tools/call", "mcp_name": name.decode()}
    return body, mirrors if modern else {}


def said(result: bytes) -> bytes:
    return b' {"result":' + result + b',\r\n"unknown":[ ],"id":7,"jsonrpc":"2.0"}\n\n'


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_tool_that_no_glob_matches_is_untouched(tmp_path: Path, version: str, streamed: bool) -> None:
    """Arguments, content, structuredContent, isError, _meta, unknown members and how numbers are spelled."""
    answer = said(RESULT)

    async def odd(exchange: Exchange) -> None:
        if streamed:
            await exchange.begin_stream()
            await exchange.chunk(event(answer.strip().replace(b"\r\n", b"")))
            await exchange.end_stream()
        else:
            await exchange.json(answer)

    async with (
        workshop({"odd": odd, "listed": {"content": []}}) as up,
        living(tmp_path, SETTINGS, {"UPSTREAM": up.url}, scripts={"around": AROUND}) as front,
        front.speaker(version) as speaker,
    ):
        await speaker.tools()
        body, fields = asked(b"odd", version)
        _, got = await speaker.raw.request("POST", body, **fields)
        assert up.calls("tools/call")[0].body == body
        assert got == (event(answer.strip().replace(b"\r\n", b"")) if streamed else answer)


MIDDLEWARE = """
servers:
  - id: up
    mount_path: /mcp
    upstream: {url: "${UPSTREAM}"}
    stages:
      odd:
        auth: {plugin: allow_all}
        middleware: ["around.py#around"]
        validate: true
        limits: {rate: {max: 9}, concurrency: {max_active: 1}, egress: 1Mi}
        cache: {enabled: true}
        state_sync: {cache_control: no-store}
"""


@pytest.mark.parametrize("version", ERAS)
async def test_stages_that_only_look_leave_every_byte_of_the_result(tmp_path: Path, version: str) -> None:
    """A tool whose stages change nothing gets its arguments and gives its result as they came; only of a member that
    was there twice the one goes upstream that the stages have seen."""

    async def odd(exchange: Exchange) -> None:
        await exchange.json(said(RESULT))

    async with (
        workshop(
            {"odd": odd}, {"odd": {"inputSchema": {"type": "object", "additionalProperties": True}}}
        ) as up,
        living(tmp_path, MIDDLEWARE, {"UPSTREAM": up.url}, scripts={"around": AROUND}) as front,
        front.speaker(version) as speaker,
    ):
        body, fields = asked(b"odd", version)
        once = body.replace(b',"n":1.0}', b"}").replace(b'"id":1,"id":2', b'"id":2')
        _, got = await speaker.raw.request("POST", once, **fields)
        assert got == said(RESULT)
        assert up.calls("tools/call")[0].body == once
        await speaker.raw.request("POST", body, **fields)
        assert (
            b'"n":1.0' in up.calls("tools/call")[1].body and b'"id":1,' not in up.calls("tools/call")[1].body
        )
