"""Compressed, large and slow bodies: they pass as they were sent, and small ones are never torn."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Callable

import orjson
import pytest

from tests.edge.conftest import StartRoad
from tests.edge.raw import Exchange, call_body, event, in_json, read_body, result

FIVE_MEBIBYTES = 5 << 20


@pytest.mark.parametrize(("coding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_compressed_request_reaches_the_upstream_as_it_was_sent(
    in_session: StartRoad, coding: str, compress: Callable[[bytes], bytes]
) -> None:
    """A compressed body is looked into and forwarded still compressed, in the client's own bytes."""
    sent = compress(call_body())

    async with in_session(in_json(result(1))) as (up, _, client):
        head, body = await client.request("POST", sent, content_encoding=coding)
        assert (head.status, body) == (200, result(1))
        assert up.seen[-1].body == sent
        assert up.seen[-1].head["content-encoding"] == coding


async def test_compressed_json_answer_keeps_its_bytes(in_session: StartRoad) -> None:
    """The client's Accept-Encoding travels, and what the upstream compressed is not touched."""
    said = gzip.compress(result(1, "x" * 1000))

    async def script(exchange: Exchange) -> None:
        assert exchange.head["accept-encoding"] == "gzip;q=1.0, br"
        await exchange.json(said, "Content-Encoding: gzip", "Vary: Accept-Encoding")

    async with in_session(script) as (_, _, client):
        head, body = await client.request("POST", call_body(), accept_encoding="gzip;q=1.0, br")
        assert body == said
        assert head["content-encoding"] == "gzip" and head["vary"] == "Accept-Encoding"


async def test_nothing_is_compressed_that_was_not(in_session: StartRoad) -> None:
    """The adapter neither asks for compression on its own nor adds it, whatever the client would take."""
    async with in_session() as (up, _, client):
        head, body = await client.call()
        assert up.calls("tools/call")[0].head.get("accept-encoding") is None
        head, body = await client.request("POST", call_body(), accept_encoding="gzip")
        assert head.get("content-encoding") is None and body == result(1)


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_compressed_event_stream_keeps_its_bytes_and_its_pace(
    in_session: StartRoad, method: str
) -> None:
    """Events that are flushed through a compressor one by one arrive one by one, still compressed."""
    has_first = asyncio.Event()
    deflater = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    first = deflater.compress(event(b"{}", "1")) + deflater.flush(zlib.Z_SYNC_FLUSH)
    rest = deflater.compress(event(result(1))) + deflater.flush()

    async def script(exchange: Exchange) -> None:
        await exchange.begin_stream("Content-Encoding: gzip")
        await exchange.chunk(first)
        await has_first.wait()
        await exchange.chunk(rest)
        await exchange.end_stream()

    async with in_session(script) as (_, _, client):
        await client.send(method, call_body() if method == "POST" else b"", accept_encoding="gzip")
        head = await client.head()
        assert head["content-encoding"] == "gzip"
        got = await client.read_until(len(first))
        assert got == first
        has_first.set()
        assert got + await read_body(client.reader, head) == first + rest


async def test_compressed_event_stream_that_breaks_is_broken_for_its_client_too(
    in_session: StartRoad,
) -> None:
    """Nothing can be added to a compressed stream, so its client sees it break off and not just end."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin_stream("Content-Encoding: gzip")
        await exchange.chunk(gzip.compress(event(b"{}")))
        await has_first.wait()
        exchange.break_off()

    has_first = asyncio.Event()
    async with in_session(script) as (_, _, client):
        await client.send("POST", call_body(), accept_encoding="gzip")
        await client.head()
        await client.read_until(1)
        has_first.set()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.read_until(1 << 20)


async def test_large_json_answer_with_its_length(in_session: StartRoad) -> None:
    """5 MiB of JSON arrive unchanged, with the Content-Length that the upstream gave."""
    said = result(1, "é" * (FIVE_MEBIBYTES // 2))

    async with in_session(in_json(said)) as (_, _, client):
        head, body = await client.call()
        assert head["content-length"] == str(len(said))
        assert body == said
        head, body = await client.call()
        assert body == said


async def test_large_json_answer_in_chunks(in_session: StartRoad) -> None:
    """5 MiB of JSON without a length arrive unchanged, without one, and on a connection that goes on."""
    said = result(1, "x" * FIVE_MEBIBYTES)

    async def script(exchange: Exchange) -> None:
        await exchange.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for start in range(0, len(said), 100_000):
            await exchange.chunk(said[start : start + 100_000])
        await exchange.end_stream()

    async with in_session(script) as (_, _, client):
        for _ in range(2):
            head, body = await client.call()
            assert head.get("content-length") is None
            assert body == said


async def test_large_request_and_chunked_request(in_session: StartRoad) -> None:
    """3 MiB of arguments with a length, and the same in chunks with extensions, reach the upstream whole."""
    sent = orjson.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x" * (3 << 20)}}
    )
    async with in_session() as (up, _, client):
        _, body = await client.request("POST", sent)
        assert body == result(1)
        await client.send("POST", content_length="", transfer_encoding="chunked")
        for start in range(0, len(sent), 70_000):
            piece = sent[start : start + 70_000]
            await client.send_more(b"%X;odd=yes\r\n%s\r\n" % (len(piece), piece))
        await client.send_more(b"0\r\nTrailer: dropped\r\n\r\n")
        assert await read_body(client.reader, await client.head()) == result(1)
        assert [each.body for each in up.calls("tools/call")] == [sent, sent]


async def test_request_that_waits_for_a_sign_to_continue(in_session: StartRoad) -> None:
    """``Expect: 100-continue`` is met here, and is no header of the upstream's request."""
    async with in_session() as (up, _, client):
        await client.send("POST", content_length=str(len(call_body())), expect="100-continue")
        assert (await client.head()).status == 100
        await client.send_more(call_body())
        assert await read_body(client.reader, await client.head()) == result(1)
        assert up.calls("tools/call")[0].head.get("expect") is None
