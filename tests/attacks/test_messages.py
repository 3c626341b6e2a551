"""Messages that are made to hold everybody up, or to be read in another way behind the adapter than before it."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.arena import Arena, attacked
from tests.edge.raw import Exchange, RawUpstream, Script, call_body
from tests.wire.readers import MATCHES, pairs, value

pytestmark = pytest.mark.e2e

FOUR_MEBIBYTES = (4 << 20) - 4096
DISABLED = {"disabled_tools": ["hidden"]}


# --- as much work as four mebibytes make ----------------------------------------------------------------------


def filled(unit: bytes) -> bytes:
    return b",".join([unit] * (FOUR_MEBIBYTES // (len(unit) + 1)))


def call_of(arguments: bytes) -> bytes:
    return (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","id":1,"arguments":%s}}'
        % arguments
    )


def keys() -> bytes:
    return b",".join(b'"%x":0' % number for number in range(FOUR_MEBIBYTES // 10))


DENSE = {
    "brackets": b"[" * 900 + filled(b"[]") + b"]" * 900,
    "open brackets": b"[" * FOUR_MEBIBYTES,
    "pairs": call_of(b"[" + filled(b"[]") + b"]"),
    "nested": call_of(b"[" + filled(b"[[[[]]]]") + b"]"),
    "nested as far as it goes": call_of(b"[" + filled(b"[" * 900 + b"]" * 900) + b"]"),
    "objects": call_of(b"[" + filled(b'{"":{"":{"":{}}}}') + b"]"),
    "keys": call_of(b"{" + keys() + b"}"),
    "members": call_of(b"{}")[:-2] + b"," + keys() + b"}}",
    "members of the message": call_of(b"{}")[:-1] + b"," + keys() + b"}",
    "one key": call_of(b"{" + filled(b'"name":0') + b"}"),
    "escapes": call_of(b'"' + b"\\u0041" * (FOUR_MEBIBYTES // 6) + b'"'),
    "escaped keys": call_of(b"{" + filled(b'"\\u0061":1') + b"}"),
    "half characters": call_of(b'"' + b"\\ud800" * (FOUR_MEBIBYTES // 6) + b'"'),
    "half a character and keys": call_of(b'{"\\ud800":0,' + keys() + b"}"),
    "large numbers": call_of(b"[" + filled(b"1e999") + b"]"),
    "long numbers": call_of(b"[" + filled(b"1" * 3999) + b"]"),
    "numbers": call_of(b"[" + filled(b"0") + b"]"),
    "a long id": b'{"jsonrpc":"2.0","method":"a","id":%s}' % (b"9" * FOUR_MEBIBYTES),
    "a batch": b"[" + filled(b"{}") + b"]",
    "allowed": call_of(b"[" + b",".join([b"[[[[]]]]"] * 38_000) + b"]"),
    "allowed objects": call_of(b"[" + b",".join([b'{"id":{"id":0}}'] * 60_000) + b"]"),
}


async def answering(exchange: Exchange) -> None:
    """Answers anything with the id 1."""
    await exchange.json(b'{"jsonrpc":"2.0","id":1,"result":{}}')


async def press(arena: Arena, bodies: Iterable[bytes]) -> set[int]:
    """The statuses that these bodies get in a session of their own, which is good for another call then."""
    async with arena.client() as client:
        await client.initialize()
        statuses = {(await client.request("POST", body))[0].status for body in bodies}
        head, _ = await client.request("POST", b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
        assert head.status == 200
        return statuses


async def pressed(arena: Arena, bodies: Sequence[bytes]) -> set[int]:
    """The same of three connections at once."""
    return set().union(*await asyncio.gather(*(press(arena, bodies) for _ in range(3))))


@pytest.mark.parametrize("server", [{}, DISABLED], ids=["piped", "guarded"])
async def test_bodies_of_much_work_hold_nobody_up(tmp_path: Path, server: dict[str, Any]) -> None:
    """Each is refused, or read beside the calls of others."""
    async with served(answering) as upstream, attacked(tmp_path, upstream.url, server=server) as arena:
        assert await pressed(arena, [*DENSE.values()]) == {200, 400}


async def test_batches_hold_nobody_up(tmp_path: Path) -> None:
    """As many members as a batch may have, judged one by one and answered one by one, again and again."""

    async def script(exchange: Exchange) -> None:
        numbers = [message["id"] for message in json.loads(exchange.body)]
        await exchange.begin_stream()
        for number in numbers:
            await exchange.chunk(b'data: {"jsonrpc":"2.0","id":%d,"result":{}}\n\n' % number)
        await exchange.end_stream()

    bodies = [
        b"["
        + b",".join(call_body("hidden" if number % 3 else "seen", number) for number in range(100))
        + b"]",
        b"[" + b",".join(call_body("seen", number) for number in range(100)) + b"]",
        b"[" + b",".join([b'{"jsonrpc":"2.0","method":"a"}'] * 130_000) + b"]",
    ]
    async with (
        served(script, version="2025-03-26") as upstream,
        attacked(tmp_path, upstream.url, server=DISABLED) as arena,
    ):
        assert await pressed(arena, bodies * 4) == {200, 400}


# --- another message behind the adapter than before it --------------------------------------------------------


def misread(members: Any) -> Iterator[str]:
    """The tools that some reader takes a message, or any of a list of them, for a call of."""
    for message in members if isinstance(members, list) else [members]:
        for match in MATCHES:
            for last in (False, True):
                method = value(message, "method", match, last=last)
                if isinstance(method, str) and match(method).strip("/ ") == match("tools/call"):
                    params = value(message, "params", match, last=last)
                    name = value(params, "name", match, last=last)
                    name = params[0] if isinstance(params, list) and params else name
                    yield from (
                        (match(each).strip() for each in name)
                        if isinstance(name, list)
                        else [match(str(name)).strip()]
                    )


class Smuggler:
    """Writes messages that hold a call of ``hidden`` for somebody; what it writes follows from its seed."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def key(self, name: str) -> str:
        """A name, or what some reader takes for it."""
        draw = self._draw
        if draw.random() < 0.9:
            return name
        swapped = name.replace(*draw.choice([("s", "ſ"), ("i", "ı"), ("a", "ａ"), ("e", "é"), ("x", "x")]))
        name = draw.choice([name.upper(), name.title(), swapped])
        at = draw.randrange(len(name) + 1)
        name = name[:at] + draw.choice(["", "", " ", "\u200b", "\0", "_", "\u0301", "\ud800"]) + name[at:]
        return name + draw.choice(["", "", "\0x", "\t"])

    def text(self, said: str) -> str:
        """A text as JSON may spell it."""
        if self._draw.random() < 0.3:
            return '"' + "".join(f"\\u{ord(each):04x}" for each in said) + '"'
        return json.dumps(said)

    def object(self, members: list[tuple[str, str]]) -> str:
        self._draw.shuffle(members)
        return "{" + ",".join(f"{self.text(self.key(name))}:{inner}" for name, inner in members) + "}"

    def message(self) -> bytes:
        """One message, or several of a batch."""
        if self._draw.random() < 0.2:
            return b"[" + self._one() + b"," + self._one() + b"]"
        return self._one()

    def _one(self) -> bytes:
        draw = self._draw
        tools = [
            self.text(
                draw.choice(
                    ["hidden", "seen", "seen", "seen", " hidden", "HIDDEN", "hidden\0x", "hid\u200bden"]
                )
            )
            for _ in range(2)
        ]
        tools.append('["hidden"]')
        names = [("name", draw.choice(tools)) for _ in range(draw.choice([1, 1, 1, 2]))]
        params = self.object([*names, ("arguments", "{}")])
        params = '["hidden",{}]' if draw.random() < 0.1 else params
        methods = [
            "tools/call",
            "tools/call",
            "ping",
            "Tools/Call",
            "tools/list",
            " tools/call",
            "tools//call",
        ]
        members = [("jsonrpc", '"2.0"'), ("id", draw.choice(["1", '"1"', "1.0"])), ("params", params)]
        members += [("method", self.text(draw.choice(methods))) for _ in range(draw.choice([1, 1, 1, 2]))]
        members += [
            (name, "{}") for name in draw.choices(["result", "error", "task"], k=draw.choice([0, 0, 1]))
        ]
        return self.object(members).encode("utf-8", "replace")


@pytest.mark.parametrize(("pinning", "version"), [("off", "2025-11-25"), ("block", "2025-03-26")])
async def test_no_reader_behind_finds_a_call_of_a_hidden_tool(
    tmp_path: Path, pinning: str, version: str
) -> None:
    """Whatever is sent to a server, none of all readers of what it gets is told to call that tool."""
    got: list[bytes] = []

    async def script(exchange: Exchange) -> None:
        got.append(exchange.body)
        await answering(exchange)

    smuggler = Smuggler(7)
    core = {"tool_definition_pinning": {"mode": pinning}}
    async with (
        served(script, version=version, hearing=script) as upstream,
        attacked(tmp_path, upstream.url, server=DISABLED, core=core) as arena,
        arena.client() as client,
    ):
        await client.initialize()
        for _ in range(800):
            await client.request("POST", smuggler.message())
        assert (await client.request("POST", call_body("seen")))[0].status == 200
    assert len(got) > 20
    for body in got:
        assert "hidden" not in map(str.lower, misread(pairs(body))), body


@asynccontextmanager
async def served(script: Script, **fields: Any) -> AsyncIterator[RawUpstream]:
    """A raw upstream in this process."""
    async with RawUpstream(script, **fields) as upstream:
        yield upstream
