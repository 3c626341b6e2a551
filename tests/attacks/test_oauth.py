"""Access tokens that are forged, stolen or for others, and issuers that lead elsewhere: nobody is let in by them."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from adapter.errors import IssuerUnavailable
from adapter.rules.access.principals import Principals
from tests.attacks.arena import Arena, attacked
from tests.attacks.issuer import Issuer, answer
from tests.attacks.test_tokens import (
    CURVE,
    GOOD,
    KEYS,
    bearing,
    drip,
    hang,
    misshapen,
    naming,
    of_another_key,
    pour,
    said,
    saying,
    without_signature,
)
from tests.attacks.test_tokens import elsewhere as redirecting
from tests.edge.conftest import done
from tests.edge.raw import Exchange, Head, RawClient, RawUpstream, call_body, result
from tests.pipeline.issuer import document, jwk, rsa_key, token

pytestmark = pytest.mark.e2e

MIB = 1 << 20
BASE = "https://tools.example"
STATIC = {"agent": "static-token-of-the-agent", "quiet": "static-token-of-the-bystander"}
NO_PINGS = {"upstream_ping": {"enabled": False}}
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "a", "version": "1"},
}

Entry = dict[str, Any]


def trusted(keys: Issuer | None = None, issuer: str = "https://id", **more: Any) -> Entry:
    """An entry of ``core.auth.oauth.issuers``, whose keys are there."""
    where = {} if keys is None else {"jwks_url": keys.url}
    return {"issuer": issuer, "algorithms": ["RS256", "ES256"], **where, **more}


@asynccontextmanager
async def guarded(place: Path, *issuers: Entry, **sections: Any) -> AsyncIterator[tuple[Arena, RawUpstream]]:
    """The attacked adapter, which lets tokens of ``issuers`` in, and two agents with tokens of its settings."""
    tokens = [{"name": name, "token": value} for name, value in STATIC.items()]
    auth = {"oauth": {"issuers": list(issuers), "leeway_seconds": 0}, "tokens": tokens}
    core = {**NO_PINGS, "public_base_url": BASE, "auth": auth}
    async with (
        RawUpstream(one_tool) as upstream,
        attacked(place, upstream.url, core=core, token=STATIC["quiet"], **sections) as arena,
    ):
        yield arena, upstream


async def one_tool(exchange: Exchange) -> None:
    """Lists one tool, and answers its calls."""
    if exchange.message["method"] != "tools/list":
        await done(exchange)
        return
    listed = {"tools": [{"name": "tool", "inputSchema": {"type": "object"}}]}
    await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": exchange.message["id"], "result": listed}))


def aimed(audience: Any = f"{BASE}/mcp", **members: Any) -> str:
    """A token with a good signature, for that audience."""
    return token(GOOD, "RS256", said(aud=audience, **members), kid="k1")


async def opened(client: RawClient, **fields: str) -> int:
    """The status of ``initialize``; the session is the client's then. 503: the issuer cannot be asked now."""
    body = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE}).encode()
    head, answered = await client.request("POST", body, **fields)
    client.session = head.get("mcp-session-id")
    return status_of(head, answered)


def status_of(head: Head, answered: bytes) -> int:
    """The status of an answer. Clients of the legacy era get some errors with status 200."""
    return 503 if f'"code":{IssuerUnavailable.rpc}'.encode() in answered else head.status


async def called(client: RawClient, value: str) -> tuple[Head, bytes]:
    """One call with an access token."""
    return await client.request("POST", call_body("tool", 1), **bearing(value))


# --- forged tokens ------------------------------------------------------------------------------------------------


async def test_no_forged_token_opens_the_door(tmp_path: Path) -> None:
    """Whatever it says of its key, its algorithm, its time and its reader; the keys are fetched once, and nothing from
    where a token says. No token is in the log."""
    async with (
        Issuer() as elsewhere,
        Issuer(document=KEYS) as keys,
        guarded(tmp_path, trusted(keys, audience="adapter")) as (arena, upstream),
    ):
        forged = [*without_signature(), *of_another_key(), *naming(elsewhere.url), *saying(), *misshapen()]
        good = [token(GOOD, "RS256", said(), kid="k1"), token(CURVE, "ES256", said(), kid="k3")]
        async with arena.client() as client:
            assert await opened(client, **bearing(good[0])) == 200
            for number, each in enumerate(forged):
                head, _ = await called(client, each)
                assert head.status == 401, (each, head)
                assert 'error="invalid_token"' in (head.get("www-authenticate") or ""), each
                if number % 20 == 0:
                    for fine in good:
                        assert orjson.loads((await called(client, fine))[1]) == orjson.loads(result(1))
        assert len(upstream.calls("tools/call")) == 2 * len(range(0, len(forged), 20))
        assert len(keys.asked) == 1 and elsewhere.asked == []
        log = arena.log
        assert not any(each in log for each in (*good, *forged) if len(each) > 200)


