"""Forged tokens by the list, and issuers whose keys do not come: nobody is let in, and nobody else notices."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.attacks.arena import Arena, attacked
from tests.attacks.issuer import Issuer, Script, answer
from tests.edge.conftest import done
from tests.edge.raw import INITIALIZE, RawClient, RawUpstream, call_body, result
from tests.pipeline.issuer import PrivateKey, document, ec_key, ed_key, jwk, pem, rsa_key, token

pytestmark = pytest.mark.e2e

MIB = 1 << 20
Json = dict[str, Any]
GOOD, OTHER, CURVE = rsa_key("first"), rsa_key("second"), ec_key()
NO_PINGS = {"upstream_ping": {"enabled": False}}
KEYS = document(jwk(GOOD, "k1"), jwk(OTHER, "k2", use="enc"), jwk(CURVE, "k3"))


def said(**members: Any) -> Json:
    """The claims of a good token, and others; a member of None is left out."""
    now = int(time.time())
    usual = {"sub": "ann", "iss": "https://id", "aud": "adapter", "iat": now, "exp": now + 300}
    return {name: value for name, value in {**usual, **members}.items() if value is not None}


def segment(value: bytes | Json) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def by_hmac(header: Json, secret: bytes) -> str:
    """A good token's claims with an HMAC."""
    signed = f"{segment(header)}.{segment(said())}"
    digest = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}[header["alg"]]
    return f"{signed}.{segment(hmac.new(secret, signed.encode(), digest).digest())}"


def unsigned(header: Json | bytes, claims: Json | bytes | None = None, signature: bytes = b"") -> str:
    return f"{segment(header)}.{segment(said() if claims is None else claims)}.{segment(signature)}"


def by(key: PrivateKey, algorithm: str, header: Json, claims: Json | None = None) -> str:
    """Signed by that key, with more in the header."""
    payload = json.dumps(said() if claims is None else claims).encode()
    return jwt.PyJWS().encode(payload, key, algorithm, header)


def without_signature() -> Iterator[str]:
    for name in ("none", "None", "NONE", "nOnE", "", " none", "none\0", "HS256", "RS256", "ES256", "null"):
        yield unsigned({"alg": name, "kid": "k1"})
        yield unsigned({"alg": name, "kid": "k1"}, signature=b"x")
    for odd in (None, ["none"], ["RS256"], {"RS256": 1}, 0, True):
        yield unsigned({"alg": odd, "kid": "k1"})
    yield unsigned({"kid": "k1"})
    header, payload, _ = token(GOOD, "RS256", said(), kid="k1").split(".")
    yield from (f"{header}.{payload}.", f"{header}.{payload}", f"{header}.{payload}..")


def of_another_key() -> Iterator[str]:
    """The public key as the secret of an HMAC, keys of the attacker's own, and signatures that are none."""
    public = GOOD.public_key()
    for known in (
        pem(GOOD).encode(),
        pem(GOOD).strip().encode(),
        public.public_bytes(Encoding.PEM, PublicFormat.PKCS1),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.DER, PublicFormat.PKCS1),
        json.dumps(jwk(GOOD, "k1")).encode(),
        jwk(GOOD)["n"].encode(),
        KEYS,
        b"",
    ):
        for name in ("HS256", "HS384", "HS512"):
            yield by_hmac({"alg": name, "kid": "k1"}, known)
    mine = ec_key(ec.SECP384R1)
    thief = rsa_key("thief")
    for kid in ("k1", "k2", "k3"):
        yield token(thief, "RS256", said(), kid=kid)
        yield token(thief, "PS512", said(), kid=kid)
    yield token(mine, "ES384", said(), kid="k3")
    yield token(ed_key(), "EdDSA", said(), kid="k3")
    # Keys that are published, but not for this: to encrypt, and of another algorithm.
    yield token(OTHER, "RS256", said(), kid="k2")
    yield token(CURVE, "ES256", said(), kid="k1")
    for signature in (
        bytes(64),
        b"\0" * 63 + b"\1",
        b"\xff" * 64,
        b"",
        bytes(8),
        bytes(72),
        b"0\6\2\1\0\2\1\0",
    ):
        yield unsigned({"alg": "ES256", "kid": "k3"}, signature=signature)
        yield unsigned({"alg": "RS256", "kid": "k1"}, signature=signature)
    yield unsigned({"alg": "RS256", "kid": "k1"}, signature=bytes(256))
    yield unsigned({"alg": "RS256", "kid": "k1"}, signature=b"\0" * 255 + b"\1")


