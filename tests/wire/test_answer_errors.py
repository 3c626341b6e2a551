"""The error that an answer tells, found without reading the answers of most calls."""

from __future__ import annotations

import pytest

from adapter.wire.answer_errors import LOOKED_INTO, error_in, error_in_events
from adapter.wire.sse import encode

FINE = b'{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":false}}'
FAILED = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}'
TOOL = b'{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError" :\n true}}'
PROGRESS = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"error":1}}'


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (FINE, None),
        (FAILED, "-32602"),
        (TOOL, "tool_error"),
        (b"[" + FINE + b"," + FAILED + b"]", "-32602"),
        (b"[" + PROGRESS + b"," + TOOL + b"]", "tool_error"),
        (FINE.replace(b"[]", b'[{"isError":true,"error":{}}]'), None),
        (FAILED.replace(b"-32602", b'"odd"'), "_OTHER"),
        (FAILED.replace(b"-32602", b"1e3"), "_OTHER"),
        (FAILED.replace(b"-32602", b"9" * 12), "_OTHER"),
        (b'{"jsonrpc":"2.0","id":1,"error":"text"}', "_OTHER"),
        (b'{"jsonrpc":"2.0","id":1,"error":null,"result":{}}', None),
        (b'{"jsonrpc":"2.0","id":1,"error":[],"method":"x"}', None),
        (b'7 "error"', None),
        (b'"error"', None),
        (FAILED + b" " * LOOKED_INTO, None),
    ],
)
def test_an_answer_tells_its_error(body: bytes, error: str | None) -> None:
    """The code, or the word of the convention; deeper members and long answers are none."""
    assert error_in(body) == error


@pytest.mark.parametrize(
    ("events", "error"),
    [
        ((PROGRESS, FINE), ""),
        ((PROGRESS, FAILED), "-32602"),
        ((FAILED, PROGRESS), "-32602"),
        ((PROGRESS,), None),
        ((), None),
    ],
)
def test_the_last_response_of_a_stream_counts(events: tuple[bytes, ...], error: str | None) -> None:
    """Also where the first event is cut, or the stream has none."""
    stream = b'sult":{}}\n\n' + b"".join(map(encode, events))
    assert error_in_events(stream) == error
    assert error_in_events(b"data: " + b"x" * LOOKED_INTO) is None