async def test_a_flood_of_tokens_costs_nobody_else(tmp_path: Path) -> None:
    """Thousands of tokens with good form and made-up keys, each another: little memory, and few fetches."""
    async with Issuer(document=KEYS) as keys, guarded(tmp_path, trusted(keys)) as (arena, _):
        async with arena.client() as client:
            assert await opened(client, **bearing(aimed())) == 200
            before = arena.resident_bytes()
            thief = rsa_key("thief")
            padding = "x" * 4000
            for number in range(1500):
                each = token(thief, "RS256", said(jti=number, pad=padding), kid=f"made up {number}")
                assert (await called(client, each))[0].status == 401
            assert arena.resident_bytes() - before < 32 * MIB
            assert orjson.loads((await called(client, aimed()))[1]) == orjson.loads(result(1))
        assert len(keys.asked) <= 3


# --- tokens for others --------------------------------------------------------------------------------------------

CONFUSED: tuple[Any, ...] = (
    f"{BASE}/quiet",
    f"{BASE}/mc",
    f"{BASE}/mcp2",
    f"{BASE}/mcp/../quiet",
    f"{BASE}/mcp/x",
    f"{BASE}/mcp?x=1",
    f"{BASE}/mcp#x",
    f"{BASE}//mcp",
    f"{BASE}/MCP",
    BASE,
    f"{BASE}/",
    "http://tools.example/mcp",
    "https://tools.example:8443/mcp",
    "https://tools.example.evil.example/mcp",
    "https://user@tools.example/mcp",
    "https://tools.example\\@evil.example/mcp",
    "//tools.example/mcp",
    "/mcp",
    "mcp",
    "*",
    "",
    "null",
    [],
    [""],
    [f"{BASE}/quiet", "https://other.example/mcp"],
    {f"{BASE}/mcp": True},
    [[f"{BASE}/mcp"]],
    None,
    True,
)


async def test_a_token_for_another_resource_is_no_token(tmp_path: Path) -> None:
    """One mount's token opens no other mount, nor its files, nor its tools over HTTP; spellings of one URL are one."""
    console = {"enabled": True, "allow_execute": True}
    async with (
        Issuer(document=KEYS) as keys,
        guarded(tmp_path, trusted(keys), console=console) as (arena, upstream),
        arena.client() as client,
    ):
        assert await opened(client, **bearing(aimed())) == 200
        for fine in (f"{BASE}/mcp", f"{BASE}/mcp/", "HTTPS://Tools.Example:443/mcp", [BASE, f"{BASE}/mcp"]):
            assert (await called(client, aimed(fine)))[0].status == 200, fine
        ran = len(upstream.calls("tools/call"))
        for audience in CONFUSED:
            head, _ = await called(client, aimed(audience))
            assert head.status == 401, (audience, head)
            challenge = head.get("www-authenticate") or ""
            assert f'resource_metadata="{BASE}/.well-known/oauth-protected-resource/mcp"' in challenge
            assert "evil" not in challenge
        assert len(upstream.calls("tools/call")) == ran
        theirs = bearing(aimed(f"{BASE}/quiet"))
        client.session = None
        for method, path in (
            ("POST", "/upload/upstream"),
            (
                "GET",
                "/artifacts/upstream/0123456789abcdef0123456789abcdef/0123456789abcdef0123456789abcdef/a.bin",
            ),
            ("POST", "/explorer/upstream/tools/tool/call"),
            ("GET", "/explorer/-/servers"),
            ("POST", "/explorer/-/pins/upstream/accept"),
        ):
            head, _ = await client.request(method, b"{}" if method == "POST" else b"", path, **theirs)
            assert head.status in (401, 404), (path, head)
        assert len(upstream.calls("tools/call")) == ran