def naming(where: str) -> Iterator[str]:
    """Headers that tell where the key is, and ids that are something else; signed by the attacker."""
    thief = rsa_key("thief")
    for header in (
        {"jku": f"{where}/jku"},
        {"x5u": f"{where}/x5u"},
        {"jwk": jwk(thief, "k1")},
        {"jwk": jwk(thief, "k1"), "jku": f"{where}/both"},
        {"x5c": [base64.b64encode(b"0\0").decode()]},
        {"jwks": json.loads(document(jwk(thief, "k1")))},
        {"crit": ["exp"], "exp": 1},
        {"crit": ["b64"], "b64": False},
        {"zip": "DEF"},
        {"cty": "JWT", "typ": "JWE", "enc": "A256GCM"},
    ):
        yield by(thief, "RS256", {"kid": "k1", **header})
    for kid in (
        "../../../../../../dev/null",
        "/proc/self/environ",
        "file:///etc/passwd",
        f"{where}/kid",
        "' OR '1'='1",
        "' UNION SELECT 'x' -- ",
        "k1\0",
        "K1",
        " k1",
        "",
        "x" * 4_000,
        "\U0001f600",
        "$(id)",
        "{{ 7*7 }}",
        "__proto__",
        7,
        None,
        True,
        ["k1"],
        {"$ne": None},
    ):
        for key in (b"", b"x"):
            yield by_hmac({"alg": "HS256", "kid": kid}, key)
        yield unsigned({"alg": "RS256", "kid": kid}, signature=bytes(256))
    # The good key by an id that it has not, and by none, where several could be meant.
    yield token(GOOD, "RS256", said(), kid="k9")
    head = b'{"alg":"RS256","kid":"k1","kid":"k2"}'
    yield unsigned(head, signature=bytes(256))
    yield unsigned(b'{"alg":"RS256","alg":"none","kid":"k1"}')
    yield unsigned(b'{"alg":"none","alg":"RS256","kid":"k1"}')


def saying() -> Iterator[str]:
    """Signed by the right key, and good for something or somebody else, or at another time."""
    now = int(time.time())
    for claims in (
        said(exp=now - 3_600),
        said(exp=None),
        said(exp="9999999999"),
        said(exp=[now + 300]),
        said(exp=-1),
        said(nbf=now + 3_600),
        said(nbf="0"),
        said(iat=now + 3_600),
        said(iat={"$gt": 0}),
        said(aud=None),
        said(aud="other"),
        said(aud=[]),
        said(aud=["other", ["adapter"]]),
        said(aud={"adapter": True}),
        said(aud="adapter2"),
        said(aud="ADAPTER"),
        said(aud="adapter "),
        said(iss=None),
        said(iss=["https://id"]),
        said(iss="https://id/"),
        said(iss="https://id.evil.example"),
        said(iss={"https://id": 1}),
        {},
    ):
        yield token(GOOD, "RS256", claims, kid="k1")
    for payload in (b"[]", b"null", b'"x"', b"", b"[" * 5_000, b'{"exp":1e999}', b'{"exp":NaN}', b"\xff"):
        yield jwt.PyJWS().encode(payload, GOOD, "RS256", {"kid": "k1"})


