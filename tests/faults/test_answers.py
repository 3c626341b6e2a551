"""The meaning of each kind of answer for the client that gets it."""

from __future__ import annotations

import pytest

from tests.faults.answers import Meaning, of_call, of_transfer
from tests.faults.history import Told

JSON, EVENTS = "application/json", "text/event-stream"
RESULT = b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"t"}]}}'


def error(code: int, message: str = "not now") -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"error":{"code":%d,"message":"%s"}}' % (code, message.encode())


@pytest.mark.parametrize(
    ("status", "kind", "body", "told"),
    [
        (200, JSON, RESULT, Told.DONE),
        (200, EVENTS, b'data: {"method":"x"}\n\ndata: ' + RESULT + b"\n\n", Told.DONE),
        (200, EVENTS, b'data: {"method":"x"}\n\n', Told.EMPTY),
        (200, EVENTS, b"data: " + error(-32016) + b"\n\n", Told.REFUSED),
        (200, JSON, RESULT.replace(b'"content"', b'"isError":true,"content"'), Told.GONE),
        (200, JSON, error(-32014), Told.REFUSED),
        (404, JSON, error(-32600), Told.GONE),
        (200, JSON, error(-32603), Told.FAULTY),
        (200, JSON, error(-32603, "The adapter could not read or write a file; see"), Told.REFUSED),
        (502, "text/html", b"<html>", Told.BROKEN),
        (502, JSON, error(-32011), Told.REFUSED),
        (200, JSON, b"", Told.EMPTY),
    ],
)
def test_answers_to_calls(status: int, kind: str, body: bytes, told: Told) -> None:
    """A result is done, an error is refused, and a page of the load balancer is a broken connection."""
    assert of_call(status, kind, body).told is told


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (200, b'{"upload_handle":"upload://f"}', Told.DONE),
        (200, b"any bytes", Told.DONE),
        (404, b'{"detail":"gone"}', Told.GONE),
        (507, b'{"detail":"full"}', Told.REFUSED),
        (500, b'{"detail":"The adapter could not read or write a file."}', Told.REFUSED),
        (500, b'{"detail":"?"}', Told.FAULTY),
        (504, b"<html>", Told.BROKEN),
    ],
)
def test_answers_to_transfers(status: int, body: bytes, told: Told) -> None:
    """The same for uploads and downloads, whose answers are no responses of JSON-RPC."""
    assert of_transfer(status, body).told is told


def test_result_and_code_are_kept() -> None:
    """The result of a response, and the code of an error, are there for whoever goes on with them."""
    assert of_transfer(200, b'{"upload_handle":"upload://f"}').result == {"upload_handle": "upload://f"}
    assert of_call(200, JSON, error(-32010)) == Meaning(Told.REFUSED, "200 -32010 not now", {}, -32010)