async def test_no_issuer_speaks_for_another(tmp_path: Path) -> None:
    """Both are trusted; a token of one that names the other is refused, whichever key id it has, and so are persons:
    the same name at two issuers is two principals, and no name is that of a token of the settings."""
    mine = rsa_key("second issuer")
    async with (
        Issuer(document=document(jwk(GOOD, "k1"))) as first,
        Issuer(document=document(jwk(mine, "k1"), jwk(mine, "k2"))) as second,
        guarded(tmp_path, trusted(first, "https://a.example"), trusted(second, "https://b.example")) as (
            arena,
            _,
        ),
    ):
        ours = token(GOOD, "RS256", said(iss="https://a.example", aud=f"{BASE}/mcp"), kid="k1")
        theirs = token(mine, "RS256", said(iss="https://b.example", aud=f"{BASE}/mcp"), kid="k1")
        async with arena.client() as client:
            assert await opened(client, **bearing(ours)) == 200
            assert (await called(client, ours))[0].status == 200
            for key, name, kid in (
                (mine, "a", "k1"),
                (mine, "a", "k2"),
                (GOOD, "b", "k1"),
                (GOOD, "b", "k2"),
            ):
                mixed = said(iss=f"https://{name}.example", aud=f"{BASE}/mcp")
                assert (await called(client, token(key, "RS256", mixed, kid=kid)))[0].status == 401
            assert (await called(client, theirs))[0].status == 404, "the session of another issuer's ann"
        async with arena.client() as agent:
            assert await opened(agent, **bearing(STATIC["agent"])) == 200
            for name in ("agent", "agent:", "agent\0", "agent@https://a.example", principal_of("agent")):
                claims = said(iss="https://a.example", sub=name, aud=f"{BASE}/mcp")
                head, _ = await called(agent, token(GOOD, "RS256", claims, kid="k1"))
                assert head.status == 404, name


def principal_of(name: str) -> str:
    """The principal of a token of the settings, if somebody outside came to know it."""
    return str(Principals([(name, hashlib.sha256(STATIC[name].encode()).digest())]).accept(STATIC[name]))


# --- ways in ------------------------------------------------------------------------------------------------------


async def test_another_host_learns_and_gets_nothing(tmp_path: Path) -> None:
    """A page whose name was bound to this address sends its own Host: 421 with a good token, and metadata that names
    the configured URL alone, whatever Host, proxy field or path it is asked with."""
    async with Issuer(document=KEYS) as keys, guarded(tmp_path, trusted(keys)) as (arena, upstream):
        async with arena.client() as client:
            for host in 400 * (
                "evil.example",
                "127.0.0.1.evil.example",
                "tools.example@evil.example",
                "[::ffff:1.2.3.4]",
            ):
                head, _ = await client.request("POST", call_body("tool", 1), host=host, **bearing(aimed()))
                assert head.status in (400, 421), host
            for fields in (
                {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "http"},
                {"Forwarded": "host=evil.example"},
                {"Origin": "https://evil.example"},
            ):
                path = "/.well-known/oauth-protected-resource/mcp"
                head, body = await client.request("GET", b"", path, **fields)
                assert head.status == 200
                assert orjson.loads(body)["resource"] == f"{BASE}/mcp"
                assert b"evil" not in body
            for path in ("/../mcp", "/mcp/../../etc", "//evil.example", "/%2e%2e/mcp", "/mcp%00", "/nothing"):
                head, body = await client.request("GET", b"", f"/.well-known/oauth-protected-resource{path}")
                assert head.status in (400, 404), (path, body)
                assert b"evil" not in body
        assert upstream.calls("tools/call") == []


# --- issuers that lead elsewhere ----------------------------------------------------------------------------------


def describing(**members: Any) -> Callable[[Issuer], bytes]:
    """The metadata of an issuer with these members."""

    def describe(issuer: Issuer) -> bytes:
        own = f"http://127.0.0.1:{issuer.port}"
        return json.dumps({"issuer": own, "jwks_uri": f"{own}/keys", **members}).encode()

    return describe


@asynccontextmanager
async def described(describe: Callable[[Issuer], bytes]) -> AsyncIterator[Issuer]:
    """An issuer that answers everything with its metadata."""
    async with Issuer() as issuer:
        issuer.document = describe(issuer)
        yield issuer


ELSEWHERE: tuple[Any, ...] = (
    "http://user@127.0.0.1:{port}/keys",
    "http://127.0.0.1:{port}\\@id.example/keys",
    "http://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/latest/",
    "http://10.0.0.1:{port}/keys",
    "http://neighbour.internal:{port}/keys",
    "file:///etc/passwd",
    "ftp://127.0.0.1:{port}/keys",
    "gopher://127.0.0.1:{port}/_keys",
    "http://127.0.0.1:0/keys",
    "//127.0.0.1:{port}/keys",
    "unix:///var/run/docker.sock",
    "",
    " ",
    7,
    None,
    ["http://127.0.0.1:{port}/keys"],
)


