"""The scripted upstream keeps the promises of the port and of its transcript."""

from __future__ import annotations

import pytest

from adapter.upstream.port import Upstream, UpstreamRequest
from tests.scripted import Expect, ScriptedAnswer, ScriptedUpstream

POST = UpstreamRequest("POST", [("Mcp-Session-Id", "one")], b"{}")


async def test_plays_its_steps() -> None:
    """Requests are answered from the transcript and remembered; one that is not in it fails the test."""
    upstream = ScriptedUpstream(
        [(Expect("POST", b"{}"), ScriptedAnswer(202)), (Expect("POST"), ScriptedAnswer(chunks=[b"1"]))]
    )
    port: Upstream = upstream
    first, second = await port.send(POST, 1), await port.send(POST, 1)
    assert [(first.status, first.whole), (second.status, second.whole)] == [(202, b""), (200, b"1")]
    assert [await second.read(1), await second.read(1)] == [b"1", b""]
    with pytest.raises(AssertionError, match="Not in the transcript"):
        await port.send(POST, 1)
    assert upstream.requests == [POST] * 3
    assert upstream.unplayed == []


@pytest.mark.parametrize(
    "expect",
    [
        Expect("GET"),
        Expect("POST", b"[]"),
        Expect("POST", lambda body: b"tools" in body),
        Expect("POST", headers={"mcp-session-id": "two"}),
        Expect("POST", headers={"mcp-session-id": None}),
        Expect("POST", headers={"authorization": "x"}),
    ],
)
async def test_takes_no_request_it_did_not_expect(expect: Expect) -> None:
    """Method, body and headers all have to fit."""
    upstream = ScriptedUpstream([(expect, ScriptedAnswer())])
    with pytest.raises(AssertionError):
        await upstream.send(POST, 1)
    assert upstream.unplayed == [expect]
