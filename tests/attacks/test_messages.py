"""Messages that are made to hold everybody up, or to be read in another way behind the adapter than before it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.arena import Arena, attacked
from tests.edge.raw import Exchange, RawUpstream, Script, call_body

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


@asynccontextmanager
async def served(script: Script, **fields: Any) -> AsyncIterator[RawUpstream]:
    """A raw upstream in this process."""
    async with RawUpstream(script, **fields) as upstream:
        yield upstream