async def test_no_issuer_sends_us_elsewhere(tmp_path: Path) -> None:
    """Keys at an address that metadata may not name are not asked for, and the sentence does not quote it."""
    async with Issuer(document=KEYS) as elsewhere, AsyncExitStack() as stack:
        port = str(elsewhere.port)
        issuers = {}
        for where in ELSEWHERE:
            url = where.replace("{port}", port) if isinstance(where, str) else where
            issuer = await stack.enter_async_context(described(describing(jwks_uri=url)))
            issuers[f"http://127.0.0.1:{issuer.port}"] = where
        arena, upstream = await stack.enter_async_context(guarded(tmp_path, *map(trusting, issuers)))
        for name, where in issuers.items():
            async with arena.client() as client, asyncio.timeout(8):
                assert await opened(client, **bearing(of(name))) in (401, 503), where
        assert upstream.seen == [] and elsewhere.asked == []
        assert port not in arena.log.replace(f"--port {port}", "")


def trusting(name: str) -> Entry:
    """An entry of ``core.auth.oauth.issuers``, whose keys are where its metadata says."""
    return trusted(issuer=name)


def of(name: str) -> str:
    """A token of the issuer with that name."""
    return token(GOOD, "RS256", said(iss=name, aud=f"{BASE}/mcp"), kid="k1")


OTHERS: dict[str, Callable[[Issuer], bytes]] = {
    "other": describing(issuer="https://id.example"),
    "none": describing(issuer=None),
    "list": describing(issuer=["http://127.0.0.1"]),
    "no object": lambda _: b"[]",
    "deep": lambda _: b"[" * MIB,
    "endless": lambda _: b'{"issuer":' + b" " * (2 * MIB),
    "empty": lambda _: b"",
}


async def test_metadata_of_another_issuer_is_none(tmp_path: Path) -> None:
    """Nor are its keys used, which it would have us take for those of the trusted one."""
    async with AsyncExitStack() as stack:
        issuers = {
            kind: await stack.enter_async_context(described(describe)) for kind, describe in OTHERS.items()
        }
        names = {kind: f"http://127.0.0.1:{each.port}" for kind, each in issuers.items()}
        arena, _ = await stack.enter_async_context(guarded(tmp_path, *map(trusting, names.values())))
        for kind, issuer in issuers.items():
            async with arena.client() as client:
                assert await opened(client, **bearing(of(names[kind]))) in (401, 503), kind
            assert "/keys" not in issuer.asked, kind


async def test_issuers_that_do_not_answer_lock_nobody_else_out(tmp_path: Path) -> None:
    """Their callers are told within seconds; an agent with a token of the settings, and people of another issuer, do
    not notice."""
    async with Issuer(document=KEYS) as keys, AsyncExitStack() as stack:
        bad = [
            await stack.enter_async_context(Issuer(says=script)) for script in (hang, drip, pour, redirecting)
        ]
        entries = [trusted(each, f"http://127.0.0.1:{each.port}") for each in bad]
        arena, _ = await stack.enter_async_context(guarded(tmp_path, trusted(keys), *entries))

        async def ask(value: str) -> int:
            async with arena.client() as client, asyncio.timeout(10):
                return await opened(client, **bearing(value))

        stuck = [of(f"http://127.0.0.1:{each.port}") for each in bad]
        asked = asyncio.gather(*(ask(value) for value in stuck * 20))
        fine = await asyncio.gather(*(ask(value) for value in [aimed(), STATIC["agent"]] * 10))
        assert set(fine) == {200}
        assert set(await asked) <= {401, 503}
        assert all(len(each.asked) <= 2 for each in bad)


async def test_known_keys_outlive_their_issuer(tmp_path: Path) -> None:
    """An issuer that is gone locks nobody out whose key is known; an unknown key stays unknown."""
    async with Issuer(document=KEYS) as keys, guarded(tmp_path, trusted(keys)) as (arena, _):
        async with arena.client() as client:
            assert await opened(client, **bearing(aimed())) == 200

            async def broken(writer: asyncio.StreamWriter) -> None:
                await answer(writer, b"<html>maintenance</html>")

            keys.says = broken
            for number in range(20):
                assert (await called(client, aimed(jti=str(number))))[0].status == 200
                stranger = token(rsa_key("thief"), "RS256", said(aud=f"{BASE}/mcp"), kid=f"new {number}")
                assert status_of(*await called(client, stranger)) in (401, 503)
        assert len(keys.asked) <= 3
