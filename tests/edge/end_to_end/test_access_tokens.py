"""Access tokens at every entrance of a running adapter: who gets in, who is sent to sign in, and who goes on."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import orjson
import pytest

from adapter.edge.http.access import SeenToken
from adapter.errors import IssuerUnavailable
from tests.edge.bearers import ASKS, AT, BASE, ISSUER, ScriptedVerifier, bearer, core
from tests.edge.conftest import StartAdapter, StartRoad, StartUpstream, done
from tests.edge.file_tools import FORM, TOOLS, form
from tests.edge.raw import (
    INITIALIZE,
    MODERN_META,
    MODERN_VERSION,
    Exchange,
    call_body,
    error_of,
    modern_body,
    modern_fields,
    read_body,
    read_chunk,
)

STATIC = {"token": "static-secret-of-the-operator"}
CONSOLE: dict[str, Any] = {"enabled": True, "allow_execute": True}


@pytest.fixture
def verifier() -> ScriptedVerifier:
    """The tokens that are good."""
    return ScriptedVerifier()


# --- the way in -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("legacy_status", ["ok", "http"])
@pytest.mark.parametrize(
    ("body", "fields"), [(INITIALIZE, {}), (modern_body(number=0), modern_fields())], ids=["legacy", "modern"]
)
async def test_strangers_are_told_where_to_sign_in(
    road: StartRoad, verifier: ScriptedVerifier, body: bytes, fields: dict[str, str], legacy_status: str
) -> None:
    """401 in both eras, whatever the statuses of errors are; no error is named where no token was sent."""
    settings = core() | {"errors": {"legacy_status": legacy_status}}
    async with road(core=settings, verifier=verifier) as (up, _, client):
        head, text = await client.request("POST", body, **fields)
        assert (head.status, head["www-authenticate"]) == (401, ASKS)
        assert error_of(text)["id"] == 0
        head, text = await client.request("POST", body, **fields, **bearer("made-up"))
        assert head.status == 401
        assert head["www-authenticate"] == (
            f"{ASKS}, error=\"invalid_token\", error_description=\"The token is not one of 'ours'.''X-Injected: yes\""
        )
        assert "ours" in error_of(text)["message"]
        assert head.get("x-injected") is None
        assert up.seen == []


async def test_a_token_of_the_mount_gets_in_and_goes_no_further(
    road: StartRoad, verifier: ScriptedVerifier
) -> None:
    """It is verified once, and no upstream ever sees it, not even one that is given the field of other callers."""
    token = verifier.issue("good")
    passing = {"upstream": {"client_headers": {"passthrough": ["Authorization"]}}}
    async with road(core=core(), verifier=verifier, server=passing) as (up, _, client):
        await client.initialize(**token)
        for _ in range(3):
            head, _ = await client.request("POST", call_body(), **token)
            assert head.status == 200
        assert verifier.asked == ["good"]
        assert [each for each in up.seen if each.head.get("authorization")] == []


async def test_too_few_scopes_are_403_with_those_that_are_needed(
    road: StartRoad, verifier: ScriptedVerifier
) -> None:
    """A client that gets this signs in again for more (RFC 6750 §3.1)."""
    token = verifier.issue("weak", scopes=("profile", "mcp:read"))
    async with road(core=core(), verifier=verifier) as (up, _, client):
        head, text = await client.request("POST", INITIALIZE, **token)
        assert head.status == 403 and error_of(text)["id"] == 0
        assert head["www-authenticate"].startswith(f'{ASKS}, error="insufficient_scope", error_description=')
        assert up.seen == []


async def test_refused_tokens_are_logged_with_the_reason(
    road: StartRoad, verifier: ScriptedVerifier, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once in a while for each mount, since anybody can send them; and never the token."""
    foreign = verifier.issue("secret-foreign", audience="https://other.example", claims={"iss": ISSUER})
    async with road(core=core(), verifier=verifier) as (_, _, client):
        for _ in range(3):
            head, _ = await client.request("POST", INITIALIZE, **foreign)
            assert head.status == 401
    said = capsys.readouterr().err
    (line,) = (each for each in said.splitlines() if "an access token was refused" in each)
    assert "not for this resource" in line and "https://other.example" in line and ISSUER in line
    assert "secret-foreign" not in said


