"""Hostile clients and upstreams against the whole adapter: no escape, no 5xx but 507, nobody else's bytes, no path.

What ``hostilities`` checks besides, for each test: no descriptor, task or staged file is left, the log tells nothing
of where the store lies, and the adapter serves as before.
"""

from __future__ import annotations

import asyncio
import random

import orjson

from tests.edge import hostile_forms
from tests.edge.hostile import QUOTA, ROOT, Scene, StartScene
from tests.edge.raw import RawClient

FORMS = 2000
SENDERS = 8


async def test_two_thousand_hostile_forms(hostilities: StartScene) -> None:
    """Whatever the form and its framing: it is taken or refused, and what is taken is where it belongs."""
    async with hostilities() as scene, scene.front.client() as client:
        await scene.robbed()
        await client.initialize()
        await asyncio.gather(*(send_forms(scene, client, seed) for seed in range(SENDERS)))
        scope = scene.scope_of(client)
        assert scene.front.app.files.registry.used(scope) <= QUOTA
        assert scene.answers[200] > FORMS // 10 and scene.answers[400] > FORMS // 10, scene.answers
        assert {200, 400, 413, 415} <= set(scene.answers) <= {200, 400, 401, 408, 413, 415, 429}


async def send_forms(scene: Scene, client: RawClient, seed: int) -> None:
    draw = random.Random(seed)
    filing, scope = scene.front.app.files, scene.scope_of(client)
    for _ in range(FORMS // SENDERS):
        signed = draw.random() < 0.5
        target = f"/upload/raw?{filing.credentials.issue('raw', scope)[0]}" if signed else "/upload/raw"
        sent = hostile_forms.upload(draw, target, None if signed else client.session)
        check_upload(scene, scope, await scene.exchange(sent.data, whole=sent.whole))


def check_upload(scene: Scene, scope: str, answer: bytes) -> None:
    """Of what was taken, each file lies in a directory of its own in the uploads of its scope."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        return
    for upload in orjson.loads(body)["uploads"]:
        place = scene.root / "uploads" / scope / upload["upload_id"]
        for kept in place.iterdir() if place.exists() else ():
            assert kept.is_file() and not kept.is_symlink() and kept.stat().st_size == upload["size_bytes"]


# --- targets and handles --------------------------------------------------------------------------------------


async def test_hostile_targets_and_queries(hostilities: StartScene) -> None:
    """A link is good for what it was made for, in the one spelling it has; no path leads to anything else."""
    async with hostilities() as scene, scene.front.client() as client:
        victim = await scene.robbed()
        await client.initialize()
        own = await scene.call(client, "write", {"filename": "a b.txt"})
        url = own["result"]["_meta"]["artifact"]["download_url"]
        link = "/artifacts/" + url.partition("/artifacts/")[2]
        draw = random.Random(1)
        for _ in range(600):
            target = hostile_target(draw, link, victim.download)
            method = draw.choice(("GET", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"))
            fields = ["Host: localhost", "Connection: close", f"Range: bytes={draw.randrange(9)}-"]
            if draw.random() < 0.5:
                fields.append(f"Mcp-Session-Id: {draw.choice((client.session, victim.scope, 'x', ''))}")
            head = "\r\n".join((f"{method} {target} HTTP/1.1", *fields)).encode("utf-8", "surrogatepass")
            answer = await scene.exchange(head + b"\r\n\r\n", whole=True)
            if method == "GET" and answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 206")):
                assert b"honest".endswith(answer.rpartition(b"\r\n\r\n")[2])
        assert (
            {206, 400, 401, 404, 405} <= set(scene.answers) <= {200, 204, 206, 400, 401, 404, 405, 414, 416}
        )


def hostile_target(draw: random.Random, own: str, other: str) -> str:
    """The own link with something changed, or the other's path with what is one's own put in."""
    path, _, query = (
        (other.partition("?")[0], "", own.partition("?")[2]) if draw.random() < 0.5 else own.partition("?")
    )
    parts = path.split("/")
    for _ in range(draw.randrange(3)):
        at = draw.randrange(1, len(parts))
        parts[at] = draw.choice(
            (
                *parts[1:],
                *other.partition("?")[0].split("/")[1:],
                "..",
                "%2e%2e",
                "..%2f..%2f..%2fstate%2fadapter.sqlite3",
                "%2fetc%2fpasswd",
                "..%5c..",
                "%00",
                "%c0%ae%c0%ae",
                "%ed%a0%80",
                "%ff",
                "%",
                "*",
                parts[at].upper(),
                parts[at] + "%00",
                parts[at] + "/..",
                parts[at] + "/",
                "",
            )
        )
    if draw.random() < 0.5:
        query = draw.choice(
            (
                "",
                query.upper(),
                query + "0",
                query + "&" + query,
                query.replace("exp=", "exp=9"),
                query.replace("exp=", "exp=0"),
                query.replace("sig=", "sig=%00"),
                query.replace("&", ";"),
                query[: draw.randrange(len(query))],
                "sig=%ed%a0%80&exp=9999999999",
                "sig=" + "A" * 4000 + "&exp=9999999999",
                "exp=" + "9" * 5000 + "&sig=x",
                "exp=٣&sig=é",
                "&=&&==&%",
            )
        )
    prefix = draw.choice(("",) * 8 + ("/mcp", "/upload", "//x", "http://localhost", "/%61rtifacts/.."))
    return prefix + "/".join(parts) + ("?" + query if query else "")


async def test_hostile_handles(hostilities: StartScene) -> None:
    """Only one's own handle, exactly as it was given, ever becomes a path; the rest is a sentence for the model."""
    async with hostilities() as scene, scene.front.client() as client:
        victim = await scene.robbed()
        await client.initialize()
        own = (await scene.upload(client, b"mine"))["upload_handle"]
        written = await scene.call(client, "write", {})
        uri = written["result"]["_meta"]["artifact"]["artifact_uri"]
        draw, before = random.Random(2), len(scene.up.seen)
        for _ in range(500):
            handles = [hostile_handle(draw, (own, uri), (victim.upload, victim.artifact)) for _ in range(2)]
            arguments: object = {"path": draw.choice((handles[0], handles, [handles], {"path": handles[0]}))}
            tool = draw.choice(("read", "read_all"))
            if tool == "read_all":
                arguments = {"files": [{"path": handle} for handle in handles] * draw.choice((1, 1, 40))}
            if draw.random() < 0.1:
                arguments = draw.choice(
                    (None, [], "x", 7, {"path": {"a" * 300: handles}}, {"files": {"path": own}})
                )
            response = await scene.call(client, tool, arguments)
            told = orjson.dumps(response)
            assert b"error" in told or b"isError" in told or b"done" in told, told
            if handles[0].startswith("artifact://"):
                read = await scene.rpc(client, "resources/read", {"uri": handles[0]})
                assert ("contents" in read.get("result", ())) == (handles[0] == uri), (handles[0], read)
        assert sum(ROOT.encode() in exchange.body for exchange in scene.up.seen[before:]) > 20, (
            "one's own pass"
        )
        for exchange in scene.up.seen[before:]:
            for path in victim.paths:
                assert str(path.parents[1]).encode() not in exchange.body


def hostile_handle(draw: random.Random, own: tuple[str, str], others: tuple[str, str]) -> str:
    """One's own handle, changed or not, or somebody else's, or no handle at all."""
    handle, other = draw.choice(own), draw.choice(others)
    scope, other_scope = handle.split("/")[3], other.split("/")[3]
    return draw.choice(
        (
            *(handle,) * 5,
            other,
            handle.replace(scope, other_scope),
            other.replace(other_scope, scope),
            handle + "/../../" + "/".join(other.split("/")[3:]),
            handle + draw.choice(("/", "\n", " ", "?", "#", "\0", "/../../x", "%00", "\u200b", "," + other)),
            draw.choice((" ", "\ufeff", "file://")) + handle,
            handle.upper(),
            handle.replace("sessions", "session"),
            handle.replace("/sessions", "/./sessions"),
            handle.replace("://", ":///"),
            handle.replace("upload", "artifact")
            if "upload" in handle
            else handle.replace("artifact", "upload"),
            handle[: draw.randrange(len(handle))],
            handle.replace(
                scope, scope.translate({ord(digit): 0xFF10 + int(digit) for digit in "0123456789"})
            ),
            "/etc/passwd",
            "file:///etc/passwd",
            "../../state/adapter.sqlite3",
            "artifact://" + "x" * 5000,
            "upload://sessions/../../../etc/passwd",
            "",
        )
    )