def misshapen() -> Iterator[str]:
    good = token(GOOD, "RS256", said(), kid="k1")
    header, payload, signature = good.split(".")
    yield from (".", "..", "...", "." * 5_000, "a.b.c.d.e", "=.=.=", "%2e.%2e.%2e", "null", "undefined")
    yield f"{header}.{payload}.{signature}.{signature}"
    yield f"{header}.{segment(said(sub='root'))}.{signature}"
    yield f"{segment({'alg': 'RS256', 'kid': 'k1', 'x': 1})}.{payload}.{signature}"
    yield f"{header}.{payload}.{signature[:-8]}"
    yield unsigned(b'{"alg":"RS256","kid":"k1","x":' + b"[" * 5_000 + b"]" * 5_000 + b"}")
    yield unsigned(b'{"alg":"RS256","kid":"k1","x":' + b"9" * 5_000 + b"}")
    yield unsigned({"alg": "RS256", "kid": "k1"}, b'{"a":' * 1_500)
    yield "A" * 12_000
    yield f"{segment(b'x' * 9_000)}.{payload}.{signature}"


def checked(keys: str) -> Json:
    """What the entry of a server has whose tools are for those with a token of the issuer at ``keys``."""
    policy = {"jwks_url": keys, "issuer": "https://id", "audience": "adapter"}
    return {"stages": {"*": {"auth": {"plugin": "jwt", "policy": policy}}}}