async def test_static_tokens_count_beside_access_tokens(road: StartRoad, verifier: ScriptedVerifier) -> None:
    """In their header or as Bearer, without asking the issuer; a wrong one in the header lets nobody in."""
    token = verifier.issue("good")
    secret = STATIC["token"]
    async with road(core=core(**STATIC), verifier=verifier) as (_, _, client):
        for fields in (bearer(secret), {"x_mcp_adapter_auth_token": secret}):
            await client.initialize(**fields)
            head, _ = await client.request("POST", call_body(), **fields)
            assert head.status == 200
        both = bearer("the-upstreams-own") | {"x_mcp_adapter_auth_token": secret}
        await client.initialize(**both)
        assert verifier.asked == []
        client.session = None
        wrong = token | {"x_mcp_adapter_auth_token": "wrong"}
        head, _ = await client.request("POST", INITIALIZE, **wrong)
        assert head.status == 401 and 'error="invalid_token"' in head["www-authenticate"]
        await client.initialize(**token)
        assert verifier.asked == ["good"]


async def test_the_header_of_static_tokens_may_be_authorization(
    road: StartRoad, verifier: ScriptedVerifier
) -> None:
    """A static token stands there as it is, and an access token behind its scheme."""
    token, settings = verifier.issue("good"), core(**STATIC, header_name="Authorization")
    async with road(core=settings, verifier=verifier) as (_, _, client):
        await client.initialize(authorization=STATIC["token"])
        await client.initialize(**token)
        assert verifier.asked == ["good"]


async def test_every_entrance_asks_for_the_same(
    upstream: StartUpstream, adapter: StartAdapter, verifier: ScriptedVerifier
) -> None:
    """Uploads, downloads and the tool API belong to the resource of their server, the console's data to the console."""
    good, other = verifier.issue("good"), verifier.issue("other", audience=f"{BASE}/other")
    weak = verifier.issue("weak", scopes=())
    places = {
        "/upload/raw": ("POST", "mcp"),
        "/artifacts/raw/" + "0" * 32 + "/" + "0" * 32 + "/x.txt": ("GET", "mcp"),
        "/explorer/raw/tools": ("GET", "mcp"),
        "/explorer/raw/resources?uri=a:b": ("GET", "mcp"),
        "/explorer/raw/tools/read/call": ("POST", "mcp"),
        "/explorer/-/me": ("GET", "explorer"),
    }
    settings: dict[str, Any] = {
        "core": core() | {"allow_artifacts_download": True, "cors": {"enabled": True}},
        "console": CONSOLE | {"discovery_auth": True},
        "server": TOOLS,
    }
    async with upstream() as up, adapter(up, verifier=verifier, **settings) as front:
        for path, (method, resource) in places.items():
            asks = f'Bearer resource_metadata="{AT}/{resource}", scope="mcp"'
            page = {"origin": "http://localhost:1"}
            for fields, status, error in (
                ({}, 401, None),
                (bearer("made-up"), 401, "invalid_token"),
                (other, 401, "invalid_token"),
                (weak, 403 if resource == "mcp" else 401, "in"),
                (good, 200 if resource == "mcp" else 401, None if resource == "mcp" else "invalid_token"),
            ):
                async with front.client() as client:
                    head, body = await client.request(method, b"{}", path, **fields, **page)
                if status == 200:
                    assert head.status not in (401, 403), (path, fields, body)
                    continue
                assert head.status == status, (path, fields, body)
                assert head["www-authenticate"].startswith(asks), (path, fields)
                assert ("error=" in head["www-authenticate"]) == (error is not None)
                assert "WWW-Authenticate" in head["access-control-expose-headers"]


# --- sessions ---------------------------------------------------------------------------------------------------


