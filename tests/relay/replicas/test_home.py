"""The home of sessions: it lets in what a replica has sealed for it, once, and nothing else."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from adapter.errors import BadRequest, NotFound, UpstreamSilent
from adapter.relay.replicas.forwarding import encode_head
from adapter.rules.access.principals import Caller
from adapter.upstream.port import UpstreamRequest, WholeReply
from adapter.wire.forwarding import (
    MARK,
    Seal,
    decode_failure,
    digest_of,
    kind_of,
)
from tests.relay.replicas.forwarders import KEY, Pair, Wire

CALL = UpstreamRequest("POST", [("Mcp-Session-Id", "a:token")], b"{}")
HEAD = encode_head("raw", UpstreamRequest("POST", [], caller=Caller("p")), None, KEY)


async def captured(found: Pair) -> str:
    """The seal of a request that was forwarded."""
    await found.near.send(CALL, 1.0)
    (_, wire), *_ = found.peers
    assert isinstance(wire, Wire)
    return wire.sealed[-1]


def why(found: Pair, text: str | None) -> str:
    """The reason in the log for which a seal is refused; the answer itself never has one."""
    found.home._quiet_until.clear()
    with capture_logs() as logged, pytest.raises(NotFound) as refused:
        found.home.admit(text)
    assert str(refused.value) == NotFound.hint
    return str(logged[0]["why"])


async def test_a_captured_request_is_worth_nothing(found: Pair) -> None:
    """It is refused at the same replica, and at any other."""
    text = await captured(found)
    assert why(found, text) == "it came before"
    found.a.id = "c"
    assert why(found, text) == "it is for another replica"


async def test_an_old_request_is_refused(found: Pair) -> None:
    """Also one that never arrived."""
    record = await found.b.find("a")
    assert record is not None
    text = Seal("a", record.challenge, "0" * 24, 0, 0, digest_of(b"")).signed(KEY)
    for _ in range(30):
        await found.a.renew()
    assert why(found, text) == "it has expired"


async def test_nobody_else_gets_in(found: Pair) -> None:
    """Without a seal, with one that is none, and with one under another key."""
    assert why(found, None) == "it has no seal"
    assert why(found, "1 a b c") == "it has no seal"
    record = await found.b.find("a")
    assert record is not None
    seal = Seal("a", record.challenge, "0" * 24, 0, 0, digest_of(b""))
    assert why(found, seal.signed(bytes(32))) == "its seal is not that of a replica"
    found.a.key = b""
    assert why(found, seal.signed(b"")) == "its seal is not that of a replica"


async def test_refusals_do_not_fill_the_log(found: Pair) -> None:
    """Each reason is logged once a second, however many strangers there are."""
    with capture_logs() as logged:
        for _ in range(100):
            with pytest.raises(NotFound):
                found.home.admit("x")
    assert len(logged) == 1


async def test_another_content_is_refused(found: Pair) -> None:
    """The seal covers every byte of it."""
    record = await found.b.find("a")
    assert record is not None
    seal = Seal("a", record.challenge, "0" * 24, len(HEAD), len(HEAD), digest_of(HEAD))
    with pytest.raises(NotFound):
        await found.home.serve(seal, HEAD[:-1] + b" ")
    assert found.far.seen == []
    assert (await found.home.serve(seal, HEAD)).reply.status == 200


@pytest.mark.parametrize(
    "content",
    [
        HEAD.replace(b'"raw"', b'"none"'),
        HEAD.replace(b'"call"', b'"other"'),
        HEAD.replace(b'"mcp"', b'"back"'),
    ],
)
async def test_what_only_another_version_sends(content: bytes, found: Pair) -> None:
    """A server or a word that is not known here is a failure that says so, and nothing runs."""
    record = await found.b.find("a")
    assert record is not None
    seal = Seal("a", record.challenge, "0" * 24, len(content), len(content), digest_of(content))
    headers, reply, _ = await found.home.serve(seal, content)
    assert kind_of(dict(headers)[MARK], KEY, seal.nonce, 200) == "failure"
    assert type(decode_failure(reply.whole or b"")) is BadRequest
    assert found.far.seen == []


async def test_a_long_failure_is_told_in_general(found: Pair) -> None:
    """The other replica reads so much of it and no more."""
    seal = Seal("a", "c" * 32, "0" * 24, 0, 0, digest_of(b""))
    _, reply, _ = found.home.failed(seal, UpstreamSilent("x" * 100_000))
    assert str(decode_failure(reply.whole or b"")) == UpstreamSilent.hint


async def test_what_is_forwarded_is_never_forwarded_again(found: Pair) -> None:
    """The home gives it to its own upstream, whatever session it names."""
    await found.near.send(UpstreamRequest("POST", [("Mcp-Session-Id", "a:token")], b"{}"), 1.0)
    record = await found.b.find("a")
    assert record is not None
    content = encode_head("raw", UpstreamRequest("POST", [("Mcp-Session-Id", "b:token")]), None, KEY)
    seal = Seal("a", record.challenge, "0" * 24, len(content), len(content), digest_of(content))
    await found.home.serve(seal, content)
    assert len(found.far.seen) == 2
    assert [url for url, _ in found.peers] == [found.peers[0][0]]


async def test_a_replica_that_leaves_takes_nothing_more(found: Pair) -> None:
    """What it refuses it refuses as if it had never known it; the session is opened anew elsewhere."""
    found.home.leave()
    with capture_logs() as logged:
        assert (await found.near.send(CALL, 1.0)).status == 404
    assert [each["log_level"] for each in logged] == ["warning"]
    reply = WholeReply(200)
    found.home.release(reply)
    assert "0 streams" in repr(found.home)
