"""The route of replicas as strangers find it, and as one that has the key: over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from adapter.relay.files.scopes import SECRETS
from adapter.relay.replicas.forwarding import encode_head
from adapter.rules.access.principals import Caller
from adapter.rules.access.replicas import decode_replica
from adapter.upstream.port import UpstreamRequest
from adapter.wire.forwarding import (
    MARK,
    PATH,
    SEAL,
    Seal,
    decode_failure,
    digest_of,
    kind_of,
)
from tests.edge.raw import Head, RawClient
from tests.edge.replicating import PATIENCE, Replica, Site, call, site, tool

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
HEAD = encode_head("raw", UpstreamRequest("POST", [], caller=Caller("p")), 5.0, b"key")


class Insider:
    """Somebody who can read the store, and so seal requests for a replica."""

    def __init__(self, found: Site, client: RawClient) -> None:
        self._found = found
        self._client = client
        self._nonces = 0
        self.key = b""

    async def seal(self, replica: Replica, content: bytes, head_size: int) -> Seal:
        """A good seal for some content, never the same one twice."""
        self._nonces += 1
        secret = await self._found.memory.rows.get(SECRETS, "replicas")
        row = await self._found.memory.rows.get("replicas", replica.registry.id)
        assert secret is not None
        assert row is not None
        self.key = secret.value
        challenge = decode_replica(row.value).challenge
        digest = digest_of(content)
        return Seal(replica.registry.id, challenge, f"{self._nonces:024x}", head_size, len(content), digest)

    async def send(self, seal: Seal, content: bytes) -> tuple[Head, bytes]:
        """Send sealed content, and read the whole answer."""
        fields = {SEAL.replace("-", "_"): seal.signed(self.key)}
        return await self._client.request("POST", content, path=PATH, **fields)


@pytest.mark.parametrize(
    ("method", "path", "fields"),
    [
        ("POST", PATH, {}),
        ("GET", PATH, {}),
        ("OPTIONS", PATH, {"origin": "https://evil.example", "access_control_request_method": "POST"}),
        ("PUT", PATH, {}),
        ("POST", "/_replica", {}),
        ("POST", "/_replica/", {}),
        ("POST", "/_replica/other", {}),
        ("POST", PATH + "/more", {}),
        ("POST", PATH, {"adapter_replica_seal": "1"}),
        ("POST", PATH, {"adapter_replica_seal": "\xff" * 500}),
        ("POST", PATH, {"adapter_replica_seal": "1 a " + "0" * 32 + " " + "0" * 24 + " 0 0 " + "0 " * 2}),
        ("POST", PATH, {"adapter_replica_seal": f"1 a {'0' * 32} {'0' * 24} 0 0 {'0' * 64} {'0' * 64}"}),
    ],
)
async def test_strangers_find_nothing(tmp_path: Path, method: str, path: str, fields: dict[str, str]) -> None:
    """Whatever they send is answered as on a path where nothing is, byte for byte."""
    async with site(tmp_path) as found:
        a = await found.start("a")
        async with a.client() as client:
            nowhere = await client.request(method, PING, path="/nowhere", **fields)
            here = await client.request(method, PING, path=path, **fields)
            assert (here[0].status, here[1]) == (nowhere[0].status, nowhere[1]) == (404, here[1])
            assert [each for each in here[0].fields if each[0] != "date"] == [
                each for each in nowhere[0].fields if each[0] != "date"
            ]


async def test_a_large_body_without_a_seal_is_not_waited_for(tmp_path: Path) -> None:
    """A stranger is refused by the head alone."""
    async with site(tmp_path) as found:
        a = await found.start("a")
        async with a.client() as client:
            await client.send("POST", b"", path=PATH, content_length="1000000000")
            async with asyncio.timeout(PATIENCE):
                assert (await client.head()).status == 404


async def test_a_sealed_request_is_served_once(tmp_path: Path) -> None:
    """Neither Host nor token counts, only the seal; the same bytes again are refused."""
    core = {"allowed_hosts": ["adapter.example.com"], "auth": {"enabled": True, "token": "t" * 32}}
    async with site(tmp_path, core=core) as found:
        a = await found.start("a")
        async with a.client() as client:
            insider = Insider(found, client)
            content = HEAD + PING
            seal = await insider.seal(a, content, len(content) - len(PING))
            head, body = await insider.send(seal, content)
            assert (head.status, orjson.loads(body)["error"]["code"]) == (400, -32600)
            assert kind_of(head[MARK], insider.key, seal.nonce, head.status) == "answer"
            again, refusal = await insider.send(seal, content)
            assert (again.status, again.get(MARK)) == (404, None)
            assert orjson.loads(refusal) == {"detail": "Nothing is served here."}


async def test_another_content_than_the_sealed_one_is_refused(tmp_path: Path) -> None:
    """Of the same size it has another digest; of another size it is a failure that the first replica can read."""
    async with site(tmp_path) as found:
        a = await found.start("a")
        async with a.client() as client:
            insider = Insider(found, client)
            content = HEAD + PING
            seal = await insider.seal(a, content, len(content) - len(PING))
            assert (await insider.send(seal, content[:-1] + b" "))[0].status == 404
            seal = await insider.seal(a, content, len(content) - len(PING))
            head, body = await insider.send(seal, content + b" ")
            assert kind_of(head[MARK], insider.key, seal.nonce, head.status) == "failure"
            assert decode_failure(body).code == "bad_request"


async def test_replicas_have_a_listener_of_their_own(tmp_path: Path) -> None:
    """Where several share the public port, that has no such route, and the other has nothing else."""
    own = {"core": {"workers": 2}}
    async with site(tmp_path, **own) as found:
        a, b = await found.start("a"), await found.start("b")
        async with a.client() as first, b.client() as second:
            await first.initialize()
            second.session = first.session
            assert "result" in await call(second, "who")
            insider = Insider(found, first)
            content = HEAD + PING
            seal = await insider.seal(a, content, len(content) - len(PING))
            assert (await insider.send(seal, content))[0].status == 404
        (seen,) = b.registry.others()
        port = int(seen.record.address.rpartition(":")[2])
        assert port != a.port
        async with RawClient(port) as private:
            for path in ("/mcp", "/healthz", "/"):
                assert (await private.request("POST", PING, path=path))[0].status == 404
            insider = Insider(found, private)
            assert (await insider.send(await insider.seal(a, content, seal.head_size), content))[
                0
            ].status == 400


async def test_health_tells_of_the_replicas(tmp_path: Path) -> None:
    """Everybody sees the id; the others are for operators."""
    core = {"auth": {"enabled": True, "token": "t" * 32}}
    async with site(tmp_path, core=core) as found:
        a, b = await found.start("a"), await found.start("b")
        await a.registry.look()
        async with a.client() as client:
            _, body = await client.request("GET", path="/healthz")
            assert orjson.loads(body)["replica"] == {"id": "a"}
            _, body = await client.request("GET", path="/healthz", authorization=f"Bearer {'t' * 32}")
            told = orjson.loads(body)["replica"]
            (other,) = told["others"]
            assert (told["id"], other["id"], other["state"]) == ("a", "b", "serving")
            assert other["address"] == f"http://127.0.0.1:{b.port}"
            assert other["age_seconds"] >= 0


async def test_what_is_forwarded_takes_no_memory(tmp_path: Path) -> None:
    """Messages of 32 megabytes cross two replicas to a client that reads slowly, and few of them wait anywhere."""
    async with site(tmp_path) as found:
        a, b = await found.start("a"), await found.start("b")
        async with a.client() as first, b.client() as second:
            await first.initialize()
            second.session = first.session
            await second.send("POST", tool("progress", 1, token="t", n=512, size=1 << 16))
            assert (await second.head()).status == 200
            before, most, got = resident(), 0, 0
            async with asyncio.timeout(3 * PATIENCE):
                while got < 512 << 16:
                    got = len(await second.read_until(1)) + got
                    most = max(most, resident())
            assert most - before < 16 << 20


def resident() -> int:
    """The bytes of memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