async def test_a_session_belongs_to_its_principal(road: StartRoad, verifier: ScriptedVerifier) -> None:
    """A refreshed token goes on with it; to another person, and to a static token, it is unknown."""
    first, refreshed = verifier.issue("first"), verifier.issue("refreshed", scopes=("mcp", "more"))
    bob = verifier.issue("bobs", principal="bob")
    async with (
        road(core=core(**STATIC), verifier=verifier) as (up, front, client),
        front.client() as elsewhere,
    ):
        await client.initialize(**first)
        elsewhere.session = client.session
        assert (await client.request("POST", call_body(), **first))[0].status == 200
        assert (await client.request("POST", call_body(), **refreshed))[0].status == 200
        assert (await elsewhere.request("POST", call_body(), **refreshed))[0].status == 200
        for fields in (bob, bearer(STATIC["token"])):
            head, text = await elsewhere.request("POST", call_body(), **fields)
            assert head.status == 404 and error_of(text)["code"] == -32600
        assert len(up.calls("tools/call")) == 3


async def test_files_belong_to_the_person(road: StartRoad, verifier: ScriptedVerifier) -> None:
    """What was uploaded with one token belongs to the same person with the next one, and to nobody else."""
    tokens = [verifier.issue("first"), verifier.issue("next"), verifier.issue("bobs", principal="bob")]
    async with road(core=core(), verifier=verifier, server=TOOLS) as (_, _, client):
        scopes = []
        for fields in tokens:
            head, body = await client.request("POST", form(b"x"), "/upload/raw", content_type=FORM, **fields)
            assert head.status == 200, body
            scopes.append(orjson.loads(body)["session_id"])
    assert scopes[0] == scopes[1] != scopes[2]


async def test_a_token_counts_until_it_expires_on_a_connection_that_stays(
    road: StartRoad, verifier: ScriptedVerifier
) -> None:
    """What was found out about a head is found out again once its token is known no more."""
    token = verifier.issue("good")
    async with road(core=core(), verifier=verifier) as (up, _, client):
        await client.initialize(**token)
        assert (await client.request("POST", call_body(), **token))[0].status == 200
        verifier.forget()
        assert (await client.request("POST", call_body(), **token))[0].status == 200
        assert verifier.asked == ["good", "good"]
        verifier.later = 7200
        for _ in range(2):
            head, _ = await client.request("POST", call_body(), **token)
            assert head.status == 401 and "expired" in head["www-authenticate"]
        verifier.later = 0
        assert (await client.request("POST", call_body(), **token))[0].status == 200
        verifier.revoke("good")
        assert (await client.request("POST", call_body(), **token))[0].status == 401
        assert len(up.calls("tools/call")) == 3


async def test_a_token_that_lost_its_scopes_has_lost_them_in_every_session(
    road: StartRoad, verifier: ScriptedVerifier
) -> None:
    """Also where the sessions of one connection come in turn, and some of their requests not one by one."""
    token, path = verifier.issue("good"), "/explorer/raw/tools/read/call"
    settings: dict[str, Any] = {"console": CONSOLE | {"discovery_auth": True}, "server": TOOLS}
    async with road(core=core(), verifier=verifier, **settings) as (_, _, client):
        client.session = "one"
        for _ in range(3):
            assert (await client.request("POST", b"{}", path, **token))[0].status == 502
        verifier.issue("good", scopes=("profile",))
        verifier.forget()
        client.session = "two"
        another = b"DELETE /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        await client.send("POST", b"{}" + another, path, content_length="2", **token)
        for status in (403, 405):
            head = await client.head()
            assert head.status == status
            await read_body(client.reader, head)
        client.session = "one"
        assert (await client.request("POST", b"{}", path, **token))[0].status == 403


async def test_an_issuer_that_cannot_be_asked_is_no_refusal(
    road: StartRoad, verifier: ScriptedVerifier
) -> None:
    """Clients keep their token then and try again; health stays as it is, without details."""
    verifier.failure = IssuerUnavailable()
    async with road(core=core(), verifier=verifier) as (_, _, client):
        for body, fields, status in ((INITIALIZE, {}, 200), (modern_body(number=0), modern_fields(), 503)):
            head, text = await client.request("POST", body, **fields, **bearer("any"))
            assert head.status == status and head.get("www-authenticate") is None
            assert error_of(text)["code"] == IssuerUnavailable.rpc and error_of(text)["id"] == 0
        head, _ = await client.request("GET", b"", "/healthz", **bearer("any"))
        assert head.status == 200