def bearing(value: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {value}"}


@asynccontextmanager
async def guarded(place: Path, keys: str) -> AsyncIterator[tuple[Arena, RawUpstream]]:
    """The attacked server, whose tools are for those with a token of the issuer at ``keys``."""
    async with (
        RawUpstream(done) as upstream,
        attacked(place, upstream.url, server=checked(keys), core=NO_PINGS) as arena,
    ):
        yield arena, upstream


async def called(client: RawClient, bearer: str, number: int = 1) -> tuple[int, Json]:
    """One call with that token: the status and the answer."""
    head, body = await client.request("POST", call_body("tool", number), **bearing(bearer))
    return head.status, orjson.loads(body)


def refused(answered: Json) -> bool:
    """Whether a call was refused by the check of its token."""
    return bool(answered["result"]["_meta"]["adapter/error"]["stage"] == "auth")


async def test_no_forged_token_lets_anybody_in(tmp_path: Path) -> None:
    """Whatever it says of its key, its algorithm, its time and its reader; good ones pass before, between and after.

    The keys are fetched once, and nothing is fetched from where a token says.
    """
    async with (
        Issuer() as elsewhere,
        Issuer(document=KEYS) as issuer,
        guarded(tmp_path, issuer.url) as (arena, up),
    ):
        forged = [*without_signature(), *of_another_key(), *naming(elsewhere.url), *saying(), *misshapen()]
        good = [token(GOOD, "RS256", said(), kid="k1"), token(CURVE, "ES256", said(), kid="k3")]
        async with arena.client() as client:
            await client.initialize()
            for number, each in enumerate(forged):
                status, answered = await called(client, each)
                assert status == 200 and refused(answered), (each, answered)
                if number % 20 == 0:
                    for fine in good:
                        assert (await called(client, fine))[1] == orjson.loads(result(1))
        ran = len(up.calls("tools/call"))
        assert ran == 2 * len(range(0, len(forged), 20))
        assert len(issuer.asked) == 1 and elsewhere.asked == []


async def test_made_up_keys_make_one_fetch(tmp_path: Path) -> None:
    """Calls with key ids of their own: a hundred that leave before the answer, one after the other, and five hundred
    that stay."""

    async def slowly(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(2)
        await answer(writer, KEYS)

    async with Issuer(says=slowly) as issuer, guarded(tmp_path, issuer.url) as (arena, _):
        async with arena.client() as first:
            await first.initialize()
            turn = asyncio.Semaphore(50)

            def forged(number: int) -> str:
                return token(rsa_key("thief"), "RS256", said(), kid=f"made up {number}")

            async def stay(number: int) -> None:
                async with turn, arena.client() as client:
                    client.session = first.session
                    assert refused((await called(client, forged(number), number))[1])

            for number in range(100):
                async with arena.client() as client:
                    client.session = first.session
                    await client.send("POST", call_body("tool", number), **bearing(forged(number)))
                    await asyncio.sleep(0.01)
            await asyncio.gather(*map(stay, range(500)))
            good = token(GOOD, "RS256", said(), kid="k1")
            assert (await called(first, good))[1] == orjson.loads(result(1))
        assert len(issuer.asked) == 1


async def hang(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def drip(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1\r\n \r\n")
        await writer.drain()
        await asyncio.sleep(0.05)


async def pour(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
    for _ in range(2_048):
        writer.write(b'{"keys":[' + b" " * 65_536)
        await writer.drain()


async def head_without_end(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    for _ in range(2_048):
        writer.write(b"X: " + b"x" * 65_536 + b"\r\n")
        await writer.drain()


async def elsewhere(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/keys\r\nContent-Length: 0\r\n\r\n")
    await writer.drain()


def many(member: Json, most: int = MIB) -> bytes:
    """As many keys as fit into what is read of a document."""
    size = len(json.dumps({**member, "kid": "123456"})) + 2
    return document(*({**member, "kid": str(number)} for number in range(most // size - 2)))


def written(keys: bytes) -> Script:
    async def write(writer: asyncio.StreamWriter) -> None:
        await answer(writer, keys)

    return write


NO_KEYS: dict[str, Script] = {
    "hang": hang,
    "drip": drip,
    "pour": pour,
    "head": head_without_end,
    "redirect": elsewhere,
    "curves": written(many(jwk(CURVE))),
    "rsa": written(many(jwk(GOOD))),
    "lists": written(b'{"keys":[' + b"[]," * 300_000 + b"[]]}"),
    "deep": written(b"[" * MIB),
    "private": written(document({**jwk(GOOD, "k1"), "d": "AQAB"}, {"kty": "oct", "kid": "k1", "k": "AAAA"})),
}


async def test_issuers_whose_keys_do_not_come(tmp_path: Path) -> None:
    """Callers are refused within seconds, in a sentence that says why and not where; nobody else waits."""
    async with RawUpstream(done) as up, AsyncExitStack() as stack:
        issuers = {
            kind: await stack.enter_async_context(Issuer(says=script)) for kind, script in NO_KEYS.items()
        }
        servers = [
            {"id": kind, "mount_path": f"/{kind}", "upstream": {"url": up.url}, **checked(issuer.url)}
            for kind, issuer in issuers.items()
        ]
        arena = await stack.enter_async_context(attacked(tmp_path, up.url, servers=servers, core=NO_PINGS))
        good = token(GOOD, "RS256", said(), kid="k1")

        async def ask(path: str) -> Json:
            async with arena.client() as client, asyncio.timeout(8):
                client.session = (await client.request("POST", INITIALIZE, path))[0]["mcp-session-id"]
                _, body = await client.request("POST", call_body("tool", 1), path, **bearing(good))
                return dict(orjson.loads(body))

        for kind, issuer in issuers.items():
            before = arena.resident_bytes()
            for _ in range(3):
                for answered in await asyncio.gather(*(ask(f"/{kind}") for _ in range(20))):
                    assert refused(answered), kind
                    text = answered["result"]["content"][0]["text"]
                    assert "cannot be fetched now" in text or "unknown key" in text, kind
                    assert str(issuer.port) not in text, kind
                await asyncio.sleep(0.1)
            assert len(issuer.asked) <= 2, kind
            assert arena.resident_bytes() - before < 64 * MIB, kind
            assert f":{issuer.port}" not in arena.log, kind
        assert up.calls("tools/call") == []
