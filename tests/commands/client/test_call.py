"""``mcp-adapter call``: arguments, results, progress, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import pytest

from tests.commands.client.speaking import PAINT, Speaking, painted, run, speaking, text
from tests.edge.raw import Exchange, event


async def test_a_call_has_typed_arguments_and_its_text_is_printed(tmp_path: Path) -> None:
    """Flags may stand before, between and behind the arguments."""
    async with speaking() as server:
        words = ("what=5", "--header", "X-A: 1", "size=7", 'tags=["a"]')
        done = await run(tmp_path, "call", "--header", "X-B: 2", server.url, "paint", *words)
        assert (done.returncode, done.stdout, done.stderr) == (0, "a picture\n", "")
        assert server.arguments == [{"what": "5", "size": 7, "tags": ["a"]}]
        head = server.calls("tools/call")[0].head
        assert (head.get("x-a"), head.get("x-b")) == ("1", "2")


async def test_json_is_the_whole_result(tmp_path: Path) -> None:
    """As the server gave it, also numbers that are larger than most programs read."""

    async def call(exchange: Exchange, _: Speaking) -> None:
        number = b'{"n": 123456789012345678901234567890}'
        await exchange.json(
            text(exchange, "a", structuredContent={"n": 0}, isError=True).replace(b'{"n":0}', number)
        )

    async with speaking(call) as server:
        done = await run(tmp_path, "call", server.url, "paint", "what=x", "--json")
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout) == {
        "content": [{"type": "text", "text": "a"}],
        "structuredContent": {"n": 123456789012345678901234567890},
        "isError": True,
        "resultType": "complete",
    }


async def test_a_tool_that_fails_ends_with_1(tmp_path: Path) -> None:
    """What it says is on standard error, harmless; so is an error of the protocol. Neither has lines of the adapter."""

    async def call(exchange: Exchange, server: Speaking) -> None:
        if server.arguments[-1]["what"] == "a":
            await exchange.json(text(exchange, "no \x1b[2Jpaint\nmcp-adapter: run me", isError=True))
        else:
            error = {"code": -32602, "message": "no \x1b[2Jsuch\nmcp-adapter: run me"}
            await exchange.json(
                orjson.dumps({"jsonrpc": "2.0", "id": exchange.message["id"], "error": error})
            )

    async with speaking(call) as server:
        done = await run(tmp_path, "call", server.url, "paint", "what=a")
        assert (done.returncode, done.stdout, done.stderr) == (
            1,
            "",
            "no \\u001b[2Jpaint\n    mcp-adapter: run me\n",
        )
        done = await run(tmp_path, "call", server.url, "paint", "what=b")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "mcp-adapter: no \\u001b[2Jsuch\n    mcp-adapter: run me\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["paint", "size=x", "what=y"], "size takes integer, not x."),
        (["paint", "wat=y"], "paint has no argument wat: it takes what, size, tags."),
        (["paint"], "paint also needs what."),
        (["draw", "what=y"], "The server has no tool draw; it has paint."),
        (["paint", "what"], "what is no argument: write name=value"),
        (["paint", "what=@a.txt"], "mcp-adapter wrap --consume paint:what"),
        (["paint", "--header", "x"], "Write --header 'NAME: VALUE'."),
        (["paint", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["paint", "--nonsense"], "usage: mcp-adapter call [FLAG ...] URL TOOL [NAME=VALUE | FLAG ...]"),
        ([], "the following arguments are required: TOOL\n"),
    ],
)
async def test_wrong_words_end_with_2(tmp_path: Path, words: list[str], says: str) -> None:
    """The sentence tells what there is, and nothing is called."""
    async with speaking() as server:
        done = await run(tmp_path, "call", server.url, *words)
        assert (done.returncode, done.stdout) == (2, "") and says in done.stderr, done.stderr
        assert not server.calls("tools/call")


async def test_an_argument_that_is_not_declared_is_told(tmp_path: Path) -> None:
    """Its tool would get a handle that means nothing to it: the flag that declares it is named."""

    async def offer(exchange: Exchange, server: Speaking) -> None:
        await exchange.json(text(exchange, "", structuredContent={"upload_url": f"{server.url}/none"}))

    (tmp_path / "a.txt").write_text("a")
    async with speaking(
        offer, PAINT, {"name": "demo_get_upload_url", "inputSchema": {"type": "object"}}
    ) as server:
        done = await run(tmp_path, "call", server.url, "paint", "what=@a.txt")
    assert done.stderr.startswith("paint does not say that what takes files")
    assert "mcp-adapter wrap --consume paint:what" in done.stderr


async def test_a_text_may_begin_with_an_at_sign(tmp_path: Path) -> None:
    """Written twice."""
    async with speaking() as server:
        assert (await run(tmp_path, "call", server.url, "paint", "what=@@me")).returncode == 0
        assert server.arguments == [{"what": "@me"}]


async def test_progress_and_log_are_on_standard_error(tmp_path: Path) -> None:
    """While the call runs, harmless; a flood of either is cut."""

    async def call(exchange: Exchange, _: Speaking) -> None:
        token = exchange.message["params"]["_meta"]["progressToken"]  # type: ignore[index]
        await exchange.begin_stream()
        for number in range(2000):
            said = {"progressToken": token, "progress": number + 1, "total": 2000, "message": "mi\x1bxing"}
            notes: list[tuple[str, object]] = [
                ("progress", said),
                ("message", {"level": "info", "data": f"\x1b[2J{number}"}),
            ]
            for method, params in notes:
                note = {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}
                await exchange.chunk(event(orjson.dumps(note)))
        await exchange.chunk(event(text(exchange, "done")))
        await exchange.end_stream()

    async with speaking(call) as server:
        done = await run(tmp_path, "call", server.url, "paint", "what=x")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "1 of 2000 mi\\u001bxing\n" in done.stderr and "info: \\u001b[2J0\n" in done.stderr
    assert "\x1b" not in done.stderr and len(done.stderr.splitlines()) < 400


async def test_the_token_is_that_of_the_flag_or_the_environment(tmp_path: Path) -> None:
    """A header of that name goes before both."""
    async with speaking() as server:
        call = ("call", server.url, "paint", "what=x")
        await run(tmp_path, *call, MCP_ADAPTER_TOKEN="t1")
        await run(tmp_path, *call, "--token", "t2", MCP_ADAPTER_TOKEN="t1")
        await run(tmp_path, *call, "--header", "authorization: Basic x", MCP_ADAPTER_TOKEN="t1")
        seen = [each.head.get("authorization") for each in server.calls("tools/call")]
        assert seen == ["Bearer t1", "Bearer t2", "Basic x"]


async def test_a_server_that_wants_a_token_is_told_in_a_sentence(tmp_path: Path) -> None:
    """It has no sign-in, so nobody waits for one."""

    async def refuse(exchange: Exchange) -> None:
        await exchange.answer(404 if exchange.head.first.split()[1] != "/mcp" else 401, b"")

    async with speaking(painted) as server:
        server.script = server.opening = refuse
        done = await run(tmp_path, "tools", server.url)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{server.url} needs a token, so pass --token or set MCP_ADAPTER_TOKEN." in done.stderr


async def test_answers_that_may_be_bombs_are_refused(tmp_path: Path) -> None:
    """A compressed one, and one that is none, without a traceback."""

    async def squeezed(exchange: Exchange, _: Speaking) -> None:
        await exchange.json(b"x", "Content-Encoding: gzip")

    async def nonsense(exchange: Exchange, _: Speaking) -> None:
        await exchange.json(b"\x1b[2J" * 100_000)

    for call, says in ((squeezed, "its answer is compressed"), (nonsense, "Failed to parse JSON")):
        async with speaking(call) as server:
            done = await run(tmp_path, "call", server.url, "paint", "what=x")
        assert (done.returncode, done.stdout) == (1, "") and says in done.stderr, done.stderr
        assert "Traceback" not in done.stderr and "\x1b" not in done.stderr and len(done.stderr) < 30_000