# --- attacks ----------------------------------------------------------------------------------------------------


async def test_a_token_of_one_mount_opens_no_other(
    upstream: StartUpstream, adapter: StartAdapter, verifier: ScriptedVerifier
) -> None:
    """Not on the same connection either, where both mounts meet the same head in turn."""
    mounts = {"one": "/mcp", "two": "/mcp/two", "three": "/mcp2"}
    tokens = {path: verifier.issue(name, audience=BASE + path) for name, path in mounts.items()}
    async with upstream() as up:
        servers = [
            {"id": name, "mount_path": path, "upstream": {"url": up.url}} for name, path in mounts.items()
        ]
        async with adapter(up, core=core(), verifier=verifier, servers=servers) as front:
            for owned, fields in tokens.items():
                async with front.client() as client:
                    for path in (*mounts.values(), *mounts.values()):
                        head, _ = await client.request(
                            "POST", modern_body(), path, **modern_fields(), **fields
                        )
                        assert head.status == (200 if path == owned else 401), (owned, path)
        assert len(up.seen) == 2 * len(mounts)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/mcp?access_token=good", {}),
        ("/mcp", {"authorization": "Basic good"}),
        ("/mcp", {"authorization": "Bearer good, Bearer good"}),
        ("/mcp", {"x_mcp_adapter_auth_token": "good"}),
        ("/mcp", {"cookie": "access_token=good"}),
        ("/mcp", {"x_forwarded_access_token": "good"}),
        ("/mcp", {"authorization": "DPoP good"}),
        ("/mcp", {"proxy_authorization": "Bearer good"}),
    ],
)
async def test_a_token_counts_in_its_header_alone(
    road: StartRoad, verifier: ScriptedVerifier, path: str, fields: dict[str, str]
) -> None:
    """Queries land in logs and histories (OAuth 2.1 §5.1), and no other place says whose token it is."""
    verifier.issue("good")
    async with road(core=core(), verifier=verifier) as (up, _, client):
        head, _ = await client.request("POST", modern_body(), path, **modern_fields(), **fields)
        assert head.status == 401 and head["www-authenticate"].startswith(ASKS)
        assert up.seen == [] and verifier.asked == []


async def test_of_two_credentials_none_is_chosen(road: StartRoad, verifier: ScriptedVerifier) -> None:
    """A proxy in front may have checked the other one."""
    verifier.issue("good")
    async with road(core=core(), verifier=verifier) as (up, _, client):
        twice = {"authorization": "Bearer good\r\nAuthorization: Bearer bad"}
        for path in ("/mcp", "/healthz"):
            head, _ = await client.request("POST", modern_body(), path, **modern_fields(), **twice)
            assert head.status == 400
        assert up.seen == [] and verifier.asked == []


async def test_a_path_with_quotes_ends_no_header(road: StartRoad, verifier: ScriptedVerifier) -> None:
    """Whatever operators call a mount, its challenge is one field with the parameters that were meant."""
    server = {"mount_path": '/é",error="none'}
    async with road(core=core(), verifier=verifier, server=server) as (_, _, client):
        head, _ = await client.request("POST", b"{}", "/%C3%A9%22,error=%22none")
        assert head["www-authenticate"] == (
            f'Bearer resource_metadata="{AT}/%C3%A9%22,error=%22none", scope="mcp"'
        )


async def test_made_up_tokens_leave_nothing_behind(road: StartRoad, verifier: ScriptedVerifier) -> None:
    """Ten thousand of them on one connection: each is asked about once, and none is kept."""
    async with road(core=core(), verifier=verifier) as (up, _, client):
        for number in range(10_000):
            head, _ = await client.request("DELETE", b"", "/mcp", **bearer(f"made-up-{number}"))
            assert head.status == 401
        assert len(verifier.asked) == 10_000
        verifier.asked.clear()
        gc.collect()
        kept = [each for each in gc.get_objects() if isinstance(each, SeenToken)]
        assert 0 < len(kept) < 20
        assert up.seen == []


# --- streams ----------------------------------------------------------------------------------------------------


LISTEN = orjson.dumps(
    {"jsonrpc": "2.0", "id": 7, "method": "subscriptions/listen", "params": {"_meta": MODERN_META}}
)
LISTENS = {"mcp_protocol_version": MODERN_VERSION, "mcp_method": "subscriptions/listen"}


@pytest.mark.parametrize(
    ("method", "body", "more", "last"),
    [("GET", b"", {}, b"retry:"), ("POST", LISTEN, LISTENS, b'"id":7')],
    ids=["legacy", "modern"],
)
async def test_a_stream_ends_when_its_token_expires(
    road: StartRoad, verifier: ScriptedVerifier, method: str, body: bytes, more: dict[str, str], last: bytes
) -> None:
    """Nobody listens longer than their token lets them; the stream ends in good order here and upstream."""
    long, left = verifier.issue("long"), asyncio.Event()

    async def streaming(exchange: Exchange) -> None:
        if exchange.message.get("method") == "tools/call":
            return await done(exchange)
        await exchange.begin_stream()
        await exchange.chunk(b'data: {"jsonrpc":"2.0","method":"notifications/message"}\n\n')
        await exchange.gone()
        return left.set()

    async with road(streaming, core=core(), verifier=verifier) as (_, front, ends), front.client() as stays:
        await stays.initialize(**long)
        ends.session = stays.session
        short = verifier.issue("short", seconds=2.0)
        for client, fields in ((stays, long), (ends, short)):
            await client.send(method, body, **fields, **more)
            assert (await client.head()).status == 200
            assert b"notifications/message" in await read_chunk(client.reader)
        async with asyncio.timeout(10):
            got = b""
            while chunk := await read_chunk(ends.reader):
                got += chunk
            await left.wait()
        assert last in got
        assert (await ends.request("POST", call_body(), **short))[0].status == 401
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await read_chunk(stays.reader)


# --- what others see --------------------------------------------------------------------------------------------


async def test_health_tells_details_to_bearers_of_good_tokens(
    road: StartRoad, verifier: ScriptedVerifier
) -> None:
    """A token for any resource will do, and none is needed for the states."""
    good, foreign = verifier.issue("good"), verifier.issue("foreign", audience="https://else.example")
    settings = core() | {"upstream_ping": {"enabled": True}}
    async with road(core=settings, verifier=verifier) as (_, _, client):
        detailed = []
        for name, fields in (
            ("good", good),
            ("foreign", foreign),
            ("made-up", bearer("made-up")),
            ("no", {}),
        ):
            _, body = await client.request("GET", b"", "/healthz", **fields)
            detailed += [name] if "eras" in orjson.loads(body)["servers"][0] else []
        assert detailed == ["good"]
        verifier.forget()
        verifier.failure = IssuerUnavailable()
        _, body = await client.request("GET", b"", "/healthz", **good)
        assert b"eras" not in body


async def test_the_console_knows_people_and_shows_no_token(
    road: StartRoad, verifier: ScriptedVerifier
) -> None:
    """Exchanges belong to issuer and person; neither they nor the log hold what let them in."""
    mine = verifier.issue("tokens-are-secret")
    console = verifier.issue("consoles", audience=f"{BASE}/explorer")
    settings: dict[str, Any] = {"core": core(), "console": CONSOLE}
    async with road(verifier=verifier, **settings) as (_, _, client):
        await client.initialize(**mine)
        await client.request("POST", call_body(), **mine)
        client.session = None
        _, me = await client.request("GET", b"", "/explorer/-/me", **console)
        assert orjson.loads(me)["principal"] == f"ann@{ISSUER}"
        _, shown = await client.request("GET", b"", "/explorer/-/exchanges", **console)
        assert [each["method"] for each in orjson.loads(shown)] == ["tools/call", "initialize"]
        assert b"tokens-are-secret" not in me + shown
